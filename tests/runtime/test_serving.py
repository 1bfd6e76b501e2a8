"""A worker that is no Lambda: takes what it has places for, gives back what it cannot end."""

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NoReturn

import pytest

from lamplighter import Context
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import WORKER_LEASE
from lamplighter.core.model import Execution
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports, Received
from lamplighter.runtime import health, serving
from lamplighter.runtime.crew import EXIT_HUNG
from lamplighter.runtime.serving import Health, Places, Serving
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.tasks.registry import Registry
from lamplighter.tasks.runner import TaskRunner
from tests.runtime.test_batch import SOON, Ended, until
from tests.support.claims import submitted

AMPLE = timedelta(seconds=60)


class Service:
    """A worker on memory ports that serves in a thread of its own."""

    def __init__(self, *, concurrency: int = 3) -> None:
        self.world = MemoryWorld()
        self.tasks = Registry()
        self.exit_codes: list[int] = []
        self.failed: list[Exception] = []
        self.refusing = False
        self.released = threading.Event()
        self.places = Places(concurrency)
        self.serving = self.another()

    def another(self) -> Serving:
        ports = self.world.ports()
        heartbeats = Heartbeats(ports)
        return Serving(
            ports=ports,
            runner=TaskRunner(self.tasks, heartbeats, self.world.clock),
            heartbeats=heartbeats,
            end_process=self.end_process,
            worker="laptop-1",
            places=self.places,
            flush=lambda: None,
        )

    def end_process(self, code: int) -> NoReturn:
        self.exit_codes.append(code)
        raise Ended

    def receive(self, most: int) -> Sequence[Received]:
        if self.refusing:
            raise Unavailable("ReceiveMessage: no answer")
        got = self.world.queue.receive(limit=most)
        self.world.queue.hide(got, WORKER_LEASE)
        if not got:
            time.sleep(0.01)
        return got

    def begin(self, *, grace: timedelta = AMPLE) -> None:
        self.thread = threading.Thread(target=self._run, args=(grace,), daemon=True)
        self.thread.start()

    def _run(self, grace: timedelta) -> None:
        try:
            self.serving.run([self.receive], grace=grace)
        except Ended:
            pass
        except Exception as error:  # noqa: BLE001 -- looked at by the test
            self.failed.append(error)

    def has_ended(self) -> bool:
        return not self.thread.is_alive()

    def submit(self, *names: str) -> list[ExecutionId]:
        return [submitted(self.world, task=name).first.id for name in names]

    def row(self, id: ExecutionId) -> Execution:
        row = self.world.ports().executions.get(id)
        assert row is not None
        return row

    def are_done(self, ids: Sequence[ExecutionId]) -> bool:
        return all(self.row(id).state is State.SUCCEEDED for id in ids)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr("lamplighter.runtime.crew.LOOK_EVERY_S", 0.01)
    monkeypatch.setattr("lamplighter.runtime.serving.PAUSE_S", 0.01)
    service = Service()
    service.tasks.task("quick")(lambda payload, ctx: "done")

    @service.tasks.task("waits")
    def waits(payload: None, ctx: Context) -> None:
        service.released.wait(SOON)

    @service.tasks.task("polite")
    def polite(payload: None, ctx: Context) -> None:
        until(lambda: ctx.stopped)
        ctx.raise_if_stopped()

    yield service
    service.released.set()
    service.serving.stop()
    service.serving.hurry()
    service.thread.join(SOON)


def test_what_comes_is_run_and_no_more_at_once_than_there_are_places(service: Service) -> None:
    running, most, lock = 0, 0, threading.Lock()

    @service.tasks.task("counts")
    def counts(payload: None, ctx: Context) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1

    ids = service.submit(*["counts"] * 12)
    service.begin()

    until(lambda: service.are_done(ids))
    assert most == 3
    assert len(service.world.queue) == 0
    assert {service.row(id).attempts[0].worker for id in ids} == {"laptop-1"}


def test_one_that_takes_long_keeps_only_its_own_place(service: Service) -> None:
    (slow,) = service.submit("waits")
    service.begin()
    until(lambda: service.row(slow).state is State.RUNNING)

    ids = service.submit(*["quick"] * 30)

    until(lambda: service.are_done(ids))
    assert service.row(slow).state is State.RUNNING
    assert service.serving.running == 1


def test_when_told_to_stop_it_ends_what_runs_and_takes_nothing_more(service: Service) -> None:
    (first,) = service.submit("waits")
    service.begin()
    until(lambda: service.row(first).state is State.RUNNING)

    service.serving.stop()
    (later,) = service.submit("quick")
    time.sleep(0.1)
    assert not service.has_ended()
    assert service.serving.health is Health.DRAINING
    service.released.set()

    until(service.has_ended)
    assert service.row(first).state is State.SUCCEEDED
    assert service.row(later).state is State.SCHEDULED
    assert [one.message.execution_id for one in service.world.queue.receive()] == [later]
    assert service.exit_codes == []


def test_what_a_receive_brings_after_the_stop_is_given_back_at_once(service: Service) -> None:
    (id,) = service.submit("quick")
    before = service.receive

    def late(most: int) -> Sequence[Received]:
        service.serving.stop()
        return before(most)

    service.receive = late  # type: ignore[method-assign]
    service.begin()

    until(service.has_ended)
    assert service.row(id).state is State.SCHEDULED
    (again,) = service.world.queue.receive()
    assert again.receive_count == 2


