"""What the log holds: lines with fields, and metrics that CloudWatch reads out of it."""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn, cast

import pytest
from aws_lambda_powertools import Logger

from lamplighter.aws.telemetry import NAMESPACE, SERVICE, LambdaTelemetry
from lamplighter.core.clock_offset import Bounds
from lamplighter.core.errors import Unavailable
from lamplighter.core.lease import Ticker
from lamplighter.core.limits import PARKED_IN_A_DEPLOY
from lamplighter.core.model import Arrival, Execution
from lamplighter.core.retry import Kind
from lamplighter.ports import Telemetry
from tests.support.rows import failed, one_off, running, s, succeeded

SECRET = "hunter2"


class Log:
    """Standard output, read line by line as JSON."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def lines(self) -> list[dict[str, Any]]:
        """What was written since the last look; a line that is no JSON fails the test."""
        return [json.loads(line) for line in self._captured.readouterr().out.splitlines()]

    def metrics(self) -> dict[tuple[tuple[tuple[str, str], ...], str], list[float]]:
        """(dimensions, metric) → values, as CloudWatch extracts them from what was written."""
        found: dict[tuple[tuple[tuple[str, str], ...], str], list[float]] = {}
        for blob in self.lines():
            for directive in blob.get("_aws", {}).get("CloudWatchMetrics", []):
                assert directive["Namespace"] == NAMESPACE
                for names in directive["Dimensions"]:
                    dimensions = tuple(sorted((name, blob[name]) for name in names))
                    for metric in directive["Metrics"]:
                        values = blob[metric["Name"]]
                        found.setdefault((dimensions, metric["Name"]), []).extend(values)
        return found


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Iterator[Log]:
    _forget_handlers()
    yield Log(capsys)
    _forget_handlers()


def _forget_handlers() -> None:
    """Powertools keeps one handler for a name, and it holds the first test's standard output."""
    logger = logging.getLogger(SERVICE)
    for handler in [*logger.handlers]:
        logger.removeHandler(handler)
    for attribute in ("init", "powertools_handler"):
        vars(logger).pop(attribute, None)


def telemetry(sample_rate: float = 1.0) -> LambdaTelemetry:
    return LambdaTelemetry(sample_rate=sample_rate)


def secretive(row: Execution) -> Execution:
    """A row whose payload, result and error all hold a secret."""
    assert row.spec is not None
    payload = replace(row.spec.payload, text=f'"{SECRET}"')
    return replace(row, spec=replace(row.spec, payload=payload))


OURS = (("service", SERVICE),)


def test_it_is_a_telemetry() -> None:
    port: Telemetry = telemetry()

    assert isinstance(port, LambdaTelemetry)


def test_lateness_is_measured_by_lane_and_a_batch_is_one_line(log: Log) -> None:
    counts = telemetry()
    for n in range(3):
        counts.started(running(one_off(n=n)), lateness=timedelta(milliseconds=100 * n))
    critical = replace(running(one_off()), queue="critical", spec=None)
    counts.started(critical, lateness=timedelta(milliseconds=7.5))
    log.lines()

    counts.flush()

    captured = log.metrics()
    assert captured == {
        ((("lane", "default"), ("service", SERVICE)), "start_lateness_ms"): [0.0, 100.0, 200.0],
        ((("lane", "critical"), ("service", SERVICE)), "start_lateness_ms"): [7.5],
    }


def test_a_lane_s_batch_is_one_line(log: Log) -> None:
    counts = telemetry()
    for n in range(10):
        counts.started(running(one_off(n=n)), lateness=s(n))
    log.lines()

    counts.flush()

    assert len(log.lines()) == 1


