"""Admission: whether an owner may have more, asked before anything of it is written.

Owners without a quota are not asked about: nothing is read and nothing is written for them.
Live jobs are counted in the very write that makes or deletes one (`Jobs.create`), so nothing
can come between. Queued executions are reserved before they are made and only ever counted
down by a recount, which whoever finds the quota used up does first: finishing one costs no
write, and what a crash leaves behind is a reservation too many, until then. Submissions come
out of a bucket by the chunk.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, TypeVar

from lamplighter.core.buckets import to_ms
from lamplighter.core.errors import OverQuota
from lamplighter.core.limits import QUOTA_RETRY_AFTER
from lamplighter.core.model import Execution, Job, Owner
from lamplighter.core.quotas import Empty, Lease, Measure, Rate, Usage, charged
from lamplighter.ports import Ports

R = TypeVar("R")

_MS_NS: Final = 1_000_000


def admitted(ports: Ports, rows: Sequence[Execution]) -> Sequence[Execution]:
    """One owner's executions beside a schedule, counted, as they are then to be written.

    All of them or none: raises OverQuota. After a crash, or when they are not written after
    all, they count until the next recount.
    """
    if not rows:
        return rows
    owner = rows[0].owner
    quota = ports.quotas.of(owner)
    _submitted(ports, owner, len(rows))
    if quota.counts_executions:
        more = Usage(queued_executions=len(rows), payload_bytes=sum(_charged(row) for row in rows))
        counting_anew(
            ports, owner, lambda: ports.tally.reserve(owner, quota, more, now=ports.clock.now())
        )
    return marked(ports, rows)


def marked(ports: Ports, rows: Sequence[Execution]) -> Sequence[Execution]:
    """Executions as they are written where their owner's are counted."""
    return [replace(row, is_counted=ports.quotas.of(row.owner).counts_executions) for row in rows]


def admitted_job(ports: Ports, job: Job) -> Job:
    """A recurring job as it is then to be written: the write that makes it counts it.

    Raises OverQuota, also when there is no room for it by now: so that nothing is written of
    what would be refused, and those who are refused write nothing.
    """
    _submitted(ports, job.owner, 1)
    if not ports.quotas.of(job.owner).counts_jobs:
        return job
    _check_room(ports, job.owner, Usage.of_job(job.spec.payload.bytes))
    return replace(job, is_counted=True)


def check_growth(ports: Ports, before: Job, after: Job) -> None:
    """Raise OverQuota when there is no room, by now, for what a job's payload grows by."""
    grown = Usage.grown(before.spec.payload.bytes, after.spec.payload.bytes)
    if before.is_counted and grown.payload_bytes > 0:
        _check_room(ports, before.owner, grown)


def counting_anew(ports: Ports, owner: Owner, write: Callable[[], R]) -> R:
    """What a write that counts answers; over quota it is tried once more after a recount."""
    try:
        return write()
    except OverQuota as over:
        is_exact = over.quota == Measure.LIVE_JOBS
        if is_exact or not ports.tally.recount(owner, now=ports.clock.now()):
            raise
    return write()


def _check_room(ports: Ports, owner: Owner, more: Usage) -> None:
    quota = ports.quotas.of(owner)
    counting_anew(ports, owner, lambda: ports.tally.usage(owner).check(quota, more))


def _charged(row: Execution) -> int:
    # Without a definition of its own it runs with its job's payload.
    return charged(row.spec.payload.bytes) if row.spec else 0


def _submitted(ports: Ports, owner: Owner, number: int) -> None:
    """Spend tokens: those that this host holds, or else some of the next chunk."""
    rate = ports.quotas.of(owner).rate
    if rate is None:
        return
    if number > rate.burst:
        reason = f"this asks for {number} at once, of which there may be {rate.burst}"
        raise _over(rate, spent=0, reason=reason, wait=QUOTA_RETRY_AFTER)
    with ports.leases.lock:
        now = ports.clock.now()
        lease = ports.leases.of.get(owner) or _no_tokens(now)
        if not (lease.is_live(now) and lease.tokens >= number):
            lease = _next_lease(ports, owner, rate, lease, number, now)
        ports.leases.of[owner] = replace(lease, tokens=lease.tokens - number)


def _next_lease(
    ports: Ports, owner: Owner, rate: Rate, lease: Lease, number: int, now: datetime
) -> Lease:
    held = lease.tokens if lease.is_live(now) else 0
    wanted = max(number - held, lease.following_chunk(rate, now))
    taken = ports.tally.take(owner, rate, least=number - held, most=wanted, now=now)
    if isinstance(taken, Empty):
        wait_ns = taken.until_ns - to_ms(now) * _MS_NS
        spent = rate.burst - (number - held) + math.ceil(wait_ns / rate.interval_ns)
        raise _over(
            rate,
            spent=spent,
            reason=f"{rate.per_second:g}, of which {rate.burst} at once, were asked for by now",
            wait=timedelta(microseconds=wait_ns / 1000),
        )
    return Lease(
        tokens=held + taken.tokens, chunk=taken.tokens, taken_at=now, until=now + rate.lease
    )


def _no_tokens(now: datetime) -> Lease:
    return Lease(tokens=0, chunk=1, taken_at=now, until=now)


def _over(rate: Rate, *, spent: int, reason: str, wait: timedelta) -> OverQuota:
    return OverQuota(
        quota=Measure.SUBMISSIONS,
        limit=rate.per_second,
        used=spent,
        reason=reason,
        retry_after=wait,
    )
