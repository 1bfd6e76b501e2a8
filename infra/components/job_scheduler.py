"""`JobScheduler`: the whole of Lamplighter as one construct for any CDK app."""

from collections.abc import Mapping, Sequence

from aws_cdk import Acknowledgment, Duration, Stack, Validations
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra import grants
from infra.bundling import LambdaTarget
from infra.components.alarms import Alarms
from infra.components.api import Authentication, SchedulerApi, Throttle
from infra.components.capacity import capacities
from infra.components.functions import NAMESPACE, SERVICE, Handler, Platform
from infra.components.layers import SchedulerLayers, TaskSource
from infra.components.named_targets import Target, Told
from infra.components.notices import Notices
from infra.components.payloads import arn_in_findings
from infra.components.queues import DEFAULT_LANES, Lane, LaneQueue, WorkQueue, check_lanes
from infra.components.starts import to_json as starts_to_json
from infra.components.tables import SchedulerTables
from infra.components.targets import HttpTargets
from infra.components.tick import Tick
from lamplighter.aws import schema
from lamplighter.core import limits
from lamplighter.core.lanes import rules_to_json
from lamplighter.core.quotas import Quotas

LOCAL = "local"

# Long enough to dispatch a partition's share of a full minute, short enough that a visit that
# hangs is repeated before the look-ahead is used up.
SCHEDULER_TIMEOUT = Duration.seconds(120)
# Of a function's environment, which has 4 KB in all: a queue's URL, at its longest, with its lane.
URL_BYTES = 150
TOLD_BYTES = 3000
# An item that fails comes again every two minutes, five times.
OLDEST_WORK_S = 600
# Of `ctx.complete_with`, as IAM names what a transaction needs.
TASK_WRITES = ("PutItem", "UpdateItem", "DeleteItem", "ConditionCheckItem")
DEAD_LETTER_TIMEOUT = Duration.seconds(60)
API_TIMEOUT = Duration.seconds(15)  # an HTTP API gives up after 30