def test_everything_else_is_counted_for_the_service(log: Log) -> None:
    counts, row = telemetry(), running(one_off())
    counts.ticked(by=Ticker.SCHEDULE)
    counts.created(queue="default", directly=True)
    counts.created(queue="bulk", directly=False)
    counts.lost_lease(partition=3)
    counts.claim_lost(row.id, reason="held by another worker")
    counts.late_result_refused(row.id)
    counts.taken_over(row)
    counts.recovered(row, reason="its message was lost")
    counts.promoted(row, to="critical")
    counts.finished(failed(row, max_attempts=1))
    counts.dispatched(partition=0, sent=10, pages=1, age=-s(180))
    counts.dispatched(partition=1, sent=0, pages=0, age=s(2))
    counts.swept(partition=1, rows=0, age=s(90))
    log.lines()

    counts.flush()

    assert log.metrics() == {
        (OURS, "ticks_by_schedule"): [1.0],
        (OURS, "created"): [1.0, 1.0],
        (OURS, "lost_lease"): [1.0],
        (OURS, "claim_lost"): [1.0],
        (OURS, "late_result_refused"): [1.0],
        (OURS, "taken_over"): [1.0],
        (OURS, "recovered"): [1.0],
        (OURS, "promoted"): [1.0],
        (OURS, "dead_lettered"): [1.0],
        # Well ahead; two seconds in the past, which alarms.
        (OURS, "watermark_age_ms"): [-180_000.0, 2_000.0],
        (OURS, "sweep_age_ms"): [90_000.0],
    }


def test_units_are_those_of_the_names(log: Log) -> None:
    counts = telemetry()
    counts.ticked(by=Ticker.SCHEDULE)
    counts.dispatched(partition=0, sent=1, pages=1, age=s(1))
    log.lines()

    counts.flush()

    (blob,) = log.lines()
    units = {
        metric["Name"]: metric["Unit"] for metric in blob["_aws"]["CloudWatchMetrics"][0]["Metrics"]
    }
    assert units == {"ticks_by_schedule": "Count", "watermark_age_ms": "Milliseconds"}


@pytest.mark.parametrize("starts", [99, 100, 101, 250])
def test_more_values_than_a_blob_takes_are_all_written(log: Log, starts: int) -> None:
    counts = telemetry(sample_rate=0)
    for n in range(starts):
        counts.started(running(one_off(n=n)), lateness=timedelta(milliseconds=n))

    counts.flush()

    ((_, values),) = log.metrics().items()
    assert values == [float(n) for n in range(starts)]


def test_a_flush_writes_each_value_once_and_nothing_when_nothing_was_counted(log: Log) -> None:
    counts = telemetry()
    counts.ticked(by=Ticker.SCHEDULE)
    counts.flush()
    log.lines()

    counts.flush()

    assert log.lines() == []


def test_ten_threads_lose_no_count(log: Log) -> None:
    counts = telemetry()
    with ThreadPoolExecutor(10) as pool:
        [*pool.map(lambda _: counts.ticked(by=Ticker.SCHEDULE), range(80))]

    counts.flush()

    assert log.metrics() == {(OURS, "ticks_by_schedule"): [1.0] * 80}


# Lines.


def test_a_start_is_one_line_with_its_fields(log: Log) -> None:
    row = running(one_off())

    telemetry().started(row, lateness=timedelta(milliseconds=41.9))

    (line,) = log.lines()
    assert (
        line.items()
        >= {
            "message": "started",
            "level": "INFO",
            "service": SERVICE,
            "execution_id": row.id,
            "job_id": row.job_id,
            "owner": "acme",
            "task": "echo",
            "queue": "default",
            "state": "RUNNING",
            "attempt": 1,
            "worker": "worker-1",
            "lateness_ms": 41,
        }.items()
    )
    assert "location" not in line


def late(row: Execution, *, queued: float) -> Execution:
    """Claimed half a second after its message had waited for so long."""
    arrival = Arrival(sent_at=row.run_at - s(60), received_at=row.run_at + s(queued))
    start = arrival.received_at + s(0.5)
    return replace(running(row), started_at=start, first_started_at=start, arrival=arrival)


def test_a_start_tells_what_its_lateness_is_made_of(log: Log) -> None:
    """S0-N2: what took no time is left out."""
    row = late(one_off(), queued=1.25)

    telemetry().started(row, lateness=s(1.75))

    (line,) = log.lines()
    parts = {name: line[name] for name in line if name.endswith("_ms")}
    assert parts == {"lateness_ms": 1750, "queue_ms": 1250, "claim_ms": 500}


