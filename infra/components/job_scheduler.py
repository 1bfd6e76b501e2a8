"""`JobScheduler`: the whole of Lamplighter as one construct for any CDK app."""

from collections.abc import Mapping, Sequence

from aws_cdk import Acknowledgment, Duration, Stack, Validations
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra import grants
from infra.bundling import LambdaTarget
from infra.components.alarms import Alarms
from infra.components.api import Authentication, SchedulerApi, Throttle
from infra.components.functions import NAMESPACE, SERVICE, Handler, Platform
from infra.components.layers import SchedulerLayers, TaskSource
from infra.components.payloads import arn_in_findings
from infra.components.queues import DEFAULT_LANES, Lane, LaneQueue, WorkQueue
from infra.components.tables import SchedulerTables
from infra.components.targets import HttpTargets
from infra.components.tick import Tick
from lamplighter.aws import schema
from lamplighter.core import limits
from lamplighter.core.quotas import Quotas

LOCAL = "local"

# Long enough to dispatch a partition's share of a full minute, short enough that a visit that
# hangs is repeated before the look-ahead is used up.
SCHEDULER_TIMEOUT = Duration.seconds(120)
DEAD_LETTER_TIMEOUT = Duration.seconds(60)
API_TIMEOUT = Duration.seconds(15)  # an HTTP API gives up after 30


