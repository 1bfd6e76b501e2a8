"""What went wrong in other people's schedulers: the cases O-F01 to O-F23 that are about time.

Each does what is told of it, to the second, and expects what it lists. Where this scheduler was
decided otherwise than a case words it, the docstring says so.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import cycle

import pytest

from lamplighter.core.buckets import JobId
from lamplighter.core.catch_up import CatchUp
from lamplighter.core.errors import Conflict, LostClaim, Unavailable
from lamplighter.core.lease import Kind, Work, WorkItem
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import LANE_MAX_RECEIVES, MAX_CLOCK_ERROR
from lamplighter.core.model import Execution, Job, MisfirePolicy, OverlapPolicy
from lamplighter.core.outcome import Failed, Outcome, Succeeded, Withdrawn, finished
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.core.schedule import parse
from lamplighter.core.timing import delay_s
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.memory.queue import MemoryQueue
from lamplighter.ports import Outgoing, Ports, Received
from lamplighter.services import execute, inspect, manage, partitions, timers
from lamplighter.services.cancel import cancel
from lamplighter.services.clock import refuses
from lamplighter.services.execute import Claimed
from lamplighter.services.settling import Put
from lamplighter.services.tick import tick
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.simulation.rules import on
from tests.support.jobs import OWNER, created, cron, every, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def a_system(start: str, *, shards: int = 4, partitions: int = 1) -> System:
    clock = VirtualClock(at(start))
    return System(world=MemoryWorld(clock=clock, shards=shards, partitions=partitions))


def at(instant: str) -> datetime:
    return datetime.fromisoformat(instant).replace(tzinfo=UTC)


def a_job(
    system: System,
    expression: str,
    *,
    misfire: MisfirePolicy = MisfirePolicy.FIRE_ONCE,
    catch_up: CatchUp | None = None,
    overlap: OverlapPolicy = OverlapPolicy.ALLOW,
) -> Job:
    new = new_job(schedule=cron(expression), misfire=misfire, catch_up=catch_up, overlap=overlap)
    job = created(system.ports, new).job
    assert job is not None
    return job


def slots_run(system: System) -> list[datetime]:
    rows = system.world.tables.executions
    return [rows[run.execution_id].scheduled_for for run in system.runs]


def row_of(system: System, job: Job, slot: str) -> Execution:
    return system.world.tables.executions[job.occurrence_id(at(slot))]


def next_of(system: System, id: JobId) -> datetime | None:
    """When the job runs next, as its owner is shown it."""
    found = inspect.job(system.ports, OWNER, id).definition
    assert isinstance(found, inspect.Recurring)
    return found.next_run_at


def fails(kind: FailureKind = FailureKind.RETRYABLE) -> Outcome:
    return Failed(failure=Failure(kind=kind, type="ValueError", message="no"))


# Misfires


NOTICED_AT_ONCE = CatchUp(threshold=SECOND)
"""The case counts a slot of half a minute ago among those missed; by default it is not."""


def down_from_ten_to_noon(misfire: MisfirePolicy, catch_up: CatchUp) -> tuple[System, Job]:
    """Slot 10:00 is the last that was fired; dispatch comes back at 12:01:30."""
    system = a_system("2026-05-05T09:50:00")
    job = a_job(system, "* * * * *", misfire=misfire, catch_up=catch_up)
    # Dispatch works 240 s ahead: whatever is due until ten has been sent four minutes before.
    system.run_until(at("2026-05-05T09:56:00"))
    system.ticking = False
    system.run_until(at("2026-05-05T12:01:30"))
    assert slots_run(system)[-1] == at("2026-05-05T10:00:00")
    system.runs.clear()
    system.ticking = True
    tick(system.ports)
    system.work()
    return system, job


@pytest.mark.parametrize(
    ("misfire", "first_runs"),
    [
        (MisfirePolicy.SKIP, ["12:02"]),
        (MisfirePolicy.FIRE_ONCE, ["12:01", "12:02"]),
    ],
)
def test_an_outage_of_121_slots_is_made_up_for_by_none_or_one(
    misfire: MisfirePolicy, first_runs: Sequence[str]
) -> None:
    """O-F01: the one is the latest that was missed, and the job is never stuck."""
    system, job = down_from_ten_to_noon(misfire, NOTICED_AT_ONCE)
    stuck = next_of(system, job.id) or system.world.now()
    system.run_until(at("2026-05-05T12:02:30"))

    assert [f"{slot:%H:%M}" for slot in slots_run(system)] == first_runs
    assert stuck > at("2026-05-05T12:01:30")
    system.run_for(10 * MINUTE)
    assert [*violations(system)] == []


def test_an_outage_of_121_slots_is_made_up_for_by_as_many_as_the_cap_lets() -> None:
    """O-F01: ascending, each once; those over the cap are told of, with their bounds."""
    catch_up = CatchUp(threshold=SECOND, most=100)
    system, job = down_from_ten_to_noon(MisfirePolicy.FIRE_ALL, catch_up)
    system.run_until(at("2026-05-05T12:05:30"))

    missed = [at("2026-05-05T10:01:00") + number * MINUTE for number in range(121)]
    caught_up = [slot for slot in slots_run(system) if slot in missed]
    assert caught_up == missed[-100:]
    (gap,) = system.world.counts.gaps
    # The first of them has a row that says why; the others are told of together.
    assert row_of(system, job, "2026-05-05T10:01:00").state is State.SKIPPED
    assert (gap.first, gap.last, gap.count) == (missed[1], missed[20], 20)
    system.run_for(10 * MINUTE)
    assert [*violations(system)] == []


def test_by_default_a_slot_of_half_a_minute_ago_is_late_and_not_missed() -> None:
    """O-F01, with the threshold of a minute: 12:01 runs at 12:01:30 whatever the policy."""
    system, _ = down_from_ten_to_noon(MisfirePolicy.SKIP, CatchUp())
    system.run_until(at("2026-05-05T12:02:30"))

    assert [f"{slot:%H:%M}" for slot in slots_run(system)] == ["12:01", "12:02"]


@pytest.mark.parametrize("misfire", MisfirePolicy)
def test_a_pause_of_72_slots_is_made_up_for_by_none(misfire: MisfirePolicy) -> None:
    """O-F02: catching up is for outages. What was paused was meant not to run."""
    system = a_system("2026-05-01T00:00:00", shards=1)
    job = a_job(system, "0 * * * *", misfire=misfire)
    system.run_until(at("2026-05-01T00:30:00"))
    manage.pause(system.ports, OWNER, job.id)
    one_off = created(system.ports, new_job(run_at=at("2026-05-02T12:00:00"))).first
    system.run_until(at("2026-05-04T00:30:00"))

    resumed = manage.resume(system.ports, OWNER, job.id).job
    assert resumed.next_after(system.world.now()) == at("2026-05-04T01:00:00")
    assert next_of(system, job.id) == at("2026-05-04T01:00:00")
    system.run_until(at("2026-05-04T02:30:00"))

    runs = [run for run in system.runs if run.job_id == job.id]
    assert [f"{run.run_at:%dT%H}" for run in runs] == ["04T01", "04T02"]
    # A one-off is not paused by anybody: it ran meanwhile.
    assert row_of_id(system, one_off).state is State.SUCCEEDED


def row_of_id(system: System, execution: Execution) -> Execution:
    return system.world.tables.executions[execution.id]


@pytest.mark.parametrize("late_by", [1.1, 20, 59])
def test_a_message_that_is_handed_over_late_runs_all_the_same(late_by: float) -> None:
    """O-F03: lateness is kept and measured, and is no reason not to run."""
    system = a_system("2026-01-01T00:00:00")
    job = a_job(system, "* * * * *", misfire=MisfirePolicy.SKIP)
    system.run_until(at("2026-01-01T00:00:59"))
    system.world.pass_time(SECOND + timedelta(seconds=late_by))
    system.work()

    row = row_of(system, job, "2026-01-01T00:01:00")
    assert row.state is State.SUCCEEDED
    assert row.lateness == timedelta(seconds=late_by)
    assert max(system.world.counts.lateness) == timedelta(seconds=late_by)


def test_a_slot_that_dispatch_comes_to_later_than_the_threshold_says_why_it_did_not_run() -> None:
    """O-F03: MISSED is SKIPPED, with the reason, in the row."""
    system = a_system("2026-01-01T00:00:00")
    job = a_job(system, "*/10 * * * *", misfire=MisfirePolicy.SKIP)
    system.run_until(at("2026-01-01T00:04:00"))
    system.ticking = False
    system.run_until(at("2026-01-01T00:11:01"))
    system.ticking = True
    system.run_until(at("2026-01-01T00:13:00"))

    row = row_of(system, job, "2026-01-01T00:10:00")
    assert row.state is State.SKIPPED
    assert row.reason


@pytest.mark.parametrize(
    ("before", "after", "edited_at", "next_slot"),
    [
        ("33 16 * * *", "34 16 * * *", "2018-05-02T16:34:08", "2018-05-03T16:34:00"),
        ("30 11 * * 5", "0 11 * * 5", "2018-01-04T23:49:00", "2018-01-05T11:00:00"),
    ],
    ids=["a slot of half a minute ago", "a slot of the day before"],
)
def test_an_edit_is_about_what_is_to_come(
    before: str, after: str, edited_at: str, next_slot: str
) -> None:
    """O-F04: nothing runs at once, and no slot under both schedules."""
    system = a_system(edited_at)
    system.world.clock = VirtualClock(at(edited_at) - HOUR)
    system = System(world=MemoryWorld(clock=system.world.clock, shards=4, partitions=1))
    job = a_job(system, before)
    system.run_until(at(edited_at))
    ran = len(system.runs)
    changed = parse(cron=after, seed=job.id)
    manage.edit(system.ports, OWNER, job.id, lambda job: replace(job, schedule=changed))

    assert next_of(system, job.id) == at(next_slot)
    system.run_until(at(next_slot) - SECOND)
    assert len(system.runs) == ran
    system.run_until(at(next_slot) + HOUR)
    assert slots_run(system)[ran:] == [at(next_slot)]
    assert max(Counter(slots_run(system)).values()) == 1


@pytest.mark.parametrize("sent_ahead", [True, False])
@pytest.mark.parametrize("dispatchers", [1, 2])
def test_a_deployment_at_noon_does_not_cost_the_slot_of_noon(
    dispatchers: int, *, sent_ahead: bool
) -> None:
    """O-F05: nobody from 11:59:50 to 12:00:20, or two at once; with noon sent ahead, or not."""
    system = a_system("2026-01-01T11:40:00")
    job = a_job(system, "0 12 * * *")
    system.run_until(at("2026-01-01T11:59:50" if sent_ahead else "2026-01-01T11:55:30"))
    system.ticking = False
    back_at = at("2026-01-01T12:00:20" if dispatchers == 1 else "2026-01-01T12:00:00")
    system.run_until(back_at - SECOND)
    system.world.clock.move_to(back_at)
    system.ticking = True
    for _ in range(dispatchers):
        tick(system.ports)
    system.work()
    system.run_for(HOUR)

    assert slots_run(system) == [at("2026-01-01T12:00:00")]
    assert row_of(system, job, "2026-01-01T12:00:00").state is State.SUCCEEDED
    assert [*violations(system)] == []


# Overlap: O-F06 and O-F07 are in test_overlap.py.


def test_a_stuck_run_suppresses_no_slot_for_longer_than_its_lease_or_timeout() -> None:
    """O-F07: the worker dies without a word; what gave way says to what, so it is not unnoticed."""
    system = a_system("2026-01-01T00:00:00")
    a_job(system, "* * * * *", overlap=OverlapPolicy.SKIP)
    system.run_until(at("2026-01-01T00:02:59"))
    system.world.pass_time(SECOND)
    (received,) = system.world.queue.receive()
    execute.shrink(system.ports, [received])
    assert isinstance(execute.begin(system.ports, received, worker="doomed"), Claimed)
    system.run_until(at("2026-01-01T00:10:00"))

    runs = slots_run(system)
    skipped = [r for r in system.world.tables.executions.values() if r.state is State.SKIPPED]
    assert at("2026-01-01T00:05:00") in runs
    assert all(row.blocker and (row.reason or "").startswith("overlap") for row in skipped)
    assert system.world.counts.events["finished SKIPPED"] == len(skipped) <= 1
    assert [*violations(system)] == []


# Duplicates


def test_a_job_in_six_hours_is_one_message_in_its_last_minutes() -> None:
    """O-F08, O-F16: it waits in the table and hops nowhere; each copy of its message falls."""
    system = a_system("2026-01-01T00:00:00")
    due = at("2026-01-01T06:00:00")
    created(system.ports, new_job(run_at=due))
    for hop in range(24):
        assert len(system.world.queue) == 0, hop
        system.run_for(14 * MINUTE + 45 * SECOND)
    system.run_until(due - SECOND)
    assert len(system.world.queue) == 1
    for _ in range(4):
        system.world.queue.duplicate()
    system.run_for(HOUR)

    assert [run.started_at for run in system.runs] == [due]
    assert len(system.world.queue) == 0
    assert system.world.counts.events["claim_lost"] == 15


def dispatchers_of_one_name(
    system: System, *, stalled_at: str, when: When
) -> Callable[[Ports], None]:
    """Three in the same minute, all called the same; the first stalls in the middle of a page."""
    item = WorkItem(work=Work(partition=0, kind=Kind.DISPATCH))

    def others() -> None:
        for _ in range(2):
            system.world.pass_time(16 * SECOND)
            partitions.do(system.ports, item, owner="host-1")

    def use_case(ports: Ports) -> None:
        stalled = interposed(ports, on(stalled_at, when, others))
        partitions.do(stalled, item, owner="host-1")

    return use_case


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("stalled_at", ["executions.put", "queue.send", "control.advance"])
def test_dispatchers_that_share_a_name_run_a_slot_once(stalled_at: str, when: When) -> None:
    """O-F09: what is once is the row of a slot and its claim; no host's name is trusted."""
    system = a_system("2026-01-01T00:00:30")
    for _ in range(3):
        a_job(system, "* * * * *")
    system.ticking = False
    system.run_for(2 * MINUTE)
    dispatchers_of_one_name(system, stalled_at=stalled_at, when=when)(system.ports)
    system.ticking = True
    system.run_for(10 * MINUTE)

    runs = Counter((run.job_id, run.run_at) for run in system.runs)
    assert set(runs.values()) == {1}
    rows = Counter((r.job_id, r.scheduled_for) for r in system.world.tables.executions.values())
    assert set(rows.values()) == {1}
    assert [*violations(system)] == []


