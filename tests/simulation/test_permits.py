"""Limits of what runs at once: long handlers beside crashes, pauses, lost messages and changes.

S0-F5, S0-K1, S0-K2, S4-R5. Of every start it is looked at how many run beside it, and in the end
nobody has a place (`invariants.violations`).
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from lamplighter.core.errors import Unavailable
from lamplighter.core.lateness import lateness_of
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import RENEWED_AFTER_RECEIVES
from lamplighter.core.model import Execution, OverlapPolicy, Owner
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.permits import EVERY_OWNER, Key, Kind
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import cancel, execute, permits
from lamplighter.services.execute import Claimed
from lamplighter.services.settling import Put
from lamplighter.sim.faults import (
    When,
    calls_of,
    every_crash,
    every_strike,
    interposed,
    pause_at,
    survives,
    unavailable_at,
)
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, in_, new_job
from tests.support.strikes import some_of

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
LANE = Key(kind=Kind.QUEUE, name="default")
ACME = Key(kind=Kind.OWNER, name="acme")
ECHO = Key(kind=Kind.TASK, name="echo")
OWNERS = Key(kind=Kind.OWNER, name=EVERY_OWNER)
RECOVERY = timedelta(minutes=45)

UseCase = Callable[[Ports], object]
Ready = Callable[[], tuple[System, UseCase]]


def a_system(limits: dict[Key, int], *, lasts: timedelta = 20 * SECOND) -> System:
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1)
    system = System(world=world, lasts=lambda _: lasts)
    for key, most in limits.items():
        permits.set_limit(system.ports, key, most)
    system.run_for(MINUTE)
    return system


def ask_for(system: System, number: int, *, owner: Owner = OWNER, seconds: float = 1) -> None:
    """One-offs, all due at the same second."""
    at = in_(system.ports, seconds)
    for _ in range(number):
        created(system.ports, new_job(run_at=at, owner=owner, timeout=10 * MINUTE))


def rows(system: System) -> list[Execution]:
    return sorted(system.world.tables.executions.values(), key=lambda row: row.id)


def states(system: System) -> Counter[State]:
    return Counter(row.state for row in rows(system))


def most_at_once(system: System) -> int:
    starts = [(run.started_at, 1) for run in system.runs]
    ends = [(run.ended_at, -1) for run in system.runs if run.ended_at is not None]
    most = now = 0
    for _, step in sorted([*starts, *ends]):
        now += step
        most = max(most, now)
    return most


@pytest.mark.parametrize("key", [LANE, ACME, ECHO, OWNERS], ids=str)
@pytest.mark.parametrize("most", [1, 3])
def test_as_many_run_as_may_and_the_others_follow_as_places_are_given_back(
    key: Key, most: int
) -> None:
    """S0-F5, S0-K1: by lane, owner, task, and for every owner: never over, and never idle."""
    system = a_system({key: most})
    ask_for(system, 12)

    system.run_for(RECOVERY)

    assert states(system) == {State.SUCCEEDED: 12}
    assert most_at_once(system) == most
    first, last = system.runs[0].started_at, system.runs[-1].ended_at
    assert last is not None
    # Each place was taken again within a second of its end.
    assert last - first <= 12 // most * (20 * SECOND + SECOND)
    assert [*violations(system)] == []


def test_who_waits_is_served_in_the_order_of_their_times() -> None:
    system = a_system({LANE: 1})
    for seconds in (3, 1, 2, 4):
        ask_for(system, 1, seconds=seconds)

    system.run_for(5 * MINUTE)

    times = [run.run_at for run in system.runs]
    assert times == sorted(times)


def test_one_owner_s_limit_is_nobody_else_s() -> None:
    """S4-R5."""
    system = a_system({ACME: 1, OWNERS: 2})
    ask_for(system, 3, owner=Owner("acme"))
    ask_for(system, 4, owner=Owner("other"))
    system.run_for(2 * SECOND)

    running = Counter(row.owner for row in rows(system) if row.state is State.RUNNING)

    assert running == {"acme": 1, "other": 2}
    system.run_for(RECOVERY)
    assert [*violations(system)] == []


def test_who_comes_under_several_limits_needs_a_place_under_each() -> None:
    system = a_system({LANE: 3, ACME: 2, ECHO: 5})
    ask_for(system, 8, owner=Owner("acme"))
    ask_for(system, 8, owner=Owner("other"))

    system.run_for(2 * SECOND)

    running = Counter(row.owner for row in rows(system) if row.state is State.RUNNING)
    assert running.total() == 3
    assert running[OWNER] <= 2
    system.run_for(RECOVERY)
    assert states(system) == {State.SUCCEEDED: 16}
    assert most_at_once(system) == 3
    assert [*violations(system)] == []


def test_waiting_for_a_place_uses_no_try_and_counts_no_crash() -> None:
    """S0-R: permits consume nothing. Its lateness says what it waited for."""
    system = a_system({LANE: 1})
    ask_for(system, 2)

    system.run_for(10 * SECOND)
    (waiting,) = [row for row in rows(system) if row.state is State.BLOCKED]
    assert waiting.reason == "no permit: as many as may run at once of queue:default do"
    assert (waiting.attempt, waiting.crashes, waiting.attempts) == (1, 0, ())
    assert waiting.first_started_at is None

    system.run_for(5 * MINUTE)
    done = system.world.tables.executions[waiting.id]
    assert (done.state, done.attempt, done.crashes, len(done.attempts)) == (
        *(State.SUCCEEDED, 1, 0),
        1,
    )
    late = lateness_of(done)
    assert late is not None
    assert 19 * SECOND <= late.permit <= 21 * SECOND
    # Told once for each that started, however often it looked.
    assert system.world.counts.events["started"] <= 3


def test_a_limit_is_lowered_and_raised_while_they_run() -> None:
    system = a_system({LANE: 4})
    ask_for(system, 20)
    system.run_for(2 * SECOND)
    assert states(system)[State.RUNNING] == 4

    permits.set_limit(system.ports, LANE, 1)
    system.run_for(30 * SECOND)
    assert states(system)[State.RUNNING] == 1
    permits.set_limit(system.ports, LANE, 6)
    system.run_for(2 * SECOND)
    assert states(system)[State.RUNNING] == 6

    permits.set_limit(system.ports, LANE, 0)
    system.run_for(2 * MINUTE)
    assert states(system)[State.RUNNING] == 0
    assert permits.remove_limit(system.ports, LANE)
    system.run_for(2 * SECOND)
    assert states(system)[State.BLOCKED] == 0

    system.run_for(RECOVERY)
    assert states(system) == {State.SUCCEEDED: 20}
    assert [*violations(system)] == []


def test_no_message_comes_near_a_dead_letter_queue_however_long_it_waits() -> None:
    system = a_system({LANE: 0})
    ask_for(system, 2)

    system.run_for(timedelta(hours=9))

    assert states(system) == {State.BLOCKED: 2}
    assert system.world.counts.events["undeliverable"] == 0
    # Nor are there more and more of them: what the sweep sees is no repair.
    assert system.world.counts.events["recovered"] == 0
    assert len(system.world.queue) == 2
    permits.remove_limit(system.ports, LANE)
    system.run_for(2 * SECOND)
    assert states(system)[State.BLOCKED] == 0
    system.run_for(RECOVERY)
    assert [*violations(system)] == []
    assert RENEWED_AFTER_RECEIVES < 100


def test_what_waits_and_lost_its_message_is_found_by_the_sweep() -> None:
    system = a_system({LANE: 0})
    ask_for(system, 1)
    system.run_for(MINUTE)
    system.world.queue.purge()
    permits.set_limit(system.ports, LANE, 1)
    system.world.queue.purge()

    system.run_for(20 * MINUTE)

    assert states(system) == {State.SUCCEEDED: 1}
    assert system.world.counts.events["recovered"] == 1


# Beside all else that may happen to what waits.


def waiting_for_a_place(*, deadline: timedelta | None = None) -> tuple[System, Execution]:
    """One that waits, while another runs for eight minutes."""
    system = a_system({LANE: 1}, lasts=8 * MINUTE)
    ask_for(system, 1)
    system.run_for(2 * SECOND)
    at = in_(system.ports, 1)
    made = created(system.ports, new_job(run_at=at, timeout=10 * MINUTE, deadline=deadline))
    system.run_for(10 * SECOND)
    row = system.world.tables.executions[made.first.id]
    assert row.state is State.BLOCKED
    return system, row


def test_what_waits_for_a_place_is_cancelled_at_once() -> None:
    system, row = waiting_for_a_place()

    assert cancel.cancel(system.ports, OWNER, row.id).state is State.CANCELLED

    system.run_for(RECOVERY)
    assert row.id not in {run.execution_id for run in system.runs}
    assert [*violations(system)] == []


def test_a_deadline_passes_while_it_waits_for_a_place() -> None:
    system, row = waiting_for_a_place(deadline=2 * MINUTE)

    system.run_for(5 * MINUTE)

    assert system.world.tables.executions[row.id].state is State.EXPIRED
    system.run_for(RECOVERY)
    assert [*violations(system)] == []


def test_of_a_job_that_buffers_one_the_next_is_skipped_while_one_waits_for_a_place() -> None:
    """What waits is in the way of what comes after it, whatever it waits for."""
    system = a_system({LANE: 0})
    schedule = every("1 minute", start_at=in_(system.ports, 30))
    created(system.ports, new_job(schedule=schedule, overlap=OverlapPolicy.BUFFER_ONE))
    system.run_for(5 * MINUTE)

    due = [row for row in rows(system) if row.run_at <= system.world.now()]
    assert [row.state for row in due[:4]] == [State.BLOCKED, *[State.SKIPPED] * 3]

    permits.remove_limit(system.ports, LANE)
    system.run_for(2 * MINUTE)
    assert [*violations(settled(system))] == []


def settled(system: System) -> System:
    system.lasts = lambda _: timedelta(0)
    system.run_for(30 * MINUTE)
    return system


def test_what_waits_behind_one_that_has_no_place_any_more_decides_again() -> None:
    """P15: a retry finds the limit lowered, and one waits behind it."""
    system = a_system({LANE: 1}, lasts=30 * SECOND)
    schedule = every("1 minute", start_at=in_(system.ports, 30))
    job = new_job(schedule=schedule, overlap=OverlapPolicy.BUFFER_ALL, timeout=10 * MINUTE)
    created(system.ports, job)
    system.run_for(MINUTE)
    permits.set_limit(system.ports, LANE, 0)
    system.run_for(4 * MINUTE)
    waiting = [row for row in rows(system) if row.state is State.BLOCKED]
    assert waiting[0].blocker is None
    assert all(row.blocker for row in waiting[1:])

    permits.remove_limit(system.ports, LANE)

    system.run_for(4 * MINUTE)
    assert [*violations(settled(system))] == []
    runs = [run.run_at for run in system.runs]
    assert runs == sorted(runs)


# Workers that die, fall silent, or get no answer.


def ends_and_hands_on() -> tuple[System, UseCase]:
    """A worker has the only place, ends, and three wait."""
    system = a_system({LANE: 1, ACME: 2})
    ask_for(system, 1)
    system.world.pass_time(2 * SECOND)
    (received,) = system.world.queue.receive()
    execute.shrink(system.ports, [received])
    claimed = execute.begin(system.ports, received, worker="doomed")
    assert isinstance(claimed, Claimed)
    ask_for(system, 3)
    system.run_for(5 * SECOND)
    assert states(system)[State.BLOCKED] == 3
    return system, lambda ports: execute.conclude(ports, claimed, system.handler(claimed))


def takes_a_place_and_runs() -> tuple[System, UseCase]:
    system = a_system({LANE: 1, ACME: 2})
    ask_for(system, 1)
    system.world.pass_time(2 * SECOND)
    batch = system.world.queue.receive()
    execute.shrink(system.ports, batch)
    ask_for(system, 3)

    def use_case(ports: Ports) -> None:
        for one in batch:
            execute.process(ports, one, system.run, worker="doomed")

    return system, use_case


def finds_no_place() -> tuple[System, UseCase]:
    """One runs for 20 s, and the one that is looked at has a place of one limit and not of two."""
    system = a_system({LANE: 1, ACME: 1, ECHO: 9})
    ask_for(system, 1)
    system.run_for(2 * SECOND)
    ask_for(system, 1)
    system.world.pass_time(2 * SECOND)
    batch = system.world.queue.receive()
    execute.shrink(system.ports, batch)
    ask_for(system, 2)

    def use_case(ports: Ports) -> None:
        for one in batch:
            execute.process(ports, one, system.run, worker="doomed")

    return system, use_case


def takes_the_place_of_the_dead() -> tuple[System, UseCase]:
    """Two workers died with both places."""
    system = a_system({LANE: 2, ACME: 9})
    ask_for(system, 2)
    system.world.pass_time(2 * SECOND)
    batch = system.world.queue.receive()
    execute.shrink(system.ports, batch)
    for one in batch:
        assert isinstance(execute.begin(system.ports, one, worker="dead"), Claimed)
    ask_for(system, 4)
    system.world.pass_time(29 * SECOND)
    system.work()
    system.world.pass_time(7 * SECOND)
    fresh = list(system.world.queue.receive(limit=10))
    execute.shrink(system.ports, fresh)

    def use_case(ports: Ports) -> None:
        for one in fresh:
            execute.process(ports, one, system.run, worker="doomed")

    return system, use_case


def beats_after_a_while() -> tuple[System, UseCase]:
    """A limit is changed while one runs and others wait."""
    system = a_system({LANE: 1})
    ask_for(system, 4)
    system.run_for(3 * SECOND)

    def use_case(ports: Ports) -> None:
        permits.set_limit(ports, LANE, 2)
        permits.set_limit(ports, ACME, 1)
        permits.remove_limit(ports, ACME)

    return system, use_case


SCENARIOS = [
    ends_and_hands_on,
    takes_a_place_and_runs,
    finds_no_place,
    takes_the_place_of_the_dead,
    beats_after_a_while,
]
by_scenario = pytest.mark.parametrize(
    "ready", SCENARIOS, ids=lambda ready: ready.__name__.replace("_", " ")
)


def check(system: System, at: object) -> None:
    assert [*violations(system)] == [], at
    left = states(system)
    assert left == {State.SUCCEEDED: left.total()}, at
    # The whole capacity is there: as many get in as may.
    ask_for(system, 3)
    before = len(system.runs)
    system.run_for(3 * SECOND)
    assert len(system.runs) > before, at
    system.run_for(5 * MINUTE)
    assert [*violations(system)] == [], at


@by_scenario
def test_undisturbed_it_keeps_every_promise(ready: Ready) -> None:
    system, use_case = ready()
    use_case(system.ports)
    system.run_for(RECOVERY)
    check(system, "undisturbed")


@pytest.mark.strikes
@by_scenario
def test_killed_anywhere_it_keeps_no_place_and_loses_nothing(ready: Ready) -> None:
    """S0-K2: leaking nothing when workers die."""
    system, use_case = ready()
    for strike in some_of(every_crash(calls_of(system.ports, use_case))):
        system, use_case = ready()
        survived = survives(system.ports, use_case, strike)

        system.run_for(RECOVERY)

        assert not survived or strike.when is When.DURING, strike
        check(system, strike)


@pytest.mark.strikes
@by_scenario
def test_a_write_of_unknown_fate_keeps_no_place_and_loses_nothing(ready: Ready) -> None:
    system, use_case = ready()
    strikes = every_strike(calls_of(system.ports, use_case), whens=(When.BEFORE, When.AFTER))
    for strike in some_of(strikes):
        system, use_case = ready()
        with suppress(Unavailable):
            use_case(interposed(system.ports, unavailable_at(strike)))

        system.run_for(RECOVERY)

        check(system, strike)


@pytest.mark.strikes
@by_scenario
def test_paused_past_every_lease_it_takes_nobody_s_place(ready: Ready) -> None:
    system, use_case = ready()
    strikes = every_strike(calls_of(system.ports, use_case), whens=(When.BEFORE, When.AFTER))
    for strike in some_of(strikes):
        system, use_case = ready()
        use_case(interposed(system.ports, pause_at(strike, partial(system.run_for, 5 * MINUTE))))

        system.run_for(RECOVERY)

        check(system, strike)


def test_the_places_of_dead_workers_are_others_within_a_lease_and_its_grace() -> None:
    system = a_system({LANE: 2})
    ask_for(system, 2)
    system.world.pass_time(2 * SECOND)
    for one in system.world.queue.receive():
        assert isinstance(execute.begin(system.ports, one, worker="dead"), Claimed)
    died_at = system.world.now()
    system.world.queue.purge()
    ask_for(system, 1)

    system.run_for(3 * MINUTE)

    # 35 s, and the longest that a message was hidden by then.
    assert system.runs[0].started_at - died_at <= 55 * SECOND


def test_a_handler_that_was_found_dead_and_was_not_stops_where_its_place_is_another_s() -> None:
    """A process that is frozen past its lease, and beats before anybody stopped it.

    Nobody has taken its execution over; but others run in its place.
    """
    system = a_system({LANE: 1}, lasts=20 * SECOND)
    ask_for(system, 1)
    system.world.pass_time(2 * SECOND)
    (received,) = system.world.queue.receive()
    claimed = execute.begin(system.ports, received, worker="frozen")
    assert isinstance(claimed, Claimed)
    frozen = System(world=system.world, lasts=lambda _: 10 * MINUTE)
    frozen._start(claimed, 10 * MINUTE)
    system.world.pass_time(36 * SECOND)
    other = a_claim_in_its_place(system)
    assert other.permits

    frozen._heartbeats.beat()

    (under_way,) = frozen._under_way
    assert under_way.why is not None


def a_claim_in_its_place(system: System) -> Claimed:
    system.world.queue.purge()
    ask_for(system, 1, seconds=0)
    (received,) = system.world.queue.receive()
    claimed = execute.begin(system.ports, received, worker="other")
    assert isinstance(claimed, Claimed)
    return claimed


def test_a_handler_that_beats_late_keeps_a_place_that_nobody_took() -> None:
    system = a_system({LANE: 1})
    ask_for(system, 1)
    system.world.pass_time(2 * SECOND)
    (received,) = system.world.queue.receive()
    claimed = execute.begin(system.ports, received, worker="frozen")
    assert isinstance(claimed, Claimed)
    frozen = System(world=system.world, lasts=lambda _: 10 * MINUTE)
    frozen._start(claimed, 10 * MINUTE)
    system.world.pass_time(36 * SECOND)

    frozen._heartbeats.beat()

    (under_way,) = frozen._under_way
    assert under_way.why is None
    system.world.queue.purge()
    ask_for(system, 1, seconds=0)
    (fresh,) = system.world.queue.receive()
    assert isinstance(execute.begin(system.ports, fresh, worker="other"), Put)


def test_one_that_beats_for_hours_writes_nothing_for_its_place() -> None:
    """Its lease is what holds it."""
    system = a_system({LANE: 2}, lasts=10 * MINUTE)
    ask_for(system, 1)
    system.run_for(2 * SECOND)
    (held,) = system.world.permits.held.values()

    system.run_for(5 * MINUTE)

    assert [*system.world.permits.held.values()] == [held]
    ask_for(system, 2)
    system.run_for(MINUTE)
    assert most_at_once(system) == 2


def test_a_terminated_run_has_its_place_until_its_handler_has_let_go() -> None:
    system = a_system({LANE: 1}, lasts=3 * MINUTE)
    schedule = every("1 minute", start_at=in_(system.ports, 30))
    policy = OverlapPolicy.TERMINATE_OTHER
    created(system.ports, new_job(schedule=schedule, overlap=policy, timeout=10 * MINUTE))

    system.run_for(10 * MINUTE)

    assert system.over_limits == []
    assert most_at_once(system) == 1
    assert len(system.runs) > 3


def test_a_retry_waits_for_a_place_like_a_first_try() -> None:
    system = a_system({LANE: 1}, lasts=5 * SECOND)
    fails = {"left": 1}

    def handler(claimed: Claimed) -> Outcome:
        if fails["left"]:
            fails["left"] -= 1
            failure = Failure(kind=FailureKind.RETRYABLE, type="ValueError", message="no")
            return Failed(failure=failure)
        return Succeeded(result="1")

    system.handler = handler
    at = in_(system.ports, 1)
    for _ in range(3):
        retry = RetryPolicy(base_seconds=1)
        created(system.ports, new_job(run_at=at, retry=retry))

    system.run_for(RECOVERY)

    assert sorted(row.attempt for row in rows(system)) == [1, 1, 2]
    assert states(system) == {State.SUCCEEDED: 3}
    assert most_at_once(system) == 1
    assert [*violations(system)] == []


def test_a_standing_counts_who_runs_and_who_waits() -> None:
    system = a_system({LANE: 2, OWNERS: 5})
    ask_for(system, 5)
    system.run_for(3 * SECOND)

    lane = next(one for one in permits.standing(system.ports) if one.key == LANE)

    assert (lane.limit, lane.holders, lane.waiting) == (2, 2, 3)


def test_a_standing_does_not_count_the_dead() -> None:
    system = a_system({LANE: 2})
    ask_for(system, 1)
    system.world.pass_time(2 * SECOND)
    for one in system.world.queue.receive():
        execute.begin(system.ports, one, worker="dead")
    system.world.pass_time(36 * SECOND)

    assert [one.holders for one in permits.standing(system.ports)] == [0]


def test_there_is_nothing_to_wake_where_nobody_waits_any_more() -> None:
    """Cancelled while it waited: the place goes to the next."""
    system = a_system({LANE: 1})
    ask_for(system, 3)
    system.run_for(3 * SECOND)
    first, second = [row for row in rows(system) if row.state is State.BLOCKED]
    cancel.cancel(system.ports, OWNER, first.id)

    system.run_for(20 * SECOND)

    assert system.world.tables.executions[second.id].state is State.RUNNING
