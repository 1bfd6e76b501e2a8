"""Cancelling and replaying many: those that a filter lets through, a page at a time.

A page goes on from the id at which the one before it ended, from the latest run_at to the
earliest, so that what a page makes (a successor, a replay) is not met by those that follow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Generic, TypeVar

from lamplighter.core.buckets import ExecutionId, JobId, execution_of
from lamplighter.core.limits import BATCH_PATIENCE
from lamplighter.core.model import Execution, Owner
from lamplighter.ports import Ports
from lamplighter.services import inspect
from lamplighter.services.inspect import Executions, Seen, Wanted
from lamplighter.services.replay import replay
from lamplighter.services.submit import IdempotencyKey, Replayed

# What no caller's own key has in it.
_SEPARATOR = "\x1f"

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which executions are meant: of one job, or of all."""

    wanted: Wanted
    job_id: JobId | None = None


@dataclass(frozen=True, kw_only=True)
class Handled(Generic[Result]):
    """What came of each, and the id from which the next page goes on; None: the end."""

    results: Sequence[Result]
    next: ExecutionId | None


def found(
    ports: Ports, owner: Owner, selection: Selection, *, after: ExecutionId | None, limit: int
) -> Executions:
    """A page of what is meant, eventually consistent; raises NotFound for somebody else's job."""
    if selection.job_id is None:
        return inspect.executions(ports, owner, selection.wanted, after=after, limit=limit)
    return inspect.executions_of(
        ports, owner, selection.job_id, selection.wanted, after=after, limit=limit
    )


def each(
    ports: Ports,
    page: Executions,
    act: Callable[[Seen], Result],
    *,
    patience: timedelta = BATCH_PATIENCE,
) -> Handled[Result]:
    """Do the same to each of a page, one after the other, for as long as there is time.

    One is always done, so that a caller who follows `next` comes to the end.
    """
    until = ports.clock.monotonic() + patience.total_seconds()
    results: list[Result] = []
    for seen in page.items:
        results.append(act(seen))
        if ports.clock.monotonic() > until and len(results) < len(page.items):
            return Handled(results=results, next=seen.row.id)
    return Handled(results=results, next=page.next)


def replay_once(
    ports: Ports,
    owner: Owner,
    row: Execution,
    key: IdempotencyKey[Execution] | None,
    *,
    traceparent: str | None = None,
) -> Execution | Replayed | None:
    """Replay one of many: once for each key, however often the whole is asked for.

    None for what was itself made under the key, by an earlier call: it ended meanwhile, and the
    filter lets it through. Without a key it is replayed whenever it is asked for. Raises as
    `replay` does.
    """
    if key is None:
        return replay(ports, owner, row.id, traceparent=traceparent)
    if row.replay_of is not None and _made_under(ports, owner, key.key, row.replay_of) == row.id:
        return None
    of_one = IdempotencyKey(
        key=_key_of(key.key, row.id), fingerprint=key.fingerprint, render=key.render
    )
    return replay(ports, owner, row.id, key=of_one, traceparent=traceparent)


def _made_under(ports: Ports, owner: Owner, key: str, id: ExecutionId) -> ExecutionId | None:
    known = ports.jobs.record_of(owner, _key_of(key, id))
    return execution_of(known.job_id) if known else None


def _key_of(key: str, id: ExecutionId) -> str:
    return f"{key}{_SEPARATOR}{id}"
