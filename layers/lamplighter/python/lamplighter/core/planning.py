"""What a row that is planned again means for the row that is there."""

from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution


def supersedes(planned: Execution, there: Execution) -> bool:
    """Whether the planned row takes the other's place (P19).

    Only one of a later version does, and only where nothing has come of the other: it still
    waits, or the edit in between had taken it back before it ran. What its owner cancelled
    stays cancelled.
    """
    if there.job_version >= planned.job_version:
        return False
    if there.state is State.SCHEDULED:
        return True
    return (
        there.state is State.CANCELLED and not there.attempts and there.cancel_requested_at is None
    )
