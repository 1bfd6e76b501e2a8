"""The runbook of docs/regions.md, rehearsed on moto: exported, imported, prepared, gone on with.

What a region had is copied by a scan of each table, as an operator's credentials may and no
function may; the other region's stores are those of the product, on three new tables.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner, Result

from lamplighter.aws.restored import DynamoRestored
from lamplighter.aws.wiring import operating
from lamplighter.cli.main import app
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Job, OverlapPolicy
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import KeyRecord, Ports
from lamplighter.sim.system import System
from tests.support.api import caller
from tests.support.jobs import created, every, new_job
from tests.support.tables import TableNames, create_tables

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
# The command line goes by the true time, and what it is told of lies in its past.
START = datetime.now(UTC).replace(second=1, microsecond=0) - 3 * HOUR

_NUMBERS = count()


class Region(MemoryWorld):
    """A world whose tables are DynamoDB's; its queues are its own."""

    client: "DynamoDBClient"
    names: TableNames

    @classmethod
    def on(cls, client: "DynamoDBClient", prefix: str, at: datetime) -> "Region":
        region = cls(clock=VirtualClock(at), shards=2, partitions=1)
        # Its own: moto keeps what there is for as long as any test of the process is inside it.
        name = f"{prefix}-{next(_NUMBERS)}"
        region.client, region.names = client, create_tables(client, name)
        return region

    def ports(self) -> Ports:
        on_tables = operating(
            self.client,
            executions_table=self.names.executions,
            jobs_table=self.names.jobs,
            control_table=self.names.control,
            telemetry=self.counts,
            shards=self.shards,
            partitions=self.partitions,
        )
        return replace(on_tables, clock=self.clock, chance=self.chance, queue=self.queue)


@dataclass(frozen=True, kw_only=True)
class Export:
    """What a table had."""

    items: list[Mapping[str, Any]]

    @classmethod
    def of(cls, client: "DynamoDBClient", table: str) -> "Export":
        pages = client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return cls(items=[item for page in pages for item in page["Items"]])

    def into(self, client: "DynamoDBClient", table: str) -> None:
        for item in self.items:
            client.put_item(TableName=table, Item=dict(item))


@pytest.fixture
def dynamodb(monkeypatch: pytest.MonkeyPatch) -> "Iterator[DynamoDBClient]":
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with mock_aws():
        yield boto3.client("dynamodb")


def failover(names: TableNames, restored_to: datetime, *options: str) -> Result:
    return CliRunner().invoke(
        app,
        [
            *("failover", "--executions-table", names.executions, "--jobs-table", names.jobs),
            *("--control-table", names.control, "--restored-to", restored_to.isoformat()),
            *options,
        ],
    )


def test_another_region_goes_on_with_what_was_exported(dynamodb: "DynamoDBClient") -> None:
    """S0-E6, S0-N3, S0-N4, S1-N4, S2-M1, S2-N4, S4-N2."""
    here = Region.on(dynamodb, "here", START)
    lost = System(world=here)
    lost.run_for(2 * MINUTE)
    soon = created(here.ports(), new_job(run_at=here.now() + 2 * MINUTE)).first
    later = created(here.ports(), new_job(run_at=here.now() + 4 * HOUR)).first
    hourly = created(here.ports(), new_job(schedule=every("5 minutes"), overlap=OverlapPolicy.SKIP))
    lost.run_for(MINUTE)
    executions, as_of = Export.of(dynamodb, here.names.executions), here.now()
    # The other tables later: a job that has no row there, and a key of one that is lost.
    after = created(here.ports(), new_job(schedule=every("7 minutes")))
    body = {"task": "echo", "run_at": (START + 5 * HOUR).isoformat()}
    caller(here).post("/v1/jobs", body, Idempotency_Key="lost")
    lost.run_for(6 * MINUTE)
    jobs = Export.of(dynamodb, here.names.jobs)
    control = Export.of(dynamodb, here.names.control)

    there = Region.on(dynamodb, "there", datetime.now(UTC))
    executions.into(dynamodb, there.names.executions)
    jobs.into(dynamodb, there.names.jobs)
    control.into(dynamodb, there.names.control)
    foreseen = failover(there.names, as_of, "--dry-run", "--json")
    done = failover(there.names, as_of, "--json")
    system = System(world=there)
    system.run_for(30 * MINUTE)

    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["jobs_begun"] == [after.job_id]
    assert [key["key"] for key in told["keys_forgotten"]] == ["lost"]
    assert {one["kind"] for one in told["works"]} == {"dispatch", "sweep"}
    assert json.loads(foreseen.stdout) == told
    rows = there.ports().executions
    ran = rows.get(soon.id)
    waiting = rows.get(later.id)
    assert ran is not None
    assert waiting is not None
    assert (ran.state, waiting.state) == (State.SUCCEEDED, State.SCHEDULED)
    runs = [run.job_id for run in system.runs]
    assert runs.count(soon.job_id) == 1
    # Of each what was missed, once; then every five and seven minutes.
    assert 5 <= runs.count(hourly.job_id) <= 8
    assert 4 <= runs.count(after.job_id) <= 6
    assert all(run.started_at >= run.due_at for run in system.runs)


