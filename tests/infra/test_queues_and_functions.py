import json
from collections import UserDict
from collections.abc import Mapping

import pytest

from lamplighter.aws.schema import TICK
from lamplighter.aws.settings import (
    ApiSettings,
    DeadLetterSettings,
    SchedulerSettings,
    WorkerSettings,
)
from lamplighter.aws.telemetry import NAMESPACE, SERVICE
from lamplighter.core import limits
from lamplighter.core.quotas import Quotas
from tests.infra.templates import Assembly

FUNCTION = "AWS::Lambda::Function"
MAPPING = "AWS::Lambda::EventSourceMapping"
QUEUE = "AWS::SQS::Queue"
LANES = ("Default", "Critical", "Bulk")
WORKERS = {f"{lane}Worker/Function" for lane in LANES}


class Asked(UserDict[str, str]):
    """An environment that remembers what it was asked for."""

    def __init__(self, told: Mapping[str, str]) -> None:
        super().__init__(told)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.names.add(str(name))
        return super().__contains__(name)


def test_every_queue_has_a_dead_letter_queue_or_is_one(assembly: Assembly) -> None:
    queues = assembly.scheduler.properties(QUEUE)

    redriven = {
        name: assembly.named(queue["RedrivePolicy"]["deadLetterTargetArn"])
        for name, queue in queues.items()
        if "RedrivePolicy" in queue
    }

    assert redriven == {
        **{f"{lane}Lane/Queue": f"{lane}Lane/DeadLetters" for lane in LANES},
        "Work/Queue": "Work/DeadLetters",
    }
    assert set(queues) == set(redriven) | set(redriven.values())


def test_queues_are_encrypted_and_refuse_plain_http(assembly: Assembly) -> None:
    queues = assembly.scheduler.properties(QUEUE)
    policies = assembly.scheduler.properties("AWS::SQS::QueuePolicy").values()

    refusing = {
        assembly.named(statement["Resource"])
        for policy in policies
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    }

    assert all(queue["SqsManagedSseEnabled"] for queue in queues.values())
    assert refusing == set(queues)


@pytest.mark.parametrize("lane", LANES)
def test_a_lane_keeps_messages_for_two_weeks_and_delivers_a_hundred_times(
    assembly: Assembly, lane: str
) -> None:
    """O-F15, O-F17: and its dead letters for 14 days too: what expires is in the table."""
    queue = assembly.scheduler.properties(QUEUE)[f"{lane}Lane/Queue"]

    assert queue["MessageRetentionPeriod"] == 14 * 24 * 3600
    assert queue["RedrivePolicy"]["maxReceiveCount"] == limits.LANE_MAX_RECEIVES
    assert queue["VisibilityTimeout"] == limits.LAMBDA_MAX_TIMEOUT_S


def test_each_function_is_fed_by_its_queues_with_partial_batch_answers(assembly: Assembly) -> None:
    """O-F13: ReportBatchItemFailures on each mapping."""
    mappings = assembly.scheduler.properties(MAPPING).values()

    fed = {
        (assembly.named(m["EventSourceArn"]), assembly.named(m["FunctionName"])) for m in mappings
    }

    assert fed == {
        ("Work/Queue", "Scheduler/Function"),
        *((f"{lane}Lane/Queue", f"{lane}Worker/Function") for lane in LANES),
        *((f"{lane}Lane/DeadLetters", "DeadLetters/Function") for lane in LANES),
    }
    assert all(m["FunctionResponseTypes"] == ["ReportBatchItemFailures"] for m in mappings)
    assert all(m["MaximumBatchingWindowInSeconds"] == 0 for m in mappings)
    assert all(m["BatchSize"] <= limits.SQS_BATCH for m in mappings)


def test_a_queue_hides_messages_for_at_least_as_long_as_their_function_may_run(
    assembly: Assembly,
) -> None:
    """O-F17, S2-E3: not six times as long: a worker shrinks it to 30 s on receive, and beats."""
    queues, functions = (assembly.scheduler.properties(kind) for kind in (QUEUE, FUNCTION))

    for mapping in assembly.scheduler.properties(MAPPING).values():
        visibility = queues[assembly.named(mapping["EventSourceArn"])]["VisibilityTimeout"]
        timeout = functions[assembly.named(mapping["FunctionName"])]["Timeout"]
        assert visibility >= timeout, mapping


def test_a_handler_outlasts_what_it_runs(assembly: Assembly) -> None:
    worker = assembly.scheduler.properties(FUNCTION)["DefaultWorker/Function"]

    assert worker["Timeout"] - limits.MAX_TIMEOUT.total_seconds() >= 60


