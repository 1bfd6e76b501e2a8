"""What `make chaos` judges by: accounts that balance, and one thing wrong at a time."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lamplighter.testing import Rehearsal
from probes.book import page
from probes.tasks import Witnessed, witness
from tests.local.books import Try, at_once, tries_of
from tests.local.chaos.balance import Found, broken
from tests.local.chaos.faults import KINDS, ROUND_S, Faults, schedule
from tests.local.chaos.load import Accepted

RUN_AT = "2026-07-12T02:05:00.000Z"
RUN_AT_S = 1_783_821_900.0


def a_try(
    id: str,
    *marks: float,
    execution: str = "ex_1",
    end: str | None = "returned",
    late_s: float = 0.1,
) -> Try:
    return Try(
        id=id,
        execution=execution,
        attempt=1,
        pid=1,
        begun_wall=RUN_AT_S + late_s,
        begun=marks[0],
        seen=marks[-1],
        marks=marks,
        end=end,
    )


def an_execution(id: str, job: str, **fields: object) -> dict[str, object]:
    said: dict[str, object] = {
        "execution_id": id,
        "job_id": job,
        "status": "SUCCEEDED",
        "run_at": RUN_AT,
        "attempts": [{"status": "SUCCEEDED", "error": None}],
        "result": {"try": f"{id} try"},
        "reason": None,
        "error": None,
    }
    return {**said, **fields}


LEDGER = {
    "expected": 3,
    "fired": 2,
    "skipped": 1,
    "cancelled": 0,
    "expired": 0,
    "pending": 0,
    "missed": 0,
    "groups": [],
}
BALANCED = Found(
    accepted=[
        Accepted(job="one", number=1),
        Accepted(job="slots", number=2, overlap="SKIP"),
    ],
    executions={
        "one": [an_execution("ex_1", "one")],
        "slots": [an_execution("ex_2", "slots"), an_execution("ex_3", "slots")],
    },
    waiting=[],
    ledgers={"slots": LEDGER},
    listed=[{"payload": {"number": 1}}, {"payload": {"number": 2}}, {}],
    tries=[
        a_try("ex_1 try", 0.0, 0.5, 1.0),
        a_try("ex_2 try", 0.0, 0.5, execution="ex_2"),
        a_try("ex_3 try", 0.6, 1.0, execution="ex_3"),
    ],
    cancels=set(),
    cancelled_at={},
)


def wrong(found: Found) -> list[str]:
    return [promise for promise, cases in broken(found).items() if cases]


def with_tries(*tries: Try) -> Found:
    return replace(BALANCED, tries=[*BALANCED.tries, *tries])


def with_one(**fields: object) -> Found:
    executions = {**BALANCED.executions, "one": [an_execution("ex_1", "one", **fields)]}
    return replace(BALANCED, executions=executions)


def test_nothing_is_wrong_where_all_is_well() -> None:
    assert wrong(BALANCED) == []


LIVED = "of one execution one try lived at a time"
ENDED = "nothing ended otherwise than it should"
CASES = {
    "a job without an execution": (
        replace(BALANCED, executions={**BALANCED.executions, "one": []}),
        "each accepted job has its execution, and all have ended",
    ),
    "one that still waits": (
        replace(BALANCED, waiting=[an_execution("ex_9", "other", status="RETRYING")]),
        "each accepted job has its execution, and all have ended",
    ),
    "a one-off given up": (with_one(status="DEAD_LETTERED"), ENDED),
    "one cancelled that nobody cancelled": (with_one(status="CANCELLED"), ENDED),
    "one that began early": (
        with_tries(a_try("early", 2.0, 2.5, late_s=-0.002)),
        "nothing started early",
    ),
    "two tries at once": (with_tries(a_try("other", 0.9, 1.4, end=None)), LIVED),
    "a host that woke and went on for six seconds beside another": (
        with_tries(
            a_try("zombie", *map(float, range(2, 5)), *map(float, range(60, 67)), end="stopped"),
            a_try("taker", *map(float, range(45, 70))),
        ),
        LIVED,
    ),
    "runs of a job that overlap": (
        with_tries(a_try("ex_3 again", 0.3, 0.5, execution="ex_3")),
        "of one job that does not allow overlap one execution ran at a time",
    ),
    "a result of nobody's": (
        with_one(result={"try": "somebody's"}),
        "of each execution one result was accepted, that of a try",
    ),
    "two accepted results": (
        with_one(attempts=[{"status": "SUCCEEDED", "error": None}] * 2),
        "of each execution one result was accepted, that of a try",
    ),
    "one that began after its cancel was answered": (
        replace(BALANCED, cancelled_at={"ex_1": RUN_AT_S}),
        "nothing started after the answer that it is cancelled",
    ),
    "a key that made two jobs": (
        replace(BALANCED, listed=[*BALANCED.listed, {"payload": {"number": 2}}]),
        "a key made one job",
    ),
    "a slot missed": (
        replace(BALANCED, ledgers={"slots": {**LEDGER, "fired": 1, "missed": 1}}),
        "the ledgers balance, and miss nothing",
    ),
    "a slot in no outcome": (
        replace(BALANCED, ledgers={"slots": {**LEDGER, "expected": 4}}),
        "the ledgers balance, and miss nothing",
    ),
}


@pytest.mark.parametrize(("found", "promise"), CASES.values(), ids=CASES)
def test_each_kind_of_wrong_breaks_its_promise_alone(found: Found, promise: str) -> None:
    assert wrong(found) == [promise]


def test_a_host_that_woke_may_take_a_moment_to_notice() -> None:
    woken = a_try("zombie", 2.0, 2.5, 60.0, 60.5, 62.0, end="stopped")

    assert wrong(with_tries(woken, a_try("taker", *map(float, range(45, 70))))) == []


def test_what_was_killed_three_times_is_given_up_as_it_should_be() -> None:
    died = {"status": "RETRYING", "error": {"kind": "lost_lease"}}

    assert wrong(with_one(status="DEAD_LETTERED", attempts=[died] * 3)) == []


def test_a_try_that_died_is_known_by_its_last_word(tmp_path: Path) -> None:
    book = tmp_path / "book"
    ctx = Rehearsal().context()
    witness(Witnessed(book=str(book), seconds=0.01), ctx)
    with page(str(book), ctx):
        lines = book.read_text().splitlines()
    book.write_text("\n".join(lines))

    first, second = tries_of(book)

    assert (first.end, second.end) == ("returned", None)
    assert first.begun < first.seen < second.begun == second.seen
    assert [json.loads(line)["what"] for line in lines] == ["begun", "alive", "returned", "begun"]


@pytest.mark.parametrize(
    ("tries", "most"),
    [
        ([], 0),
        ([a_try("1", 0.0, 1.0), a_try("2", 1.0, 2.0)], 1),
        ([a_try("1", 0.0, 1.0), a_try("2", 0.9, 2.0), a_try("3", 0.95, 3.0)], 3),
    ],
)
def test_who_lives_at_once_is_counted(tries: Sequence[Try], most: int) -> None:
    assert at_once(tries) == most


def test_each_fault_strikes_in_each_round_and_a_seed_draws_the_same() -> None:
    strikes = schedule(2 * ROUND_S, random.Random("7"))
    every = sorted([*KINDS, Faults.freeze_dispatcher], key=_name)

    for begin in (0.0, ROUND_S):
        in_round = [kind for at, kind in strikes if begin <= at < begin + ROUND_S]
        assert sorted(in_round, key=_name) == every
    assert strikes == schedule(2 * ROUND_S, random.Random("7"))
    assert [at for at, _ in strikes] == sorted(at for at, _ in strikes)


def _name(kind: Callable[[Faults], None]) -> str:
    return kind.__name__
