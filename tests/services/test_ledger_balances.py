"""The books of the ledger balance: each planned slot is counted once, as what it came to.

Random definitions, random edits and pauses of them, and random rows, which no dispatcher has to
have made: whatever lies in the table, expected = fired + skipped + cancelled + expired + pending
+ missed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamplighter.core.buckets import before, body_of, recurring_job_id, through
from lamplighter.core.completeness import Outcome
from lamplighter.core.lease import Grant, Kind, Work
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import LEDGER_LATE, LOOK_AHEAD
from lamplighter.core.model import Execution, Job, JobStatus, MisfirePolicy, Payload, Spec, Token
from lamplighter.core.schedule import Schedule, parse
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import completeness
from lamplighter.services.completeness import account
from tests.support.examples import ALWAYS_THE_SAME, examples
from tests.support.jobs import OWNER

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
# The night in which Berlin's clocks go on by an hour is among them.
START = datetime(2026, 3, 28, 18, 0, 7, tzinfo=UTC)
NOW = START + 14 * HOUR
RAN = {State.RUNNING, State.RETRYING, State.SUCCEEDED, State.FAILED, State.DEAD_LETTERED}
BY_STATE: Mapping[State, Outcome] = {
    **dict.fromkeys(RAN, Outcome.FIRED),
    State.SKIPPED: Outcome.SKIPPED,
    State.CANCELLED: Outcome.CANCELLED,
    State.EXPIRED: Outcome.EXPIRED,
    State.BLOCKED: Outcome.PENDING,
    State.SCHEDULED: Outcome.PENDING,
}

TEXTS = ["*/5 * * * *", "*/20 1-4 * * *", "30 2 * * *", "0 * * * *", "7,8,9 */3 * * 0,6"]


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    rate = draw(st.sampled_from([None, "rate(3 minutes)", "rate(47 minutes)"]))
    ends = draw(st.none() | st.integers(1, 15 * 60))
    return parse(
        rate=rate,
        cron=None if rate else draw(st.sampled_from(TEXTS)),
        timezone=draw(st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"])),
        anchor=START,
        end_at=None if ends is None else START + ends * MINUTE,
        max_occurrences=draw(st.none() | st.integers(1, 60)),
        flexible_window_seconds=draw(st.sampled_from([0, 0, 50, 7200])),
        except_=draw(st.sampled_from([(), ("2026-03-29",), ("* 3 * * *",)])),
        seed="job",
    )


@st.composite
def histories(draw: st.DrawFn) -> Sequence[Job]:
    """A job's versions, the oldest first."""
    id = recurring_job_id(START, 0, draw(st.integers(0, 2**40)))
    minutes = sorted(draw(st.sets(st.integers(1, 13 * 60), max_size=3)))
    found: list[Job] = []
    for number, since in enumerate([0, *minutes], start=1):
        is_paused = number > 1 and draw(st.sampled_from([False, False, True]))
        found.append(
            Job(
                id=id,
                owner=OWNER,
                version=number,
                status=JobStatus.PAUSED if is_paused else JobStatus.ACTIVE,
                spec=Spec(task="echo", payload=Payload.of("null")),
                schedule=draw(schedules()),
                misfire=draw(st.sampled_from(MisfirePolicy)),
                created_at=START,
                effective_from=None if number == 1 else START + since * MINUTE,
            )
        )
    return found


def planned(
    versions: Sequence[Job], start: datetime, end: datetime
) -> Iterator[tuple[Job, datetime]]:
    """Each slot with the version that planned it, told without a look at the ledger's walk."""
    ends = [*(version.since for version in versions[1:]), None]
    for version, until in zip(versions, ends, strict=True):
        if version.status is JobStatus.PAUSED:
            continue
        for slot in version.schedule.between(start, end):
            if slot > version.since and (until is None or slot <= until):
                yield version, slot


def a_row(job: Job, slot: datetime, state: State, late: int) -> Execution:
    row = job.occurrence(slot, now=slot + late * MINUTE, sent_directly=False)
    running = {"token": Token("t"), "lease_until": NOW} if state is State.RUNNING else {}
    retrying = {"next_run_at": NOW} if state is State.RETRYING else {}
    return replace(row, state=state, **running, **retrying)  # type: ignore[arg-type]


@settings(
    max_examples=examples(200),
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=ALWAYS_THE_SAME,
)
@given(
    versions=histories(),
    rows=st.lists(
        st.none() | st.tuples(st.sampled_from(sorted(BY_STATE)), st.sampled_from([-4, 0, 7, 200])),
        min_size=1,
        max_size=40,
    ),
    asked=st.tuples(st.integers(-60, 14 * 60), st.integers(1, 15 * 60)),
    dispatched=st.none() | st.integers(0, 15 * 60),
    budget=st.sampled_from([1, 7, 1000]),
)
def test_each_planned_slot_is_counted_once_as_what_it_came_to(
    versions: Sequence[Job],
    rows: Sequence[tuple[State, int] | None],
    asked: tuple[int, int],
    dispatched: int | None,
    budget: int,
) -> None:
    """S0-S1, S0-S4, S1-O3: across edits, pauses, ends, counts, exclusions and clock changes."""
    world = MemoryWorld(clock=VirtualClock(START), shards=1, partitions=1)
    ports = world.ports()
    job = versions[-1]
    world.tables.jobs[job.id] = job
    world.tables.versions.update({(one.id, one.version): one for one in versions[:-1]})
    for number, (version, slot) in enumerate(planned(versions, START, NOW + HOUR)):
        what = rows[number % len(rows)]
        # What lies beyond the line is not looked at.
        if what and version.run_at(slot) <= NOW + LOOK_AHEAD:
            world.tables.make(a_row(version, slot, *what))
    ports.layouts()
    if dispatched is not None:
        reached = through(START + dispatched * MINUTE)
        work = Work(partition=0, kind=Kind.DISPATCH)
        grant = ports.control.acquire(
            work, owner="test", now=START, until=START, start=before(START)
        )
        assert isinstance(grant, Grant)
        ports.control.advance(grant, watermark=reached, intent=None, until=START)
    else:
        reached = before(START)
    world.clock.move_to(NOW)
    start = START + asked[0] * MINUTE
    end = start + asked[1] * MINUTE

    counted: Counter[Outcome] = Counter()
    after = None
    small = partial(completeness._Walk, budget=budget)
    with patch.object(completeness, "_Walk", small):
        while True:
            part = account(ports, OWNER, job.id, start=start, end=end, after=after)
            for outcome in Outcome:
                counted[outcome] += part.count(outcome)
            after = part.next
            if after is None:
                break

    slots = [*planned(versions, start, end)]
    there = {slot: world.tables.executions.get(one.occurrence_id(slot)) for one, slot in slots}
    assert counted.total() == len(slots) == len(there)
    by_row = Counter(BY_STATE[row.state] for row in there.values() if row)
    for outcome in (Outcome.FIRED, Outcome.EXPIRED):
        assert counted[outcome] == by_row[outcome]
    for outcome in (Outcome.SKIPPED, Outcome.CANCELLED, Outcome.PENDING):
        assert counted[outcome] >= by_row[outcome]
    # Nothing is missed that has a row, or that dispatch has not come to, or only just has.
    may_be = [
        slot
        for one, slot in slots
        if there[slot] is None
        and body_of(one.occurrence_id(slot)) <= reached
        and one.run_at(slot) + LEDGER_LATE < NOW
    ]
    assert counted[Outcome.MISSED] <= len(may_be)
