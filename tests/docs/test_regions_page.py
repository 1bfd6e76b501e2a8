"""The runbook for a lost region: what it says of AWS is said as AWS has it, and of us as we do."""

import re
import shlex
from pathlib import Path

import botocore.session
import pytest
from botocore import xform_name
from typer.testing import CliRunner

from lamplighter.aws import schema
from lamplighter.cli.main import app
from lamplighter.core.limits import RESTORED_APART, RESTORED_SWEEP_BACK

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "regions.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [
    shlex.split(line)
    for block in BLOCKS
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip()
]
# Of every command of the AWS command line.
GLOBAL = {"region"}


def options_of(command: list[str]) -> set[str]:
    return {word.removeprefix("--") for word in command if word.startswith("--")}


@pytest.mark.parametrize(
    "command", [one for one in COMMANDS if one[0] == "aws"], ids=lambda one: " ".join(one[1:4])
)
def test_a_command_of_aws_is_an_operation_with_these_parameters(command: list[str]) -> None:
    _, service, operation, *_ = command
    if operation == "wait":
        waiter = botocore.session.get_session().get_waiter_model(service)
        assert command[3] in {xform_name(name, "-") for name in waiter.waiter_names}
        return
    model = botocore.session.get_session().get_service_model(service)
    known = {xform_name(name, "-"): name for name in model.operation_names}
    assert operation in known
    shape = model.operation_model(known[operation]).input_shape
    assert shape is not None
    parameters = {xform_name(name, "-") for name in shape.members}
    required = {xform_name(name, "-") for name in shape.required_members}
    given = options_of(command) - GLOBAL

    assert given <= parameters
    # One of the source's two names is required, but not by the model.
    assert required <= given


def test_ours_has_these_options_and_names_all_that_are_required() -> None:
    (command,) = [one for one in COMMANDS if one[:2] == ["lamplighter", "failover"]]
    helped = CliRunner().invoke(app, ["failover", "--help"], env={"COLUMNS": "200"}).stdout

    assert options_of(command) <= {*re.findall(r"--([a-z-]+)", helped)}
    required = {"executions-table", "jobs-table", "control-table", "restored-to"}
    assert required <= options_of(command)


def test_the_attribute_that_rows_expire_by_is_the_tables() -> None:
    assert f"AttributeName={schema.TTL}" in PAGE
    assert f"(`{schema.PARTITION_KEY}`, `{schema.SORT_KEY}`)" in PAGE


def test_the_figures_are_the_codes() -> None:
    hours = RESTORED_SWEEP_BACK.total_seconds() / 3600
    minutes = RESTORED_APART.total_seconds() / 60

    assert (hours, minutes) == (1, 1)
    assert "back to an hour before `T`" in PAGE
    assert "from a minute before `T` on" in PAGE


def test_what_it_says_rehearses_it_is_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", PAGE)

    assert len(named) >= 2
    assert [name for name in named if not (ROOT / name).is_file()] == []