class JobScheduler(Construct):
    """A job scheduler: tables, queues, functions, HTTP API, tick and alarms.

    Give `tables` to keep them in a stack of their own, or `deletion_protection` to have them
    made here. Every number and every queue can be chosen; nothing is read from the environment.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        tasks: TaskSource,
        authentication: Authentication,
        tables: SchedulerTables | None = None,
        deletion_protection: bool | None = None,
        lanes: Sequence[Lane] = DEFAULT_LANES,
        target: LambdaTarget | None = None,
        stage: str = "dev",
        shards: int = limits.DEFAULT_SHARDS,
        partitions: int = limits.DEFAULT_PARTITIONS,
        shell_owners: Sequence[str] = (),
        http_targets: HttpTargets | None = None,
        quotas: Quotas | None = None,
        throttle: Throttle | None = None,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH,
        alarm_topic: sns.ITopic | None = None,
    ) -> None:
        _check(tables, deletion_protection, lanes, shards, partitions)
        _check_local(stage, shell_owners, http_targets)
        super().__init__(scope, id)
        self.tables = tables or SchedulerTables(
            self, "Tables", deletion_protection=bool(deletion_protection)
        )
        self._http_targets = http_targets
        self._quotas = (quotas or Quotas()).to_json()
        self._lanes = {lane.name: lane for lane in lanes}
        self._layout = {
            "LAMPLIGHTER_SHARDS": str(shards),
            "LAMPLIGHTER_PARTITIONS": str(partitions),
        }
        self._add_queues()
        self._add_platform(tasks, target or LambdaTarget.graviton(), stage, log_retention)

        self.scheduler = self._scheduler()
        self.workers = {
            name: self._worker(lane, tasks.module, shell_owners)
            for name, lane in self._lanes.items()
        }
        self.dead_letters = self._dead_letters()
        self.api_handler = self._api(authentication)
        self.api = SchedulerApi(
            self,
            "Api",
            function=self.api_handler.function,
            authentication=authentication,
            throttle=throttle or Throttle(),
            log_retention=log_retention,
        )
        Tick(
            self,
            "Tick",
            function=self.scheduler.function,
            undelivered=self.work_queue.dead_letters,
        )
        self._add_alarms(alarm_topic)
        self._acknowledge()

    def queue_urls(self) -> str:
        """Lane → queue URL, as JSON."""
        return self._json_of({name: lane.queue for name, lane in self.lane_queues.items()})

    def _add_queues(self) -> None:
        self.work_queue = WorkQueue(self, "Work", function_timeout=SCHEDULER_TIMEOUT)
        self.lane_queues = {
            name: LaneQueue(self, f"{name.title()}Lane", dead_letter_timeout=DEAD_LETTER_TIMEOUT)
            for name in self._lanes
        }
        self._lane_targets = [lane.queue for lane in self.lane_queues.values()]

    def _add_platform(
        self,
        tasks: TaskSource,
        target: LambdaTarget,
        stage: str,
        log_retention: logs.RetentionDays,
    ) -> None:
        self._layers = SchedulerLayers(self, "Layers", tasks=tasks, target=target)
        self._platform = Platform(
            target=target,
            layers=self._layers.common,
            environment={
                "LAMPLIGHTER_STAGE": stage,
                "LAMPLIGHTER_EXECUTIONS_TABLE": self.tables.executions.table_name,
                "POWERTOOLS_SERVICE_NAME": SERVICE,
                "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
            },
            log_retention=log_retention,
        )

    def _scheduler(self) -> Handler:
        handler = Handler(
            self,
            "Scheduler",
            folder="scheduler",
            platform=self._platform,
            description="Dispatches due jobs to their lanes, and sweeps what was left behind",
            timeout=SCHEDULER_TIMEOUT,
            memory_mb=1024,
            feeds_itself=True,  # tick → work items → itself
            # A tick that waited for a minute is the next one's work.
            max_event_age=Duration.minutes(1),
            retry_attempts=0,
            environment={
                **self._layout,
                "LAMPLIGHTER_JOBS_TABLE": self.tables.jobs.table_name,
                "LAMPLIGHTER_CONTROL_TABLE": self.tables.control.table_name,
                "LAMPLIGHTER_WORK_QUEUE_URL": self.work_queue.queue.queue_url,
                "LAMPLIGHTER_QUEUES": self.queue_urls(),
            },
            statements=[
                grants.on_items(
                    self.tables.executions, "Query", "GetItem", "PutItem", "UpdateItem"
                ),
                grants.on_items(self.tables.jobs, "GetItem", "BatchGetItem", "ConditionCheckItem"),
                grants.on_items(
                    self.tables.control, "GetItem", "BatchGetItem", "PutItem", "UpdateItem"
                ),
                grants.consume(self.work_queue.queue),
                grants.send(self.work_queue.queue, *self._lane_targets),
                grants.look_at_depth(*self._lane_targets),
            ],
        )
        # One item an invocation: partitions are worked on side by side, never in a row.
        handler.consume("Work", self.work_queue.queue, batch_size=1)
        return handler

    def _worker(self, lane: Lane, tasks_module: str, shell_owners: Sequence[str]) -> Handler:
        queue = self.lane_queues[lane.name].queue
        shell = {"LAMPLIGHTER_SHELL_OWNERS": ",".join(shell_owners)} if shell_owners else {}
        http = self._http_targets
        handler = Handler(
            self,
            f"{lane.name.title()}Worker",
            folder="worker",
            platform=self._platform,
            description=f"Runs jobs of lane {lane.name}",
            timeout=Duration.seconds(limits.LAMBDA_MAX_TIMEOUT_S),
            memory_mb=lane.memory_mb,
            layers=[self._layers.tasks],
            reserved_concurrency=lane.reserved_concurrency,
            feeds_itself=True,  # a retry goes back into the lane
            environment={
                **shell,
                **({**http.rules, **http.signing} if http else {}),
                "LAMPLIGHTER_JOBS_TABLE": self.tables.jobs.table_name,
                "LAMPLIGHTER_PAYLOADS_BUCKET": self.tables.payloads.bucket_name,
                "LAMPLIGHTER_QUEUES": self.queue_urls(),
                "LAMPLIGHTER_LANE": lane.name,
                "LAMPLIGHTER_TASKS": tasks_module,
            },
            statements=[
                grants.on_items(self.tables.executions, "GetItem", "PutItem", "UpdateItem"),
                grants.on_items(self.tables.jobs, "GetItem", "ConditionCheckItem"),
                *(http.statements if http else []),
                grants.on_objects(self.tables.payloads, "GetObjectVersion"),
                grants.tell_what_is_missing(self.tables.payloads),
                grants.consume(queue),
                grants.hide(queue),
                # Whoever ends an execution wakes what waits for it, in whichever lane that is.
                grants.send(*self._lane_targets),
            ],
        )
        handler.consume(
            "Lane",
            queue,
            batch_size=limits.SQS_BATCH,
            max_concurrency=lane.max_concurrency,
            pollers=lane.pollers,
        )
        return handler

    def _dead_letters(self) -> Handler:
        undelivered = [lane.dead_letters for lane in self.lane_queues.values()]
        handler = Handler(
            self,
            "DeadLetters",
            folder="dead_letters",
            platform=self._platform,
            description="Sends again what a lane could not deliver, or gives it up for good",
            timeout=DEAD_LETTER_TIMEOUT,
            memory_mb=512,
            environment={"LAMPLIGHTER_QUEUES": self.queue_urls()},
            statements=[
                grants.on_items(self.tables.executions, "GetItem", "UpdateItem"),
                grants.consume(*undelivered),
                grants.send(*self._lane_targets),
            ],
        )
        for name, lane in self.lane_queues.items():
            handler.consume(name.title(), lane.dead_letters, batch_size=limits.SQS_BATCH)
        return handler

    def _api(self, authentication: Authentication) -> Handler:
        executions, jobs, control = self.tables.executions, self.tables.jobs, self.tables.control
        return Handler(
            self,
            "ApiHandler",
            folder="api",
            platform=self._platform,
            description="Answers the HTTP API",
            timeout=API_TIMEOUT,
            memory_mb=1024,  # more memory is more CPU: half the cold start of 512 MB
            environment={
                **self._layout,
                "LAMPLIGHTER_JOBS_TABLE": jobs.table_name,
                "LAMPLIGHTER_CONTROL_TABLE": control.table_name,
                "LAMPLIGHTER_PAYLOADS_BUCKET": self.tables.payloads.bucket_name,
                "LAMPLIGHTER_QUEUES": self.queue_urls(),
                "LAMPLIGHTER_OWNER_CLAIM": authentication.owner_claim,
                "LAMPLIGHTER_REQUIRE_SCOPES": str(authentication.require_scopes).lower(),
                "LAMPLIGHTER_SCOPE_PREFIX": authentication.scope_prefix,
                **(self._http_targets.rules if self._http_targets else {}),
                **({"LAMPLIGHTER_QUOTAS": self._quotas} if self._quotas else {}),
            },
            layers=[self._layers.swagger],
            statements=[
                grants.on_items(
                    executions,
                    *("GetItem", "BatchGetItem", "PutItem", "UpdateItem"),
                    "ConditionCheckItem",
                ),
                grants.query_index(
                    executions, schema.BY_OWNER, schema.NEEDS_ATTENTION, schema.BY_JOB
                ),
                grants.on_items(
                    jobs,
                    *("GetItem", "BatchGetItem", "Query"),
                    *("ConditionCheckItem", "PutItem", "UpdateItem"),
                ),
                grants.query_index(jobs, schema.JOBS_BY_OWNER),
                grants.on_items(control, "GetItem", "BatchGetItem", "PutItem"),
                grants.on_objects(
                    self.tables.payloads, "PutObject", "GetObject", "GetObjectVersion"
                ),
                grants.tell_what_is_missing(self.tables.payloads),
                grants.send(*self._lane_targets),
            ],
        )

    def _add_alarms(self, topic: sns.ITopic | None) -> None:
        self.alarms = Alarms(self, "Alarms", topic=topic)
        self.alarms.of_dispatch()
        self.alarms.of_dead_letters(
            "Work",
            self.work_queue.dead_letters,
            minutes=1,
            means="A tick or a partition's work failed for good. The next tick asks for the same "
            "work, so nothing is lost; see the scheduler's log for the cause.",
        )
        for name, lane in self.lane_queues.items():
            self.alarms.of_starts(name)
            self.alarms.of_dead_letters(
                name.title(),
                lane.dead_letters,
                # Their handler takes them at once.
                minutes=5,
                means=f"Undelivered messages of lane {name} stay: see the log of dead_letters.",
            )

    def _acknowledge(self) -> None:
        """What cdk-nag finds and we mean."""
        objects = f"{arn_in_findings(self, self.tables.payloads)}/*"
        for handler in (self.api_handler, *self.workers.values()):
            Validations.of(handler).acknowledge(
                Acknowledgment(
                    id=f"AwsSolutions-IAM5[Resource::{objects}]",
                    reason="Any object of the one bucket that holds payloads and nothing else: an "
                    "owner's prefix is known when a job is, not when a role is made.",
                )
            )
        for route in self.api.open_routes:
            Validations.of(route).acknowledge(
                Acknowledgment(
                    id="AwsSolutions-APIG4",
                    reason="GET of /v1/health, /v1/openapi.json and /docs tells that the service "
                    "answers and how it is asked, the same in every deployment of a release: "
                    "uptime checks, code generators and browsers have no token.",
                )
            )

    def _json_of(self, queues: Mapping[str, sqs.IQueue]) -> str:
        urls = {name: queue.queue_url for name, queue in queues.items()}
        return Stack.of(self).to_json_string(urls)


def _check(
    tables: SchedulerTables | None,
    deletion_protection: bool | None,
    lanes: Sequence[Lane],
    shards: int,
    partitions: int,
) -> None:
    if tables is not None and deletion_protection is not None:
        raise ValueError("tables or deletion_protection, not both: the tables have theirs")
    names = [lane.name for lane in lanes]
    if "default" not in names:
        raise ValueError(f"lanes {names}: one must be 'default'")
    if len(set(names)) != len(names):
        raise ValueError(f"lanes {names}: each name once")
    if not 1 <= shards <= limits.MAX_SHARDS:
        raise ValueError(f"{shards} shards: not in 1-{limits.MAX_SHARDS}")
    if not 1 <= partitions <= shards:
        raise ValueError(f"{partitions} partitions: not in 1-{shards}, the number of shards")


def _check_local(stage: str, shell_owners: Sequence[str], http_targets: HttpTargets | None) -> None:
    """What no deployed Lambda may do."""
    if http_targets and http_targets.allow_loopback and stage != LOCAL:
        raise ValueError(f"allow_loopback in stage {stage!r}: a Lambda's own runtime answers there")
    if shell_owners and stage != LOCAL:
        raise ValueError(f"shell_owners in stage {stage!r}: a deployed Lambda runs no shell")
