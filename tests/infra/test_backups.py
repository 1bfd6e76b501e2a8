"""Copies of the tables in another region: off unless chosen, then hourly, of all three at once."""

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack, Validations
from cdk_nag import AwsSolutionsChecks

from infra.app import build
from infra.components.backups import CopiesElsewhere
from infra.stacks.data import DataStack
from tests.infra.templates import Assembly

THERE = "arn:aws:backup:eu-west-1:123456789012:backup-vault:lamplighter"


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The data stack's resources, with cdk-nag looking on as in a deployment."""
    folder: Path = tmp_path_factory.mktemp("copied")
    app = App(outdir=str(folder))
    DataStack(app, "Data", production=True, backup_copies=THERE)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    app.synth()
    resources: dict[str, Any] = json.loads((folder / "Data.template.json").read_text())["Resources"]
    return resources


def of_type(resources: dict[str, Any], type_: str) -> dict[str, Any]:
    return {id: one for id, one in resources.items() if one["Type"] == type_}


def test_all_tables_are_backed_up_each_hour_and_copied_to_the_vault(
    copied: dict[str, Any],
) -> None:
    """The recovery-point objective of docs/regions.md (S0-E6)."""
    (plan,) = of_type(copied, "AWS::Backup::BackupPlan").values()
    (rule,) = plan["Properties"]["BackupPlan"]["BackupPlanRule"]

    assert rule["ScheduleExpression"] == "cron(0 * * * ? *)"
    assert rule["Lifecycle"] == {"DeleteAfterDays": 35}
    assert rule["CopyActions"] == [
        {"DestinationBackupVaultArn": THERE, "Lifecycle": {"DeleteAfterDays": 35}}
    ]
    (selection,) = of_type(copied, "AWS::Backup::BackupSelection").values()
    tables = of_type(copied, "AWS::DynamoDB::Table")
    selected = json.dumps(selection["Properties"]["BackupSelection"]["Resources"])
    assert len(tables) == 3
    assert all(id in selected for id in tables)


def test_the_vault_here_stays_when_its_stack_goes(copied: dict[str, Any]) -> None:
    (vault,) = of_type(copied, "AWS::Backup::BackupVault").values()

    assert vault["DeletionPolicy"] == vault["UpdateReplacePolicy"] == "Retain"


def test_nothing_is_copied_unless_it_is_chosen(assembly: Assembly) -> None:
    types = {one["Type"] for one in assembly.data.body["Resources"].values()}

    assert not [type_ for type_ in types if type_.startswith("AWS::Backup")]


def test_what_a_failover_imports_is_kept_and_named_by_nobody_else(assembly: Assembly) -> None:
    """`cdk import` takes restored tables under these ids; they have to be retained for that."""
    tables = assembly.data.resources("AWS::DynamoDB::Table").values()

    assert {table["DeletionPolicy"] for table in tables} == {"Retain"}
    assert not [table for table in tables if "TableName" in table["Properties"]]


@pytest.mark.parametrize("arn", ["eu-west-1", THERE.replace("backup-vault", "vault"), f"{THERE}/x"])
def test_what_is_no_vault_is_refused(arn: str) -> None:
    with pytest.raises(ValueError, match=r"backup_copies: .* is no ARN of a backup vault"):
        build(context={"backup_copies": arn})
    with pytest.raises(ValueError, match="backup_copies"):
        CopiesElsewhere(Stack(App(), "Theirs"), "Backups", tables=[], vault_arn=arn)
