"""`JobScheduler` in somebody else's app."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

import pytest
from aws_cdk import App, Stack, Validations, assertions
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from cdk_nag import AwsSolutionsChecks

from infra.app import build
from infra.components.api import Authentication
from infra.components.job_scheduler import JobScheduler
from infra.components.layers import TaskSource
from infra.components.queues import Lane, Pollers
from infra.components.tables import SchedulerTables
from infra.paths import ROOT
from lamplighter.core.quotas import Quota, Quotas


class Choices(TypedDict, total=False):
    lanes: Sequence[Lane]
    tables: SchedulerTables
    deletion_protection: bool
    shards: int
    partitions: int
    shell_owners: Sequence[str]
    quotas: Quotas
    alarm_topic: sns.ITopic


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> TaskSource:
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "mytasks.py").write_text("GREETING = 'hello'\n")
    return TaskSource(folder=folder, module="mytasks")


def scheduler_in(stack: Stack, tasks: TaskSource, **choices: Unpack[Choices]) -> JobScheduler:
    return JobScheduler(
        stack,
        "Jobs",
        tasks=tasks,
        authentication=Authentication(issuer="https://login.example.com/", audience=["jobs"]),
        **choices,
    )


def test_lanes_concurrency_and_pollers_are_chosen_by_the_user(
    tasks: TaskSource, tmp_path: Path
) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Theirs")

    scheduler_in(
        stack,
        tasks,
        lanes=[
            Lane(name="default", memory_mb=2048, max_concurrency=7),
            Lane(name="urgent", pollers=Pollers(minimum=2, maximum=50), reserved_concurrency=500),
        ],
    )

    template = assertions.Template.from_stack(stack)
    template.resource_count_is("AWS::SQS::Queue", 6)
    template.has_resource_properties("AWS::Lambda::Function", {"MemorySize": 2048, "Timeout": 900})
    template.has_resource_properties("AWS::Lambda::Function", {"ReservedConcurrentExecutions": 500})
    template.has_resource_properties(
        "AWS::Lambda::EventSourceMapping", {"ScalingConfig": {"MaximumConcurrency": 7}}
    )
    template.has_resource_properties(
        "AWS::Lambda::EventSourceMapping",
        {"ProvisionedPollerConfig": {"MinimumPollers": 2, "MaximumPollers": 50}},
    )


def test_without_tables_of_the_users_it_makes_its_own(tasks: TaskSource, tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Theirs")

    scheduler_in(stack, tasks, deletion_protection=True)

    assertions.Template.from_stack(stack).all_resources_properties(
        "AWS::DynamoDB::Table", {"DeletionProtectionEnabled": True}
    )


def test_every_alarm_goes_to_the_topic_that_the_user_gave(
    tasks: TaskSource, tmp_path: Path
) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Theirs")

    scheduler_in(stack, tasks, alarm_topic=sns.Topic(stack, "Topic"))

    topic = {"Ref": assertions.Match.string_like_regexp("Topic.*")}
    assertions.Template.from_stack(stack).all_resources_properties(
        "AWS::CloudWatch::Alarm", {"AlarmActions": [topic], "OKActions": [topic]}
    )


def test_tables_of_ones_own_and_protection_for_new_ones_exclude_each_other(
    tasks: TaskSource,
) -> None:
    stack = Stack(App(), "Theirs")
    tables = SchedulerTables(stack, "Tables", deletion_protection=False)

    with pytest.raises(ValueError, match="tables or deletion_protection, not both"):
        scheduler_in(stack, tasks, tables=tables, deletion_protection=True)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        pytest.param({"lanes": [Lane(name="bulk")]}, "one must be 'default'", id="no default lane"),
        pytest.param(
            {"lanes": [Lane(name="default"), Lane(name="default")]}, "each name once", id="twice"
        ),
        pytest.param({"shards": 5000}, "5000 shards: not in 1-4096", id="too many shards"),
        pytest.param({"shards": 2, "partitions": 3}, "3 partitions: not in 1-2", id="partitions"),
        pytest.param({"shell_owners": ["ada"]}, "a deployed Lambda runs no shell", id="shell"),
        pytest.param(
            {"quotas": Quotas(owners={f"owner-{n}": Quota(live_jobs=n) for n in range(100)})},
            "quotas of 100 owners: [0-9]+ bytes of JSON, more than 2048",
            id="more quotas than an environment holds",
        ),
        pytest.param(
            {
                "lanes": [Lane(name="default", queues=16)],
                "quotas": Quotas(owners={f"owner-{n}": Quota(live_jobs=n) for n in range(30)}),
            },
            "queues, lanes, targets and quotas: [0-9]+ bytes of settings, more than 3000",
            id="more queues and quotas than an environment holds",
        ),
    ],
)
def test_a_choice_that_cannot_work_is_refused_by_name(
    tasks: TaskSource, choices: Choices, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        scheduler_in(Stack(App(), "Theirs"), tasks, **choices)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lane(name="Big One"), "lower-case letters, digits and underscores"),
        (
            lambda: Lane(name="a", max_concurrency=5, pollers=Pollers(minimum=2, maximum=2)),
            "max_concurrency or pollers, not both",
        ),
        (lambda: Pollers(minimum=1, maximum=5), "1 pollers at least: not in 2-200"),
        (lambda: Pollers(minimum=50, maximum=5), "5 pollers at most: not in 50-2000"),
        (lambda: Authentication(issuer="login", audience=["a"]), "issuer 'login'"),
        (lambda: Authentication(issuer="https://login", audience=[]), "at least one"),
        (lambda: TaskSource(folder=Path("nowhere"), module="a.b"), "'a.b': not found in nowhere"),
    ],
)
def test_a_property_that_cannot_work_is_refused_by_value(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"stage": "qa"}, "'qa' is not one of local, dev, prod"),
        ({"stage": "prod"}, "issuer: not chosen, and stage is prod"),
        ({"architecture": "riscv"}, "'riscv' is not one of arm64, x86_64, host"),
        ({"audience": " , "}, "at least one"),
        ({"shell_owners": "ada"}, "a deployed Lambda runs no shell"),
        ({"quotas": '{"live_jobs": -5}'}, "context quotas: quotas: live_jobs: -5 is not"),
        ({"quotas": "10"}, "context quotas: quotas: 10 is not a JSON object"),
    ],
)
def test_a_context_that_makes_no_sense_is_refused(context: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(context=context)


def test_cdk_nag_does_look(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    sqs.Queue(Stack(app, "Careless"), "Unencrypted")

    with pytest.raises(RuntimeError, match="ValidationFailed"):
        app.synth()


def test_every_choice_of_cdk_json_is_explained_where_deploying_is() -> None:
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    explained = (ROOT / "docs" / "deploy.md").read_text()

    assert [name for name in context if f"`{name}`" not in explained] == []
