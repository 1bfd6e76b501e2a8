"""What stops a local run, in words for whoever typed the command."""


class CannotRun(Exception):
    """Carries the reason and, where there is one, what to do about it."""