class JobScheduler(Construct):
    """A job scheduler: tables, queues, functions, HTTP API, tick and alarms.

    Who owns what has failed is told over the account's default EventBridge bus, unless
    `notices` says another way, or none. Give `tables` to keep them in a stack of their own, or
    `deletion_protection` to have them made here, encrypted with your `encryption_key` if you have
    one, as is everything else then. Every number and every queue can be chosen;
    nothing is read from the environment.
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
        encryption_key: kms.IKey | None = None,
        lanes: Sequence[Lane] = DEFAULT_LANES,
        worker_concurrency: int | None = None,
        starts_per_second: Mapping[str, float] | None = None,
        target: LambdaTarget | None = None,
        stage: str = "dev",
        shards: int = limits.DEFAULT_SHARDS,
        partitions: int = limits.DEFAULT_PARTITIONS,
        drain_per_second: float = limits.DRAIN_PER_SECOND,
        shell_owners: Sequence[str] = (),
        http_targets: HttpTargets | None = None,
        targets: Sequence[Target] = (),
        quotas: Quotas | None = None,
        throttle: Throttle | None = None,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH,
        alarm_topic: sns.ITopic | None = None,
        notices: Notices | None = None,
        parked_for: Duration | None = None,
        task_names: Sequence[str] = (),
    ) -> None:
        _check(tables, deletion_protection, shards, partitions)
        _check_key(tables, encryption_key)
        _check_drain(drain_per_second)
        _check_parked_for(parked_for)
        check_lanes(lanes)
        self._capacities = capacities(lanes, worker_concurrency)
        _check_local(stage, shell_owners, http_targets)
        super().__init__(scope, id)
        self.log_retention = log_retention
        self._is_local = stage == LOCAL
        self.tables = tables or SchedulerTables(
            self,
            "Tables",
            deletion_protection=bool(deletion_protection),
            encryption_key=encryption_key,
        )
        self._key = self.tables.encryption_key
        self._http_targets = http_targets
        self._notices = notices or Notices.on_default_bus(self)
        self._parked_for = parked_for
        self._task_names = ",".join(task_names)
        self._targets = Told(targets=targets)
        self._quotas = (quotas or Quotas()).to_json()
        self._lanes = {lane.name: lane for lane in lanes}
        self._starts = starts_to_json(self._lanes, self._capacities, starts_per_second or {})
        self._rules = rules_to_json({lane.name: lane.rules for lane in lanes})
        _check_environment(
            lanes,
            self._targets.size,
            *(self._quotas, self._rules, self._starts, self._task_names),
        )
        self._layout = {
            "LAMPLIGHTER_SHARDS": str(shards),
            "LAMPLIGHTER_PARTITIONS": str(partitions),
        }
        self._add_queues()
        self._add_platform(tasks, target or LambdaTarget.graviton(), stage, log_retention)

        self._drain_per_second = f"{drain_per_second:g}"
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
            encryption_key=self._key,
        )
        Tick(
            self,
            "Tick",
            function=self.scheduler.function,
            work=self.work_queue.queue,
            undelivered=self.work_queue.dead_letters,
            encryption_key=self._key,
        )
        self._add_alarms(alarm_topic)
        self._acknowledge()

    def grant_task_writes(
        self,
        table: dynamodb.ITable,
        *,
        lanes: Sequence[str] | None = None,
        actions: Sequence[str] = TASK_WRITES,
    ) -> None:
        """Let tasks write to a table of yours with the end of their execution.

        That is `ctx.complete_with`: put, update, delete and check single items; nothing is read,
        and no index. `lanes` are those whose workers may, all unless said.
        """
        if wrong := sorted({*actions} - {*TASK_WRITES}):
            raise ValueError(f"actions {wrong}: not among {[*TASK_WRITES]}")
        if unknown := sorted({*(lanes or ())} - {*self.workers}):
            raise ValueError(f"lanes {unknown}: not among {sorted(self.workers)}")
        for lane in self.workers if lanes is None else lanes:
            self.workers[lane].allow(grants.on_items(table, *actions))

    def queue_urls(self) -> str:
        """Lane → queue URL, or a list of them, as JSON."""
        urls = {
            name: [queue.queue_url for queue in lane.queues]
            for name, lane in self.lane_queues.items()
        }
        return Stack.of(self).to_json_string(
            {name: of if len(of) > 1 else of[0] for name, of in urls.items()}
        )

    def _add_queues(self) -> None:
        self.work_queue = WorkQueue(
            self, "Work", function_timeout=SCHEDULER_TIMEOUT, encryption_key=self._key
        )
        self.lane_queues = {
            name: LaneQueue(
                self,
                f"{name.title()}Lane",
                dead_letter_timeout=DEAD_LETTER_TIMEOUT,
                queues=lane.queues,
                encryption_key=self._key,
            )
            for name, lane in self._lanes.items()
        }
        self._lane_targets = [queue for lane in self.lane_queues.values() for queue in lane.queues]

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
                **({"LAMPLIGHTER_LANES": self._rules} if self._rules else {}),
                "POWERTOOLS_SERVICE_NAME": SERVICE,
                "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
            },
            log_retention=log_retention,
            encryption_key=self._key,
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
                "LAMPLIGHTER_DRAIN_PER_SECOND": self._drain_per_second,
                "LAMPLIGHTER_QUEUES": self.queue_urls(),
                **self._notices.environment,
            },
            statements=[
                grants.on_items(
                    self.tables.executions,
                    *("Query", "GetItem", "BatchGetItem", "PutItem", "UpdateItem"),
                ),
                grants.on_items(
                    self.tables.jobs, "GetItem", "BatchGetItem", "Query", "ConditionCheckItem"
                ),
                grants.on_items(
                    self.tables.control, "GetItem", "BatchGetItem", "PutItem", "UpdateItem"
                ),
                grants.consume(self.work_queue.queue),
                grants.send(self.work_queue.queue, *self._lane_targets),
                grants.look_at_depth(*self._lane_targets),
                *self._notices.statements,
            ],
        )
        # One item an invocation: partitions are worked on side by side, never in a row.
        handler.consume("Work", self.work_queue.queue, batch_size=1)
        return handler

    def _worker(self, lane: Lane, tasks_module: str, shell_owners: Sequence[str]) -> Handler:
        queues, capacity = self.lane_queues[lane.name].queues, self._capacities[lane.name]
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
            reserved_concurrency=capacity.reserved_concurrency,
            feeds_itself=True,  # a retry goes back into the lane
            environment={
                **shell,
                **({**http.rules, **http.signing} if http else {}),
                **self._targets.workers(self),
                **self._notices.environment,
                **self._parking,
                "LAMPLIGHTER_JOBS_TABLE": self.tables.jobs.table_name,
                "LAMPLIGHTER_CONTROL_TABLE": self.tables.control.table_name,
                "LAMPLIGHTER_PAYLOADS_BUCKET": self.tables.payloads.bucket_name,
                "LAMPLIGHTER_QUEUES": self.queue_urls(),
                "LAMPLIGHTER_LANE": lane.name,
                "LAMPLIGHTER_TASKS": tasks_module,
            },
            statements=[
                # A checkpoint is kept on condition that its try holds the execution.
                grants.on_items(
                    self.tables.executions,
                    *("GetItem", "BatchGetItem", "PutItem", "UpdateItem", "ConditionCheckItem"),
                ),
                grants.on_items(self.tables.jobs, "GetItem", "ConditionCheckItem"),
                grants.on_permits(
                    self.tables.control,
                    *("GetItem", "BatchGetItem", "Query", "UpdateItem", "DeleteItem"),
                ),
                *(http.statements if http else []),
                *self._targets.statements(),
                grants.on_objects(self.tables.payloads, "GetObjectVersion"),
                grants.tell_what_is_missing(self.tables.payloads),
                grants.consume(*queues),
                grants.hide(*queues),
                # Whoever ends an execution wakes what waits for it, in whichever lane that is.
                grants.send(*self._lane_targets),
                *self._notices.statements,
            ],
        )
        # On this machine nothing else would serve it.
        is_served = lane.functions or self._is_local
        for number, queue in enumerate(queues if is_served else (), start=1):
            handler.consume(
                "Lane" if number == 1 else f"Lane{number}",
                queue,
                batch_size=limits.SQS_BATCH,
                max_concurrency=capacity.max_concurrency,
                pollers=lane.pollers,
            )
        return handler

    @property
    def _parking(self) -> Mapping[str, str]:
        seconds = self._parked_for and self._parked_for.to_seconds()
        return {"LAMPLIGHTER_PARKED_FOR_SECONDS": f"{seconds:.0f}"} if seconds else {}

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
            feeds_itself=True,  # what it sends again may come back, for a day
            environment={"LAMPLIGHTER_QUEUES": self.queue_urls(), **self._notices.environment},
            statements=[
                # A notice that is not taken is booked, and so is a retry that is far away.
                grants.on_items(self.tables.executions, "GetItem", "PutItem", "UpdateItem"),
                grants.consume(*undelivered),
                grants.send(*self._lane_targets),
                *self._notices.statements,
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
                **self._targets.api(),
                **({"LAMPLIGHTER_QUOTAS": self._quotas} if self._quotas else {}),
                **({"LAMPLIGHTER_TASK_NAMES": self._task_names} if self._task_names else {}),
                "LAMPLIGHTER_CAPACITY": self._starts,
            },
            layers=[self._layers.swagger],
            statements=[
                grants.on_items(
                    executions,
                    *("GetItem", "BatchGetItem", "Query", "PutItem", "UpdateItem"),
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
                grants.on_permits(control, "Query", "UpdateItem", "DeleteItem"),
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
        self.alarms.of_dropped("Scheduler", self.scheduler.function)
        self.alarms.of_dropped("DeadLetters", self.dead_letters.function)
        for name, worker in self.workers.items():
            self.alarms.of_dropped(f"{name.title()}Worker", worker.function)
        self.alarms.of_dead_letters(
            "Work",
            self.work_queue.dead_letters,
            minutes=1,
            means="A tick or a partition's work failed for good. The next tick asks for the same "
            "work, so nothing is lost; see the scheduler's log for the cause.",
        )
        self.alarms.of_oldest(
            "Work",
            [self.work_queue.queue],
            seconds=OLDEST_WORK_S,
            means="A partition's work waits: the scheduler is throttled, or fails, and jobs start "
            "late. See its log, and how much of the account's concurrency it gets.",
        )
        for name, lane in self.lane_queues.items():
            self.alarms.of_starts(name)
            self.alarms.of_oldest(
                name.title(),
                lane.queues,
                seconds=self._lanes[name].alarm_after_seconds,
                means=f"Jobs of lane {name} wait for workers: too little concurrency, or an owner "
                "who floods it. See its backlog, and what the lane may run at once.",
            )
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


def _check_environment(lanes: Sequence[Lane], targets: int, *texts: str) -> None:
    """What is told of lanes, owners and targets has to fit into a function's environment."""
    said = sum(lane.queues for lane in lanes) * URL_BYTES + targets + sum(map(len, texts))
    if said > TOLD_BYTES:
        raise ValueError(
            f"tasks, queues, lanes, targets and quotas: {said} bytes of settings, more than "
            f"{TOLD_BYTES}; fewer queues, targets or tasks, or quotas for fewer owners"
        )


