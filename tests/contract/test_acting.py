"""Cancelling and replaying through the services, on every backend."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Payload, Trigger
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, Kind
from lamplighter.memory import Counts, VirtualClock
from lamplighter.ports import Ports
from lamplighter.services import bulk, execute, manage
from lamplighter.services.cancel import cancel
from lamplighter.services.execute import Claimed
from lamplighter.services.replay import replay
from lamplighter.services.submit import IdempotencyKey, Replayed
from tests.contract.worlds import World
from tests.support.jobs import OWNER, created, every, new_job
from tests.support.rows import T

HOUR = timedelta(hours=1)
LARGE = '"' + "x" * 600 + '"'
KEY = IdempotencyKey[Execution](key="incident-4", fingerprint="f", render=lambda made: made.id)


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The services on one backend, with a clock that the test moves."""

    ports: Ports
    clock: VirtualClock
    world: World

    def row(self, of: Execution) -> Execution:
        found = self.ports.executions.get(of.id)
        assert found is not None
        return found

    def work(self, handler: Callable[[Claimed], Outcome]) -> list[str]:
        """The payloads of what is visible and is run."""
        got: list[str] = []

        def run(claimed: Claimed) -> Outcome:
            got.append(claimed.payload)
            return handler(claimed)

        for message in self.world.receive("default"):
            execute.process(self.ports, message, run, worker="w")
        return got

    def failed(self, payload: str) -> Execution:
        first = created(self.ports, new_job(payload=payload)).first
        failure = Failure(kind=Kind.PERMANENT, type="OSError", message="no route")
        assert self.work(lambda _: Failed(failure=failure)) == [payload]
        return self.row(first)


@pytest.fixture
def stage(world: World) -> Stage:
    clock = VirtualClock(T)
    ports = replace(world.ports, clock=clock, telemetry=Counts(), shards=1, partitions=1)
    return Stage(ports=ports, clock=clock, world=world)


def test_a_cancelled_occurrence_stays_so_through_an_edit_and_the_next_is_armed(
    stage: Stage,
) -> None:
    made = created(stage.ports, new_job(schedule=every("1 hour")))
    assert made.job is not None

    over = cancel(stage.ports, OWNER, made.first.id)

    assert stage.row(made.first) == over
    assert (over.state, over.cancel_requested_at) == (State.CANCELLED, T)
    following = stage.ports.executions.get(made.job.occurrence_id(T + 2 * HOUR))
    assert following is not None
    assert following.state is State.SCHEDULED
    manage.edit(stage.ports, OWNER, made.job_id, lambda job: replace(job, name="another"))
    assert stage.row(made.first) == over


def test_one_that_runs_keeps_its_holder_and_has_the_request(stage: Stage) -> None:
    first = created(stage.ports, new_job()).first
    (message,) = stage.world.receive("default")
    held = execute.begin(stage.ports, message, worker="w")
    assert isinstance(held, Claimed)

    asked = cancel(stage.ports, OWNER, first.id)

    assert asked == stage.row(first) == replace(held.execution, cancel_requested_at=T)


@pytest.mark.parametrize("payload", ['"small"', LARGE], ids=["small", "large"])
def test_a_replay_is_another_row_with_the_payload_of_the_old_one(
    stage: Stage, payload: str
) -> None:
    old = stage.failed(payload)
    stage.clock.move_to(T + HOUR)

    new = replay(stage.ports, OWNER, old.id)

    assert isinstance(new, Execution)
    assert stage.row(new).replay_of == stage.row(new).idempotent_as == old.id
    assert stage.row(new).trigger is Trigger.REPLAY
    assert stage.work(lambda _: Succeeded(result="1")) == [payload]
    assert stage.row(new).state is State.SUCCEEDED
    assert stage.row(old) == old
    assert [*stage.ports.executions.additional_of(old.job_id, before=None, limit=5)] == [new.id]


def test_a_replay_with_another_payload_keeps_that(stage: Stage) -> None:
    old = stage.failed('"small"')

    new = replay(stage.ports, OWNER, old.id, payload=Payload.of(LARGE))

    assert isinstance(new, Execution)
    assert stage.row(new).idempotency_key == new.id
    assert stage.work(lambda _: Succeeded(result="1")) == [LARGE]


def test_many_are_replayed_once_for_a_key(stage: Stage) -> None:
    old = stage.failed('"small"')
    first = bulk.replay_once(stage.ports, OWNER, old, KEY)
    assert isinstance(first, Execution)

    again = bulk.replay_once(stage.ports, OWNER, old, KEY)

    assert isinstance(again, Replayed)
    assert again.answer == first.id
    assert bulk.replay_once(stage.ports, OWNER, stage.row(first), KEY) is None
