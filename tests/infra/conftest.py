"""One synth for all of these tests: an import of aws_cdk alone takes 5 s."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from infra.app import build
from tests.infra.templates import Assembly


def synthesized(folder: Path, context: Mapping[str, str]) -> Assembly:
    build(context=context, outdir=folder).synth()
    return Assembly(folder=folder, stage=context.get("stage", "dev"))


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """What `python -m infra.app` writes."""
    return synthesized(tmp_path_factory.mktemp("dev"), {})


@pytest.fixture(scope="session")
def production(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    chosen = {"require_scopes": "false", "scope_prefix": "jobs/"}
    return synthesized(
        tmp_path_factory.mktemp("prod"),
        {"stage": "prod", "issuer": "https://login.example.com/", **chosen},
    )


@pytest.fixture(scope="session")
def local(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """What the local stack runs: wheels of this machine, the shell and quotas for one owner."""
    own = {"live_jobs": 1000, "queued_executions": 1000, "submissions_per_second": 1000}
    return synthesized(
        tmp_path_factory.mktemp("local"),
        {"stage": "local", "architecture": "host", "shell_owners": "ada"}
        | {"quotas": json.dumps({"owners": {"ada": own | {"payload_bytes": 10**9}}})}
        | {"task_names": "bill, mail", "parked_for_seconds": "3600"}
        | {"task_tables": json.dumps({"invoices": {"lanes": ["bulk"], "actions": ["PutItem"]}})},
    )
