"""A function starts with complete settings, or says which variable is at fault."""

import json
from collections.abc import Callable, Mapping
from datetime import timedelta

import pytest

from lamplighter.aws import settings
from lamplighter.aws.settings import (
    ApiSettings,
    BadSettings,
    DeadLetterSettings,
    SchedulerSettings,
    Settings,
    WorkerSettings,
)
from lamplighter.core.addresses import Reach
from lamplighter.core.named import NO_TARGETS, Directory, Entry, TargetKind
from lamplighter.core.quotas import Quotas
from lamplighter.core.targets import NOBODY, HttpRules

LANES = {"default": "https://sqs.example/default", "bulk": "https://sqs.example/bulk"}
COMMON = {
    "LAMPLIGHTER_STAGE": "prod",
    "LAMPLIGHTER_EXECUTIONS_TABLE": "executions",
    "LAMPLIGHTER_QUEUES": json.dumps(LANES),
}
SCHEDULER = COMMON | {
    "LAMPLIGHTER_JOBS_TABLE": "jobs",
    "LAMPLIGHTER_CONTROL_TABLE": "control",
    "LAMPLIGHTER_WORK_QUEUE_URL": "https://sqs.example/work",
    "LAMPLIGHTER_SHARDS": "64",
    "LAMPLIGHTER_PARTITIONS": "8",
}
WORKER = COMMON | {
    "LAMPLIGHTER_JOBS_TABLE": "jobs",
    "LAMPLIGHTER_CONTROL_TABLE": "control",
    "LAMPLIGHTER_PAYLOADS_BUCKET": "payloads",
    "LAMPLIGHTER_LANE": "bulk",
    "LAMPLIGHTER_TASKS": "playground.tasks",
}
API = COMMON | {
    "LAMPLIGHTER_JOBS_TABLE": "jobs",
    "LAMPLIGHTER_CONTROL_TABLE": "control",
    "LAMPLIGHTER_PAYLOADS_BUCKET": "payloads",
    "LAMPLIGHTER_OWNER_CLAIM": "sub",
}

Read = Callable[[Mapping[str, str]], Settings]
KINDS: Mapping[str, tuple[Read, Mapping[str, str]]] = {
    "scheduler": (SchedulerSettings.of, SCHEDULER),
    "worker": (WorkerSettings.of, WORKER),
    "dead letters": (DeadLetterSettings.of, COMMON),
    "api": (ApiSettings.of, API),
}
REQUIRED = [
    pytest.param(read, environment, name, id=f"{kind}: {name}")
    for kind, (read, environment) in KINDS.items()
    for name in environment
    if name not in ("LAMPLIGHTER_SHARDS", "LAMPLIGHTER_PARTITIONS")
]


def test_a_scheduler_is_told_all_of_it() -> None:
    assert SchedulerSettings.of(SCHEDULER) == SchedulerSettings(
        stage="prod",
        executions_table="executions",
        jobs_table="jobs",
        control_table="control",
        queues={lane: (url,) for lane, url in LANES.items()},
        work_queue_url="https://sqs.example/work",
        shards=64,
        partitions=8,
        log_sample_rate=1.0,
    )


def test_functions_are_told_several_queues_of_a_lane_and_what_is_special_about_it() -> None:
    """S2-K5, S0-N6, S0-P2."""
    urls = [f"https://sqs.example/bulk{n}" for n in range(3)]
    rules = '{"bulk":{"fair":true,"promotes_to":"default","promote_after_seconds":900}}'
    said = {"LAMPLIGHTER_QUEUES": json.dumps(LANES | {"bulk": urls}), "LAMPLIGHTER_LANES": rules}

    for read, environment in KINDS.values():
        told = read({**environment, **said})
        assert told.queues == {"default": (LANES["default"],), "bulk": tuple(urls)}
        assert (told.lanes["bulk"].fair, told.lanes["bulk"].promotes_to) == (True, "default")
        assert read(environment).lanes == {}