def test_a_worker_that_wakes_after_it_was_taken_over_changes_nothing() -> None:
    """O-F10: its beat and its outcome are refused; the other's stands, under the same key."""
    system = a_system("2026-01-01T00:00:00")
    ports = system.ports
    first = created(ports, new_job()).first
    (received,) = system.world.queue.receive()
    execute.shrink(ports, [received])
    frozen = execute.begin(ports, received, worker="a")
    assert isinstance(frozen, Claimed)
    system.world.pass_time(90 * SECOND)
    (again,) = system.world.queue.receive()
    taken = execute.begin(ports, again, worker="b")
    assert isinstance(taken, Claimed)

    with pytest.raises(LostClaim):
        ports.executions.extend(first.id, token=frozen.token, lease_until=in_(ports, 30))
    refused = execute.conclude(ports, frozen, Succeeded(result='"of a"'))
    held = row_of_id(system, first)
    done = execute.conclude(ports, taken, Succeeded(result='"of b"'))

    assert (refused, held.worker, held.token) == (Put(deleted=False), "b", taken.token)
    row = row_of_id(system, first)
    assert (done, row.state, row.result) == (Put(deleted=True), State.SUCCEEDED, '"of b"')
    lost, won = row.attempts
    assert (lost.worker, won.worker, won.error) == ("a", "b", None)
    assert lost.error is not None
    assert lost.error.type == "LostLease"
    assert frozen.execution.idempotency_key == taken.execution.idempotency_key


