"""Container workers: told and allowed what the lane's function is, and as many as are needed."""

from collections.abc import Mapping
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecs as ecs
from aws_cdk.assertions import Template

from infra.components.api import Authentication
from infra.components.containers import ContainerWorkers, Size
from infra.components.job_scheduler import JobScheduler
from infra.components.layers import TaskSource
from infra.components.queues import DEFAULT_LANES, Lane
from infra.paths import ROOT

Properties = Mapping[str, Any]


def scheduler_in(stack: Stack, *, bulk: Lane) -> JobScheduler:
    return JobScheduler(
        stack,
        "JobScheduler",
        tasks=TaskSource(folder=ROOT / "examples" / "playground", module="playground.tasks"),
        authentication=Authentication(issuer="https://login.example.com/", audience=["a"]),
        lanes=[*(lane for lane in DEFAULT_LANES if lane.name != "bulk"), bulk],
    )


def synthesized(bulk: Lane, size: Size | None = None) -> Template:
    stack = Stack(App(), "Own")
    scheduler = scheduler_in(stack, bulk=bulk)
    vpc = ec2.Vpc(stack, "Vpc", max_azs=2)
    ContainerWorkers(
        stack,
        "Bulk",
        scheduler=scheduler,
        lane="bulk",
        cluster=ecs.Cluster(stack, "Cluster", vpc=vpc),
        image=ecs.ContainerImage.from_registry("our-tasks:1"),
        size=size,
    )
    return Template.from_stack(stack)


@pytest.fixture(scope="module")
def template() -> Template:
    return synthesized(Lane(name="bulk", functions=False), Size(minimum=0, concurrency=20))


def only(template: Template, kind: str, **holding: str) -> Properties:
    found: list[Properties] = [
        resource["Properties"]
        for name, resource in template.find_resources(kind).items()
        if all(part in name for part in holding.values())
    ]
    (properties,) = found
    return properties


def test_a_container_is_told_what_the_lanes_function_is_told(template: Template) -> None:
    task = only(template, "AWS::ECS::TaskDefinition")
    function = only(template, "AWS::Lambda::Function", name="BulkWorker")

    (container,) = task["ContainerDefinitions"]
    told = {one["Name"]: one["Value"] for one in container["Environment"]}
    assert told == function["Environment"]["Variables"]
    assert container["Command"] == [
        *("lamplighter", "worker", "--queue", "bulk"),
        *("--concurrency", "20", "--grace", "100", "--health-port", "8081"),
    ]
    assert container["StopTimeout"] == 120
    assert "8081/health" in container["HealthCheck"]["Command"][-1]


def test_it_may_what_the_function_may_and_nothing_else(template: Template) -> None:
    ours = only(template, "AWS::IAM::Role", name="BulkRole")
    function = only(template, "AWS::IAM::Role", name="BulkWorkerRole")

    assert ours["Policies"] == function["Policies"]
    (statement,) = ours["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "ecs-tasks.amazonaws.com"}
    assert "ManagedPolicyArns" not in ours


def test_there_are_as_many_as_what_waits_asks_for(template: Template) -> None:
    """S2-K2: by the age of the oldest message and by what waits, not by CPU."""
    target = only(template, "AWS::ApplicationAutoScaling::ScalableTarget")
    assert (target["MinCapacity"], target["MaxCapacity"]) == (0, 10)
    steps = [
        policy["Properties"]["StepScalingPolicyConfiguration"]["StepAdjustments"]
        for policy in template.find_resources("AWS::ApplicationAutoScaling::ScalingPolicy").values()
    ]
    assert sorted(step["ScalingAdjustment"] for some in steps for step in some) == [-1, 1, 3]
    alarms = [
        alarm["Properties"]
        for name, alarm in template.find_resources("AWS::CloudWatch::Alarm").items()
        if "BulkServiceTaskCount" in name
    ]
    assert sorted(alarm["Threshold"] for alarm in alarms) == [0.5, 60]
    for alarm in alarms:
        (expression,) = [one["Expression"] for one in alarm["Metrics"] if "Expression" in one]
        assert expression == "IF(visible0 > 0, age0, IF(running0 > 0, 1, 0))"


def test_a_lane_without_functions_is_served_by_containers_alone(template: Template) -> None:
    mappings = template.find_resources("AWS::Lambda::EventSourceMapping")

    assert not [name for name in mappings if "BulkWorker" in name]
    assert [name for name in mappings if "DefaultWorker" in name]


@pytest.mark.parametrize(
    ("size", "told"),
    [
        ({"concurrency": 0}, "concurrency 0"),
        ({"concurrency": 101}, "concurrency 101"),
        ({"minimum": 5, "maximum": 4}, "maximum 4"),
        ({"backlog_seconds": 9}, "backlog_seconds 9"),
    ],
)
def test_a_size_that_makes_no_sense_is_refused(size: Mapping[str, int], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Size(**size)


def test_a_lane_that_there_is_not_is_refused() -> None:
    stack = Stack(App(), "Own")
    scheduler = scheduler_in(stack, bulk=Lane(name="bulk"))
    cluster = ecs.Cluster(stack, "Cluster", vpc=ec2.Vpc(stack, "Vpc", max_azs=2))

    with pytest.raises(ValueError, match="lane 'slow'"):
        ContainerWorkers(
            stack,
            "Slow",
            scheduler=scheduler,
            lane="slow",
            cluster=cluster,
            image=ecs.ContainerImage.from_registry("our-tasks:1"),
        )
