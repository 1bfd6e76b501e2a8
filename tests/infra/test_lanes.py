"""Lanes as a deployment chooses them: what runs at once in each, its queues and its rules."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.app import build
from infra.components.capacity import Capacity, capacities, shares
from infra.components.queues import DEFAULT_LANES, Lane, Pollers, check_lanes, lanes_of
from lamplighter.aws.settings import SchedulerSettings
from lamplighter.core.lanes import LaneRules, rules_from_json
from lamplighter.core.limits import MAX_TIMEOUT, PROMOTE_AFTER_RANGE
from tests.infra.conftest import synthesized
from tests.infra.templates import Assembly, Properties

T = TypeVar("T")

FUNCTION = "AWS::Lambda::Function"
MAPPING = "AWS::Lambda::EventSourceMapping"
QUEUE = "AWS::SQS::Queue"
ALARM = "AWS::CloudWatch::Alarm"
CHOSEN: Mapping[str, Mapping[str, object] | None] = {
    "default": {"queues": 3, "fair": True},
    "bulk": {"promotes_to": "default", "promote_after_seconds": 900, "alarm_after_seconds": 7200},
    "spiky": {"pollers": {"minimum": 2, "maximum": 50}, "memory_mb": 1024},
}


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """What `-c lanes=... -c worker_concurrency=130` makes."""
    context = {"lanes": json.dumps(CHOSEN), "worker_concurrency": "130"}
    return synthesized(tmp_path_factory.mktemp("lanes"), context)


def mappings_of(assembly: Assembly, worker: str) -> Mapping[str, Properties]:
    """A worker's mappings by the queue that feeds it."""
    return {
        assembly.named(mapping["EventSourceArn"]): mapping
        for mapping in assembly.scheduler.properties(MAPPING).values()
        if assembly.named(mapping["FunctionName"]) == f"{worker}/Function"
    }


def at_once(assembly: Assembly) -> Mapping[str, tuple[set[object], object]]:
    """Of each worker: MaximumConcurrency of its mappings, and what is reserved."""
    functions = assembly.scheduler.properties(FUNCTION)
    return {
        worker: (
            {
                mapping.get("ScalingConfig", {}).get("MaximumConcurrency")
                for mapping in mappings_of(assembly, worker).values()
            },
            functions[f"{worker}/Function"].get("ReservedConcurrentExecutions"),
        )
        for worker in (name.partition("/")[0] for name in functions if "Worker" in name)
    }


# What runs at once.


def test_a_default_deployment_reserves_nothing_and_bounds_nothing(assembly: Assembly) -> None:
    """S0-P3: an account may allow ten at once in all, of which none can be reserved."""
    assert at_once(assembly) == {
        f"{lane}Worker": ({None}, None) for lane in ("Default", "Critical", "Bulk")
    }


def test_a_total_is_divided_by_weight_and_critical_has_its_part_reserved(chosen: Assembly) -> None:
    """S0-P1, S0-P3, S2-K3: 8:4:1 of 130, and nothing of it for a lane with pollers of its own."""
    assert at_once(chosen) == {
        "CriticalWorker": ({80}, 80),
        "DefaultWorker": ({13}, None),  # 40, of three queues
        "BulkWorker": ({10}, None),
        "SpikyWorker": ({None}, None),
    }


@given(
    st.dictionaries(st.text(max_size=3), st.integers(1, 1000), min_size=1),
    st.integers(1, 100_000),
)
def test_shares_are_in_the_ratio_of_the_weights_and_never_more_than_there_is(
    weights: Mapping[str, int], total: int
) -> None:
    """S0-P1: whatever the lanes, none takes what is another's."""
    shared = shares(weights, total)

    assert sum(shared.values()) <= total
    for lane, weight in weights.items():
        exact = total * weight / sum(weights.values())
        assert math.isclose(shared[lane], exact, abs_tol=1)


def test_what_a_lane_names_itself_is_no_part_of_what_is_shared() -> None:
    """S0-P3: a reservation is also what the lane asks SQS for, so that nothing is throttled."""
    lanes = [
        Lane(name="default", weight=1),
        Lane(name="mine", reserved_concurrency=7),
        Lane(name="capped", max_concurrency=9, queues=2),
        Lane(name="lone", reserved_concurrency=1),
    ]

    assert capacities(lanes, 20) == {
        "default": Capacity(max_concurrency=20),
        "mine": Capacity(max_concurrency=7, reserved_concurrency=7),
        "capped": Capacity(max_concurrency=4),
        "lone": Capacity(reserved_concurrency=1),
    }


