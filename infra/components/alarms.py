"""What must wake somebody: jobs start late, or the machinery that starts them has stopped."""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.components.functions import NAMESPACE, SERVICE

MINUTE = Duration.minutes(1)
ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
LATE_MS = 2_000  # the promise: 99 of 100 start within two seconds


class Alarms(Construct):
    """Each says in its description what it means and where to look first."""

    def __init__(self, scope: Construct, id: str, *, topic: sns.ITopic | None) -> None:
        super().__init__(scope, id)
        self._action = actions.SnsAction(topic) if topic else None

    def of_starts(self, lane: str) -> None:
        self._alarm(
            f"{lane.title()}StartsLate",
            _ours("start_lateness_ms", "p99", lane=lane),
            threshold=LATE_MS,
            minutes=3,
            description=f"More than 1 in 100 jobs of lane {lane} start over 2 s late. Too few "
            "workers or pollers, or the dispatcher is behind.",
        )

    def of_dispatch(self) -> None:
        self._alarm(
            "DispatchBehind",
            _ours("watermark_age_ms", "Maximum"),
            threshold=0,
            minutes=2,
            description="A partition's watermark lies in the past: due jobs have not been sent. "
            "See the scheduler's log for throttling or a lost lease.",
        )
        self._alarm(
            "TicksMissing",
            _ours("ticks", "Sum"),
            threshold=1,
            comparison=BELOW,
            minutes=3,
            missing=cloudwatch.TreatMissingData.BREACHING,
            description="No tick for three minutes: nothing new is dispatched. See the schedule, "
            "its role, and the scheduler function's throttles.",
        )
        self._alarm(
            "RowsRecovered",
            _ours("recovered", "Sum"),
            threshold=0,
            minutes=1,
            description="The sweep repaired what should have happened by itself: a lost message "
            "or a crashed worker. Nothing is lost; look for the cause.",
        )
        self._alarm(
            "OccurrencesMissed",
            _ours("missed_not_run", "Sum"),
            threshold=0,
            minutes=1,
            description="Occurrences were missed and are not run, as their jobs' misfire policies "
            "say: dispatch was down. The log's passed_over lines tell which.",
        )
        self._alarm(
            "OccurrencesUnaccounted",
            _ours("missed", "Sum"),
            threshold=0,
            minutes=1,
            description="A job's ledger has occurrences that neither ran nor have a reason. The "
            "log's missed lines tell of which job: ask for its ledger, then look at dispatch.",
        )
        self._alarm(
            "DefinitionsUnreadable",
            _ours("unreadable_definitions", "Sum"),
            threshold=0,
            minutes=1,
            description="A job's schedule cannot be read by this release, so its executions wait. "
            "The log's definition_unreadable lines tell which: edit it, or go back a release.",
        )

    def of_dead_letters(self, id: str, queue: sqs.IQueue, *, minutes: int, means: str) -> None:
        self._alarm(
            f"{id}Undelivered",
            queue.metric_approximate_number_of_messages_visible(period=MINUTE, statistic="Maximum"),
            threshold=0,
            minutes=minutes,
            description=means,
        )

    def _alarm(
        self,
        id: str,
        metric: cloudwatch.IMetric,
        *,
        minutes: int,
        description: str,
        threshold: float,
        comparison: cloudwatch.ComparisonOperator = ABOVE,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> None:
        alarm = cloudwatch.Alarm(
            self,
            id,
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=minutes,
            treat_missing_data=missing,
            alarm_description=description,
        )
        if self._action:
            alarm.add_alarm_action(self._action)
            alarm.add_ok_action(self._action)


def _ours(name: str, statistic: str, **dimensions: str) -> cloudwatch.Metric:
    every: Mapping[str, str] = {"service": SERVICE, **dimensions}
    return cloudwatch.Metric(
        namespace=NAMESPACE,
        metric_name=name,
        dimensions_map=every,
        statistic=statistic,
        period=MINUTE,
    )
