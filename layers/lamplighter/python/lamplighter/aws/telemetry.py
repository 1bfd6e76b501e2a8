"""`ports.Telemetry` on Lambda's log: JSON lines, and metrics in CloudWatch's embedded format.

Lines carry ids, names and numbers; never a payload, a result or the text of an error, which
may quote either. What an isolated handler writes is its own word, and goes on masked. Metrics
have no dimension but the service and, for lateness, the lane.
"""

import functools
import sys
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeVar, cast

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import (
    AmazonCloudWatchEMFProvider,
)

from lamplighter.core.buckets import ExecutionId, JobId, place_of
from lamplighter.core.clock_offset import Bounds
from lamplighter.core.draining import left_of
from lamplighter.core.errors import Damaged, Unavailable
from lamplighter.core.lateness import lateness_of
from lamplighter.core.lease import Backlog, Ticker
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import ON_TIME, PARKED_IN_A_DEPLOY, PASSED_OVER_COUNTED
from lamplighter.core.misfire import Gap
from lamplighter.core.model import Execution, Job
from lamplighter.core.outcome import was_without_permit
from lamplighter.core.permits import Key

SERVICE: Final = "lamplighter"
NAMESPACE: Final = "Lamplighter"

M = TypeVar("M", bound=Callable[..., None])

_MILLISECOND: Final = timedelta(milliseconds=1)
_HASHES: Final = 1 << 70
_SHOWN_CHARS: Final = 20


def _harmless(method: M) -> M:
    """Whatever goes wrong with counting must not stop what is counted."""

    @functools.wraps(method)
    def call(*args: object, **kwargs: object) -> None:
        try:
            method(*args, **kwargs)
        except Exception:  # noqa: BLE001 -- the contract: it never raises
            with suppress(Exception):
                traceback.print_exc(file=sys.stderr)

    return cast("M", call)