@pytest.mark.parametrize(
    ("lanes", "total", "message"),
    [
        (DEFAULT_LANES, 25, "lane 'bulk', weight 1, gets 1, .*not in 2-1000; a larger total"),
        (DEFAULT_LANES, 13_000, "lane 'default', weight 4, gets 4000.*more queues, or pollers"),
        ([Lane(name="default", queues=6)], 10, r"which is 1 for each of its queues \(6\)"),
        ([Lane(name="default", max_concurrency=5)], 10, "each lane has capacity of its own"),
    ],
)
def test_a_total_that_cannot_be_divided_is_refused_and_says_of_which_lane(
    lanes: list[Lane], total: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        capacities(lanes, total)


# Several queues.


def test_a_lane_of_several_queues_has_one_worker_and_one_queue_of_undelivered_messages(
    chosen: Assembly,
) -> None:
    """S2-K5: N ready queues, all for one worker function."""
    queues = chosen.scheduler.properties(QUEUE)
    names = ["DefaultLane/Queue", "DefaultLane/Queue2", "DefaultLane/Queue3"]

    redriven = [
        chosen.named(queues[name]["RedrivePolicy"]["deadLetterTargetArn"]) for name in names
    ]

    assert sorted(mappings_of(chosen, "DefaultWorker")) == names
    assert set(redriven) == {"DefaultLane/DeadLetters"}


def test_a_worker_may_do_with_each_of_its_queues_what_it_has_to_and_with_no_other(
    chosen: Assembly,
) -> None:
    """S2-K5: least privilege, for several queues as for one."""
    role = chosen.scheduler.properties("AWS::IAM::Role")["DefaultWorker/Role"]
    allowed: defaultdict[str, set[str]] = defaultdict(set)
    for statement in role["Policies"][0]["PolicyDocument"]["Statement"]:
        for action in _list(statement["Action"]):
            if action.startswith("sqs:"):
                allowed[action] |= {chosen.named(arn) for arn in _list(statement["Resource"])}

    own = {"DefaultLane/Queue", "DefaultLane/Queue2", "DefaultLane/Queue3"}
    every = own | {"BulkLane/Queue", "CriticalLane/Queue", "SpikyLane/Queue"}
    assert allowed == {
        "sqs:ReceiveMessage": own,
        "sqs:DeleteMessage": own,
        "sqs:ChangeMessageVisibility": own,
        "sqs:GetQueueAttributes": own,
        "sqs:SendMessage": every,
    }


def test_functions_are_told_all_queues_of_a_lane(chosen: Assembly) -> None:
    """S2-K5: and the settings read them as they are told."""
    queues = SchedulerSettings.of(chosen.environment("Scheduler/Function")).queues

    assert {lane: len(urls) for lane, urls in queues.items()} == {
        "default": 3,
        "critical": 1,
        "bulk": 1,
        "spiky": 1,
    }


# Fairness and aging.


def test_every_function_is_told_which_lanes_are_fair_and_which_promote(
    chosen: Assembly, assembly: Assembly
) -> None:
    """S0-N6, S0-P2: whoever sends has to know; where nothing is chosen nothing is told."""
    functions = [name for name in chosen.scheduler.properties(FUNCTION) if "/Function" in name]

    told = {name: chosen.environment(name)["LAMPLIGHTER_LANES"] for name in functions}

    (text,) = set(told.values())
    assert rules_from_json(text) == {
        "default": LaneRules(fair=True),
        "bulk": LaneRules(promotes_to="default", promote_after=timedelta(minutes=15)),
    }
    assert "LAMPLIGHTER_LANES" not in assembly.environment("Scheduler/Function")


def test_each_lane_has_an_alarm_on_the_age_of_its_oldest_message(chosen: Assembly) -> None:
    """S2-K2: of several queues, the oldest of all."""
    alarms = chosen.scheduler.properties(ALARM)

    bulk, default = alarms["Alarms/BulkWaits"], alarms["Alarms/DefaultWaits"]

    assert (bulk["MetricName"], bulk["Threshold"]) == ("ApproximateAgeOfOldestMessage", 7200)
    (total, *parts) = sorted(default["Metrics"], key=lambda one: "Expression" not in one)
    assert total["Expression"] == "MAX([q0, q1, q2])"
    assert {part["MetricStat"]["Metric"]["MetricName"] for part in parts} == {
        "ApproximateAgeOfOldestMessage"
    }
    assert default["Threshold"] == 1200 > MAX_TIMEOUT.total_seconds() + 255


# What is refused.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lane(name="a", weight=0), "lane 'a': weight 0: not in 1-1000"),
        (lambda: Lane(name="a", max_concurrency=1), "max_concurrency 1: not in 2-1000"),
        (lambda: Lane(name="a", max_concurrency=1001), "max_concurrency 1001: not in 2-1000"),
        (lambda: Lane(name="a", max_concurrency=3, queues=2), "max_concurrency 3: not in 4-2000"),
        (lambda: Lane(name="a", reserved_concurrency=0), "reserved_concurrency 0: not in 1-"),
        (
            lambda: Lane(name="a", max_concurrency=9, reserved_concurrency=5),
            "max_concurrency 9: more than its reserved_concurrency 5",
        ),
        (
            lambda: Lane(name="a", reserved=True, pollers=Pollers(minimum=2, maximum=2)),
            "reserved: of a share by weight",
        ),
        (lambda: Lane(name="a", queues=17), "queues 17: not in 1-16"),
        (lambda: Lane(name="a", memory_mb=64), "memory_mb 64: not in 128-10240"),
        (lambda: Lane(name="a", alarm_after_seconds=5), "alarm_after_seconds 5: not in 60-"),
        (lambda: Lane(name="a", promotes_to="b"), "promotes_to and promote_after_seconds: both"),
        (lambda: Lane(name="a", promotes_to="a", promote_after_seconds=900), "promotes_to itself"),
        (
            lambda: Lane(name="a", promotes_to="b", promote_after_seconds=100),
            f"100 is not in {PROMOTE_AFTER_RANGE[0].total_seconds():g}",
        ),
    ],
)
def test_a_lane_that_cannot_work_is_refused_by_name_and_value(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def aging(to: str, memory_mb: int = 512) -> Lane:
    return Lane(name="bulk", promotes_to=to, promote_after_seconds=900, memory_mb=memory_mb)


@pytest.mark.parametrize(
    ("lanes", "message"),
    [
        ([aging("urgent")], "lane 'bulk': promotes_to 'urgent': no such lane"),
        ([aging("default", memory_mb=2048)], "less memory, 512 MB against 2048"),
        ([Lane(name="b", queues=9), Lane(name="c", queues=9)], "19 queues in all lanes"),
    ],
)
def test_lanes_that_do_not_go_together_are_refused(lanes: list[Lane], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_lanes([Lane(name="default"), *lanes])


def test_a_context_changes_joins_and_takes_out_lanes() -> None:
    """S2-K3: a deployment chooses its pools without a line of code."""
    said = {"critical": {"weight": 2}, "bulk": None, "reports": {"max_concurrency": 5}}

    assert lanes_of({}) == DEFAULT_LANES
    assert lanes_of(said) == (
        Lane(name="default", weight=4),
        Lane(name="critical", weight=2, reserved=True),
        Lane(name="reports", max_concurrency=5),
    )
    assert lanes_of({"critical": {"weight": None, "reserved": None}})[1] == Lane(name="critical")


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"lanes": "[]"}, r"context lanes: lanes: \[\] is not a JSON object"),
        ({"lanes": "fast"}, "context lanes: Expecting value"),
        ({"lanes": '{"bulk": 3}'}, "context lanes: lane 'bulk': 3 is not a JSON object"),
        ({"lanes": '{"bulk": {"size": 3}}'}, "lane 'bulk': no 'size'; there are weight, reserved"),
        ({"lanes": '{"bulk": {"weight": true}}'}, "weight True: not a whole number"),
        ({"lanes": '{"bulk": {"fair": 1}}'}, "fair 1: not true or false"),
        ({"lanes": '{"bulk": {"pollers": {"minimum": 2}}}'}, "a minimum and a maximum number"),
        (
            {"lanes": '{"bulk": {"pollers": {"minimum": 1, "maximum": 2}}}'},
            "lane 'bulk': 1 pollers at least: not in 2-200",
        ),
        ({"lanes": '{"Bulk": {}}'}, "lane 'Bulk': lower-case letters"),
        ({"lanes": '{"default": null}'}, "one must be 'default'"),
        ({"worker_concurrency": "many"}, "context worker_concurrency: 'many' is not a whole"),
        ({"worker_concurrency": "-5"}, "context worker_concurrency: '-5' is not a whole"),
        ({"worker_concurrency": "20"}, "lane 'bulk', weight 1, gets 1"),
    ],
)
def test_a_context_of_lanes_that_makes_no_sense_is_refused(
    context: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(context=context)


def _list(value: T | list[T]) -> list[T]:
    return value if isinstance(value, list) else [value]
