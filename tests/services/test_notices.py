"""Whoever owns what needs attention is told of it: by whoever ended it, or by the sweep."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import NEEDS_ATTENTION, State
from lamplighter.core.limits import (
    EXECUTION_KEPT,
    NOTICE_AGAIN,
    UNDELIVERABLE_AFTER,
    UNDELIVERABLE_LIMIT,
)
from lamplighter.core.model import Execution, Message
from lamplighter.core.notices import TITLES, again_at, notice_of
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports
from lamplighter.services import execute, timers
from lamplighter.services.execute import Claimed
from lamplighter.services.undeliverable import undeliverable
from lamplighter.sim.faults import Call, Crash, When, calls_of, every_crash, interposed, survives
from lamplighter.sim.system import System
from tests.support import partition_work
from tests.support.jobs import created, in_, new_job

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
ONCE = RetryPolicy(max_attempts=1)


def fails(kind: Kind) -> Callable[[Claimed], Outcome]:
    failure = Failure(kind=kind, type="CardDeclined", message="card ending in ***")
    return lambda _: Failed(failure=failure, names=("CardDeclined",), version=3)


def a_system(handler: Callable[[Claimed], Outcome]) -> System:
    return System(world=MemoryWorld(shards=4, partitions=1), handler=handler)


def the_row(system: System) -> Execution:
    (row,) = system.world.tables.executions.values()
    return row


def test_the_last_failed_try_tells_the_owner_all_that_it_takes_to_act() -> None:
    """S0-R5, S4-R4: and neither payload nor result."""
    system = a_system(fails(Kind.RETRYABLE))
    created(system.ports, new_job(payload='{"card": "4111"}', retry=ONCE))

    system.run_for(SECOND)

    row = the_row(system)
    (notice,) = system.world.notices.given
    assert (notice.title, notice.owner, notice.task, notice.queue) == (
        "Lamplighter Execution Dead-Lettered",
        *("acme", "echo", "default"),
    )
    assert notice.detail == {
        "execution_id": row.id,
        "job_id": row.job_id,
        "job_version": 1,
        "owner": "acme",
        "task": "echo",
        "task_version": None,
        "handler_version": 3,
        "queue": "default",
        "status": "DEAD_LETTERED",
        "trigger": "ONE_OFF",
        "scheduled_for": "2026-01-01T00:00:00.000Z",
        "run_at": "2026-01-01T00:00:00.000Z",
        "finished_at": "2026-01-01T00:00:00.000Z",
        "attempts": 1,
        "crashes": 0,
        "reason": "all 1 attempts used",
        "error": {"kind": "retryable", "type": "CardDeclined", "message": "card ending in ***"},
        "path": f"/v1/executions/{row.id}",
        "replay_path": f"/v1/executions/{row.id}/replay",
    }
    assert row.told_at == row.finished_at


def test_what_ends_well_or_is_tried_again_is_nobodys_business() -> None:
    system = a_system(lambda _: Succeeded(result="1"))
    created(system.ports, new_job())
    system.run_for(HOUR)

    system.handler = fails(Kind.RETRYABLE)
    created(system.ports, new_job(retry=RetryPolicy(base_seconds=3600, jitter=0)))
    system.run_for(MINUTE)

    assert system.world.notices.given == []
    assert {row.told_at for row in system.world.tables.executions.values()} == {None}


def test_every_state_that_needs_attention_has_a_title_that_a_rule_can_match() -> None:
    assert {*TITLES} == NEEDS_ATTENTION
    assert len({*TITLES.values()}) == len(TITLES)


def permanently_failed() -> System:
    system = a_system(fails(Kind.PERMANENT))
    created(system.ports, new_job())
    return system


def failed_for_the_last_time() -> System:
    system = a_system(fails(Kind.RETRYABLE))
    created(system.ports, new_job(retry=ONCE))
    return system


def expired_in_an_outage() -> System:
    """By dispatch, when it comes back."""
    system = a_system(lambda _: Succeeded(result="1"))
    created(system.ports, new_job(run_at=in_(system.ports, 600), deadline=MINUTE))
    system.ticking = False
    system.run_for(HOUR)
    system.ticking = True
    return system


def expired_in_a_purged_queue() -> System:
    """By the sweep, which finds it as late as that."""
    system = a_system(lambda _: Succeeded(result="1"))
    created(system.ports, new_job(run_at=in_(system.ports, 30), deadline=MINUTE))
    system.world.queue.purge()
    return system


ENDINGS = [permanently_failed, failed_for_the_last_time, expired_in_an_outage]


@pytest.mark.parametrize(
    "ready", [*ENDINGS, expired_in_a_purged_queue], ids=lambda ready: ready.__name__
)
def test_it_is_told_once_whoever_ends_it(ready: Callable[[], System]) -> None:
    system = ready()

    system.run_for(HOUR)

    (notice,) = system.world.notices.given
    assert notice.state is the_row(system).state


def test_what_was_given_up_as_undeliverable_is_told() -> None:
    """S4-R4: nothing is ever only in a dead-letter queue."""
    world = MemoryWorld()
    ports, row = world.ports(), created(world.ports(), new_job()).first
    world.pass_time(UNDELIVERABLE_AFTER)

    for _ in range(UNDELIVERABLE_LIMIT):
        undeliverable(ports, Message(execution_id=row.id, attempt=1, due_at=row.run_at))

    (notice,) = world.notices.of(row.id)
    assert notice.state is State.DEAD_LETTERED


UseCase = Callable[[Ports], object]


def a_worker_at_it() -> tuple[System, UseCase]:
    system = failed_for_the_last_time()

    def use_case(ports: Ports) -> None:
        for received in system.world.queue.receive():
            execute.process(ports, received, system.run, worker="doomed")

    return system, use_case


def dispatch_at_it() -> tuple[System, UseCase]:
    system = expired_in_an_outage()
    return system, lambda ports: partition_work.dispatch(ports, 0)


def the_sweep_at_it() -> tuple[System, UseCase]:
    system = expired_in_a_purged_queue()
    system.run_for(2 * MINUTE)
    system.world.pass_time(2 * MINUTE)
    partition_work.dispatch(system.ports, 0)
    assert the_row(system).state is State.SCHEDULED
    return system, lambda ports: partition_work.sweep(ports, 0)


def dead_letters_at_it() -> tuple[System, UseCase]:
    """The message stays in its queue until it was done with."""
    system = a_system(lambda _: Succeeded(result="1"))
    row = created(system.ports, new_job(deadline=30 * UNDELIVERABLE_AFTER)).first
    system.world.queue.purge()
    system.world.pass_time(UNDELIVERABLE_AFTER)
    message = Message(execution_id=row.id, attempt=1, due_at=row.run_at)
    for _ in range(UNDELIVERABLE_LIMIT - 1):
        undeliverable(system.ports, message)
    system.world.queue.purge()

    def use_case(ports: Ports) -> None:
        try:
            undeliverable(ports, message)
        except Crash:
            undeliverable(system.ports, message)
            raise

    return system, use_case


@pytest.mark.parametrize(
    "ready",
    [a_worker_at_it, dispatch_at_it, the_sweep_at_it, dead_letters_at_it],
    ids=lambda ready: ready.__name__,
)
def test_whoever_dies_before_it_told_leaves_it_to_the_next(
    ready: Callable[[], tuple[System, UseCase]],
) -> None:
    """S4-R4: at least once, and twice only where nobody can know that it was told."""
    undisturbed, use_case = ready()
    calls = calls_of(undisturbed.ports, use_case)
    assert [call for call in calls if call.port == "notices"]
    for strike in every_crash(calls):
        system, use_case = ready()
        survives(system.ports, use_case, strike)

        system.run_for(HOUR)

        row = the_row(system)
        assert row.told_at is not None, strike
        assert 1 <= len(system.world.notices.of(row.id)) <= 2, strike


def test_a_message_that_comes_back_later_does_not_tell_again() -> None:
    system = failed_for_the_last_time()
    system.run_for(SECOND)
    row = the_row(system)

    for _ in range(3):
        system.world.queue.send([timers.outgoing(row)], now=system.world.now())
        system.run_for(MINUTE)

    assert len(system.world.notices.given) == 1


def test_while_notices_are_not_taken_work_goes_on_and_they_are_given_later() -> None:
    """An outage of EventBridge is not one of ours."""
    system = failed_for_the_last_time()
    system.world.notices.is_down = True
    system.run_for(2 * HOUR)
    row = the_row(system)
    assert (row.state, row.told_at) == (State.DEAD_LETTERED, None)
    assert len(system.world.queue) == 0
    system.handler = lambda _: Succeeded(result="1")
    fine = created(system.ports, new_job()).first
    system.run_for(MINUTE)
    assert system.world.tables.executions[fine.id].state is State.SUCCEEDED

    system.world.notices.is_down = False
    system.run_for(2 * HOUR)

    assert len(system.world.notices.of(row.id)) == 1
    assert system.world.counts.events["recovered"] == 0


def test_it_is_tried_again_less_and_less_often_while_the_row_is_there() -> None:
    system = failed_for_the_last_time()
    system.world.notices.is_down = True
    system.run_for(SECOND)
    row = the_row(system)
    assert row.finished_at is not None
    soonest, latest = NOTICE_AGAIN

    assert again_at(row, row.finished_at) - row.finished_at == soonest
    assert again_at(row, row.finished_at + HOUR) - row.finished_at == 1.5 * HOUR
    end = row.finished_at + EXECUTION_KEPT
    assert again_at(row, end) - end == latest


def test_where_nobody_is_to_be_told_nothing_is_written_for_it() -> None:
    system = failed_for_the_last_time()
    silent = replace(system.ports, notices=None)
    (received,) = system.world.queue.receive()
    execute.process(silent, received, system.run, worker="worker")

    assert (the_row(system).state, the_row(system).told_at) == (State.DEAD_LETTERED, None)
    assert system.world.tables.pointers == {}


def test_what_needs_no_attention_has_no_notice() -> None:
    row = created(MemoryWorld().ports(), new_job()).first

    with pytest.raises(ValueError, match="nobody is to be told"):
        notice_of(row)


def test_a_notice_whose_fate_is_unknown_and_the_table_too_keeps_the_message() -> None:
    system = failed_for_the_last_time()
    system.world.notices.is_down = True
    (received,) = system.world.queue.receive()
    execute.shrink(system.ports, [received])

    def hook(call: Call, when: When) -> None:
        if call.method == "point" and when is When.BEFORE:
            raise Unavailable("no table")

    with pytest.raises(Unavailable):
        execute.process(interposed(system.ports, hook), received, system.run, worker="worker")
    system.world.notices.is_down = False
    system.run_for(MINUTE)

    assert len(system.world.notices.of(the_row(system).id)) == 1
