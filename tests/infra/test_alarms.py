"""The alarms that exist from the first day."""

import json
from datetime import timedelta

import pytest

from lamplighter.aws.telemetry import LambdaTelemetry
from lamplighter.core.errors import Damaged, Unavailable
from lamplighter.core.lease import Ticker
from lamplighter.core.limits import PARKED_IN_A_DEPLOY
from lamplighter.core.misfire import Gap
from lamplighter.memory.world import MemoryWorld
from tests.infra.templates import Assembly, Properties
from tests.support.jobs import created, new_job
from tests.support.rows import T, recurring

ALARM = "AWS::CloudWatch::Alarm"
OLDEST = {
    "Alarms/WorkWaits": ("Work/Queue", 600),
    "Alarms/DefaultWaits": ("DefaultLane/Queue", 1200),
    "Alarms/CriticalWaits": ("CriticalLane/Queue", 1200),
    "Alarms/BulkWaits": ("BulkLane/Queue", 1200),
}
OURS = {
    f"Alarms/{lane}StartsLate": ("start_lateness_ms", {"lane": lane.lower()}, "p99", 2000)
    for lane in ("Default", "Critical", "Bulk")
} | {
    "Alarms/DispatchBehind": ("watermark_age_ms", {}, "Maximum", 0),
    "Alarms/SweepBehind": ("sweep_age_ms", {}, "Maximum", 300_000),
    "Alarms/ScheduleTicksMissing": ("ticks_by_schedule", {}, "Sum", 1),
    "Alarms/RuleTicksMissing": ("ticks_by_rule", {}, "Sum", 1),
    "Alarms/RowsRecovered": ("recovered", {}, "Sum", 0),
    "Alarms/OccurrencesMissed": ("missed_not_run", {}, "Sum", 0),
    "Alarms/OccurrencesUnaccounted": ("missed", {}, "Sum", 0),
    "Alarms/ClocksOff": ("clock_offset_ms", {}, "Maximum", 500),
    "Alarms/ExecutionsParked": ("parked", {}, "Sum", 0),
    "Alarms/NoticesFailing": ("notices_failed", {}, "Sum", 0),
    "Alarms/DefinitionsUnreadable": ("unreadable_definitions", {}, "Sum", 0),
    "Alarms/RowsUnreadable": ("unreadable_rows", {}, "Sum", 0),
}
QUEUES = {
    "Alarms/WorkUndelivered": "Work/DeadLetters",
    "Alarms/DefaultUndelivered": "DefaultLane/DeadLetters",
    "Alarms/CriticalUndelivered": "CriticalLane/DeadLetters",
    "Alarms/BulkUndelivered": "BulkLane/DeadLetters",
}

DROPPED = {
    f"Alarms/{name}Dropped": f"{name}/Function"
    for name in ("Scheduler", "DeadLetters", "DefaultWorker", "CriticalWorker", "BulkWorker")
}


def dimensions(alarm: Properties) -> dict[str, object]:
    return {each["Name"]: each["Value"] for each in alarm["Dimensions"]}


@pytest.mark.parametrize("name", sorted(OURS))
def test_there_is_an_alarm_on_what_the_functions_measure(assembly: Assembly, name: str) -> None:
    """S0-X1, S0-E3: clocks that are off, and how long what is due has waited to be sent."""
    metric, lane, statistic, threshold = OURS[name]

    alarm = assembly.scheduler.properties(ALARM)[name]

    assert alarm["Namespace"] == "Lamplighter"
    assert alarm["MetricName"] == metric
    assert dimensions(alarm) == {"service": "lamplighter", **lane}
    assert alarm.get("ExtendedStatistic", alarm.get("Statistic")) == statistic
    assert alarm["Threshold"] == threshold
    assert alarm["Period"] == 60