def test_a_worker_is_told_its_lane_its_tasks_and_who_may_run_a_shell() -> None:
    environment = WORKER | {"LAMPLIGHTER_SHELL_OWNERS": "ada, grace,"}

    worker = WorkerSettings.of(environment)

    assert (worker.lane, worker.tasks) == ("bulk", "playground.tasks")
    assert worker.shell_owners == {"ada", "grace"}
    assert WorkerSettings.of(WORKER).shell_owners == frozenset()


@pytest.mark.parametrize(
    ("read", "environment"),
    [(WorkerSettings.of, WORKER), (ApiSettings.of, API)],
    ids=["worker", "api"],
)
def test_nobody_may_call_http_targets_unless_it_is_said_who(
    read: Callable[[Mapping[str, str]], WorkerSettings | ApiSettings],
    environment: Mapping[str, str],
) -> None:
    said = {"LAMPLIGHTER_HTTP_OWNERS": "ada, grace", "LAMPLIGHTER_HTTP_ALLOW": "http,loopback"}

    assert read(environment).http == NOBODY
    assert read({**environment, **said}).http == HttpRules(
        owners=frozenset({"ada", "grace"}),
        allow_http=True,
        reach=Reach(private=False, loopback=True),
    )
    with pytest.raises(BadSettings, match="LAMPLIGHTER_HTTP_ALLOW: everything: not one of http"):
        read({**environment, "LAMPLIGHTER_HTTP_ALLOW": "everything"})


@pytest.mark.parametrize(
    ("read", "environment"),
    [(WorkerSettings.of, WORKER), (ApiSettings.of, API)],
    ids=["worker", "api"],
)
def test_there_are_no_named_targets_unless_they_are_named(
    read: Callable[[Mapping[str, str]], WorkerSettings | ApiSettings],
    environment: Mapping[str, str],
) -> None:
    said = {"billing": {"kind": "lambda", "owners": ["ada"], "at": "arn:x"}}

    assert read(environment).targets == NO_TARGETS
    found = read({**environment, "LAMPLIGHTER_TARGETS": json.dumps(said)}).targets
    assert found == Directory.of(
        Entry(name="billing", kind=TargetKind.LAMBDA, owners=frozenset({"ada"}), at="arn:x")
    )
    with pytest.raises(BadSettings, match="LAMPLIGHTER_TARGETS: target 'billing': kind 'ec2'"):
        read({**environment, "LAMPLIGHTER_TARGETS": '{"billing": {"kind": "ec2"}}'})


def test_a_worker_is_told_where_the_keys_are_that_requests_are_signed_with() -> None:
    arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:signing-AbCdEf"

    assert WorkerSettings.of(WORKER).signing_secret is None
    assert (
        WorkerSettings.of(WORKER | {"LAMPLIGHTER_HTTP_SIGNING_SECRET": arn}).signing_secret == arn
    )


def test_the_api_is_told_what_its_owners_may_have() -> None:
    said = '{"live_jobs": 5, "owners": {"ada": {"live_jobs": 9}}}'

    quotas = ApiSettings.of(API | {"LAMPLIGHTER_QUOTAS": said}).quotas

    assert (quotas.of("ada").live_jobs, quotas.of("grace").live_jobs) == (9, 5)
    assert ApiSettings.of(API).quotas == Quotas()
    with pytest.raises(BadSettings, match="LAMPLIGHTER_QUOTAS: quotas: live_jobs: -1 is not"):
        ApiSettings.of(API | {"LAMPLIGHTER_QUOTAS": '{"live_jobs": -1}'})


def test_the_api_is_told_whose_name_is_in_the_token() -> None:
    assert ApiSettings.of(API).owner_claim == "sub"


def test_scopes_are_required_unless_a_deployment_does_not_ask_for_them() -> None:
    default = ApiSettings.of(API)
    lenient = ApiSettings.of(API | {"LAMPLIGHTER_REQUIRE_SCOPES": "false"})

    assert (default.requires_scopes, default.scope_prefix) == (True, "")
    assert not lenient.requires_scopes
    with pytest.raises(BadSettings, match="LAMPLIGHTER_REQUIRE_SCOPES: 'no'"):
        ApiSettings.of(API | {"LAMPLIGHTER_REQUIRE_SCOPES": "no"})


