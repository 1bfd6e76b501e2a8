"""What a status is called, shown and asked for."""

import pytest

from lamplighter.core.errors import Rejected
from lamplighter.core.lifecycle import ALIASES, State
from lamplighter.core.status import Status, parse_status, status_of
from lamplighter.memory import MemoryWorld
from tests.support.jobs import created, in_, new_job


def test_every_state_is_a_status_and_queued_and_parked_are_more() -> None:
    assert {*Status} == {*State} | {"QUEUED", "PARKED"}


def test_what_dispatch_has_passed_is_queued() -> None:
    ports = MemoryWorld().ports()
    row = created(ports, new_job(run_at=in_(ports, 3600))).first

    assert status_of(row, dispatched=False) is Status.SCHEDULED
    assert status_of(row, dispatched=True) is Status.QUEUED


def test_what_was_sent_directly_is_queued() -> None:
    row = created(MemoryWorld().ports(), new_job()).first

    assert status_of(row, dispatched=False) is Status.QUEUED


@pytest.mark.parametrize(
    ("text", "status"),
    [
        *((status.value, status) for status in Status),
        *((status.lower(), status) for status in Status),
        ("PENDING", Status.SCHEDULED),
        ("created", Status.SCHEDULED),
        ("ENQUEUED", Status.QUEUED),
        ("ready", Status.QUEUED),
        ("available", Status.QUEUED),
        ("dispatched", Status.QUEUED),
        ("Executing", Status.RUNNING),
        ("active", Status.RUNNING),
        ("retryable", Status.RETRYING),
        ("suspended", Status.BLOCKED),
        ("COMPLETED", Status.SUCCEEDED),
        ("success", Status.SUCCEEDED),
        ("dead_letter", Status.DEAD_LETTERED),
        ("dead-letter", Status.DEAD_LETTERED),
        ("DLQ", Status.DEAD_LETTERED),
        ("discarded", Status.DEAD_LETTERED),
        ("Canceled", Status.CANCELLED),
        ("skip", Status.SKIPPED),
        ("deadline_exceeded", Status.EXPIRED),
    ],
)
def test_a_filter_may_use_any_systems_name(text: str, status: Status) -> None:
    assert parse_status(text) is status


def test_every_alias_names_a_status() -> None:
    assert {parse_status(name) for name in ALIASES} <= {*Status}


@pytest.mark.parametrize("text", ["", "lost", "SCHEDULED,", "\u0130"], ids=repr)
def test_what_names_none_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(Rejected, match="not one of SCHEDULED, QUEUED, RUNNING") as refused:
        parse_status(text)

    assert (refused.value.field, refused.value.value) == ("status", text)