def test_the_jobs_that_may_be_half_there_are_found_by_a_scan(dynamodb: "DynamoDBClient") -> None:
    region = Region.on(dynamodb, "here", START)
    ports = region.ports()
    old = created(ports, new_job(schedule=every("1 hour"))).job_id
    edited = created(ports, new_job(schedule=every("1 hour"))).job_id
    post = caller(region).post
    post("/v1/jobs", {"task": "echo"}, Idempotency_Key="old")
    region.pass_time(HOUR)
    post(f"/v1/jobs/{edited}/pause", {})
    new = created(ports, new_job(schedule=every("1 hour"))).job_id
    post("/v1/jobs", {"task": "echo"}, Idempotency_Key="new")
    restored = DynamoRestored(dynamodb, table=region.names.jobs)

    def found(since: datetime) -> tuple[set[str], set[str]]:
        jobs, keys = set[str](), set[str]()
        for one in restored.changed_since(since):
            if isinstance(one, Job):
                jobs.add(one.id)
            else:
                keys.add(one.key)
        return jobs, keys

    assert found(START) == ({old, edited, new}, {"old", "new"})
    assert found(START + HOUR) == ({edited, new}, {"new"})
    (key,) = [one for one in restored.changed_since(START + HOUR) if isinstance(one, KeyRecord)]
    restored.forget(key)
    restored.forget(key)
    assert found(START) == ({old, edited, new}, {"old"})


class TestTheCommand:
    def test_prints_where_each_work_goes_on_from(self, dynamodb: "DynamoDBClient") -> None:
        region = Region.on(dynamodb, "here", START)
        System(world=region).run_for(5 * MINUTE)

        result = failover(region.names, START + 2 * MINUTE)

        assert result.exit_code == 0, result.output
        head, *works, begun, forgotten = result.stdout.splitlines()
        assert head.split() == [
            "WORK",
            "GENERATION",
            "PARTITION",
            "WAS",
            "AT",
            "GOES",
            "ON",
            "FROM",
        ]
        assert {line.split()[0] for line in works} == {"dispatch", "sweep"}
        assert begun == "0 jobs without a row are begun"
        assert forgotten == "0 idempotency keys of what is lost are forgotten"

    def test_of_a_region_at_work_is_refused_in_one_line(self, dynamodb: "DynamoDBClient") -> None:
        region = Region.on(dynamodb, "here", datetime.now(UTC) - MINUTE)
        System(world=region).run_for(MINUTE)

        result = failover(region.names, START)

        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
        assert "dispatch runs" in result.stderr

    def test_of_a_table_that_is_not_there_fails_in_one_line(
        self, dynamodb: "DynamoDBClient"
    ) -> None:
        names = TableNames(executions="a", jobs="b", control="c")

        result = failover(names, START)

        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 1)
        assert "ResourceNotFoundException" in result.stderr

    def test_of_no_instant_is_refused(self, dynamodb: "DynamoDBClient") -> None:
        names = TableNames(executions="a", jobs="b", control="c")

        result = CliRunner().invoke(
            app,
            [
                *("failover", "--executions-table", names.executions, "--jobs-table", names.jobs),
                *("--control-table", names.control, "--restored-to", "yesterday"),
            ],
        )

        assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)
