"""A call in a process of its own: as in any other, and whatever it does, its end has a name.

S2-K4: a poisonous task costs nobody but itself: it is killed at its time-out and at its limit of
memory. S0-U2: it is asked before it is killed.
"""

import json
import os
import signal
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lamplighter.core.deferral import Terms
from lamplighter.core.errors import LostClaim, Rejected, Unavailable
from lamplighter.core.limits import ERROR_MESSAGE_MAX_CHARS
from lamplighter.core.outcome import Deferred, Failed, Interrupted, Outcome, Succeeded, Withdrawn
from lamplighter.core.retry import Failure, Kind
from lamplighter.memory import MemoryWorld
from lamplighter.services.execute import Claimed
from lamplighter.services.heartbeat import Stop
from lamplighter.tasks import isolation
from lamplighter.tasks.answers import ContextAnswers
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import STOP_WITHIN, TaskRunner
from tests.tasks.isolated import Yard

CANARY = "canary-5ae81c"


def told(outcome: Outcome) -> Failure:
    assert isinstance(outcome, Failed), outcome
    return outcome.failure


# What a handler has in there.


def test_an_isolated_handler_knows_its_call_and_runs_elsewhere(yard: Yard) -> None:
    held = yard.claimed("tell", '{"n": ["ä", 1]}')
    execution = held.execution

    outcome = yard.runner(held)

    assert isinstance(outcome, Succeeded)
    assert outcome.version == 1
    seen = json.loads(outcome.result)
    assert seen.pop("pid") != os.getpid()
    assert {name: datetime.fromisoformat(seen.pop(name)) for name in ("run_at", "deadline")} == {
        "run_at": execution.run_at,
        "deadline": yard.world.now() + held.spec.timeout,
    }
    assert datetime.fromisoformat(seen.pop("scheduled_for")) == execution.scheduled_for
    assert seen == {
        "payload": {"n": ["ä", 1]},
        "execution_id": execution.id,
        "job_id": execution.job_id,
        "owner": execution.owner,
        "attempt": 1,
        "idempotency_key": execution.idempotency_key,
        "stopped": False,
        "stdin": "",
        # What a worker has loaded costs no call anything.
        "modules": [],
    }


def test_a_payload_of_five_megabytes_arrives(yard: Yard) -> None:
    held = replace(yard.claimed("tell"), payload=json.dumps("\\" * 2_500_000))

    outcome = yard.runner(held)

    assert isinstance(outcome, Succeeded)
    assert json.loads(outcome.result)["result_too_large"]["bytes"] > 5_000_000


@pytest.mark.parametrize(
    ("by", "failure", "first_name"),
    [
        (
            "permanent",
            Failure(kind=Kind.PERMANENT, type="Permanent", message="no such customer"),
            "Permanent",
        ),
        (
            "rate limit",
            Failure(
                kind=Kind.RATE_LIMITED,
                type="RateLimited",
                message="busy",
                retry_after=timedelta(seconds=30),
            ),
            "RateLimited",
        ),
        (
            "oserror",
            Failure(kind=Kind.RETRYABLE, type="FileNotFoundError", message="[Errno 2] not here"),
            "FileNotFoundError",
        ),
        ("exit", Failure(kind=Kind.RETRYABLE, type="SystemExit", message="3"), "SystemExit"),
    ],
)
def test_an_exception_means_what_it_means_elsewhere(
    yard: Yard, by: str, failure: Failure, first_name: str
) -> None:
    outcome = yard.run("fail", json.dumps({"by": by}))

    assert isinstance(outcome, Failed)
    assert outcome.failure == failure
    assert (outcome.names[0], outcome.names[-1]) == (first_name, "BaseException")


def test_a_payload_is_checked_in_there_and_not_quoted(yard: Yard) -> None:
    failure = yard.failure("strict", json.dumps(CANARY))

    assert (failure.kind, failure.type) == (Kind.PERMANENT, "InvalidPayload")
    assert CANARY not in failure.message
    assert failure.message == "payload: refused by its validator"


def test_a_result_that_is_not_json_is_named(yard: Yard) -> None:
    assert yard.failure("fail", '{"by": "object"}').type == "InvalidResult"


