"""The tasks to play with, called as a worker calls them; a server on 127.0.0.1 answers them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from lamplighter import Context, Permanent, RateLimited, Retryable, Stopped, Task
from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.model import Owner
from lamplighter.local.server import listen, port_of, serving
from lamplighter.services.heartbeat import Stop
from lamplighter.testing import Rehearsal
from playground import tasks

NOW = datetime(2026, 7, 12, 2, 5, tzinfo=UTC)
P = TypeVar("P")
BIG = "x" * (tasks.BODY_MAX_BYTES + 1)


def context(*, attempt: int = 1) -> Context:
    return Context(
        execution_id=ExecutionId("ex_1"),
        job_id=JobId("one_1"),
        owner=Owner("ada"),
        attempt=attempt,
        scheduled_for=NOW,
        run_at=NOW,
        deadline=NOW + timedelta(minutes=1),
        idempotency_key="ex_1",
    )


def called(task: Task[P, object], payload: str, ctx: Context | None = None) -> object:
    """The payload goes through JSON, as a job's does."""
    return task(task.parse(payload), ctx or context())


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Answers `/<status>` with that status, and `/big` with more than a result takes."""

    def answer(request: Request) -> PlainTextResponse:
        name = request.path_params["name"]
        if not name.isdecimal():
            return PlainTextResponse(BIG)
        headers = {"Retry-After": "7"} if name == "429" else {}
        return PlainTextResponse(f"this is {name}", int(name), headers=headers)

    listening = listen(0)
    with serving(Starlette(routes=[Route("/{name}", answer)]), listening):
        yield f"http://127.0.0.1:{port_of(listening)}"


@pytest.mark.parametrize("payload", ['{"a": [1, null]}', '"text"', "3", "null"])
def test_echo_gives_back_whatever_it_is_given(payload: str) -> None:
    assert called(tasks.echo, payload) == json.loads(payload)


def test_sleep_takes_its_time() -> None:
    begun = time.monotonic()

    called(tasks.sleep, '{"seconds": 0.2}')

    assert time.monotonic() - begun >= 0.2


def test_sleep_stops_when_it_is_asked_to() -> None:
    ctx = context()
    ctx.signal.stop(Stop.CANCELLED)

    with pytest.raises(Stopped):
        called(tasks.sleep, '{"seconds": 600}', ctx)


def test_pages_go_on_from_where_the_attempt_before_got_to() -> None:
    rehearsal = Rehearsal()
    with pytest.raises(Retryable, match="after 2 pages"):
        called(tasks.pages, '{"pages": 3, "fails_after": 2}', rehearsal.context())

    told = called(tasks.pages, '{"pages": 3, "fails_after": 2}', rehearsal.context())

    assert told == {"begun_at": 2, "receipt": "by attempt 2"}


def test_flaky_fails_as_often_as_it_is_told_and_then_succeeds() -> None:
    for attempt in (1, 2):
        with pytest.raises(Retryable):
            called(tasks.flaky, '{"failures": 2}', context(attempt=attempt))

    assert called(tasks.flaky, '{"failures": 2}', context(attempt=3)) == {"succeeded_at_attempt": 3}


@pytest.mark.parametrize(("by", "status"), [("exit", 1), ("kill", -signal.SIGKILL)])
def test_crash_takes_its_process_with_it(by: str, status: int) -> None:
    script = f"from test_playground import *; called(tasks.crash, '{json.dumps({'by': by})}')"
    path = [str(Path(tasks.__file__).parents[1]), str(Path(__file__).parent)]

    ended = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        check=False,
    )

    assert ended.returncode == status


def test_http_get_keeps_the_status_and_the_page(site: str) -> None:
    answer = called(tasks.http_get, f'{{"url": "{site}/200"}}')

    assert answer == {"status": 200, "body": "this is 200", "truncated": False}


def test_http_get_keeps_no_more_of_a_page_than_a_result_takes(site: str) -> None:
    answer = called(tasks.http_get, f'{{"url": "{site}/big"}}')

    assert answer == {"status": 200, "body": BIG[:-1], "truncated": True}


@pytest.mark.parametrize(
    ("status", "error"), [(404, Permanent), (400, Permanent), (500, Retryable), (502, Retryable)]
)
def test_http_get_tries_again_only_what_may_mend(
    site: str, status: int, error: type[Exception]
) -> None:
    with pytest.raises(error, match=str(status)):
        called(tasks.http_get, f'{{"url": "{site}/{status}"}}')


def test_http_get_comes_back_when_it_is_told_to(site: str) -> None:
    with pytest.raises(RateLimited) as caught:
        called(tasks.http_get, f'{{"url": "{site}/429"}}')

    assert caught.value.retry_after == timedelta(seconds=7)


def test_http_get_tries_again_when_nobody_answers() -> None:
    with pytest.raises(Retryable, match="ConnectError"):
        called(tasks.http_get, '{"url": "http://127.0.0.1:1/"}')


@pytest.mark.parametrize(
    ("task", "payload"),
    [
        (tasks.sleep, '{"seconds": -1}'),
        (tasks.sleep, '{"secs": 1}'),
        (tasks.flaky, '{"failures": 101}'),
        (tasks.crash, '{"by": "magic"}'),
        (tasks.http_get, '{"url": "file:///etc/passwd"}'),
    ],
)
def test_a_payload_that_makes_no_sense_is_refused(task: Task[object, object], payload: str) -> None:
    parse: Callable[[str], object] = task.parse
    with pytest.raises(ValidationError):
        parse(payload)
