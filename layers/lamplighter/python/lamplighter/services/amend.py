"""Changing a one-off that nobody has claimed: in its place, or at another.

Its definition lies in its row, and its time and lane decide where that row lies and where its
message goes. So what leaves both is one conditional write, and what changes one of them makes
another row: the message of the old one, wherever it is, then finds it ended.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from lamplighter.core.buckets import JobId, from_ms, to_ms
from lamplighter.core.errors import Conflict, WrongVersion
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Owner, Payload
from lamplighter.core.quotas import Usage
from lamplighter.ports import Ports, Refusal
from lamplighter.services import admission, inspect
from lamplighter.services.submit import (
    NewJob,
    keep_large_payload,
    kept_until,
    look,
    numbered,
    planned_one_off,
)

_TRIES: Final = 5
KEPT: Final = ("job_id", "job_version", "created_at", "traceparent", "is_counted")
"""What is a row's own, and no part of what its job says."""
KEPT_IN_PLACE: Final = ("id", "run_at", "sent_directly", "undeliverable")
"""And what goes with its place, or with its message."""

Change = Callable[[Execution], NewJob]
"""The job that a caller wants in the place of the one whose row this is.

A payload that stays is the row's own, its text at hand or not.
"""


def amend(
    ports: Ports, owner: Owner, id: JobId, change: Change, *, version: int | None = None
) -> Execution:
    """Have a one-off run as it is wanted now; the answer is its row.

    Whoever claims it after the answer runs what was wanted, and nothing else of it runs (P20).
    What changes nothing keeps its version. A crash after the write of another row leaves it to
    dispatch or the sweep, as a new job's. Raises NotFound; Conflict once it is not SCHEDULED
    any more, and when `version` is not its own; Rejected for what can never run; OverQuota for
    a payload that is larger than there is room for.
    """
    for _ in range(_TRIES):
        row = inspect.one_off_row(ports, owner, id)
        if row.state is not State.SCHEDULED:
            raise Conflict(reason=f"{row.id} is {row.state}; only what still waits is changed")
        if version not in {None, row.job_version}:
            raise WrongVersion(version=row.job_version)
        wanted = _wanted(ports, row, change(row))
        if wanted == row:
            # An earlier call may have died between its write and its look (P1).
            look(ports, row, None)
            return row
        now = from_ms(to_ms(ports.clock.now()))
        _reserve(ports, row, wanted, now=now)
        after = _with_payload(ports, row, replace(wanted, job_version=row.job_version + 1))
        answer = _write(ports, row, after, now=now)
        if isinstance(answer, Execution):
            return answer
    raise Conflict(reason=f"{id} changes faster than it can be written")


def _wanted(ports: Ports, row: Execution, new: NewJob) -> Execution:
    """The row as it would be now; the same one, unless its time or its lane is another."""
    planned = planned_one_off(ports, new, from_ms(to_ms(ports.clock.now())))
    is_elsewhere = (planned.scheduled_for, planned.queue) != (row.scheduled_for, row.queue)
    names = KEPT if is_elsewhere else (*KEPT, *KEPT_IN_PLACE)
    own: dict[str, Any] = {name: getattr(row, name) for name in names}
    return replace(planned, **own)


def _reserve(ports: Ports, row: Execution, wanted: Execution, *, now: datetime) -> None:
    """Count what a payload grows by, where its owner's queued ones are counted."""
    if not row.is_counted or row.spec is None or wanted.spec is None:
        return
    grown = Usage.grown(row.spec.payload.bytes, wanted.spec.payload.bytes)
    quota = ports.quotas.of(row.owner)
    if grown.payload_bytes > 0:
        admission.counting_anew(
            ports, row.owner, lambda: ports.tally.reserve(row.owner, quota, grown, now=now)
        )


def _with_payload(ports: Ports, row: Execution, after: Execution) -> Execution:
    """The same with its payload kept, where that is an item of its own: until after its time."""
    if row.spec is None or after.spec is None:
        raise ValueError(f"one-off {row.id} carries no definition")
    payload = after.spec.payload
    is_kept = payload == row.spec.payload and after.id == row.id
    if payload.is_inline or payload.ref is not None or is_kept:
        return after
    if payload.text is None:
        payload = Payload.of(ports.executions.get_payload(row.payload_home, payload.version))
    until = kept_until(after.run_at)
    payload = numbered(payload, kept_until=until)
    keep_large_payload(ports, after.payload_home, payload, kept_until=until)
    return replace(after, spec=replace(after.spec, payload=payload))


def _write(ports: Ports, row: Execution, after: Execution, *, now: datetime) -> Execution | Refusal:
    if after.id == row.id:
        return ports.executions.amend(row, after)
    answer = ports.executions.move(row, after, now=now)
    if isinstance(answer, Execution):
        # As after every put of a row (P1).
        look(ports, answer, None)
    return answer
