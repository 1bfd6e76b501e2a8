"""What must wake somebody: jobs start late, or the machinery that starts them has stopped."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.components.functions import NAMESPACE, SERVICE
from lamplighter.core.limits import MAX_CLOCK_ERROR

MINUTE = Duration.minutes(1)
ABOVE = cloudwatch.ComparisonOperator.GREATER_THAN_THRESHOLD
BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD
_TICKERS: Mapping[str, str] = {
    "schedule": "the schedule, its role, and the scheduler function's throttles",
    "rule": "the rule, the work queue's policy, and the age of its messages",
}
LATE_MS = 2_000  # the promise: 99 of 100 start within two seconds
SWEEP_LATE_MS = (
    300_000  # it comes 150 s after a bucket's time at most, and two ticks may be missing
)


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
            "SweepBehind",
            _ours("sweep_age_ms", "Maximum"),
            threshold=SWEEP_LATE_MS,
            minutes=2,
            description="A partition's sweep is over five minutes behind: what was lost is not "
            "sent again, and what has waited too long is not promoted. See the scheduler's log "
            "for what its visits fail at.",
        )
        for ticker, where in _TICKERS.items():
            self._alarm(
                f"{ticker.title()}TicksMissing",
                _ours(f"ticks_by_{ticker}", "Sum"),
                threshold=1,
                comparison=BELOW,
                minutes=3,
                missing=cloudwatch.TreatMissingData.BREACHING,
                description="One of two has not ticked for three minutes; see "
                f"{where}. Dispatch goes on: by the other one and, without both, by work that "
                "asks for itself, which nothing brings back once it is lost.",
            )
        self._alarm(
            "ClocksOff",
            _ours("clock_offset_ms", "Maximum"),
            threshold=MAX_CLOCK_ERROR / timedelta(milliseconds=1),
            minutes=1,
            description="A host's clock is surely off by more than half a second. It refuses work, "
            "which others take: see the log's clock_refused lines, and what sets its clock.",
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
            "ExecutionsParked",
            _ours("parked", "Sum"),
            threshold=0,
            minutes=1,
            description="For ten minutes or longer executions have met workers that do not know "
            "their task, or the version that they were made for. They wait, and fail in the end: "
            "the log's parked lines tell which. Deploy a worker that knows it, or cancel them.",
        )
        self._alarm(
            "NoticesFailing",
            _ours("notices_failed", "Sum"),
            threshold=0,
            minutes=1,
            description="Owners cannot be told of what needs attention; it is tried again, for a "
            "week. The log's not_told lines tell why: a permission, or a bus or topic that is "
            "gone.",
        )
        self._alarm(
            "DefinitionsUnreadable",
            _ours("unreadable_definitions", "Sum"),
            threshold=0,
            minutes=1,
            description="A job's schedule cannot be read by this release, so its executions wait. "
            "The log's definition_unreadable lines tell which: edit it, or go back a release.",
        )
        self._alarm(
            "RowsUnreadable",
            _ours("unreadable_rows", "Sum"),
            threshold=0,
            minutes=1,
            description="An item of a table is not as it was written: it is left where it is, and "
            "all else goes on. The log's row_unreadable lines tell which, and its attribute: mend "
            "it, or go back a release.",
        )

    def of_dead_letters(self, id: str, queue: sqs.IQueue, *, minutes: int, means: str) -> None:
        self._alarm(
            f"{id}Undelivered",
            queue.metric_approximate_number_of_messages_visible(period=MINUTE, statistic="Maximum"),
            threshold=0,
            minutes=minutes,
            description=means,
        )

    def of_dropped(self, id: str, function: lambda_.IFunction) -> None:
        """None should ever be: it is let off the detection, and bounds its rounds itself."""
        self._alarm(
            f"{id}Dropped",
            function.metric("RecursiveInvocationsDropped", period=MINUTE, statistic="Sum"),
            threshold=0,
            minutes=1,
            description="Lambda took the function for one that calls itself without end, and "
            "dropped its messages. Set its recursive loop detection to Allow, as the stack does.",
        )

    def of_oldest(self, id: str, queues: Sequence[sqs.IQueue], *, seconds: int, means: str) -> None:
        """Of all queues, the oldest message; of a lane, a message as old as its job takes."""
        ages: dict[str, cloudwatch.IMetric] = {
            f"q{number}": queue.metric_approximate_age_of_oldest_message(
                period=MINUTE, statistic="Maximum"
            )
            for number, queue in enumerate(queues)
        }
        oldest = ages["q0"]
        if len(ages) > 1:
            oldest = cloudwatch.MathExpression(
                expression=f"MAX([{', '.join(ages)}])",
                using_metrics=ages,
                period=MINUTE,
            )
        self._alarm(f"{id}Waits", oldest, threshold=seconds, minutes=3, description=means)

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
