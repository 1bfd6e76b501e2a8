"""A create of a task that no worker is said to know: accepted, and warned of."""

from typing import Any

import pytest

from lamplighter.memory import MemoryWorld
from tests.support.api import Answer, Caller, caller


@pytest.fixture
def acme() -> Caller:
    return caller(MemoryWorld(), tasks=("echo", "send_mail"))


def warnings(answer: Answer) -> list[dict[str, Any]] | None:
    assert answer.status == 201, answer.text
    found: list[dict[str, Any]] | None = answer.json.get("warnings")
    return found


@pytest.mark.parametrize("when", [{}, {"rate": "1 hour"}, {"run_at": "2030-01-01T00:00:00Z"}])
def test_it_is_accepted_and_told_with_what_may_have_been_meant(
    acme: Caller, when: dict[str, str]
) -> None:
    (told,) = warnings(acme.post("/v1/jobs", {"task": "send_mial", **when})) or []

    assert (told["code"], told["task"]) == ("task-is-unknown", "send_mial")
    assert told["detail"] == (
        "No worker is said to know this task: it waits, PARKED, until one does; "
        "did you mean send_mail?"
    )


def test_what_is_like_none_of_them_has_no_hint(acme: Caller) -> None:
    (told,) = warnings(acme.post("/v1/jobs", {"task": "x-ray"})) or []

    assert told["detail"].endswith("until one does")


def test_what_is_known_and_what_has_a_target_are_not_warned_of(acme: Caller) -> None:
    target = {"kind": "http", "url": "https://svc.example.com/"}

    assert warnings(acme.post("/v1/jobs", {"task": "echo"})) is None
    assert warnings(acme.post("/v1/jobs", {"target": target})) is None


def test_where_nobody_said_which_there_are_nothing_is_warned_of() -> None:
    assert warnings(caller(MemoryWorld()).post("/v1/jobs", {"task": "x-ray"})) is None


def test_each_job_of_a_batch_has_its_own_and_a_replayed_one_the_first(acme: Caller) -> None:
    jobs = [{"task": "echo"}, {"task": "ecco", "idempotency_key": "k"}]

    first, again = (acme.post("/v1/jobs/batch", {"jobs": jobs}).json["answers"] for _ in range(2))

    assert [len(one["body"].get("warnings", [])) for one in first] == [0, 1]
    assert again[1]["body"] == first[1]["body"]
