"""The page on the API knows every field, status and path, and its example is what is answered."""

import json
import re
from pathlib import Path

import pytest

from lamplighter.api.access import Scope
from lamplighter.api.acting import BulkBody, FilterBody, ReplayBody
from lamplighter.api.bodies import (
    Body,
    DeferredBody,
    JobBody,
    PayloadRefBody,
    RetryPolicyBody,
    TargetBody,
)
from lamplighter.api.callbacks import CompleteBody, ErrorBody, FailBody, HeartbeatBody
from lamplighter.api.creating import BatchBody
from lamplighter.api.operations import FILTERS, OPERATIONS
from lamplighter.api.payloads import PayloadBody
from lamplighter.api.preview import PreviewBody
from lamplighter.api.running import BackfillBody, TriggerBody
from lamplighter.api.shapes import (
    BackoffBody,
    OnceOrCronBody,
    TargetedJobBody,
    TaskIdJobBody,
    TypedJobBody,
)
from lamplighter.core.status import Status
from lamplighter.memory import MemoryWorld
from tests.support.api import caller, event

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text(encoding="utf-8")
QUOTED = set(re.findall(r"`([^`\n]+)`", PAGE))


@pytest.mark.parametrize(
    "body",
    [
        *(JobBody, TargetBody, RetryPolicyBody, PreviewBody, BatchBody),
        *(ReplayBody, BulkBody, FilterBody, TriggerBody, BackfillBody),
        *(PayloadBody, PayloadRefBody),
        *(DeferredBody, HeartbeatBody, CompleteBody, FailBody, ErrorBody),
        *(TypedJobBody, TaskIdJobBody, OnceOrCronBody, TargetedJobBody, BackoffBody),
    ],
)
def test_every_field_of_a_body_is_on_it(body: type[Body]) -> None:
    fields = {field.alias or name for name, field in body.model_fields.items()}

    assert fields - QUOTED == set()


def test_every_status_is_on_it() -> None:
    assert {*Status} - QUOTED == set()


def test_every_scope_and_filter_is_on_it() -> None:
    assert {*Scope} - QUOTED == set()
    assert {parameter.name for parameter in FILTERS} - QUOTED == set()


def test_every_operation_is_on_it() -> None:
    told = {re.sub(r" \(.*", "", quoted) for quoted in QUOTED}
    missing = {
        f"{operation.method} {prefix}{operation.path}"
        for operation in OPERATIONS
        for prefix in ["" if operation.path == "/docs" else "/v1"]
    } - told

    assert missing == {"GET /v1/jobs/{job_id}/runs"}
    assert "/runs" in told


def test_every_path_on_it_is_served() -> None:
    requests = re.findall(r"^\| `(\w+) (/v1/\S*)`", PAGE, re.MULTILINE)
    acme = caller(MemoryWorld())

    answers = {
        path: acme.send(event(method, path.replace("{", "").replace("}", ""), claims=acme.claims))
        for method, path in requests
    }

    assert len(answers) >= 6
    unserved = {
        path
        for path, answer in answers.items()
        if answer.status == 405 or (answer.status == 404 and "no path" in answer.text)
    }
    assert unserved == set()


def test_its_example_of_a_problem_is_what_is_answered() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)

    answer = caller(MemoryWorld()).post("/v1/jobs", {"task": "echo", "cron": "61 * * * *"})

    assert answer.json == json.loads(example)