def test_after_the_grace_a_handler_is_asked_to_stop_and_its_try_goes_on_elsewhere(
    service: Service,
) -> None:
    (id,) = service.submit("polite")
    service.begin(grace=timedelta(0))
    until(lambda: service.row(id).state is State.RUNNING)

    service.serving.stop()

    until(service.has_ended)
    row = service.row(id)
    assert (row.state, row.attempt, row.crashes) == (State.RETRYING, 1, 0)
    assert row.next_run_at == service.world.now()
    assert [attempt.state for attempt in row.attempts] == [State.RETRYING]
    assert row.reason == "its worker had to end"
    (message,) = service.world.queue.receive()
    assert (message.message.execution_id, message.message.attempt) == (id, 1)
    assert service.exit_codes == []


def test_a_second_signal_lets_no_grace_pass(service: Service) -> None:
    (id,) = service.submit("polite")
    service.begin()
    until(lambda: service.row(id).state is State.RUNNING)

    service.serving.stop()
    service.serving.hurry()

    until(service.has_ended)
    assert service.row(id).state is State.RETRYING


def test_one_that_does_not_stop_ends_with_the_process_and_loses_no_attempt(
    service: Service,
) -> None:
    """S0-E2."""
    (id,) = service.submit("waits")
    service.begin(grace=timedelta(0))
    until(lambda: service.row(id).state is State.RUNNING)
    service.serving.stop()
    until(lambda: service.serving.runner.hung() == [] and service.serving.is_stopping)
    time.sleep(0.1)

    service.world.pass_time(timedelta(seconds=6))

    until(service.has_ended)
    assert service.exit_codes == [EXIT_HUNG]
    row = service.row(id)
    assert (row.state, row.attempt, row.crashes) == (State.RETRYING, 1, 0)
    # Not before the process has surely ended.
    assert row.next_run_at == service.world.now() + timedelta(seconds=10)


def test_a_cancelled_one_that_is_interrupted_is_cancelled(service: Service) -> None:
    (id,) = service.submit("polite")
    service.begin(grace=timedelta(0))
    until(lambda: service.row(id).state is State.RUNNING)
    service.world.ports().executions.request_cancel(id, now=service.world.now())

    service.serving.stop()

    until(service.has_ended)
    # As after any try that a cancel was asked for in: the next claim finds it.
    service.serving = service.another()
    service.begin()
    until(lambda: service.row(id).state is State.CANCELLED)


def test_a_queue_that_does_not_answer_is_asked_again(service: Service) -> None:
    service.refusing = True
    (id,) = service.submit("quick")
    service.begin()
    time.sleep(0.1)
    assert service.row(id).state is State.SCHEDULED

    service.refusing = False

    until(lambda: service.are_done([id]))


def test_a_queue_that_is_not_there_ends_it_with_what_was_wrong(service: Service) -> None:
    def gone(most: int) -> Sequence[Received]:
        raise LookupError("QueueDoesNotExist")

    service.receive = gone  # type: ignore[method-assign]
    service.begin()

    until(service.has_ended)
    assert [str(error) for error in service.failed] == ["QueueDoesNotExist"]


def test_a_host_whose_clock_is_off_begins_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[int] = []

    def refuses(ports: Ports, *, messages: int) -> bool:
        refused.append(messages)
        return True

    monkeypatch.setattr("lamplighter.services.clock.refuses", refuses)
    (id,) = service.submit("quick")
    service.begin()

    until(lambda: refused == [1])
    assert service.row(id).state is State.SCHEDULED


def test_a_receiver_that_has_not_come_round_for_a_minute_is_no_good(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = threading.Event()

    def never(most: int) -> Sequence[Received]:
        stuck.wait(SOON)
        return ()

    service.receive = never  # type: ignore[method-assign]
    assert service.serving.health is Health.STARTING
    service.begin()
    until(lambda: service.serving.health is Health.SERVING)

    monkeypatch.setattr(serving, "SILENT_S", 0.05)

    until(lambda: service.serving.health is Health.FAILING)
    stuck.set()


@pytest.mark.parametrize(
    ("status", "code"), [(Health.SERVING, 200), (Health.DRAINING, 200), (Health.FAILING, 503)]
)
def test_a_health_check_is_answered(status: Health, code: int) -> None:
    with health.answering("127.0.0.1", 0, lambda: {"status": status, "running": 2}) as port:
        seen = asked(f"http://127.0.0.1:{port}/health")
        nowhere = asked(f"http://127.0.0.1:{port}/")

    assert seen == (code, {"status": status, "running": 2})
    assert nowhere == (404, None)


def asked(url: str) -> tuple[int, object]:
    try:
        with urllib.request.urlopen(url, timeout=SOON) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        body = error.read()
        return error.code, json.loads(body) if body.startswith(b"{") else None


def test_places_are_given_up_to_what_is_free() -> None:
    places = Places(12)

    assert places.take(10, within=0) == 10
    assert places.take(10, within=0) == 2
    assert places.take(10, within=0) == 0
    places.give_back(1)
    assert places.take(10, within=0) == 1
