"""docs/targets.md says of named targets what the code does."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lamplighter.core import limits
from lamplighter.core.named import Invocation, NamedTarget, TargetKind

PAGE = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
NAMED = PAGE.split("## Named targets")[1]
CODE = re.findall(r"```python\n(.*?)```", NAMED, re.DOTALL)


@dataclass
class ClientContext:
    custom: dict[str, str]


@dataclass
class Context:
    client_context: ClientContext = field(
        default_factory=lambda: ClientContext({"scheduled_for": "then", "idempotency_key": "k"})
    )


def test_the_function_that_is_shown_reads_what_it_is_told() -> None:
    said: dict[str, Any] = {}

    exec(compile(CODE[0], "docs/targets.md", "exec"), said)

    assert said["handle"]({}, Context()) == {"done for": "then", "once by": "k"}


def test_the_test_that_is_shown_runs() -> None:
    said: dict[str, Any] = {}

    exec(compile(CODE[1], "docs/targets.md", "exec"), said)

    assert said["targets"].to("billing-function") == []


@pytest.mark.parametrize("kind", TargetKind)
def test_each_kind_is_in_each_table(kind: TargetKind) -> None:
    tables = [table for table in NAMED.split("\n### ") if "| `kind` |" in table]

    assert len(tables) == 3
    assert all(f"`{kind}`" in table for table in tables)


@pytest.mark.parametrize(
    ("kind", "invocation"),
    [
        (TargetKind.LAMBDA, Invocation.EVENT),
        *((kind, Invocation.REQUEST) for kind in TargetKind if kind is not TargetKind.LAMBDA),
    ],
)
def test_the_largest_payload_is_what_the_page_says(
    kind: TargetKind, invocation: Invocation
) -> None:
    target = NamedTarget(kind=kind, name="x", invocation=invocation)
    (row,) = re.findall(rf"^\| `{kind}` \| (.+) \|$", NAMED.split("### How large")[1], re.MULTILINE)

    assert f"{target.payload_max_bytes:,} bytes" in row


def test_a_function_takes_whatever_there_can_be() -> None:
    target = NamedTarget(kind=TargetKind.LAMBDA, name="x")

    assert target.payload_max_bytes >= limits.PAYLOAD_REF_MAX_BYTES
