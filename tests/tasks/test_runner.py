"""Whatever a handler does becomes an outcome, and nothing else leaves the runner."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from lamplighter import Context, Permanent, RateLimited, Retryable, RetryPolicy
from lamplighter.core.deferral import Terms
from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import ERROR_MESSAGE_MAX_CHARS, RESULT_MAX_BYTES
from lamplighter.core.outcome import Deferred, Failed, Outcome, Parked, Succeeded, Withdrawn
from lamplighter.core.retry import Failure, Kind
from lamplighter.memory import MemoryWorld
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.tasks.context import Deferral
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from tests.support.claims import claimed

_CIRCLE: list[object] = []
_CIRCLE.append(_CIRCLE)


class Bench:
    """A runner with one task, and what its heartbeat has to say."""

    def __init__(self, world: MemoryWorld) -> None:
        self.world = world
        self.tasks = Registry()
        self.heartbeats = Heartbeats(world.ports())
        self.runner = TaskRunner(self.tasks, self.heartbeats, world.clock)

    def run(self, handler: Callable[[Any, Context], object], payload: str = "null") -> Outcome:
        self.tasks.task("work")(handler)
        return self.runner(claimed(self.world, task="work", payload=payload))

    def failure(self, handler: Callable[[Any, Context], object], payload: str = "null") -> Failure:
        outcome = self.run(handler, payload)
        assert isinstance(outcome, Failed)
        return outcome.failure

    def pass_time(self, seconds: float) -> None:
        """Let time go by, as a handler does, with a heartbeat at its end."""
        self.world.pass_time(timedelta(seconds=seconds))
        self.heartbeats.tick()


@pytest.fixture
def bench(world: MemoryWorld) -> Bench:
    return Bench(world)


class Letter(BaseModel):
    to: str
    copies: int = Field(default=1, ge=1)
    note: str = ""

    @field_validator("note")
    @classmethod
    def quoted(cls, value: str) -> str:
        if value:
            raise ValueError(f"no notes like {value}")
        return value


@dataclass
class Sent:
    at: datetime
    count: int


def raising(error: BaseException) -> Callable[[None, Context], None]:
    def handler(payload: None, ctx: Context) -> None:
        raise error

    return handler


def test_what_a_handler_returns_is_kept_as_json(bench: Bench) -> None:
    def handler(payload: Letter, ctx: Context) -> Sent:
        return Sent(at=datetime(2026, 1, 1, tzinfo=UTC), count=payload.copies)

    outcome = bench.run(handler, '{"to": "a", "copies": 3}')

    assert outcome == Succeeded(version=1, result='{"at":"2026-01-01T00:00:00Z","count":3}')


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ({"a": [1, "ä"]}, '{"a":[1,"ä"]}'),
        ("nul \0", '"nul \\u0000"'),
        ([math.inf, math.nan], "[null,null]"),
        (10**30, "1" + 30 * "0"),
    ],
    ids=["nothing", "text", "control characters", "no numbers", "large number"],
)
def test_every_result_is_valid_json(bench: Bench, value: object, text: str) -> None:
    outcome = bench.run(lambda payload, ctx: value)

    assert outcome == Succeeded(version=1, result=text)
    json.loads(text)


def test_a_handler_knows_its_call(bench: Bench) -> None:
    seen: list[Context] = []
    now = bench.world.now()

    bench.run(lambda payload, ctx: seen.append(ctx))

    (ctx,) = seen
    assert (ctx.owner, ctx.attempt, ctx.scheduled_for, ctx.run_at) == ("acme", 1, now, now)
    assert ctx.deadline == now + timedelta(seconds=60)
    assert ctx.execution_id == ctx.idempotency_key
    assert ctx.execution_id.removeprefix("ex_") == ctx.job_id.removeprefix("one_")


def test_an_invalid_payload_is_never_tried_again(bench: Bench) -> None:
    """S0-R1, S4-R1."""
    called = []

    def handler(payload: Letter, ctx: Context) -> None:
        called.append(payload)

    failure = bench.failure(handler, '{"copies": 0, "note": "hunter2"}')

    assert (failure.kind, failure.type) == (Kind.PERMANENT, "InvalidPayload")
    assert failure.message == (
        "to: Field required; copies: Input should be greater than or equal to 1; "
        "note: refused by its validator"
    )
    assert not called


def test_an_invalid_payloads_values_are_not_shown(bench: Bench) -> None:
    def handler(payload: Letter, ctx: Context) -> None: ...

    failure = bench.failure(handler, '{"to": {"x": "hunter2"}, "note": "hunter2"}')

    assert "hunter2" not in failure.message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Permanent("no such customer"), Kind.PERMANENT),
        (Retryable("busy"), Kind.RETRYABLE),
        (ValueError("whatever"), Kind.RETRYABLE),
        (MemoryError(), Kind.RETRYABLE),
        (SystemExit(3), Kind.RETRYABLE),
    ],
)
def test_an_exception_says_what_it_means(bench: Bench, error: BaseException, kind: Kind) -> None:
    failure = bench.failure(raising(error))

    assert failure == Failure(kind=kind, type=type(error).__name__, message=str(error))


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (timedelta(minutes=2), timedelta(minutes=2)),
        (1.5, timedelta(seconds=1.5)),
        (-3, timedelta(0)),
        (math.nan, timedelta(0)),
        (math.inf, timedelta(days=366)),
    ],
)
def test_a_rate_limit_carries_its_wait(
    bench: Bench, asked: timedelta | float, kept: timedelta
) -> None:
    """S0-R4."""
    failure = bench.failure(raising(RateLimited(retry_after=asked)))

    assert (failure.kind, failure.retry_after) == (Kind.RATE_LIMITED, kept)


class Declined(Retryable):
    """An error of a task's own."""