def test_a_later_try_s_lateness_is_its_own_and_has_no_parts(log: Log) -> None:
    first = late(one_off(), queued=1.25)
    again = replace(first, attempts=failed(first).attempts)

    telemetry().started(again, lateness=s(1))

    (line,) = log.lines()
    assert [name for name in line if name.endswith("_ms")] == ["lateness_ms"]


def test_a_late_start_is_logged_at_any_rate(log: Log) -> None:
    counts = telemetry(sample_rate=0)

    counts.started(late(one_off(), queued=1.5), lateness=s(2))
    counts.started(late(one_off(n=2), queued=2), lateness=s(2.5))

    assert [line["queue_ms"] for line in log.lines()] == [2000]


def test_the_offset_of_the_clock_is_measured_when_it_is_to_be_told(log: Log) -> None:
    """S0-X1: without its sign, which the log line of a refusal has."""
    offsets = iter([-s(0.7), None])
    counts = LambdaTelemetry(clock_offset=lambda: next(offsets))

    counts.flush()
    counts.flush()

    assert log.metrics() == {(OURS, "clock_offset_ms"): [700.0]}


def test_a_refusal_for_the_clock_counts_its_messages(log: Log) -> None:
    counts = telemetry()

    counts.clock_refused(Bounds(low=s(1.5), high=s(2.75)), messages=10)

    (line,) = log.lines()
    assert (line["message"], line["messages"]) == ("clock_refused", 10)
    assert (line["offset_at_least_ms"], line["offset_at_most_ms"]) == (1500, 2750)
    counts.flush()
    assert log.metrics() == {(OURS, "clock_refused"): [10.0]}


def test_an_end_is_one_line_with_what_it_led_to(log: Log) -> None:
    row = failed(running(one_off()), Kind.PERMANENT)

    telemetry().finished(row)

    (line,) = log.lines()
    assert (
        line.items()
        >= {
            "message": "finished",
            "execution_id": row.id,
            "state": "FAILED",
            "run_ms": 1000,
            "error_kind": "permanent",
            "error_type": "ValueError",
        }.items()
    )
    assert "retry_at" not in line


def test_what_an_isolated_handler_writes_is_a_line_with_its_execution(log: Log) -> None:
    row = running(one_off())

    telemetry().said(row, "half way")

    (line,) = log.lines()
    assert (line["message"], line["execution_id"], line["line"]) == ("said", row.id, "half way")


def test_a_retry_tells_when(log: Log) -> None:
    row = failed(running(one_off()))
    assert row.next_run_at is not None

    telemetry().finished(row)

    (line,) = log.lines()
    assert (line["state"], line["retry_at"]) == ("RETRYING", row.next_run_at.isoformat())


def test_payloads_results_and_the_text_of_errors_are_never_written(log: Log) -> None:
    counts, row = telemetry(), secretive(running(one_off()))
    broken = failed(row, max_attempts=1)
    assert broken.error is not None
    broken = replace(broken, error=replace(broken.error, message=SECRET))

    counts.started(row, lateness=s(0))
    counts.finished(succeeded(row, result=f'"{SECRET}"'))
    counts.finished(broken)
    counts.taken_over(row)
    counts.recovered(broken, reason="its message was lost")
    counts.hung(row)
    counts.unreadable(queue="default", body="x" * 20 + SECRET)
    counts.flush()

    written = log.lines()
    assert len(written) == 7 + 2
    assert SECRET not in json.dumps(written)


def test_quiet_rounds_are_not_logged(log: Log) -> None:
    counts = telemetry()

    counts.dispatched(partition=0, sent=0, pages=0, age=s(1))
    counts.swept(partition=0, rows=0, age=s(90))
    counts.dispatched(partition=0, sent=3, pages=1, age=s(1))
    counts.swept(partition=0, rows=2, age=s(90))

    assert [line["message"] for line in log.lines()] == ["dispatched", "swept"]


def test_what_a_bug_broke_is_logged_with_its_trace_and_no_answer_without(log: Log) -> None:
    counts, id = telemetry(), one_off().id

    counts.broke(id, Unavailable("GetItem: ThrottlingException"))
    with pytest.raises(ZeroDivisionError) as caught:
        s(1) // 0
    counts.broke(id, caught.value)

    unavailable, broke = log.lines()
    assert (unavailable["message"], unavailable["reason"]) == (
        "unavailable",
        "GetItem: ThrottlingException",
    )
    assert (broke["message"], broke["level"], broke["execution_id"]) == ("broke", "ERROR", id)
    assert broke["exception_name"] == "ZeroDivisionError"
    assert "test_telemetry.py" in broke["exception"]