def _check_drain(per_second: float) -> None:
    low, high = limits.DRAIN_RANGE
    if not low <= per_second <= high:
        raise ValueError(f"drain_per_second {per_second:g}: not in {low:g}-{high:g}")


def _check_parked_for(parked_for: Duration | None) -> None:
    low, high = (bound.total_seconds() for bound in limits.PARKED_FOR_RANGE)
    if parked_for is not None and not low <= parked_for.to_seconds() <= high:
        raise ValueError(f"parked_for: {parked_for.to_seconds()} s is not in {low:g}-{high:g}")


def _check(
    tables: SchedulerTables | None,
    deletion_protection: bool | None,
    shards: int,
    partitions: int,
) -> None:
    if tables is not None and deletion_protection is not None:
        raise ValueError("tables or deletion_protection, not both: the tables have theirs")
    if not 1 <= shards <= limits.MAX_SHARDS:
        raise ValueError(f"{shards} shards: not in 1-{limits.MAX_SHARDS}")
    if not 1 <= partitions <= shards:
        raise ValueError(f"{partitions} partitions: not in 1-{shards}, the number of shards")


def _check_key(tables: SchedulerTables | None, encryption_key: kms.IKey | None) -> None:
    if tables is not None and encryption_key is not None:
        raise ValueError("tables or encryption_key, not both: the tables have theirs")


def _check_local(stage: str, shell_owners: Sequence[str], http_targets: HttpTargets | None) -> None:
    """What no deployed Lambda may do."""
    if http_targets and http_targets.allow_loopback and stage != LOCAL:
        raise ValueError(f"allow_loopback in stage {stage!r}: a Lambda's own runtime answers there")
    if shell_owners and stage != LOCAL:
        raise ValueError(f"shell_owners in stage {stage!r}: a deployed Lambda runs no shell")