@pytest.mark.parametrize(
    ("error", "names"),
    [
        (ConnectionResetError(), ("ConnectionResetError", "ConnectionError", "OSError")),
        (Declined("no funds"), ("Declined", "Retryable", "TaskError")),
        (RateLimited(retry_after=1), ("RateLimited", "TaskError")),
    ],
)
def test_a_policy_may_name_an_error_by_its_class_or_by_a_base(
    bench: Bench, error: Exception, names: tuple[str, ...]
) -> None:
    outcome = bench.run(raising(error))

    assert isinstance(outcome, Failed)
    assert outcome.names == (*names, "Exception", "BaseException")


def test_a_service_of_ours_that_did_not_answer_is_in_no_policys_list(bench: Bench) -> None:
    outcome = bench.run(raising(Unavailable("no keys to sign with")))

    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.names) == (Kind.RETRYABLE, ())


def test_a_time_out_has_a_name_for_a_policy(bench: Bench) -> None:
    def handler(payload: None, ctx: Context) -> None:
        bench.pass_time(61)
        raise ConnectionResetError("interrupted")

    outcome = bench.run(handler)

    assert isinstance(outcome, Failed)
    assert (outcome.failure.type, outcome.names) == ("TimedOut", ("TimedOut",))


def test_an_error_is_kept_without_secrets_and_bounded(bench: Bench) -> None:
    """S0-R5."""
    failure = bench.failure(raising(Retryable("at https://me:pw@host, " + "x " * 1000)))

    assert failure.message.startswith("at https://***@host, x x")
    assert len(failure.message) == ERROR_MESSAGE_MAX_CHARS


def test_an_error_that_cannot_be_told_is_still_a_failure(bench: Bench) -> None:
    class Untold(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    assert bench.failure(raising(Untold())).type == "Untold"


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "type object"),
        (b"\xff", "type bytes"),
        ("\ud800", "type str"),
        (_CIRCLE, "type list"),
    ],
    ids=["unknown type", "bytes", "half a character", "itself"],
)
def test_a_result_that_is_not_json_names_its_type(bench: Bench, value: object, named: str) -> None:
    failure = bench.failure(lambda payload, ctx: value)

    assert (failure.kind, failure.type) == (Kind.PERMANENT, "InvalidResult")
    assert named in failure.message


def test_a_result_that_is_too_large_is_still_a_success(bench: Bench) -> None:
    outcome = bench.run(lambda payload, ctx: "x" * RESULT_MAX_BYTES)

    assert isinstance(outcome, Succeeded)
    assert json.loads(outcome.result) == {
        "result_too_large": {"bytes": RESULT_MAX_BYTES + 2, "max_bytes": RESULT_MAX_BYTES}
    }


