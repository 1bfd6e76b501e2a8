"""Cases from other people's bugs; the expected instants were computed without any cron library.

`cases.json` holds them as data. Where a case depends on policy, `expected` is what the default
policies give, and `by_policy` what each pair of policies does.
"""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from typing import NotRequired, TypedDict

import pytest

from lamplighter.core.errors import Rejected
from lamplighter.core.schedule import Schedule, parse


class Case(TypedDict):
    id: str
    title: str
    cron: str
    dialect: str
    timezone: str
    after: str
    refused: NotRequired[bool]
    expected: NotRequired[list[str]]
    by_policy: NotRequired[dict[str, list[str]]]
    follows_elapsed_time: NotRequired[bool]


CASES: list[Case] = json.loads(Path(__file__).with_name("cases.json").read_text(encoding="utf-8"))
DUE = [case for case in CASES if "expected" in case]
REFUSED = [case for case in CASES if case.get("refused")]
BEATS = [case for case in CASES if case.get("follows_elapsed_time")]
POLICIES = [
    pytest.param(case, policy, id=f"{case['title']}: {policy}")
    for case in CASES
    for policy in case.get("by_policy", {})
]


def _title(case: Case) -> str:
    return case["title"]


def _schedule(case: Case, gap: str = "NEXT_VALID", fold: str = "FIRST") -> Schedule:
    return parse(
        cron=case["cron"],
        timezone=case["timezone"],
        dialect=case["dialect"],
        dst_gap=gap,
        dst_fold=fold,
    )


def _first(schedule: Schedule, case: Case, count: int) -> list[str]:
    found = islice(schedule.occurrences(datetime.fromisoformat(case["after"])), count)
    return [instant.strftime("%Y-%m-%dT%H:%M:%SZ") for instant in found]


@pytest.fixture
def in_sydney(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Australia/Sydney")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_every_case_is_either_due_or_refused() -> None:
    assert len(DUE) + len(REFUSED) == len(CASES) == 34


@pytest.mark.parametrize("case", DUE, ids=_title)
def test_a_case_is_due_when_it_was_computed_to_be(case: Case) -> None:
    expected = case["expected"]

    assert _first(_schedule(case), case, len(expected)) == expected


@pytest.mark.parametrize(("case", "policy"), POLICIES)
def test_a_case_follows_each_policy(case: Case, policy: str) -> None:
    gap, fold = policy.split()
    expected = case["by_policy"][policy]

    assert _first(_schedule(case, gap, fold), case, len(expected)) == expected


@pytest.mark.parametrize("gap", ["NEXT_VALID", "SHIFT", "SKIP"])
@pytest.mark.parametrize("fold", ["FIRST", "SECOND", "BOTH"])
@pytest.mark.parametrize("case", BEATS, ids=_title)
def test_a_beat_follows_elapsed_time_under_every_policy(case: Case, gap: str, fold: str) -> None:
    expected = case["expected"]

    assert _first(_schedule(case, gap, fold), case, len(expected)) == expected


@pytest.mark.parametrize("case", DUE, ids=_title)
def test_a_case_is_the_same_backwards(case: Case) -> None:
    schedule = _schedule(case)
    found = list(islice(schedule.occurrences(datetime.fromisoformat(case["after"])), 8))

    assert [schedule.previous(later) for later in found[1:]] == found[:-1]


@pytest.mark.parametrize("case", DUE, ids=_title)
def test_asking_again_from_each_answer_gives_the_next(case: Case) -> None:
    found = list(islice(_schedule(case).occurrences(datetime.fromisoformat(case["after"])), 8))

    assert [_schedule(case).next(earlier) for earlier in found[:-1]] == found[1:]
    assert all(earlier < later for earlier, later in pairwise(found))


@pytest.mark.parametrize("case", REFUSED, ids=_title)
def test_a_case_that_makes_no_sense_is_refused_at_once(case: Case) -> None:
    started = time.process_time()

    with pytest.raises(Rejected) as refused:
        _schedule(case)

    assert time.process_time() - started < 0.1
    assert refused.value.field == "cron"


@pytest.mark.usefixtures("in_sydney")
def test_the_zone_of_the_host_does_not_matter() -> None:
    after = datetime(2025, 10, 5, 2, tzinfo=UTC)

    hours = [instant.hour for instant in islice(parse(cron="0 * * * *").occurrences(after), 3)]

    assert hours == [3, 4, 5]
