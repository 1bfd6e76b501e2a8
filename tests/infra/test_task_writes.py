"""Tasks that write to tables of their own: a grant by name, for those lanes, and nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack, Validations, assertions
from aws_cdk import aws_dynamodb as dynamodb
from cdk_nag import AwsSolutionsChecks

from infra.components.task_tables import TaskTable, task_tables_of
from tests.infra.templates import Assembly
from tests.infra.test_http_targets import scheduler_in

ARN = "arn:aws:dynamodb:eu-central-1:123456789012:table/"
WRITES = [f"dynamodb:{verb}Item" for verb in ("Put", "Update", "Delete", "ConditionCheck")]

Json = Mapping[str, Any]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Json:
    """With two grants, as cdk-nag lets it pass."""
    app = App(outdir=str(tmp_path_factory.mktemp("writes")), analytics_reporting=False)
    stack = Stack(app, "Theirs")
    scheduler = scheduler_in(stack, None)
    orders, sums = (
        dynamodb.Table.from_table_attributes(
            stack, name, table_arn=f"{ARN}{name}", global_indexes=["by_day"]
        )
        for name in ("orders", "sums")
    )
    scheduler.grant_task_writes(orders)
    scheduler.grant_task_writes(sums, lanes=["bulk"], actions=["UpdateItem"])
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    made: Json = assertions.Template.from_stack(stack).to_json()
    return made


def granted(template: Json) -> dict[str, list[tuple[str, list[str]]]]:
    """Role → what it may do to which of their tables."""
    found: dict[str, list[tuple[str, list[str]]]] = {}
    for name, resource in template["Resources"].items():
        if resource["Type"] != "AWS::IAM::Role":
            continue
        for policy in resource["Properties"].get("Policies", []):
            for statement in policy["PolicyDocument"]["Statement"]:
                if str(statement["Resource"]).startswith(ARN):
                    actions = statement["Action"]
                    actions = actions if isinstance(actions, list) else [actions]
                    table = statement["Resource"].removeprefix(ARN)
                    found.setdefault(name, []).append((table, actions))
    return found


def test_workers_may_write_to_those_tables_and_nobody_else_may(template: Json) -> None:
    roles = granted(template)

    orders = ("orders", WRITES)
    by_lane = {
        lane: [value for name, value in roles.items() if f"{lane}Worker" in name]
        for lane in ("Default", "Critical", "Bulk")
    }
    assert by_lane == {
        "Default": [[orders]],
        "Critical": [[orders]],
        "Bulk": [[orders, ("sums", ["dynamodb:UpdateItem"])]],
    }
    assert len(roles) == 3


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"actions": ["GetItem"]}, "actions \\['GetItem'\\]"),
        ({"lanes": ["bulky"]}, "lanes \\['bulky'\\]"),
    ],
    ids=["a read", "no lane"],
)
def test_what_is_no_write_and_no_lane_is_refused(
    tmp_path: Path, said: dict[str, list[str]], told: str
) -> None:
    stack = Stack(App(outdir=str(tmp_path), analytics_reporting=False), "Theirs")
    scheduler = scheduler_in(stack, None)
    table = dynamodb.Table.from_table_arn(stack, "Table", f"{ARN}orders")

    with pytest.raises(ValueError, match=told):
        scheduler.grant_task_writes(table, **said)


def test_a_deployment_s_context_names_tables_too(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path), analytics_reporting=False), "Theirs")

    named, elsewhere = task_tables_of({"orders": {}, f"{ARN}sums": {"lanes": ["bulk"]}})

    assert named == TaskTable(table="orders")
    assert (elsewhere.lanes, elsewhere.actions) == (["bulk"], None)
    assert elsewhere.in_(stack).table_arn == f"{ARN}sums"
    assert stack.resolve(named.in_(stack).table_arn)["Fn::Join"][1][-1] == ":table/orders"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (["orders"], "is not a JSON object"),
        ({"orders": []}, "table 'orders'"),
        ({"or ders": {}}, "'or ders' is neither"),
        ({"arn:aws:s3:::orders": {}}, "neither a table's name nor its ARN"),
        ({"orders": {"verbs": []}}, "no verbs; there are lanes, actions"),
        ({"orders": {"lanes": "bulk"}}, "lanes 'bulk' is not a list"),
        ({"orders": {"actions": []}}, "actions \\[\\] is not a list"),
    ],
    ids=str,
)
def test_a_table_that_is_none_is_refused_by_name(said: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        task_tables_of(said)


def test_what_cdk_json_says_of_tasks_reaches_whom_it_is_about(local: Assembly) -> None:
    functions = local.scheduler.properties("AWS::Lambda::Function")
    told = {
        (name, value)
        for name, function in functions.items()
        for variable, value in function["Environment"]["Variables"].items()
        if variable in {"LAMPLIGHTER_TASK_NAMES", "LAMPLIGHTER_PARKED_FOR_SECONDS"}
    }
    roles = local.scheduler.properties("AWS::IAM::Role")
    let_in = {name for name, role in roles.items() if ":table/invoices" in str(role)}

    assert ("ApiHandler/Function", "bill,mail") in told
    assert {value for name, value in told if "Worker" in name} == {"3600"}
    assert [name for name in let_in if "BulkWorker" in name] == [*let_in]
    assert len(let_in) == 1