# Who is isolated.


def test_a_task_that_does_not_say_so_runs_beside_its_neighbours(yard: Yard) -> None:
    assert yard.run("where") == Succeeded(version=1, result=str(os.getpid()))


def test_what_lost_its_lease_once_runs_isolated_the_next_time(yard: Yard) -> None:
    outcome = yard.run("where", crashes=1)

    assert isinstance(outcome, Succeeded)
    assert int(outcome.result) != os.getpid()


def test_without_isolation_everything_runs_in_this_process(yard: Yard) -> None:
    runner = TaskRunner(yard.tasks, yard.heartbeats, yard.world.clock)

    outcome = runner(yard.claimed("where", crashes=2))

    assert outcome == Succeeded(version=1, result=str(os.getpid()))


def test_a_task_that_is_not_found_in_there_says_so(rogues: Registry) -> None:
    tasks = Registry()
    tasks.task("elsewhere", isolation="process")(lambda payload, ctx: None)

    failure = Yard(tasks=tasks).failure("elsewhere")

    assert (failure.kind, failure.type) == (Kind.RETRYABLE, "NotStarted")
    assert "has no task 'elsewhere' version 1" in failure.message


def test_a_process_that_cannot_be_started_is_worth_another_try(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/interpreter")

    failure = yard.failure("tell")

    assert (failure.kind, failure.type) == (Kind.RETRYABLE, "NotStarted")


# How it is stopped: asked, terminated, killed.


def test_it_hears_of_its_time_out_and_may_leave_by_itself(yard: Yard) -> None:
    outcome, took_s = yard.stopped("polite", why=Stop.TIMEOUT)

    assert told(outcome).type == "TimedOut"
    assert told(outcome).message.endswith("the handler stopped when it was asked to")
    assert took_s < isolation.ASKED_FOR_S + isolation.TERMINATED_FOR_S


def test_it_hears_that_it_is_cancelled_and_may_finish(yard: Yard) -> None:
    outcome, _ = yard.stopped("saw", why=Stop.CANCELLED)

    assert isinstance(outcome, Succeeded)
    assert json.loads(outcome.result) == {"cancelled": True, "why": "cancelled"}


def test_it_hears_that_its_lease_is_lost(yard: Yard) -> None:
    outcome, _ = yard.stopped("saw", why=Stop.LOST_LEASE)

    assert isinstance(outcome, Succeeded)
    assert json.loads(outcome.result)["why"] == "lost_lease"


def test_it_hears_that_its_worker_has_to_end(yard: Yard) -> None:
    outcome, _ = yard.stopped("polite", why=Stop.STOPPING)

    assert outcome == Interrupted(version=1, reason="its worker had to end")


def test_what_it_returns_after_the_time_out_is_no_success(yard: Yard) -> None:
    outcome, _ = yard.stopped("saw", why=Stop.TIMEOUT)

    assert told(outcome).kind is Kind.TIMEOUT


def test_it_is_terminated_before_it_is_killed(yard: Yard, tmp_path: Path) -> None:
    note = tmp_path / "note"

    outcome, _ = yard.stopped("terminable", json.dumps(str(note)), why=Stop.TIMEOUT)

    assert note.read_text(encoding="utf-8") == "terminated"
    assert told(outcome).message.endswith("the handler did not stop: exit code 0")


@pytest.mark.parametrize("why", [*Stop])
@pytest.mark.parametrize("task", ["deaf", "spin"])
def test_what_does_not_stop_is_killed(yard: Yard, task: str, why: Stop) -> None:
    """S2-K4: it blocks and ignores every signal; it keeps the interpreter's lock."""
    outcome, took_s = yard.stopped(task, why=why)

    match why:
        case Stop.CANCELLED:
            assert outcome == Withdrawn(version=1, reason="cancelled on request")
        case Stop.TIMEOUT:
            assert (told(outcome).kind, told(outcome).type) == (Kind.TIMEOUT, "TimedOut")
            assert "ran longer than 60 s; the handler did not stop: signal" in told(outcome).message
        case Stop.STOPPING:
            assert outcome == Interrupted(version=1, reason="its worker had to end")
        case Stop.LOST_LEASE:
            assert told(outcome).type == "Stopped"
    assert took_s < 5


def test_what_must_stop_is_killed_before_its_worker_takes_it_for_hung() -> None:
    asked = isolation.ASKED_FOR_S + isolation.TERMINATED_FOR_S + isolation.BURIED_WITHIN_S

    assert asked + 0.5 < STOP_WITHIN.total_seconds()


# What it dies of, by name.


@pytest.mark.parametrize(
    ("task", "payload", "name", "message"),
    [
        ("exit", "0", "ExitedEarly", "exit code 0 before it had a result"),
        ("exit", "3", "ExitedEarly", "exit code 3 before it had a result"),
        ("segfault", "null", "Crashed", "signal 11 (SIGSEGV)"),
        ("die", f"{signal.SIGABRT:d}", "Crashed", "signal 6 (SIGABRT)"),
        ("die", f"{signal.SIGTERM:d}", "Crashed", "signal 15 (SIGTERM)"),
        ("die", f"{signal.SIGKILL:d}", "Crashed", "signal 9 (SIGKILL), which this worker did not"),
        ("close", "null", "ExitedEarly", "exit code"),
        ("close_and_return", "null", "ExitedEarly", "exit code 1 before"),
        ("garble", '"noise"', "BadAnswer", "its process sent not one of ours"),
        ("garble", '"length"', "BadAnswer", "its process sent a frame of 4294967295 bytes"),
        ("garble", '"result"', "BadAnswer", "its process sent no result"),
        ("stop_the_guard", f"{signal.SIGKILL:d}", "Crashed", "the one that watched over it"),
    ],
)
def test_a_death_has_its_name(yard: Yard, task: str, payload: str, name: str, message: str) -> None:
    begun = time.monotonic()

    outcome = yard.run(task, payload)

    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.failure.type) == (Kind.RETRYABLE, name)
    assert message in outcome.failure.message
    # A retry policy may name it.
    assert outcome.names == (name,)
    assert time.monotonic() - begun < 15


