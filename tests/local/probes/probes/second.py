"""What is left after a deploy that takes a version out: the second one of `versioned` alone."""

from lamplighter import Context, task


@task("versioned", version=2)
def versioned(payload: object, ctx: Context) -> str:
    """Say which version it is."""
    return "the second"
