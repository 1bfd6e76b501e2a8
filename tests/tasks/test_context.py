"""What a handler is told, and how it learns that it has to stop."""

import threading
import time
from datetime import UTC, datetime

import pytest

from lamplighter import Context, Stopped
from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.model import Owner
from lamplighter.services.heartbeat import Stop
from lamplighter.tasks.context import StopSignal

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def context(signal: StopSignal) -> Context:
    return Context(
        execution_id=ExecutionId("ex_1"),
        job_id=JobId("one_1"),
        owner=Owner("acme"),
        attempt=2,
        scheduled_for=NOON,
        run_at=NOON,
        deadline=NOON,
        idempotency_key="ex_1",
        signal=signal,
    )


def test_a_handler_may_go_on_until_it_is_asked_to_stop() -> None:
    signal = StopSignal()
    ctx = context(signal)

    before = ctx.stopped
    ctx.raise_if_stopped()
    signal.stop(Stop.TIMEOUT)

    assert (before, ctx.stopped) == (False, True)
    with pytest.raises(Stopped):
        ctx.raise_if_stopped()


@pytest.mark.parametrize("why", list(Stop))
def test_only_a_cancelled_handler_is_cancelled(why: Stop) -> None:
    signal = StopSignal()
    signal.stop(why)

    assert context(signal).cancelled == (why is Stop.CANCELLED)


def test_the_first_reason_to_stop_stays_and_a_later_one_is_known_too() -> None:
    now = [10.0]
    signal = StopSignal(lambda: now[0])
    signal.stop(Stop.CANCELLED)
    now[0] = 20.0
    signal.stop(Stop.TIMEOUT)
    now[0] = 30.0
    signal.stop(Stop.TIMEOUT)

    assert signal.why is Stop.CANCELLED
    assert signal.asked_at(Stop.CANCELLED) == 10.0
    assert signal.asked_at(Stop.TIMEOUT) == 20.0
    assert signal.asked_at(Stop.LOST_LEASE) is None


def test_a_handler_that_waits_wakes_when_it_is_asked_to_stop() -> None:
    signal = StopSignal()
    threading.Timer(0.05, signal.stop, [Stop.CANCELLED]).start()
    begun = time.monotonic()

    assert context(signal).wait(30)

    assert time.monotonic() - begun < 10


def test_a_handler_that_is_not_asked_to_stop_waits_its_time() -> None:
    begun = time.monotonic()

    assert not context(StopSignal()).wait(0.05)

    assert time.monotonic() - begun >= 0.05


def test_stopped_passes_a_handlers_own_except_exception() -> None:
    signal = StopSignal()
    signal.stop(Stop.TIMEOUT)

    def handler() -> str:
        try:
            context(signal).raise_if_stopped()
        except Exception:  # noqa: BLE001 -- what a handler may well have
            return "swallowed"
        return "went on"

    with pytest.raises(Stopped):
        handler()