@pytest.mark.parametrize(
    ("task", "payload", "message"),
    [
        # Little by little; at once; in processes of its own, none of which has too much.
        ("hoard", "1000000", "MB; its limit is 128 MB"),
        ("hoard", "400000000", "asked for more than its 128 MB"),
        ("hoard_elsewhere", "null", "MB; its limit is 128 MB"),
    ],
    ids=["slowly", "at once", "by its children"],
)
def test_who_holds_more_memory_than_allowed_is_ended_and_it_is_said(
    yard: Yard, task: str, payload: str, message: str
) -> None:
    """S2-K4."""
    outcome = yard.run(task, payload)

    assert isinstance(outcome, Failed)
    assert (outcome.failure.kind, outcome.failure.type) == (Kind.RETRYABLE, "MemoryLimit")
    assert outcome.failure.message.endswith(message)
    assert outcome.names[0] == "MemoryLimit"


def test_a_task_that_names_no_limit_has_its_share_of_the_worker(rogues: Registry) -> None:
    small = Yard(tasks=rogues, memory_bytes=100 * 2**20)

    assert small.failure("hoard_by_default").type == "MemoryLimit"
    assert Yard(tasks=rogues).run("hoard_by_default") == Succeeded(
        version=1, result=str(200 * 2**20)
    )


# What it writes.