def test_a_schedule_that_is_put_again_and_again_stays_one_chain() -> None:
    """O-F11: fifty times at once while a slot runs: nothing is changed by what changes nothing."""
    system = a_system("2026-01-01T00:00:30")
    job = a_job(system, "* * * * *")

    def put_again(_: int) -> int:
        same = parse(cron="* * * * *", seed=job.id)
        return manage.edit(
            system.ports, OWNER, job.id, lambda job: replace(job, schedule=same)
        ).job.version

    def handler(claimed: Claimed) -> Outcome:
        if claimed.execution.scheduled_for == at("2026-01-01T00:03:00"):
            before = next_of(system, job.id)
            with ThreadPoolExecutor(max_workers=8) as pool:
                assert {*pool.map(put_again, range(50))} == {job.version}
            assert next_of(system, job.id) == before
        return Succeeded(result="1")

    system.handler = handler
    system.run_until(at("2026-01-01T00:13:30"))

    assert slots_run(system) == [at("2026-01-01T00:01:00") + n * MINUTE for n in range(13)]
    assert [*violations(system)] == []


class Skewed(System):
    """Its hosts take turns: two are three minutes off, one each way, and two as far as is allowed.

    Each asks about its clock first, as the functions do.
    """

    refused: int = 0
    _hosts: "cycle[timedelta]"

    def start(self) -> None:
        error = MAX_CLOCK_ERROR
        self._hosts = cycle([180 * SECOND, error, -180 * SECOND, -error, timedelta(0)])

    def _visit(self, item: WorkItem) -> None:
        if not self._as_the_next_host(lambda: super(Skewed, self)._visit(item)):
            self.world.queue.hand_out([item], delay=30 * SECOND)

    def _process(self, received: Received) -> None:
        # What is refused comes again when its time in hiding is over.
        self._as_the_next_host(lambda: super(Skewed, self)._process(received))

    def _as_the_next_host(self, act: Callable[[], None]) -> bool:
        clock = self.world.clock
        clock.skew = next(self._hosts)
        is_refused = refuses(self.ports, messages=1)
        if is_refused:
            self.refused += 1
        else:
            act()
        clock.skew = timedelta(0)
        return not is_refused


