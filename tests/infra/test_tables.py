import pytest

from lamplighter.aws import schema
from tests.infra.templates import Assembly, Properties
from tests.support import tables

TABLE = "AWS::DynamoDB::Table"
EVERY_TABLE = {"Executions", "Jobs", "Control"}


def keys(described: Properties) -> dict[str, str]:
    return {key["KeyType"]: key["AttributeName"] for key in described["KeySchema"]}


def test_there_are_the_three_tables_of_the_design(assembly: Assembly) -> None:
    assert set(assembly.data.resources(TABLE)) == EVERY_TABLE


@pytest.mark.parametrize("table", sorted(EVERY_TABLE))
def test_a_table_has_the_keys_that_the_stores_use_and_bills_by_request(
    assembly: Assembly, table: str
) -> None:
    properties = assembly.data.properties(TABLE)[table]

    assert keys(properties) == {"HASH": schema.PARTITION_KEY, "RANGE": schema.SORT_KEY}
    assert {a["AttributeType"] for a in properties["AttributeDefinitions"]} == {"S"}
    assert properties["BillingMode"] == "PAY_PER_REQUEST"


@pytest.mark.parametrize(
    ("table", "indexes"),
    [
        (
            "Executions",
            {
                schema.BY_OWNER: (schema.OWNER_KEY, schema.SORT_KEY),
                schema.NEEDS_ATTENTION: (schema.ATTENTION_KEY, schema.SORT_KEY),
                schema.BY_JOB: (schema.JOB_KEY, schema.SORT_KEY),
            },
        ),
        ("Jobs", {schema.JOBS_BY_OWNER: (schema.JOBS_OWNER_KEY, schema.JOBS_BY_OWNER_SORT)}),
        ("Control", {}),
    ],
)
def test_indexes_hold_keys_only_and_sort_by_a_key_that_never_moves(
    assembly: Assembly, table: str, indexes: dict[str, tuple[str, str]]
) -> None:
    """O-F21: no index says what is due: that is read from the table, strongly."""
    declared = assembly.data.properties(TABLE)[table].get("GlobalSecondaryIndexes", [])

    assert {index["IndexName"]: keys(index) for index in declared} == {
        name: {"HASH": key, "RANGE": sort_key} for name, (key, sort_key) in indexes.items()
    }
    assert all(index["Projection"] == {"ProjectionType": "KEYS_ONLY"} for index in declared)


@pytest.mark.parametrize(
    ("table", "tested"),
    [("Executions", tables.EXECUTIONS), ("Jobs", tables.JOBS), ("Control", tables.CONTROL)],
)
def test_the_tables_of_other_tests_are_those_that_are_deployed(
    assembly: Assembly, table: str, tested: tables.Definition
) -> None:
    deployed = assembly.data.properties(TABLE)[table]

    assert _in_order(deployed["AttributeDefinitions"]) == _in_order(tested["AttributeDefinitions"])
    assert deployed["KeySchema"] == tested["KeySchema"]
    assert deployed.get("GlobalSecondaryIndexes", []) == tested["GlobalSecondaryIndexes"]


@pytest.mark.parametrize("table", sorted(EVERY_TABLE))
def test_a_table_outlives_its_stack_and_any_second_of_it_can_be_restored(
    assembly: Assembly, table: str
) -> None:
    resource = assembly.data.resources(TABLE)[table]
    properties = resource["Properties"]

    assert resource["DeletionPolicy"] == resource["UpdateReplacePolicy"] == "Retain"
    assert properties["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert properties["TimeToLiveSpecification"] == {"AttributeName": schema.TTL, "Enabled": True}


def test_deletion_protection_is_on_in_production_and_off_elsewhere(
    assembly: Assembly, production: Assembly
) -> None:
    def protection(of: Assembly) -> set[bool]:
        return {p["DeletionProtectionEnabled"] for p in of.data.properties(TABLE).values()}

    assert protection(production) == {True}
    assert protection(assembly) == {False}


def test_no_stack_gives_a_resource_a_physical_name(assembly: Assembly) -> None:
    named = [
        (logical_id, name)
        for template in (assembly.data, assembly.scheduler)
        for logical_id, resource in template.body["Resources"].items()
        for name in (
            "TableName",
            "QueueName",
            "FunctionName",
            "RoleName",
            "LogGroupName",
            "LayerName",
        )
        if isinstance(resource.get("Properties", {}).get(name), str)
    ]

    assert named == []


def _in_order(attributes: list[dict[str, str]]) -> list[dict[str, str]]:
    return sorted(attributes, key=lambda attribute: attribute["AttributeName"])