def test_what_is_not_needed_is_not_there() -> None:
    dead_letters = DeadLetterSettings.of(SCHEDULER)

    assert (dead_letters.jobs_table, dead_letters.control_table) == (None, None)
    assert dead_letters.payloads_bucket is None
    assert SchedulerSettings.of(API | SCHEDULER).payloads_bucket is None


@pytest.mark.parametrize(("read", "environment", "name"), REQUIRED)
@pytest.mark.parametrize("is_empty", [False, True], ids=["not set", "set to nothing"])
def test_a_missing_variable_is_named(
    read: Read, environment: Mapping[str, str], name: str, is_empty: bool
) -> None:
    rest = {key: value for key, value in environment.items() if key != name}

    with pytest.raises(BadSettings, match=f"{name} is not set"):
        read(rest | ({name: ""} if is_empty else {}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LAMPLIGHTER_QUEUES", "default=https://sqs.example/default"),
        ("LAMPLIGHTER_QUEUES", "[]"),
        ("LAMPLIGHTER_QUEUES", "{}"),
        ("LAMPLIGHTER_QUEUES", '{"default": "arn:aws:sqs:us-east-1:1:default"}'),
        ("LAMPLIGHTER_QUEUES", '{"default": []}'),
        ("LAMPLIGHTER_LANES", "fair"),
        ("LAMPLIGHTER_LANES", '{"bulk": {"fair": "yes"}}'),
        ("LAMPLIGHTER_WORK_QUEUE_URL", "work"),
        ("LAMPLIGHTER_SHARDS", "0"),
        ("LAMPLIGHTER_SHARDS", "4097"),
        ("LAMPLIGHTER_SHARDS", "many"),
        ("LAMPLIGHTER_PARTITIONS", "65"),
        ("LAMPLIGHTER_LOG_SAMPLE_RATE", "1.1"),
        ("LAMPLIGHTER_LOG_SAMPLE_RATE", "nan"),
    ],
)
def test_a_value_that_makes_no_sense_is_named(name: str, value: str) -> None:
    with pytest.raises(BadSettings, match=name):
        SchedulerSettings.of(SCHEDULER | {name: value})


def test_a_worker_serves_a_lane_that_it_can_send_to() -> None:
    with pytest.raises(BadSettings, match="LAMPLIGHTER_LANE: 'critical'"):
        WorkerSettings.of(WORKER | {"LAMPLIGHTER_LANE": "critical"})


def test_every_variable_is_declared_once_and_says_what_it_means() -> None:
    declared = [value for value in vars(settings).values() if isinstance(value, settings.Variable)]

    names = [variable.name for variable in declared]
    assert len(names) == len(set(names)) > 15
    assert all(variable.means for variable in declared)


@pytest.mark.parametrize("kind", ["scheduler", "worker", "dead letters"])
def test_nobody_is_told_of_what_needs_attention_unless_it_is_said_how(kind: str) -> None:
    """S4-R4."""
    read, environment = KINDS[kind]
    topic = "arn:aws:sns:eu-central-1:123456789012:on-call"
    said = {"LAMPLIGHTER_NOTICE_BUS": "default", "LAMPLIGHTER_NOTICE_TOPIC": topic}

    silent, told = read(environment), read({**environment, **said})

    assert (silent.notice_bus, silent.notice_topic) == (None, None)
    assert (told.notice_bus, told.notice_topic) == ("default", topic)


def test_a_worker_is_told_how_long_what_it_does_not_know_waits() -> None:
    """S0-O10."""
    name = "LAMPLIGHTER_PARKED_FOR_SECONDS"

    assert WorkerSettings.of(WORKER).parked_for == timedelta(days=7)
    assert WorkerSettings.of({**WORKER, name: "21600"}).parked_for == timedelta(hours=6)
    for wrong in ("59", "2592001", "soon"):
        with pytest.raises(BadSettings, match=name):
            WorkerSettings.of({**WORKER, name: wrong})


def test_the_api_is_told_which_tasks_there_are_if_anybody_says_so() -> None:
    assert ApiSettings.of(API).tasks == frozenset()
    assert ApiSettings.of({**API, "LAMPLIGHTER_TASK_NAMES": "bill, mail"}).tasks == {"bill", "mail"}