def test_what_it_writes_goes_on_line_by_line_without_secrets(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROGUE_PASSWORD", CANARY)
    out = f"one\n\ntwo\x00 Bearer abcdefgh123456\nand {CANARY}"

    yard.run("write", json.dumps({"out": out, "err": "no end of a line"}))

    assert yard.said == ["one", "two\x00 Bearer ***", "and ***", "no end of a line"]


def test_the_last_words_of_a_crash_are_there(yard: Yard) -> None:
    yard.run("die", f"{signal.SIGKILL:d}")
    yard.run("segfault")

    assert yard.said[0] == "about to die"
    assert "Segmentation fault" in yard.said[1]


def test_what_it_writes_is_bounded_and_does_not_hold_it_up(yard: Yard) -> None:
    outcome = yard.run("flood")

    assert outcome == Succeeded(version=1, result='"done"')
    *lines, last = yard.said
    assert sum(map(len, lines)) <= isolation.OUTPUT_MAX_BYTES
    assert max(map(len, lines)) <= isolation.LINE_MAX_CHARS
    assert last.endswith("bytes or more of output are not shown")


def test_who_writes_without_end_is_stopped_like_any_other(yard: Yard) -> None:
    outcome, took_s = yard.stopped("flood_without_end", why=Stop.TIMEOUT)

    assert told(outcome).type == "TimedOut"
    assert took_s < 5
    assert len(yard.said) < 200


# What it asks.


def test_its_context_asks_the_worker(rogues: Registry) -> None:
    def answers(claimed: Claimed, name: str, argument: str) -> str:
        match name:
            case "echo":
                return argument
            case "lost":
                raise LostClaim(claimed.execution.id)
            case "down":
                raise Unavailable("no answer from the table")
            case _:
                raise Rejected(field="name", value=name, reason="unknown")

    yard = Yard(tasks=rogues, answers=answers)
    assert yard.run("ask", '{"echo": "[1, \\"ä\\"]"}') == Succeeded(
        version=1, result=r'["[1, \"ä\"]"]'
    )
    assert yard.failure("ask", '{"lost": ""}').type == "Stopped"
    down = yard.run("ask", '{"down": ""}')
    assert isinstance(down, Failed)
    assert (down.failure.type, down.names) == ("Unavailable", ())
    assert yard.failure("ask", '{"what": ""}').kind is Kind.PERMANENT
    assert yard.failure("ask", '{"echo": "large"}').kind is Kind.PERMANENT


def test_its_threads_ask_side_by_side(rogues: Registry) -> None:
    def answers(claimed: Claimed, name: str, argument: str) -> str:
        time.sleep(0.05 if argument == "0" else 0)
        return argument

    outcome = Yard(tasks=rogues, answers=answers).run("ask_side_by_side", "5")

    assert outcome == Succeeded(version=1, result='["0","1","2","3","4"]')


def test_an_answer_that_does_not_come_does_not_keep_it_from_its_end(
    rogues: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "ASKED_FOR_S", 0.5)

    def answers(claimed: Claimed, name: str, argument: str) -> str:
        yard.said.append("ready")
        time.sleep(6)
        return "null"

    yard = Yard(tasks=rogues, answers=answers)

    outcome, took_s = yard.stopped("ask", '{"slow": ""}', why=Stop.TIMEOUT)

    assert told(outcome).type == "TimedOut"
    assert took_s < 5


def test_it_may_be_deferred(rogues: Registry) -> None:
    world = MemoryWorld()
    yard = Yard(world=world, tasks=rogues, answers=ContextAnswers(world.ports()))
    held = yard.claimed("defer")

    outcome = yard.runner(held)

    assert outcome == Deferred(terms=Terms(heartbeat=timedelta(minutes=2)), version=1)
    id, token = held.execution.id, held.callback
    # Its output goes to the log, and a token that it prints is none of the log's.
    assert len(yard.said) == 1
    assert id in yard.said[0]
    assert token not in yard.said[0]


# What is kept of its errors.


def test_an_error_quotes_no_secret_of_its_payload_or_its_environment(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROGUE_PASSWORD", "environment-canary")

    payload = {"by": "quote", "secret": CANARY, "letter": "dear sir " * 20}
    failure = yard.failure("fail", json.dumps(payload))

    assert failure.type == "ValueError"
    assert failure.message.startswith("refused: {'by': 'quote'")
    for kept_back in (CANARY, "environment-canary", "dear sir"):
        assert kept_back not in failure.message


def test_an_error_of_pydantic_quotes_nothing(yard: Yard) -> None:
    failure = yard.failure("fail", json.dumps({"by": "inner", "secret": CANARY}))

    assert failure.type == "ValidationError"
    assert failure.message.startswith("Inner: number: Input should be a valid integer")
    assert CANARY not in failure.message


def test_half_a_character_in_an_error_can_be_stored(yard: Yard) -> None:
    failure = yard.failure("fail", '{"by": "unprintable"}')

    assert failure.message == "? in a name"
    assert len(failure.message) <= ERROR_MESSAGE_MAX_CHARS