class LambdaTelemetry:
    """Counts until `flush`, logs at once. Its methods may be called from several threads.

    `sample_rate` is the share of executions whose `started` and whose successful `finished`
    are logged; both lines of one execution are, or neither. Everything else always is.
    """

    def __init__(
        self,
        *,
        logger: Logger | None = None,
        sample_rate: float = 1.0,
        clock_offset: Callable[[], timedelta | None] | None = None,
    ) -> None:
        """`clock_offset` tells how far the clock is off when that is to be told, else None."""
        # The place in this file that a line comes from tells nobody anything.
        self._logger = logger or Logger(service=SERVICE, location=None)
        self._sample_rate = sample_rate
        self._clock_offset = clock_offset
        self._counted: dict[str | None, dict[str, list[float]]] = {}
        self._lock = threading.Lock()

    @_harmless
    def ticked(self, *, by: Ticker) -> None:
        self._count(f"ticks_by_{by}")

    @_harmless
    def created(self, *, queue: str, directly: bool) -> None:  # noqa: ARG002 -- the port's
        self._count("created")

    @_harmless
    def dispatched(self, *, partition: int, sent: int, pages: int, age: timedelta) -> None:
        # How far the watermark lay in the past; below zero, and well, when it lay ahead.
        self._measure("watermark_age_ms", age)
        if pages:
            self._log(
                "dispatched",
                partition=partition,
                sent=sent,
                pages=pages,
                watermark_age_ms=age // _MILLISECOND,
            )

    @_harmless
    def draining(self, *, partition: int, backlog: Backlog) -> None:
        left = left_of(backlog)
        self._measure("backlog_ms", left)
        self._log(
            "draining", partition=partition, backlog_ms=left // _MILLISECOND, sent=backlog.sent
        )

    @_harmless
    def swept(self, *, partition: int, rows: int, age: timedelta) -> None:
        self._measure("sweep_age_ms", age)
        if rows:
            self._log("swept", partition=partition, rows=rows, sweep_age_ms=age // _MILLISECOND)

    @_harmless
    def lost_lease(self, *, partition: int) -> None:
        self._count("lost_lease")
        self._log("lost_lease", partition=partition)

    @_harmless
    def started(self, execution: Execution, *, lateness: timedelta) -> None:
        self._measure("start_lateness_ms", lateness, lane=execution.queue)
        # Not sampled where it is late: its line is what says why.
        if lateness > ON_TIME or self._is_sampled(execution.id):
            self._log(
                "started",
                **_fields(execution),
                lateness_ms=lateness // _MILLISECOND,
                **_parts(execution),
            )

    @_harmless
    def finished(self, execution: Execution) -> None:
        if execution.state is State.DEAD_LETTERED:
            self._count("dead_lettered")
        elif execution.state is State.EXPIRED:
            self._count("expired")
        if execution.state is not State.SUCCEEDED or self._is_sampled(execution.id):
            self._log("finished", **_fields(execution), **_ending(execution))

    @_harmless
    def parked(self, execution: Execution, *, lasts: timedelta) -> None:
        if lasts >= PARKED_IN_A_DEPLOY:
            self._count("parked")
        lasts_s = round(lasts.total_seconds())
        self._log("parked", **_fields(execution), reason=execution.reason, lasts_s=lasts_s)

    @_harmless
    def told(self, execution: Execution) -> None:
        self._log("told", **_fields(execution))

    @_harmless
    def not_told(self, execution: Execution, error: Exception) -> None:
        self._count("notices_failed")
        self._log("not_told", **_fields(execution), reason=str(error))

    @_harmless
    def claim_lost(self, id: ExecutionId, *, reason: str) -> None:
        self._count("claim_lost")
        self._log("claim_lost", execution_id=id, reason=reason)

    @_harmless
    def late_result_refused(self, id: ExecutionId) -> None:
        self._count("late_result_refused")
        self._log("late_result_refused", execution_id=id)

    @_harmless
    def taken_over(self, execution: Execution) -> None:
        self._count("taken_over")
        self._log("taken_over", **_fields(execution), crashes=execution.crashes)

    @_harmless
    def recovered(self, execution: Execution, *, reason: str) -> None:
        self._count("recovered")
        self._log("recovered", **_fields(execution), reason=reason)

    @_harmless
    def promoted(self, execution: Execution, *, to: str) -> None:
        self._count("promoted")
        self._log("promoted", **_fields(execution), to=to)

    @_harmless
    def no_permit(self, execution: Execution, *, of: Key) -> None:
        self._count("no_permit")
        # Once, however often it looks again.
        if not was_without_permit(execution):
            self._log("no_permit", **_fields(execution), limit=str(of))

    @_harmless
    def undeliverable(self, id: ExecutionId, *, count: int) -> None:
        self._log("undeliverable", execution_id=id, count=count)

    @_harmless
    def forewarned(self, *, queue: str, lateness: timedelta) -> None:
        self._count("forewarned")
        self._log("forewarned", queue=queue, expected_lateness_ms=lateness // _MILLISECOND)

    @_harmless
    def forewarning_failed(self, error: Exception) -> None:
        self._count("forewarning_failed")
        if isinstance(error, Unavailable):
            self._log("forewarning_failed", reason=str(error))
        else:
            self._logger.error("forewarning_failed", exc_info=error)

    @_harmless
    def unreadable(self, *, queue: str, body: str) -> None:
        self._log("unreadable", queue=queue, length=len(body), begins=body[:_SHOWN_CHARS])

    @_harmless
    def broke(self, id: str, error: Exception) -> None:
        if isinstance(error, Unavailable):
            self._log("unavailable", execution_id=id, reason=str(error))
        else:
            # Ours, not a handler's: those end as an outcome.
            self._logger.error("broke", extra={"execution_id": id}, exc_info=error)

    @_harmless
    def clock_refused(self, off: Bounds, *, messages: int) -> None:
        self._add("clock_refused", float(messages), None)
        self._log(
            "clock_refused",
            messages=messages,
            offset_at_least_ms=off.low // _MILLISECOND,
            offset_at_most_ms=off.high // _MILLISECOND,
        )

    @_harmless
    def gave_back(self, id: ExecutionId, *, time_left: timedelta) -> None:
        self._log("gave_back", execution_id=id, time_left_ms=time_left // _MILLISECOND)

    @_harmless
    def row_unreadable(self, damaged: Damaged) -> None:
        self._count("unreadable_rows")
        self._log(
            "row_unreadable",
            kind=damaged.kind,
            id=damaged.id,
            attribute=damaged.attribute,
            owner=damaged.owner,
        )

    @_harmless
    def definition_unreadable(self, id: JobId, *, reason: str) -> None:
        self._count("unreadable_definitions")
        self._log("definition_unreadable", job_id=id, reason=reason)

    @_harmless
    def passed_over(self, job: Job, gap: Gap) -> None:
        self._add("missed_not_run", float(gap.count), None)
        self._log(
            "passed_over",
            job_id=job.id,
            owner=job.owner,
            reason=gap.reason,
            first=gap.first.isoformat(),
            last=gap.last.isoformat(),
            count=gap.count,
            at_least=gap.count == PASSED_OVER_COUNTED or None,
        )

    @_harmless
    def missed(self, job: Job, count: int) -> None:
        self._add("missed", float(count), None)
        self._log("missed", job_id=job.id, owner=job.owner, count=count)

    @_harmless
    def said(self, execution: Execution, line: str) -> None:
        self._log("said", execution_id=execution.id, task=execution.task, line=line)

    @_harmless
    def hung(self, execution: Execution) -> None:
        self._log("hung", **_fields(execution))

    @_harmless
    def flush(self) -> None:
        """Write what was counted, one line for each lane and one for the rest.

        To be called at the end of every invocation: the environment may never thaw again.
        """
        if self._clock_offset and (off := self._clock_offset()) is not None:
            self._measure("clock_offset_ms", abs(off))
        with self._lock:
            counted, self._counted = self._counted, {}
        for lane, metrics in counted.items():
            _emit(lane, metrics)

    def _count(self, name: str) -> None:
        self._add(name, 1.0, None)

    def _measure(self, name: str, duration: timedelta, *, lane: str | None = None) -> None:
        self._add(name, duration / _MILLISECOND, lane)

    def _add(self, name: str, value: float, lane: str | None) -> None:
        with self._lock:
            self._counted.setdefault(lane, defaultdict(list))[name].append(value)

    def _is_sampled(self, id: ExecutionId) -> bool:
        return place_of(id).hash < self._sample_rate * _HASHES

    def _log(self, event: str, **fields: object) -> None:
        present = {name: value for name, value in fields.items() if value is not None}
        self._logger.info(event, extra=present)


def _fields(execution: Execution) -> dict[str, object]:
    return {
        "execution_id": execution.id,
        "job_id": execution.job_id,
        "owner": execution.owner,
        "task": execution.task,
        "queue": execution.queue,
        "state": execution.state.value,
        "attempt": execution.attempt,
        "worker": execution.worker,
    }


def _parts(execution: Execution) -> dict[str, object]:
    """What the lateness of a first try is made of; what took no time is left out."""
    found = None if execution.attempts else lateness_of(execution)
    return {
        f"{name}_ms": took // _MILLISECOND
        for name, took in (found.parts if found else {}).items()
        if took
    }


def _ending(execution: Execution) -> dict[str, object]:
    started, finished, error = execution.started_at, execution.finished_at, execution.error
    return {
        "run_ms": (finished - started) // _MILLISECOND if started and finished else None,
        "retry_at": execution.next_run_at and execution.next_run_at.isoformat(),
        "error_kind": error and error.kind.value,
        "error_type": error and error.type,
    }


def _emit(lane: str | None, metrics: dict[str, list[float]]) -> None:
    blob = AmazonCloudWatchEMFProvider(namespace=NAMESPACE, service=SERVICE)
    if lane is not None:
        blob.add_dimension(name="lane", value=lane)
    for name, values in metrics.items():
        unit = MetricUnit.Milliseconds if name.endswith("_ms") else MetricUnit.Count
        for value in values:
            # At a hundred values it writes them itself, and begins anew.
            blob.add_metric(name=name, unit=unit, value=value)
    if blob.metric_set:
        blob.flush_metrics()