def test_only_functions_that_feed_their_own_queue_are_let_off_recursion_detection(
    assembly: Assembly,
) -> None:
    """O-F16: by name; no job hops, and partition work arms one item at a time."""
    allowed = {
        name
        for name, function in assembly.scheduler.properties(FUNCTION).items()
        if function.get("RecursiveLoop") == "Allow"
    }

    assert allowed == {"Scheduler/Function", "DeadLetters/Function", *WORKERS}


def test_each_function_runs_its_own_handler_from_an_asset_of_that_folder_alone(
    assembly: Assembly,
) -> None:
    for function in assembly.scheduler.properties(FUNCTION).values():
        folder = function["Handler"].split(".")[0]
        asset = assembly.asset(function["Code"])
        assert function["Handler"] == f"{folder}.handler.handle"
        assert [path.name for path in asset.iterdir()] == [folder]


def test_only_workers_get_the_tasks_of_the_user(assembly: Assembly) -> None:
    with_tasks = {
        name
        for name, function in assembly.scheduler.properties(FUNCTION).items()
        if "Layers/Tasks" in [assembly.named(layer) for layer in function["Layers"]]
    }

    assert with_tasks == WORKERS


def test_functions_run_on_graviton_unless_told_otherwise(
    assembly: Assembly, production: Assembly
) -> None:
    for built in (assembly, production):
        for function in built.scheduler.properties(FUNCTION).values():
            assert function["Architectures"] == ["arm64"]
            assert function["Runtime"] == "python3.13"


def test_each_function_writes_to_a_log_of_its_own_that_ends(assembly: Assembly) -> None:
    functions = assembly.scheduler.properties(FUNCTION)
    groups = assembly.scheduler.properties("AWS::Logs::LogGroup")

    logs = {
        name: assembly.named(function["LoggingConfig"]["LogGroup"])
        for name, function in functions.items()
    }

    assert logs == {name: name.replace("/Function", "/Log") for name in functions}
    assert all(group["RetentionInDays"] == 30 for group in groups.values())


@pytest.mark.parametrize(
    ("function", "settings"),
    [
        ("Scheduler/Function", SchedulerSettings),
        ("DeadLetters/Function", DeadLetterSettings),
        ("ApiHandler/Function", ApiSettings),
        *((worker, WorkerSettings) for worker in sorted(WORKERS)),
    ],
)
def test_each_function_is_told_all_that_it_reads_and_no_more(
    local: Assembly,
    function: str,
    settings: type[SchedulerSettings | DeadLetterSettings | ApiSettings | WorkerSettings],
) -> None:
    told = local.environment(function)
    asked = Asked(told)

    settings.of(asked)

    ours = {name for name in told if name.startswith("LAMPLIGHTER_")}
    assert ours <= asked.names
    assert told["POWERTOOLS_SERVICE_NAME"] == SERVICE
    assert told["POWERTOOLS_METRICS_NAMESPACE"] == NAMESPACE


def test_shell_owners_reach_workers_of_the_local_stage_only(
    assembly: Assembly, local: Assembly
) -> None:
    def told(built: Assembly) -> set[str]:
        return {
            name
            for name, function in built.scheduler.properties(FUNCTION).items()
            if "LAMPLIGHTER_SHELL_OWNERS" in function["Environment"]["Variables"]
        }

    assert told(local) == WORKERS
    assert told(assembly) == set()


def test_quotas_reach_the_api_alone_and_only_where_they_are_chosen(
    assembly: Assembly, local: Assembly
) -> None:
    def told(built: Assembly) -> set[str]:
        return {
            name
            for name, function in built.scheduler.properties(FUNCTION).items()
            if "LAMPLIGHTER_QUOTAS" in function["Environment"]["Variables"]
        }

    quotas = Quotas.from_json(local.environment("ApiHandler/Function")["LAMPLIGHTER_QUOTAS"])

    assert told(local) == {"ApiHandler/Function"}
    assert told(assembly) == set()
    assert (quotas.of("ada").live_jobs, quotas.of("grace").live_jobs) == (1000, None)


def test_the_tick_comes_each_minute_and_an_undelivered_one_is_kept(assembly: Assembly) -> None:
    (schedule,) = assembly.scheduler.properties("AWS::Scheduler::Schedule").values()
    target = schedule["Target"]

    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert json.loads(target["Input"]) == {"kind": "tick"}
    assert assembly.named(target["Arn"]) == "Scheduler/Function"
    assert assembly.named(target["RoleArn"]) == "Tick/Role"
    assert assembly.named(target["DeadLetterConfig"]["Arn"]) == "Work/DeadLetters"
    assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] == 60


def test_the_second_tick_arrives_as_the_scheduler_reads_it(assembly: Assembly) -> None:
    """It came in quotes, a JSON string of JSON, and was dropped as unreadable each minute."""
    rules = assembly.scheduler.properties("AWS::Events::Rule").values()
    (rule,) = [rule for rule in rules if "ScheduleExpression" in rule]
    (target,) = rule["Targets"]

    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert target["Input"] == TICK