def test_a_result_of_just_the_size_is_kept(bench: Bench) -> None:
    outcome = bench.run(lambda payload, ctx: "x" * (RESULT_MAX_BYTES - 2))

    assert isinstance(outcome, Succeeded)
    assert len(outcome.result) == RESULT_MAX_BYTES


def test_an_unknown_task_is_parked_and_says_which_are_known(bench: Bench) -> None:
    """S0-O10."""
    bench.tasks.task("other")(lambda payload, ctx: None)

    outcome = bench.runner(claimed(bench.world, task="work"))

    reason = "no worker knows task 'work' yet; the last one asked has: other"
    assert outcome == Parked(reason=reason)


def test_what_was_made_for_a_version_is_run_by_it_though_there_is_a_newer_one(
    bench: Bench,
) -> None:
    """S0-O10: two versions side by side in one deploy."""
    bench.tasks.task("work", version=1)(lambda payload, ctx: f"first, for {ctx.task_version}")
    bench.tasks.task("work", version=2)(lambda payload, ctx: f"second, for {ctx.task_version}")

    outcomes = [
        bench.runner(claimed(bench.world, task="work", task_version=version))
        for version in (1, 2, None)
    ]

    assert outcomes == [
        Succeeded(version=1, result='"first, for 1"'),
        Succeeded(version=2, result='"second, for 2"'),
        Succeeded(version=2, result='"second, for None"'),
    ]


def test_a_handler_runs_what_was_made_for_a_version_that_it_accepts(bench: Bench) -> None:
    """S0-O10: the compatibility window is the task's to say."""
    task = bench.tasks.task("work", version=3, accepts=range(1, 3))
    task(lambda payload, ctx: ctx.task_version)

    outcome = bench.runner(claimed(bench.world, task="work", task_version=1))

    assert outcome == Succeeded(version=3, result="1")


def test_a_version_that_nothing_here_accepts_is_parked(bench: Bench) -> None:
    """S0-O10: never run by another version, and never failed for it."""
    bench.tasks.task("work", version=3, accepts=[2])(lambda payload, ctx: None)

    outcome = bench.runner(claimed(bench.world, task="work", task_version=4))

    reason = "no worker knows version 4 of task 'work' yet; the last one asked has: 2, 3"
    assert outcome == Parked(reason=reason)


def test_the_newest_version_runs(bench: Bench) -> None:
    bench.tasks.task("work", version=2)(lambda payload, ctx: "new")

    assert bench.run(lambda payload, ctx: "old") == Succeeded(version=2, result='"new"')


def test_a_handler_that_stops_at_its_time_out_has_timed_out(bench: Bench) -> None:
    def handler(payload: None, ctx: Context) -> None:
        bench.pass_time(61)
        ctx.raise_if_stopped()

    failure = bench.failure(handler)

    assert (failure.kind, failure.type) == (Kind.TIMEOUT, "TimedOut")
    assert "longer than 60 s" in failure.message


def test_what_is_returned_after_the_time_out_is_no_success(bench: Bench) -> None:
    def handler(payload: None, ctx: Context) -> str:
        bench.pass_time(61)
        return "half of it" if ctx.stopped else "all of it"

    assert bench.failure(handler).kind is Kind.TIMEOUT


def test_an_error_that_the_time_out_caused_is_a_time_out(bench: Bench) -> None:
    def handler(payload: None, ctx: Context) -> None:
        bench.pass_time(61)
        raise ConnectionError("closed")

    failure = bench.failure(handler)

    assert failure.kind is Kind.TIMEOUT
    assert "ConnectionError: closed" in failure.message


def test_a_permanent_error_stays_permanent_after_the_time_out(bench: Bench) -> None:
    def handler(payload: None, ctx: Context) -> None:
        bench.pass_time(61)
        raise Permanent("no such customer")

    assert bench.failure(handler).kind is Kind.PERMANENT


def cancel(bench: Bench, ctx: Context) -> None:
    bench.world.ports().executions.request_cancel(ctx.execution_id, now=bench.world.now())
    bench.pass_time(11)


def test_a_handler_that_stops_because_it_is_cancelled_is_cancelled(bench: Bench) -> None:
    def handler(payload: None, ctx: Context) -> None:
        cancel(bench, ctx)
        assert ctx.cancelled
        ctx.raise_if_stopped()

    assert bench.run(handler) == Withdrawn(version=1, reason="cancelled on request")


