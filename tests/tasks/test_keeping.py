"""Checkpoints, steps and writes of a handler's own: through its context, in this process and out.

S0-N5, S0-L5, S0-U2, S1-Q5, S2-Q3, S4-L4.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest

from lamplighter import Context, Permanent, Retryable, Stopped, WritesRefused
from lamplighter.core.errors import Unavailable, WriteRefusal
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import (
    CHECKPOINT_MAX_BYTES,
    COMPLETION_MAX_BYTES,
    LEDGER_KEY_MAX_CHARS,
    LEDGER_RESULT_MAX_BYTES,
)
from lamplighter.core.model import Execution, Owner
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, Kind
from lamplighter.memory import MemoryWorld
from lamplighter.services import execute
from lamplighter.services.execute import Claimed
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.services.replay import replay
from lamplighter.services.settling import Put
from lamplighter.tasks import asked
from lamplighter.tasks.answers import ContextAnswers
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from tests.support.claims import received, submitted
from tests.support.jobs import OWNER
from tests.tasks.isolated import Yard

PUT: Mapping[str, Any] = {"Put": {"TableName": "own", "Item": {"pk": {"S": "k"}}}}
RAW: Mapping[str, Any] = {
    "Put": {"TableName": "own", "Item": {"pk": {"S": "k"}, "raw": {"B": b"\x00\xff"}}}
}
FAILED = Failed(failure=Failure(kind=Kind.RETRYABLE, type="OSError", message="no"))

Handler = Callable[[Any, Context], object]


@dataclass(kw_only=True)
class Desk:
    """One execution, whose tries a test makes one after the other."""

    world: MemoryWorld
    answered: int = 0

    def __post_init__(self) -> None:
        self.ports = self.world.ports()
        self.heartbeats = Heartbeats(self.ports)

    def claimed(self) -> Claimed:
        begun = execute.begin(self.ports, received(self.world), worker="w")
        assert isinstance(begun, Claimed)
        return begun

    def outcome(self, held: Claimed, handler: Handler) -> Outcome:
        tasks = Registry()
        tasks.task("work", version=3)(handler)
        answers = ContextAnswers(self.ports)
        return TaskRunner(tasks, self.heartbeats, self.world.clock, answers=answers)(held)

    def run(self, handler: Handler, *, fails: bool = False) -> Put:
        """A try; with `fails` it comes to nothing in the end, and another is due."""
        held = self.claimed()
        outcome = self.outcome(held, handler)
        put = execute.conclude(self.ports, held, FAILED if fails else outcome)
        self.world.pass_time(timedelta(minutes=1))
        return put

    def told(self, handler: Handler) -> Failure:
        outcome = self.outcome(self.claimed(), handler)
        assert isinstance(outcome, Failed), outcome
        return outcome.failure

    @property
    def row(self) -> Execution:
        *_, row = self.world.tables.executions.values()
        return row


@pytest.fixture
def desk(world: MemoryWorld) -> Desk:
    submitted(world, task="work")
    return Desk(world=world)


# Checkpoints.


def test_a_checkpoint_is_what_the_next_try_begins_with(desk: Desk) -> None:
    seen: list[object] = []

    def handler(payload: None, ctx: Context) -> None:
        seen.append(ctx.state)
        ctx.checkpoint({"page": len(seen), "at": timedelta(seconds=1)})
        seen.append(ctx.state)

    desk.run(handler, fails=True)
    desk.run(handler)

    first, second = {"page": 1, "at": "PT1S"}, {"page": 3, "at": "PT1S"}
    assert seen == [None, first, first, second]


def test_a_checkpoint_outlives_the_worker_that_made_it(desk: Desk) -> None:
    """S2-Q3: killed, and taken over."""
    desk.outcome(desk.claimed(), lambda payload, ctx: ctx.checkpoint(55))
    desk.world.pass_time(timedelta(minutes=16))
    seen: list[object] = []

    desk.run(lambda payload, ctx: seen.append(ctx.state))

    assert seen == [55]
    assert desk.row.crashes == 1


def test_a_replay_begins_without_the_checkpoint_and_with_the_steps(desk: Desk) -> None:
    seen: list[object] = []

    def handler(payload: None, ctx: Context) -> None:
        seen.append((ctx.state, ctx.once("pay", lambda: ctx.attempt)))
        ctx.checkpoint("there")
        raise Permanent("enough")

    desk.run(handler)
    first = desk.row.id
    replay(desk.ports, OWNER, first)
    desk.run(handler)

    assert desk.row.replay_of == first
    assert seen == [(None, 1), (None, 1)]


def test_a_checkpoint_of_a_lost_claim_stops_the_handler(desk: Desk) -> None:
    held = desk.claimed()
    desk.world.pass_time(timedelta(minutes=16))
    other = desk.claimed()
    reached: list[str] = []

    def handler(payload: None, ctx: Context) -> None:
        try:
            ctx.checkpoint("late")
        except Exception:  # noqa: BLE001 -- what a handler may well have
            reached.append("swallowed")
        reached.append("went on")

    outcome = desk.outcome(held, handler)

    assert isinstance(outcome, Failed)
    assert outcome.failure.type == "Stopped"
    assert "is no longer held by this token" in outcome.failure.message
    assert not reached
    assert desk.ports.ledger.saved(other.execution.id) is None


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("x" * (CHECKPOINT_MAX_BYTES - 1), f"{CHECKPOINT_MAX_BYTES + 1} bytes of JSON; at most"),
        (object(), "checkpoint: object is not JSON"),
    ],
    ids=["too long", "no JSON"],
)
def test_what_cannot_be_a_checkpoint_is_refused(desk: Desk, state: object, told: str) -> None:
    failure = desk.told(lambda payload, ctx: ctx.checkpoint(state))

    assert (failure.kind, failure.type) == (Kind.PERMANENT, "Permanent")
    assert told in failure.message


def test_a_checkpoint_may_be_as_long_as_it_may_be(desk: Desk) -> None:
    desk.run(lambda payload, ctx: ctx.checkpoint("x" * (CHECKPOINT_MAX_BYTES - 2)))

    assert desk.row.state is State.SUCCEEDED


# Steps.


def test_a_step_is_done_once_and_told_to_every_try(desk: Desk) -> None:
    """S1-Q5, S2-E4."""
    done: list[int] = []
    told: list[object] = []

    def pay(ctx: Context) -> tuple[int, int]:
        done.append(ctx.attempt)
        return 1, 2

    def handler(payload: None, ctx: Context) -> None:
        told.append(ctx.once("pay", lambda: {"receipt": pay(ctx)}))

    desk.run(handler, fails=True)
    desk.run(handler)

    assert done == [1]
    assert told == 2 * [{"receipt": [1, 2]}]


def test_a_step_that_raises_is_not_kept(desk: Desk) -> None:
    def fails(payload: None, ctx: Context) -> None:
        ctx.once("pay", lambda: 1 / 0)

    told: list[object] = []
    desk.run(fails)
    desk.run(lambda payload, ctx: told.append(ctx.once("pay", lambda: None)), fails=True)
    desk.run(lambda payload, ctx: told.append(ctx.once("pay", lambda: "again")))

    assert told == [None, None]


def test_whoever_lost_the_claim_records_what_it_did_and_the_next_is_told(desk: Desk) -> None:
    """What it did, it did: without its record the next try would do it once more."""
    held, told = desk.claimed(), []

    def late(payload: None, ctx: Context) -> None:
        def pay() -> str:
            desk.world.pass_time(timedelta(minutes=16))
            return "the first"

        told.append(ctx.once("pay", pay))

    desk.outcome(held, late)
    desk.run(lambda payload, ctx: told.append(ctx.once("pay", lambda: "the second")))

    assert told == ["the first", "the first"]


@pytest.mark.parametrize("why", [Stop.TIMEOUT, Stop.LOST_LEASE])
def test_what_must_stop_begins_no_step_and_no_end(desk: Desk, why: Stop) -> None:
    reached: list[str] = []

    def handler(payload: None, ctx: Context) -> None:
        ctx.signal.stop(why)
        with pytest.raises(Stopped):
            ctx.once("pay", lambda: reached.append("paid"))
        with pytest.raises(Stopped):
            ctx.complete_with([PUT])

    desk.outcome(desk.claimed(), handler)

    assert (reached, desk.world.own.committed) == ([], [])


@pytest.mark.parametrize("key", ["", "x" * (LEDGER_KEY_MAX_CHARS + 1), "a\nb", "\ud800"], ids=repr)
def test_what_is_no_key_is_refused(desk: Desk, key: str) -> None:
    failure = desk.told(lambda payload, ctx: ctx.once(key, lambda: 1))

    assert failure.type == "Permanent"
    assert "once: not 1-255 printable characters" in failure.message


def test_a_result_of_a_step_that_is_too_long_is_told(desk: Desk) -> None:
    failure = desk.told(lambda payload, ctx: ctx.once("k", lambda: "x" * LEDGER_RESULT_MAX_BYTES))

    assert failure.type == "Permanent"
    assert "once('k'): 16386 bytes of JSON; at most 16384" in failure.message


# Its own writes, and its end.


def test_it_ends_with_its_own_writes_and_nobody_concludes_again(desk: Desk) -> None:
    put = desk.run(lambda payload, ctx: ctx.complete_with([RAW], result={"paid": 1}))

    assert put == Put(deleted=True)
    assert (desk.row.state, desk.row.result) == (State.SUCCEEDED, '{"paid":1}')
    assert [attempt.handler_version for attempt in desk.row.attempts] == [3]
    assert desk.world.own.committed == [RAW]
    assert desk.world.counts.events["finished SUCCEEDED"] == 1


@pytest.mark.parametrize("as_said", ["returns", "raises", "stops", "again"])
def test_what_it_does_afterwards_changes_nothing(desk: Desk, as_said: str) -> None:
    def handler(payload: None, ctx: Context) -> object:
        ctx.complete_with([PUT], result=1)
        if as_said == "raises":
            raise ValueError("afterwards")
        if as_said == "stops":
            ctx.signal.stop(Stop.TIMEOUT)
            ctx.raise_if_stopped()
        if as_said == "again":
            ctx.complete_with([PUT], result=2)
        return 3

    put = desk.run(handler)

    assert put == Put(deleted=True)
    assert (desk.row.state, desk.row.result) == (State.SUCCEEDED, "1")
    assert desk.world.own.committed == [PUT]


def test_a_condition_of_its_own_is_told_and_it_may_go_on(desk: Desk) -> None:
    refusal = WriteRefusal(index=0, code="ConditionalCheckFailed", message="not so")
    desk.world.own.take = lambda writes: [refusal] if RAW in writes else []

    def handler(payload: None, ctx: Context) -> None:
        with pytest.raises(WritesRefused) as refused:
            ctx.complete_with([RAW])
        assert refused.value.refusals == (refusal,)
        ctx.complete_with([PUT])

    desk.run(handler)

    assert desk.row.state is State.SUCCEEDED
    assert desk.world.own.committed == [PUT]


def test_a_refusal_that_is_let_pass_is_final(desk: Desk) -> None:
    desk.world.own.take = lambda _: [WriteRefusal(index=1, code="ConditionalCheckFailed")]

    failure = desk.told(lambda payload, ctx: ctx.complete_with([PUT, PUT]))

    assert (failure.kind, failure.type) == (Kind.PERMANENT, "WritesRefused")
    assert "item 1: ConditionalCheckFailed" in failure.message


def test_whoever_lost_the_claim_writes_nothing_and_stops(desk: Desk) -> None:
    held = desk.claimed()
    desk.world.pass_time(timedelta(minutes=16))
    desk.claimed()

    outcome = desk.outcome(held, lambda payload, ctx: ctx.complete_with([PUT]))

    assert isinstance(outcome, Failed)
    assert outcome.failure.type == "Stopped"
    assert not desk.world.own.committed
    assert execute.conclude(desk.ports, held, outcome) == Put(deleted=False)


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ([{"Put": {"TableName": "t", "Item": {"n": {"N": {1}}}}}], "low-level form: a set"),
        ([{"Put": {"TableName": "t", "Item": {"s": {"S": "x" * COMPLETION_MAX_BYTES}}}}], "bytes"),
        ([PUT] * 100, "100 items; at most 99"),
    ],
    ids=["not its form", "too long", "too many"],
)
def test_what_cannot_be_written_is_refused(
    desk: Desk, items: list[dict[str, object]], told: str
) -> None:
    failure = desk.told(lambda payload, ctx: ctx.complete_with(items))

    assert failure.type == "Permanent"
    assert told in failure.message


# What a worker makes of what it is asked.


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("nothing", "null"),
        (asked.CHECKPOINT, "{"),
        (asked.CHECKPOINT, '{"number": 1, "state": "{"}'),
        (asked.CHECKPOINT, json.dumps({"number": 1, "state": json.dumps("x" * 40_000)})),
        (asked.RECALL, '{"key": ""}'),
        (asked.RECORD, '{"key": "k", "result": "nonsense"}'),
        (asked.COMPLETE, '{"result": "1", "writes": [1]}'),
        (asked.COMPLETE, '{"result": "x", "writes": []}'),
        (asked.COMPLETE, '{"result": "1", "writes": [{"Put": {"$bytes": "?"}}]}'),
        (asked.COMPLETE, '{"result": "1", "writes": ' + "[" * 5000 + "]" * 5000 + "}"),
    ],
)
def test_a_worker_takes_nothing_on_trust(desk: Desk, name: str, argument: str) -> None:
    held = desk.claimed()

    with pytest.raises(Permanent):
        ContextAnswers(desk.ports)(held, name, argument)

    assert desk.row.state is State.RUNNING


def test_a_worker_asks_again_while_nobody_answers(desk: Desk) -> None:
    held, failures = desk.claimed(), [Unavailable("no answer")] * 4
    ledger = desk.ports.ledger

    class Slow:
        def __getattr__(self, name: str) -> object:
            if failures:
                raise failures.pop()
            return getattr(ledger, name)

    ports = replace(desk.ports, ledger=Slow())  # type: ignore[arg-type]

    ContextAnswers(ports)(held, asked.COMPLETE, '{"result": "1", "writes": []}')

    assert desk.row.state is State.SUCCEEDED


# In a process of its own.


@pytest.fixture
def keeping(yard: Yard) -> Yard:
    yard.answers = ContextAnswers(yard.world.ports())
    yard.runner = TaskRunner(
        yard.tasks,
        yard.heartbeats,
        yard.world.clock,
        isolation=yard.isolation,
        answers=yard.answers,
    )
    return yard


def test_an_isolated_try_keeps_for_the_next_one(keeping: Yard) -> None:
    held = keeping.claimed("keep", '"first"')
    first = keeping.runner(held)
    execute.conclude(keeping.world.ports(), held, FAILED)
    keeping.world.pass_time(timedelta(minutes=1))
    again = execute.begin(keeping.world.ports(), received(keeping.world), worker="w")
    assert isinstance(again, Claimed)

    second = keeping.runner(replace(again, payload='"again"'))

    state, paid = {"came to": "first", "ä": [1, None]}, {"paid in": "first"}
    assert isinstance(first, Succeeded)
    assert json.loads(first.result) == [None, state, paid]
    assert isinstance(second, Succeeded)
    assert json.loads(second.result) == [state, state | {"came to": "again"}, paid]


def test_an_isolated_handler_ends_with_its_own_writes(keeping: Yard) -> None:
    held = keeping.claimed("keep", '"complete"')

    put = execute.conclude(keeping.world.ports(), held, keeping.runner(held))

    (row,) = keeping.world.tables.executions.values()
    assert put == Put(deleted=True)
    assert row.state is State.SUCCEEDED
    assert row.attempts[-1].handler_version == 1
    assert keeping.world.own.committed == [RAW]


def test_an_isolated_handler_is_told_what_was_refused(keeping: Yard) -> None:
    keeping.world.own.take = lambda _: [WriteRefusal(index=0, code="ConditionalCheckFailed")]

    outcome = keeping.run("keep", '"refused"')

    assert outcome == Succeeded(result='[[0,"ConditionalCheckFailed"]]', version=1)


def test_an_isolated_handler_of_a_lost_claim_is_stopped(keeping: Yard) -> None:
    held = keeping.claimed("keep", '"first"')
    keeping.world.pass_time(timedelta(minutes=16))
    assert isinstance(
        execute.begin(keeping.world.ports(), received(keeping.world), worker="w"), Claimed
    )

    outcome = keeping.runner(held)

    assert isinstance(outcome, Failed)
    assert outcome.failure.type == "Stopped"


def test_the_largest_of_all_writes_arrives(keeping: Yard) -> None:
    text = asked.completing(
        [{"Put": {"TableName": "t", "Item": {"s": {"S": '"' * 499_000}}}}], result="1"
    )
    assert len(text) > 0.95 * COMPLETION_MAX_BYTES
    held = replace(keeping.claimed("send"), payload=json.dumps(text))

    assert keeping.runner(held) == Succeeded(result="null", version=1)
    assert len(keeping.world.own.committed) == 1


def test_owners_do_not_share_steps(desk: Desk) -> None:
    held = desk.claimed()
    answers = ContextAnswers(desk.ports)
    other = replace(held, execution=replace(held.execution, owner=Owner("other")))

    answers(held, asked.RECORD, '{"key": "k", "result": "1"}')

    assert answers(other, asked.RECALL, '{"key": "k"}') == "null"
    assert answers(held, asked.RECALL, '{"key": "k"}') == '"1"'


def test_what_the_service_does_not_take_yet_is_tried_again(desk: Desk) -> None:
    def take(_: object) -> list[WriteRefusal]:
        raise Retryable("AccessDeniedException")

    desk.world.own.take = take

    failure = desk.told(lambda payload, ctx: ctx.complete_with([PUT]))

    assert (failure.kind, failure.type) == (Kind.RETRYABLE, "Retryable")
