"""`lamplighter.testing.Scheduler`: users' schedules in virtual time, and what happens to them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter import Retryable, RetryPolicy
from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import State
from lamplighter.pytest_plugin import seed_of
from lamplighter.sim.system import System
from lamplighter.tasks.context import Context
from lamplighter.tasks.registry import Registry
from lamplighter.testing import KNOWN_FAULTS, Moment, Part, Promise, Refused, Scheduler

HOUR = timedelta(hours=1)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def scheduler(*, seed: int = 0, do: Callable[[Context], object] = lambda _: None) -> Scheduler:
    """With one task, `work`."""
    tasks = Registry()

    @tasks.task("work")
    def work(_: object, ctx: Context) -> object:
        return do(ctx)

    return Scheduler(tasks=tasks, seed=seed, start=NOON)


def told(one: Scheduler) -> list[object]:
    """Everything that can be asked about what happened."""
    rows = [(row.id, row.state, row.attempts, row.started_at) for row in one.executions()]
    return [one.runs(), rows, one.struck, one.committed]


def test_time_that_is_skipped_is_as_if_every_tick_had_come() -> None:
    quick = scheduler()
    job = quick.create({"task": "work", "cron": "*/50 3,4 * * *", "flexible_window_seconds": 600})
    quick.advance(days=1)

    slow = scheduler()
    slow.create({"task": "work", "cron": "*/50 3,4 * * *", "flexible_window_seconds": 600})
    minutely = System(world=slow._world)
    minutely.run_for(timedelta(days=1))

    def seen(one: Scheduler) -> list[object]:
        return [
            (row.scheduled_for, row.run_at, row.state, row.first_started_at)
            for row in one.executions()
        ]

    assert seen(quick) == seen(slow)
    assert quick._stage.ticks < 15
    assert quick.ledger(job).fired == 4


@pytest.mark.parametrize(
    ("given", "attempts"), [({}, 2), ({"retry_policy": {"max_attempts": 3}}, 3)]
)
def test_what_fails_is_tried_again_as_its_job_says_or_else_its_task(
    given: dict[str, object], attempts: int
) -> None:
    """S0-R1."""
    tasks = Registry()

    @tasks.task("work", retry_policy=RetryPolicy(max_attempts=2))
    def work(_: object, ctx: Context) -> object:
        raise Retryable("busy")

    one = Scheduler(tasks=tasks, start=NOON)
    job = one.create({"task": "work", **given})
    one.advance(hours=1)

    (row,) = one.executions(job)
    assert (row.state, len(row.attempts)) == (State.DEAD_LETTERED, attempts)


def test_the_same_seed_is_the_same_run() -> None:
    def played(seed: int) -> list[object]:
        one = scheduler(seed=seed, do=lambda ctx: ctx.once("once", lambda: ctx.attempt))
        one.create({"task": "work", "cron": "*/7 * * * *"})
        one.faults(often=5)
        one.advance(hours=3)
        return told(one)

    assert played(3) == played(3)
    assert played(3) != played(4)


@pytest.mark.parametrize("fault", KNOWN_FAULTS)
def test_each_fault_strikes_and_breaks_no_promise(fault: str) -> None:
    one = scheduler(do=lambda ctx: ctx.once("once", lambda: 1))
    one.create({"task": "work", "cron": "*/5 * * * *", "retry_policy": {"max_attempts": 5}})
    one.faults(fault, often=4)

    one.advance(hours=5)
    one.faults("none")

    assert one.struck.get(fault, 0) > 0
    assert {*one.struck} == {fault}
    one.check()


def test_a_fault_that_is_none_is_refused_by_name() -> None:
    with pytest.raises(Rejected, match="'gremlin'"):
        scheduler().faults("loss,gremlin")


@pytest.mark.parametrize(("moment", "calls"), [(Moment.BEFORE, 0), (Moment.AFTER, 2)])
def test_a_worker_that_is_killed_has_called_its_handler_or_not(moment: Moment, calls: int) -> None:
    called: list[int] = []
    one = scheduler(do=lambda ctx: called.append(ctx.attempt))
    one.create({"task": "work"})
    one.kill_worker("work", moment, times=2)
    one.advance(seconds=20)

    assert len(called) == min(calls, 1)
    one.advance(minutes=5)

    assert len(called) == calls + 1
    assert [row.crashes for row in one.executions()] == [2]
    one.check()


def test_a_handler_that_waits_takes_virtual_time_and_is_stopped_at_its_time_out() -> None:
    one = scheduler(do=lambda ctx: ctx.wait(120))
    one.create({"task": "work", "timeout_seconds": 60, "retry_policy": {"max_attempts": 1}})

    one.advance(minutes=5)

    (run,) = one.runs("work")
    assert run.ended_at is not None
    assert timedelta(seconds=60) <= run.ended_at - run.started_at <= timedelta(seconds=66)
    assert run.error is not None
    assert run.error.startswith("TimedOut: ")
    (row,) = one.executions()
    assert row.state is State.DEAD_LETTERED
    assert [notice["execution_id"] for notice in one.notices] == [row.id]


def test_what_lasts_goes_on_beside_everything_else_and_may_be_cancelled() -> None:
    one = scheduler()
    one.lasts("work", timedelta(minutes=4))
    skips = one.create({"task": "work", "cron": "*/3 * * * *", "overlap_policy": "SKIP"})
    once = one.create({"task": "work"})
    one.advance(minutes=2)
    (row,) = one.executions(once)
    one.call("POST", f"/v1/executions/{row.id}/cancel")
    one.advance(hours=1)

    assert one.ledger(skips).count("skipped") > 3
    assert one.executions(once)[0].state is State.CANCELLED
    one.check()


@pytest.mark.parametrize("of", Part)
def test_nothing_starts_in_an_outage_and_all_of_it_afterwards(of: Part) -> None:
    one = scheduler()
    job = one.create({"task": "work", "cron": "0 * * * *", "misfire_policy": "FIRE_ALL"})
    one.advance(hours=2, minutes=30)
    before = len(one.runs())

    with one.outage(of):
        one.advance(hours=5)
        during = len(one.runs())
    one.advance(hours=1)

    assert (before, during) == (2, 2)
    assert one.ledger(job).fired == len(one.runs()) == 8
    one.check()


def test_after_a_long_outage_dispatch_comes_back_though_calls_keep_failing() -> None:
    """What a visit has passed is written down as it goes, of empty minutes too."""
    one = scheduler(seed=2)
    job = one.create({"task": "work", "cron": "0 * * * *"})
    one.advance(minutes=30)
    with one.outage("scheduler"):
        one.advance(hours=20)
    one.faults("unavailable", often=4)

    one.advance(hours=2)

    assert one.executions(job)[-1].scheduled_for > one.now - timedelta(minutes=1)


def test_what_is_not_registered_or_not_understood_is_refused_at_once() -> None:
    one = scheduler()

    with pytest.raises(LookupError, match="no task 'wrok' is registered here, but work"):
        one.create({"task": "wrok"})
    with pytest.raises(Refused, match="minute 61") as refused:
        one.create({"task": "work", "cron": "61 * * * *"})
    assert refused.value.status == 400
    with pytest.raises(ValueError, match="time does not go back"):
        one.advance_to(NOON - timedelta(seconds=1))


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda one: one.lasts("wrok", HOUR), LookupError, "no task 'wrok' is registered here"),
        (lambda one: one.lasts("work", 5), TypeError, "takes a timedelta, not 5"),
        (lambda one: one.lasts("work", -HOUR), ValueError, "work cannot take -1 day"),
        (lambda one: one.kill_worker("wrok"), LookupError, "no task 'wrok' is registered here"),
        (lambda one: one.kill_worker("work", "during"), ValueError, "'during'"),
        (lambda one: one.kill_worker("work", times=0), ValueError, "not 0 times"),
        (lambda one: one.runs("wrok"), LookupError, "no task 'wrok' is registered here"),
        (lambda one: one.executions("job_1"), LookupError, "no job 'job_1' was made here"),
        (lambda one: one.ledger("job_1"), LookupError, "no job 'job_1' was made here"),
        (lambda one: one.ledger(one.create({"task": "work"})), LookupError, "is a one-off"),
    ],
)
def test_a_name_that_is_nobody_s_and_a_time_that_is_none_are_refused(
    ask: Callable[[Scheduler], object], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        ask(scheduler())


@pytest.mark.parametrize("said", ["xyz", "-1", "1.5", ""])
def test_a_seed_that_is_none_is_named(said: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"a whole number or fresh, not '{said}'"):
        seed_of(said)


def test_a_broken_promise_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    one = scheduler()
    job = one.create({"task": "work", "cron": "0 * * * *"})
    one.advance(hours=3)
    lost = one.executions(job)[1]
    del one._world.tables.executions[lost.id]

    with pytest.raises(Promise, match=f"the ledger of {job} has 1 holes"):
        one.check()


def test_a_deferred_try_is_ended_by_its_token() -> None:
    given: list[str] = []

    def defer(ctx: Context) -> object:
        deferral = ctx.defer()
        given.append(deferral.token)
        return deferral

    one = scheduler(do=defer)
    one.create({"task": "work"})
    one.advance(seconds=30)
    (row,) = one.executions()
    one.call("POST", f"/v1/executions/{row.id}/complete", {"token": given[0], "result": 7})

    assert [(row.state, row.result) for row in one.executions()] == [(State.SUCCEEDED, "7")]
