"""Named targets, as a worker calls them: one delivery a try, and what its answer says of it."""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.lifecycle import State
from lamplighter.core.limits import ERROR_MESSAGE_MAX_CHARS, TAKE_OVER_GRACE, WORKER_LEASE
from lamplighter.core.model import Execution, Owner, Payload, Spec
from lamplighter.core.named import (
    Accepted,
    Answer,
    Directory,
    Entry,
    FunctionFailed,
    Invocation,
    NamedTarget,
    TargetKind,
    TurnedDown,
    Unanswered,
)
from lamplighter.core.outcome import Failed, Outcome, Succeeded, Withdrawn
from lamplighter.core.retry import Kind, RetryPolicy
from lamplighter.memory import MemoryTargets, MemoryWorld, VirtualClock
from lamplighter.services.execute import Claimed, begin, process, shrink
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.services.submit import Created, NewJob, submit
from lamplighter.tasks.named import Delivery, NamedCaller, Targets
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from tests.support.claims import received
from tests.support.jobs import OWNER

DIRECTORY = Directory.of(
    Entry(name="billing", kind=TargetKind.LAMBDA, owners=frozenset({OWNER}), at="arn:aws:lambda:x"),
    Entry(name="theirs", kind=TargetKind.LAMBDA, owners=frozenset({"globex"}), at="arn:y"),
)
BILLING = NamedTarget(kind=TargetKind.LAMBDA, name="billing")


@dataclass
class Stuck:
    """`Targets` that answer once they are let go."""

    let_go: threading.Event = field(default_factory=threading.Event)
    called: threading.Event = field(default_factory=threading.Event)

    def deliver(self, delivery: Delivery) -> Answer:
        self.called.set()
        self.let_go.wait(10)
        return Accepted(result=delivery.execution_id)


class Bench:
    """A runner with named targets in memory, on a world in memory."""

    def __init__(self, world: MemoryWorld) -> None:
        self.world = world
        self.targets = MemoryTargets()
        self.heartbeats = Heartbeats(world.ports())

    def runner(
        self, *, directory: Directory = DIRECTORY, targets: Targets | None = None
    ) -> TaskRunner:
        named = NamedCaller(directory, targets or self.targets)
        return TaskRunner(Registry(), self.heartbeats, self.world.clock, named=named)

    def submit(
        self,
        target: NamedTarget = BILLING,
        *,
        payload: str = '{"a": 1}',
        timeout: float = 30,
        retry: RetryPolicy | None = None,
        owner: Owner = OWNER,
    ) -> Created:
        spec = Spec(
            task=target.task_name,
            target=target,
            payload=Payload.of(payload),
            timeout=timedelta(seconds=timeout),
            retry=retry or RetryPolicy(),
        )
        made = submit(self.world.ports(), NewJob(owner=owner, spec=spec))
        assert isinstance(made, Created)
        return made

    def claimed(self) -> Claimed:
        begun = begin(self.world.ports(), received(self.world), worker="worker-1")
        assert isinstance(begun, Claimed)
        return begun

    def outcome(self, *answers: Answer, payload: str = "{}") -> Outcome:
        self.targets.answer("billing", *answers)
        self.submit(payload=payload)
        return self.runner()(self.claimed())

    def rows(self) -> Sequence[Execution]:
        return [*self.world.tables.executions.values()]


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(clock=VirtualClock(datetime(2026, 7, 12, 2, tzinfo=UTC)))


@pytest.fixture
def bench(world: MemoryWorld) -> Bench:
    return Bench(world)


def test_a_job_with_a_named_target_goes_from_create_to_succeeded(bench: Bench) -> None:
    """S2-F1, S4-F2."""
    bench.targets.answer("billing", Accepted(result={"invoice": 17}))
    made = bench.submit(payload='{"customer": "c-1"}')

    process(bench.world.ports(), received(bench.world), bench.runner(), worker="worker-1")

    (row,) = bench.rows()
    assert (row.state, row.result) == (State.SUCCEEDED, '{"invoice":17}')
    (delivery,) = bench.targets.to("billing")
    assert delivery.payload == '{"customer": "c-1"}'
    assert delivery.entry.at == "arn:aws:lambda:x"
    assert (delivery.execution_id, delivery.attempt) == (made.first.id, 1)
    assert delivery.within == timedelta(seconds=30)
    assert delivery.about == {
        "execution_id": made.first.id,
        "idempotency_key": made.first.id,
        "scheduled_for": "2026-07-12T02:00:00.000Z",
    }


def test_a_crash_between_the_call_and_its_outcome_is_another_call_with_the_same_key(
    bench: Bench,
) -> None:
    """S4-L4, S0-E2, S2-E4: what deduplicates by the key sees that it is the same."""
    bench.submit()
    first = bench.claimed()
    shrink(bench.world.ports(), [first.received])
    bench.runner()(first)

    bench.world.pass_time(WORKER_LEASE + TAKE_OVER_GRACE + timedelta(seconds=1))
    process(bench.world.ports(), received(bench.world), bench.runner(), worker="worker-2")

    deliveries = bench.targets.to("billing")
    assert len(deliveries) == 2
    assert len({one.idempotency_key for one in deliveries}) == 1
    assert [row.state for row in bench.rows()] == [State.SUCCEEDED]