def test_hosts_whose_clocks_are_off_run_nothing_early_and_nothing_twice() -> None:
    """O-F12: one that is off by more than the bound takes no work; the grace covers the others."""
    start = VirtualClock(at("2025-12-31T23:50:00"))
    system = Skewed(world=MemoryWorld(clock=start, shards=4, partitions=1))
    system.start()
    for _ in range(3):
        schedule = every("1 minute", start_at=at("2026-01-01T00:01:00"))
        created(system.ports, new_job(schedule=schedule))
    system.run_until(at("2026-01-01T00:10:30"))
    # Whoever refused a message left it to another, half a minute later.
    system.run_for(5 * MINUTE)

    assert system.refused > 10
    rows = system.world.tables.executions
    early = [run for run in system.runs if run.started_at + SECOND < run.run_at]
    first_ten = [run for run in system.runs if run.run_at <= at("2026-01-01T00:10:00")]
    assert early == []
    assert Counter(rows[run.execution_id].job_id for run in first_ten) == {
        job.id: 10 for job in system.world.tables.jobs.values()
    }
    assert max(Counter(run.execution_id for run in system.runs).values()) == 1


# SQS and Lambda


@pytest.mark.parametrize("wait", [1, 900, 901, 54_524, 0, -1, 0.4, 2.9])
def test_a_delay_of_a_retry_is_one_that_sqs_takes(wait: float) -> None:
    """O-F14: whole seconds, 0 to 900; what is further away waits in the table.

    A fraction is rounded up where that costs 150 ms at most, else down: the worker then holds the
    message before it claims.
    """
    queue = TellingQueue(clock=VirtualClock(at("2026-01-01T00:00:00")))
    system = System(world=MemoryWorld(clock=queue.clock, shards=4, partitions=1))
    system.world.queue = queue
    first = created(system.ports, new_job()).first
    (received,) = queue.receive()
    begun = execute.begin(system.ports, received, worker="w")
    assert isinstance(begun, Claimed)
    due = in_(system.ports, wait)
    failed = finished(
        begun.execution, fails(), policy=RetryPolicy(), now=system.world.now(), jitter=1.0
    )
    settled = system.ports.executions.settle(
        replace(failed, next_run_at=due), token=begun.token, job_version=None
    )
    queue.delete([received])
    timers.arm_retry(system.ports, settled)
    system.run_for(timedelta(seconds=max(wait, 0)) + 2 * MINUTE)

    row = row_of_id(system, first)
    assert row.state is State.SUCCEEDED
    due_or_armed = max(due, settled.attempts[-1].started_at)
    assert timedelta(0) <= row.attempts[-1].started_at - due_or_armed <= 0.15 * SECOND
    assert all(isinstance(delay, int) and 0 <= delay <= 900 for delay in queue.delays)