def test_an_error_of_a_cancelled_handler_is_not_tried_again(bench: Bench) -> None:
    def handler(payload: None, ctx: Context) -> None:
        cancel(bench, ctx)
        raise Retryable("interrupted")

    assert bench.run(handler) == Withdrawn(version=1, reason="cancelled on request")


def test_a_handler_that_finishes_although_it_was_cancelled_has_finished(bench: Bench) -> None:
    def handler(payload: None, ctx: Context) -> str:
        cancel(bench, ctx)
        return "done"

    assert bench.run(handler) == Succeeded(version=1, result='"done"')


def test_ctrl_c_is_for_the_process(bench: Bench) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.run(raising(KeyboardInterrupt()))

    assert bench.runner.hung() == []


def test_a_handler_is_hung_five_seconds_after_it_was_told_that_it_must_stop(bench: Bench) -> None:
    hung = []

    def handler(payload: None, ctx: Context) -> None:
        for seconds in (61, 4.9, 0.1):
            bench.pass_time(seconds)
            hung.append(len(bench.runner.hung()))

    bench.run(handler)

    assert hung == [0, 0, 1]
    assert bench.runner.hung() == []


def test_a_hung_handlers_next_try_waits_until_its_process_has_ended(bench: Bench) -> None:
    outcomes: list[Outcome | None] = []

    def handler(payload: None, ctx: Context) -> None:
        bench.pass_time(61)
        bench.pass_time(6)
        outcomes.extend(call.hung_outcome for call in bench.runner.hung())

    bench.run(handler)

    (outcome,) = outcomes
    assert isinstance(outcome, Failed)
    assert outcome.failure.kind is Kind.TIMEOUT
    assert outcome.failure.retry_after == timedelta(seconds=10)


def test_what_fails_is_told_its_tasks_policy(bench: Bench) -> None:
    """S0-R1: tasks are known here alone."""
    patient = RetryPolicy(max_attempts=20)
    bench.tasks.task("fetch", version=2, retry_policy=patient)(raising(Retryable("busy")))

    outcome = bench.runner(claimed(bench.world, task="fetch"))

    assert isinstance(outcome, Failed)
    assert (outcome.version, outcome.retry) == (2, patient)


def test_what_is_deferred_is_told_its_tasks_policy(bench: Bench) -> None:
    """S0-R1."""
    patient = RetryPolicy(max_attempts=20)

    @bench.tasks.task("print", retry_policy=patient)
    def handler(payload: None, ctx: Context) -> Deferral:
        return Deferral(execution_id=ctx.execution_id, token="", terms=Terms())

    outcome = bench.runner(claimed(bench.world, task="print"))

    assert isinstance(outcome, Deferred)
    assert outcome.retry == patient


def test_a_hung_handler_is_tried_again_by_its_tasks_policy(bench: Bench) -> None:
    """S0-R1."""
    patient = RetryPolicy(max_attempts=20)
    outcomes: list[Outcome | None] = []

    @bench.tasks.task("hang", retry_policy=patient)
    def handler(payload: None, ctx: Context) -> None:
        bench.pass_time(61)
        bench.pass_time(6)
        outcomes.extend(call.hung_outcome for call in bench.runner.hung())

    bench.runner(claimed(bench.world, task="hang"))

    (outcome,) = outcomes
    assert isinstance(outcome, Failed)
    assert (outcome.version, outcome.retry) == (1, patient)


def test_a_handler_whose_lease_is_lost_has_no_outcome_to_write(bench: Bench) -> None:
    outcomes: list[Outcome | None] = []

    def handler(payload: None, ctx: Context) -> None:
        ctx.signal.stop(Stop.LOST_LEASE)
        bench.pass_time(6)
        outcomes.extend(call.hung_outcome for call in bench.runner.hung())

    bench.run(handler)

    assert outcomes == [None]


def test_a_cancelled_handler_may_go_on_until_its_time_out(bench: Bench) -> None:
    hung = []

    def handler(payload: None, ctx: Context) -> None:
        cancel(bench, ctx)
        bench.pass_time(30)
        hung.append(len(bench.runner.hung()))

    bench.run(handler)

    assert hung == [0]
