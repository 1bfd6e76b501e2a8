"""A history is checked by itself: each kind of it that may not be is found, and nothing else."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.lifecycle import State
from lamplighter.core.trace import Account, Told, Trace, Try, Write, violations

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def tried(*, begins: float, ends: float | None, state: State, number: int = 1) -> Try:
    """One that ran for so many seconds past noon."""
    return Try(
        number=number,
        started_at=NOON + begins * SECOND,
        finished_at=None if ends is None else NOON + ends * SECOND,
        state=state,
        has_run=True,
    )


FAILED_ONCE = tried(begins=0.1, ends=5, state=State.RETRYING)
WELL = tried(begins=65, ends=70, state=State.SUCCEEDED, number=2)
TOLD = Told(
    id="ex_1",
    job_id="job_1",
    job_version=1,
    state=State.SUCCEEDED,
    run_at=NOON,
    finished_at=NOON + 70 * SECOND,
    has_result=True,
    tries=[FAILED_ONCE, WELL],
)
MADE = Write(
    at=NOON - MINUTE,
    id="ex_1",
    job_version=1,
    state=State.SCHEDULED,
    attempt=1,
    token=None,
    lease_until=None,
    due_at=NOON,
    has_been_tried=False,
)
CLAIMED = replace(MADE, at=NOON, state=State.RUNNING, token="a", lease_until=NOON + 30 * SECOND)
ENDED = replace(
    MADE, at=NOON + 9 * SECOND, state=State.SUCCEEDED, has_been_tried=True, said="result 1"
)
TAKEN_OVER = replace(CLAIMED, at=NOON + 36 * SECOND, token="b", lease_until=NOON + 66 * SECOND)


def promises(trace: Trace) -> list[str]:
    return [one.promise for one in violations(trace)]


def test_a_history_in_which_all_is_well_breaks_nothing() -> None:
    running = replace(TOLD, id="ex_2", state=None, finished_at=None, has_result=False, tries=[])
    alone = {"job_1": 1}
    account = Account(job_id="job_1", expected=2, by_outcome={"fired": 1, "pending": 1})
    writes = [MADE, CLAIMED, TAKEN_OVER, replace(ENDED, at=NOON + MINUTE)]

    trace = Trace(executions=[TOLD, running], writes=writes, accounts=[account], alone=alone)

    assert promises(trace) == []


@pytest.mark.parametrize(
    ("told", "promise"),
    [
        (
            replace(TOLD, tries=[tried(begins=-2, ends=5, state=State.SUCCEEDED)]),
            "never early",
        ),
        (
            replace(TOLD, tries=[FAILED_ONCE, replace(WELL, started_at=NOON + 2 * SECOND)]),
            "one live try",
        ),
        (
            replace(TOLD, tries=[replace(FAILED_ONCE, finished_at=None), WELL]),
            "one live try",
        ),
        (
            replace(TOLD, tries=[WELL, tried(begins=90, ends=99, state=State.RETRYING, number=3)]),
            "one accepted result",
        ),
        (replace(TOLD, state=State.DEAD_LETTERED), "one accepted result"),
        (replace(TOLD, tries=[FAILED_ONCE]), "one accepted result"),
        (replace(TOLD, finished_at=None), "rows are legal"),
        (replace(TOLD, tries=[FAILED_ONCE, replace(WELL, number=1)]), "rows are legal"),
        (
            replace(TOLD, tries=[replace(FAILED_ONCE, state=State.SCHEDULED), WELL]),
            "rows are legal",
        ),
        (
            replace(TOLD, tries=[tried(begins=5, ends=1, state=State.SUCCEEDED)]),
            "rows are legal",
        ),
    ],
    ids=[
        "a try before its time",
        "a try beside another",
        "a try beside one that goes on",
        "a try after the accepted one",
        "a result of what was dead-lettered",
        "a success that no try had",
        "final and not finished",
        "the same try twice",
        "a try that led where none leads",
        "a try that ends before it starts",
    ],
)
def test_an_execution_that_cannot_be_is_found(told: Told, promise: str) -> None:
    assert promise in promises(Trace(executions=[told]))


@pytest.mark.parametrize(
    ("writes", "promise"),
    [
        ([CLAIMED], "rows are legal"),
        ([MADE, ENDED], "rows are legal"),
        ([MADE, CLAIMED, ENDED, replace(ENDED, said="result 2")], "rows are legal"),
        ([MADE, CLAIMED, ENDED, replace(CLAIMED, at=NOON + MINUTE, token="c")], "rows are legal"),
        ([MADE, CLAIMED, replace(MADE, at=NOON + MINUTE)], "rows are legal"),
        ([MADE, replace(CLAIMED, at=NOON - 2 * SECOND)], "never early"),
        ([MADE, CLAIMED, replace(TAKEN_OVER, at=NOON + 31 * SECOND)], "one live try"),
    ],
    ids=[
        "made as it runs",
        "ended before it ran",
        "two results",
        "claimed once more",
        "scheduled once more",
        "claimed early",
        "taken over in its lease",
    ],
)
def test_a_write_that_cannot_be_is_found(writes: Sequence[Write], promise: str) -> None:
    assert promises(Trace(writes=writes)) == [promise]


def test_a_later_version_takes_over_what_was_cancelled_and_never_tried() -> None:
    cancelled = replace(MADE, state=State.CANCELLED)
    newer = replace(MADE, job_version=2)

    assert promises(Trace(writes=[MADE, cancelled, newer])) == []
    tried_before = replace(cancelled, has_been_tried=True)
    assert promises(Trace(writes=[MADE, tried_before, newer])) == ["rows are legal"]


def test_of_a_job_that_forbids_it_an_overlap_is_found() -> None:
    long = replace(TOLD, tries=[tried(begins=0, ends=120, state=State.SUCCEEDED)])
    beside = replace(long, id="ex_2", tries=[tried(begins=60, ends=150, state=State.SUCCEEDED)])
    after = replace(long, id="ex_3", tries=[tried(begins=110, ends=300, state=State.SUCCEEDED)])
    both = Trace(executions=[long, beside], alone={"job_1": 1})

    assert promises(both) == ["no overlap"]
    # It may have looked for that long before it began.
    assert promises(replace(both, executions=[long, after])) == []
    assert promises(replace(both, alone={"job_1": 2})) == []


def test_a_ledger_that_does_not_balance_is_found() -> None:
    lacking = Account(job_id="job_1", expected=3, by_outcome={"fired": 2})
    missed = Account(job_id="job_2", expected=3, by_outcome={"fired": 2, "missed": 1})

    assert promises(Trace(accounts=[lacking, missed])) == ["the ledger balances"] * 2
