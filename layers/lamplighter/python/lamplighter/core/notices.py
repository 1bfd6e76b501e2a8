"""What an owner is told of an execution that needs attention, by whatever way they are told."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

from lamplighter.core.lifecycle import NEEDS_ATTENTION, State
from lamplighter.core.limits import NOTICE_AGAIN
from lamplighter.core.model import Execution
from lamplighter.core.schedule import format_instant

SOURCE: Final = "lamplighter"
TITLES: Final[Mapping[State, str]] = MappingProxyType(
    {
        State.FAILED: "Lamplighter Execution Failed",
        State.DEAD_LETTERED: "Lamplighter Execution Dead-Lettered",
        State.EXPIRED: "Lamplighter Execution Expired",
    }
)
"""What a rule matches on; one of every state that needs attention."""


@dataclass(frozen=True, kw_only=True)
class Notice:
    """All that it takes to act, and neither payload nor result."""

    title: str
    owner: str
    task: str
    queue: str
    state: State
    at: datetime
    """When it ended."""
    detail: Mapping[str, object]
    """JSON: more may be added to it, and nothing goes away."""


def is_owed(row: Execution) -> bool:
    """Whether its owner has yet to be told of it."""
    return row.state in NEEDS_ATTENTION and row.told_at is None


def notice_of(row: Execution) -> Notice:
    """The notice of an execution that needs attention; raises ValueError for another."""
    if row.state not in NEEDS_ATTENTION or row.finished_at is None:
        raise ValueError(f"{row.id} is {row.state}: nobody is to be told of that")
    last = row.attempts[-1] if row.attempts else None
    return Notice(
        title=TITLES[row.state],
        owner=row.owner,
        task=row.task,
        queue=row.queue,
        state=row.state,
        at=row.finished_at,
        detail={
            "execution_id": row.id,
            "job_id": row.job_id,
            "job_version": row.job_version,
            "owner": row.owner,
            "task": row.task,
            "task_version": row.task_version,
            "handler_version": last.handler_version if last else None,
            "queue": row.queue,
            "status": row.state.value,
            "trigger": row.trigger.value,
            "scheduled_for": format_instant(row.scheduled_for),
            "run_at": format_instant(row.run_at),
            "finished_at": format_instant(row.finished_at),
            "attempts": last.number if last else 0,
            "crashes": row.crashes,
            "reason": row.reason,
            # Masked and bounded since it was made.
            "error": row.error
            and {
                "kind": row.error.kind.value,
                "type": row.error.type,
                "message": row.error.message,
            },
            "path": f"/v1/executions/{row.id}",
            "replay_path": f"/v1/executions/{row.id}/replay",
        },
    )


def again_at(row: Execution, now: datetime) -> datetime:
    """When to try again to tell, of a row whose owner could not be told now."""
    soonest, latest = NOTICE_AGAIN
    waited = now - row.finished_at if row.finished_at else timedelta(0)
    return now + min(latest, max(soonest, waited / 2))