def test_other_events_are_lines_too(log: Log) -> None:
    counts, row = telemetry(), running(one_off())

    counts.gave_back(row.id, time_left=s(3))
    counts.undeliverable(row.id, count=2)
    counts.lost_lease(partition=3)

    gave_back, undeliverable, lost_lease = log.lines()
    assert (gave_back["execution_id"], gave_back["time_left_ms"]) == (row.id, 3000)
    assert (undeliverable["execution_id"], undeliverable["count"]) == (row.id, 2)
    assert lost_lease["partition"] == 3


# Sampling.


def lines_of(log: Log, sample_rate: float, rows: list[Execution]) -> Mapping[str, list[str]]:
    """Execution → its lines' messages."""
    counts = telemetry(sample_rate)
    for row in rows:
        counts.started(row, lateness=s(0))
        counts.finished(succeeded(row))
    by_id: dict[str, list[str]] = {}
    for line in log.lines():
        by_id.setdefault(line["execution_id"], []).append(line["message"])
    return by_id


def test_a_sampled_execution_has_both_its_lines(log: Log) -> None:
    rows = [running(one_off(n=n << 63)) for n in range(128)]

    by_id = lines_of(log, 0.25, rows)

    assert len(by_id) == 32
    assert all(messages == ["started", "finished"] for messages in by_id.values())


def test_what_did_not_succeed_is_logged_at_any_rate(log: Log) -> None:
    counts = telemetry(sample_rate=0)
    row = running(one_off())

    counts.started(row, lateness=s(0))
    counts.finished(succeeded(row))
    counts.finished(failed(row))

    assert [line["message"] for line in log.lines()] == ["finished"]


# It never raises.


class Broken:
    """A logger whose disk is full."""

    def __getattr__(self, name: str) -> NoReturn:
        raise OSError(f"no space left for {name}")


def test_a_log_that_cannot_be_written_stops_nobody(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = LambdaTelemetry(logger=cast("Logger", Broken()))
    row = running(one_off())

    counts.started(row, lateness=s(0))
    counts.finished(failed(row))
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    counts.flush()


def test_a_forewarning_is_counted_and_so_is_one_that_nobody_could_give(log: Log) -> None:
    telemetry = LambdaTelemetry()
    telemetry.forewarned(queue="bulk", lateness=timedelta(seconds=10))
    telemetry.forewarning_failed(Unavailable("Query: ReadTimeoutError"))
    telemetry.forewarning_failed(RuntimeError("a bug"))

    told, unanswered, broken = log.lines()
    telemetry.flush()

    assert (told["message"], told["queue"], told["expected_lateness_ms"]) == (
        "forewarned",
        "bulk",
        10_000,
    )
    assert (unanswered["message"], unanswered["reason"]) == (
        "forewarning_failed",
        "Query: ReadTimeoutError",
    )
    assert (broken["level"], broken["exception_name"]) == ("ERROR", "RuntimeError")
    service = (("service", SERVICE),)
    assert log.metrics() == {
        (service, "forewarned"): [1.0],
        (service, "forewarning_failed"): [1.0, 1.0],
    }


def test_what_is_parked_is_logged_at_each_look_and_counted_when_no_deploy_takes_that_long(
    log: Log,
) -> None:
    """S0-O10: so a rolling deploy, in which each worker knows half of the tasks, alarms nobody."""
    telemetry = LambdaTelemetry()
    for lasts in (s(0), s(30), PARKED_IN_A_DEPLOY - s(1)):
        telemetry.parked(one_off(), lasts=lasts)
    telemetry.flush()
    assert [line["lasts_s"] for line in log.lines()] == [0, 30, 599]

    telemetry.parked(one_off(), lasts=PARKED_IN_A_DEPLOY)
    telemetry.flush()

    assert log.metrics() == {((("service", SERVICE),), "parked"): [1.0]}