@dataclass(kw_only=True)
class TellingQueue(MemoryQueue):
    """Tells what it was asked for, as SQS would have been."""

    delays: list[float] = field(default_factory=list)

    def send(self, outgoing: Sequence[Outgoing], *, now: datetime) -> None:
        self.delays += [delay_s(one.message.due_at, now) for one in outgoing]
        super().send(outgoing, now=now)


def test_a_retry_whose_send_fails_stays_due_in_the_table() -> None:
    """O-F14: nothing is lost with the message."""
    system = a_system("2026-01-01T00:00:00")
    first = created(system.ports, new_job(retry=RetryPolicy(base_seconds=2))).first
    (received,) = system.world.queue.receive()
    execute.shrink(system.ports, [received])

    def hook(call: Call, when: When) -> None:
        if call.method == "send" and when is When.BEFORE:
            raise Unavailable("SQS refused it")

    with suppress(Unavailable):
        execute.process(interposed(system.ports, hook), received, lambda _: fails(), worker="w")
    assert row_of_id(system, first).state is State.RETRYING
    system.run_for(5 * MINUTE)

    assert row_of_id(system, first).state is State.SUCCEEDED


def test_what_is_polled_and_never_tried_is_not_given_up() -> None:
    """O-F15: 500 messages and workers for two: attempts are counted in the row, not by the queue.

    Each message is received more often than the queue allows, and handed to nobody; from the
    dead-letter queue it is armed again.
    """
    system = a_system("2026-01-01T00:00:00")
    made = [created(system.ports, new_job()).first.id for _ in range(500)]
    for _ in range(LANE_MAX_RECEIVES):
        system.ports.queue.hide(system.world.queue.receive(limit=500), timedelta(0))
    assert system.world.queue.receive(limit=500) == []
    assert len(system.world.queue.dead) == 500
    system.run_for(10 * MINUTE)

    rows = [system.world.tables.executions[id] for id in made]
    assert {(row.state, len(row.attempts)) for row in rows} == {(State.SUCCEEDED, 1)}