def test_the_functions_do_emit_what_the_alarms_watch(
    assembly: Assembly, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry = LambdaTelemetry(clock_offset=lambda: timedelta(0))
    execution = created(MemoryWorld().ports(), new_job()).first

    for ticker in Ticker:
        telemetry.ticked(by=ticker)
    telemetry.dispatched(partition=0, sent=1, pages=1, age=timedelta(0))
    telemetry.swept(partition=0, rows=1, age=timedelta(0))
    telemetry.recovered(execution, reason="its message was lost")
    telemetry.passed_over(recurring(), Gap(first=T, last=T, count=1, reason="misfire: skipped"))
    telemetry.missed(recurring(), 1)
    telemetry.parked(execution, lasts=PARKED_IN_A_DEPLOY)
    telemetry.not_told(execution, Unavailable("no such bus"))
    telemetry.definition_unreadable(recurring().id, reason="no such zone")
    telemetry.row_unreadable(Damaged(kind="execution", id=execution.id, attribute="st"))
    telemetry.started(execution, lateness=timedelta(0))
    telemetry.flush()

    emitted = {
        (group["Namespace"], metric["Name"], *sorted(group["Dimensions"][0]), line["service"])
        for line in map(json.loads, capsys.readouterr().out.splitlines())
        if "_aws" in line
        for group in line["_aws"]["CloudWatchMetrics"]
        for metric in group["Metrics"]
    }
    watched = {
        (alarm["Namespace"], alarm["MetricName"], *sorted(dims), dims["service"])
        for name, alarm in assembly.scheduler.properties(ALARM).items()
        if name in OURS
        for dims in [dimensions(alarm)]
    }
    assert watched == emitted


@pytest.mark.parametrize("name", sorted(QUEUES))
def test_there_is_an_alarm_on_each_queue_of_undelivered_messages(
    assembly: Assembly, name: str
) -> None:
    """O-F17, S1-W4: each has one, and lanes have another on the age of their oldest message."""
    alarm = assembly.scheduler.properties(ALARM)[name]

    assert alarm["MetricName"] == "ApproximateNumberOfMessagesVisible"
    assert assembly.named(dimensions(alarm)["QueueName"]) == QUEUES[name]
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)


@pytest.mark.parametrize("name", sorted(OLDEST))
def test_there_is_an_alarm_on_the_age_of_each_queues_oldest_message(
    assembly: Assembly, name: str
) -> None:
    """S2-K2, O-F17: backlog and age scale and alarm, not CPU."""
    queue, seconds = OLDEST[name]

    alarm = assembly.scheduler.properties(ALARM)[name]

    assert alarm["MetricName"] == "ApproximateAgeOfOldestMessage"
    assert assembly.named(dimensions(alarm)["QueueName"]) == queue
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", seconds)


@pytest.mark.parametrize("name", sorted(DROPPED))
def test_there_is_an_alarm_on_what_recursion_detection_drops(assembly: Assembly, name: str) -> None:
    """O-F16: of every function that feeds a queue."""
    alarm = assembly.scheduler.properties(ALARM)[name]

    assert alarm["MetricName"] == "RecursiveInvocationsDropped"
    assert assembly.named(dimensions(alarm)["FunctionName"]) == DROPPED[name]
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)


def test_these_are_all_alarms_and_each_says_what_it_means(assembly: Assembly) -> None:
    alarms = assembly.scheduler.properties(ALARM)

    assert set(alarms) == {*OURS, *QUEUES, *OLDEST, *DROPPED}
    assert all(alarm["AlarmDescription"] for alarm in alarms.values())


def test_silence_is_an_alarm_for_ticks_and_none_for_the_rest(assembly: Assembly) -> None:
    silence = {
        name: alarm["TreatMissingData"]
        for name, alarm in assembly.scheduler.properties(ALARM).items()
    }

    for ticker in ("Schedule", "Rule"):
        assert silence.pop(f"Alarms/{ticker}TicksMissing") == "breaching"
    assert set(silence.values()) == {"notBreaching"}