def test_each_try_is_one_call_with_the_same_key(bench: Bench) -> None:
    """S0-R1, S4-R1."""
    bench.targets.answer("billing", Unanswered(reason="ReadTimeoutError"))
    bench.submit(retry=RetryPolicy(max_attempts=2, base_seconds=1))

    for _ in range(2):
        process(bench.world.ports(), received(bench.world), bench.runner(), worker="worker-1")
        bench.world.pass_time(timedelta(seconds=5))

    assert [one.attempt for one in bench.targets.deliveries] == [1, 2]
    assert len({one.idempotency_key for one in bench.targets.deliveries}) == 1
    (row,) = bench.rows()
    assert row.state is State.SUCCEEDED
    assert [attempt.error and attempt.error.type for attempt in row.attempts] == ["NoAnswer", None]


@pytest.mark.parametrize(
    ("answer", "kind", "type_"),
    [
        (TurnedDown(code="AccessDeniedException", status=403), Kind.PERMANENT, None),
        (TurnedDown(code="TooManyRequestsException", status=429), Kind.RATE_LIMITED, None),
        (TurnedDown(code="ServiceException", status=500), Kind.RETRYABLE, None),
        (Unanswered(reason="ReadTimeoutError"), Kind.RETRYABLE, "NoAnswer"),
        (FunctionFailed(type="ValueError", message="no"), Kind.RETRYABLE, "ValueError"),
        (FunctionFailed(type="", message="no"), Kind.RETRYABLE, "FunctionError"),
    ],
    ids=str,
)
def test_what_an_answer_says_of_the_try(
    bench: Bench, answer: Answer, kind: Kind, type_: str | None
) -> None:
    """S0-R1."""
    outcome = bench.outcome(answer)

    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is kind
    assert outcome.failure.type == (type_ or getattr(answer, "code", ""))
    assert outcome.failure.type in outcome.names


def test_a_functions_error_is_shown_bounded_and_without_what_its_payload_hides(
    bench: Bench,
) -> None:
    secret = "hunter2-hunter2"
    answer = FunctionFailed(type="KeyError", message=f"token {secret}" + "x" * 5000)

    outcome = bench.outcome(answer, payload=json.dumps({"token": secret}))

    assert isinstance(outcome, Failed)
    assert secret not in outcome.failure.message
    assert len(outcome.failure.message) <= ERROR_MESSAGE_MAX_CHARS
    assert outcome.names == ("KeyError", "FunctionError")


@pytest.mark.parametrize("name", ["KeyError", "FunctionError"])
def test_a_policy_names_a_functions_error_by_its_class_or_all_of_them(
    bench: Bench, name: str
) -> None:
    bench.targets.answer("billing", FunctionFailed(type="KeyError", message="no"))
    bench.submit(retry=RetryPolicy(no_retry_on=(name,)))

    process(bench.world.ports(), received(bench.world), bench.runner(), worker="worker-1")

    assert [row.state for row in bench.rows()] == [State.FAILED]


def test_a_large_result_is_left_out_and_the_work_is_done(bench: Bench) -> None:
    outcome = bench.outcome(Accepted(result="x" * 20_000))

    assert isinstance(outcome, Succeeded)
    assert "result_too_large" in outcome.result


@pytest.mark.parametrize(
    ("target", "owner"),
    [
        (NamedTarget(kind=TargetKind.LAMBDA, name="theirs"), OWNER),
        (NamedTarget(kind=TargetKind.LAMBDA, name="gone"), OWNER),
        (NamedTarget(kind=TargetKind.SQS, name="billing"), OWNER),
        (BILLING, Owner("globex")),
    ],
    ids=["another owner's", "gone", "another kind now", "no longer allowed"],
)
def test_what_may_not_be_called_any_more_is_not_and_waits_for_a_worker_that_may(
    bench: Bench, target: NamedTarget, owner: Owner
) -> None:
    """A newer deployment's API may have let it in: its workers come a moment later."""
    bench.submit(target, owner=owner)

    outcome = bench.runner()(bench.claimed())

    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.failure.type) == (Kind.RETRYABLE, "UnknownTarget")
    assert outcome.names == ()
    assert bench.targets.deliveries == []


def test_a_runner_without_targets_knows_none(bench: Bench) -> None:
    bench.submit()

    outcome = TaskRunner(Registry(), bench.heartbeats, bench.world.clock)(bench.claimed())

    assert isinstance(outcome, Failed)
    assert outcome.failure.type == "UnknownTarget"


def test_a_call_that_takes_longer_than_its_job_may_is_not_waited_for(bench: Bench) -> None:
    """S2-E3."""
    stuck = Stuck()
    bench.submit(timeout=1)
    begun = time.monotonic()

    outcome = bench.runner(targets=stuck)(bench.claimed())

    assert time.monotonic() - begun < 3
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is Kind.TIMEOUT
    stuck.let_go.set()


@pytest.mark.parametrize("why", [Stop.CANCELLED, Stop.LOST_LEASE])
def test_a_call_whose_execution_has_to_stop_is_left_behind(bench: Bench, why: Stop) -> None:
    stuck = Stuck()
    bench.submit()
    runner, claimed = bench.runner(targets=stuck), bench.claimed()
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(runner(claimed)))
    thread.start()
    assert stuck.called.wait(5)

    for call in runner._calls.values():
        call.signal.stop(why)
    thread.join(3)

    assert not thread.is_alive()
    (outcome,) = outcomes
    assert isinstance(outcome, Withdrawn if why is Stop.CANCELLED else Failed)
    stuck.let_go.set()


def test_how_a_function_is_called_goes_with_the_delivery(bench: Bench) -> None:
    bench.submit(NamedTarget(kind=TargetKind.LAMBDA, name="billing", invocation=Invocation.EVENT))

    bench.runner()(bench.claimed())

    assert [one.invocation for one in bench.targets.deliveries] == [Invocation.EVENT]