# Cancelling what runs


Report = Callable[[Ports, Claimed], Put]


def reports(outcome: Outcome) -> Report:
    return lambda ports, claimed: execute.conclude(ports, claimed, outcome)


@pytest.mark.parametrize(
    ("outcome", "final"),
    [
        (Succeeded(result='"done"'), State.SUCCEEDED),
        (fails(), State.CANCELLED),
        (fails(FailureKind.TIMEOUT), State.CANCELLED),
        (Withdrawn(reason="asked to"), State.CANCELLED),
    ],
    ids=["succeeded", "failed", "timed out", "left"],
)
def test_a_cancel_of_what_runs_is_never_followed_by_a_retry(outcome: Outcome, final: State) -> None:
    """O-F23: what was done is done, though somebody wished otherwise; nothing is tried again."""
    system = a_system("2026-01-01T00:00:00")
    first = created(system.ports, new_job()).first
    (received,) = system.world.queue.receive()
    claimed = execute.begin(system.ports, received, worker="w")
    assert isinstance(claimed, Claimed)

    cancel(system.ports, OWNER, first.id)
    execute.conclude(system.ports, claimed, outcome)
    system.run_for(HOUR)

    row = row_of_id(system, first)
    assert (row.state, len(row.attempts), system.runs) == (final, 1, [])


@pytest.mark.parametrize(
    "outcome",
    [Succeeded(result='"done"'), fails(FailureKind.PERMANENT)],
    ids=["succeeded", "failed"],
)
def test_a_cancel_of_what_has_ended_is_a_conflict_and_changes_nothing(outcome: Outcome) -> None:
    """O-F23: there is no way out of a final state."""
    system = a_system("2026-01-01T00:00:00")
    first = created(system.ports, new_job()).first
    system.handler = lambda _: outcome
    system.work()
    ended = row_of_id(system, first)

    with pytest.raises(Conflict):
        cancel(system.ports, OWNER, first.id)

    assert row_of_id(system, first) == ended


def test_a_cancel_between_the_claim_and_the_start_is_seen_by_the_first_beat_or_before() -> None:
    """O-F23: a row that was asked to stop before its handler was called is not begun."""
    system = a_system("2026-01-01T00:00:00")
    first = created(system.ports, new_job()).first
    (received,) = system.world.queue.receive()
    execute.shrink(system.ports, [received])
    assert isinstance(execute.begin(system.ports, received, worker="silent"), Claimed)
    cancel(system.ports, OWNER, first.id)
    system.run_for(5 * MINUTE)

    row = row_of_id(system, first)
    assert (row.state, system.runs) == (State.CANCELLED, [])
    assert len({attempt.started_at for attempt in row.attempts}) == len(row.attempts)
