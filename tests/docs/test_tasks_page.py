"""What docs/tasks.md shows of checkpoints, steps and a handler's own writes does what it says."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lamplighter.core import limits
from lamplighter.core.errors import WriteRefusal
from lamplighter.tasks.context import Context
from lamplighter.tasks.registry import TASKS
from lamplighter.testing import Rehearsal

PAGE = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text(encoding="utf-8")
PART = PAGE.split("## Going on, and doing it once")[1].split("\n## ")[0]
TASK, GRANT, TEST = re.findall(r"```python\n(.*?)```", PART, re.DOTALL)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Any]:
    monkeypatch.setattr(TASKS, "_tasks", {})
    said: dict[str, Any] = {"__name__": "example"}
    exec(compile(TASK, "tasks.md", "exec"), said)
    return said


def test_the_task_that_is_shown_goes_on_and_completes(shown: Mapping[str, Any]) -> None:
    invoice, rehearsal = shown["Invoice"](customer="c-1"), Rehearsal()
    rehearsal.context().checkpoint(2)
    ctx = rehearsal.context()

    number = shown["generate_invoice"](invoice, ctx)

    assert json.loads(rehearsal.result or "") == {"invoice": number}
    (write,) = rehearsal.committed
    assert write["Put"]["Item"]["pk"] == {"S": f"c-1/{ctx.execution_id}"}  # type: ignore[index]
    assert ctx.state == 3


def test_the_task_that_is_shown_handles_a_refusal(shown: Mapping[str, Any]) -> None:
    rehearsal = Rehearsal()
    rehearsal.refuse(WriteRefusal(index=0, code="ConditionalCheckFailed"))

    told = shown["generate_invoice"](shown["Invoice"](customer="c-1"), rehearsal.context())

    assert told == "there is one already: ConditionalCheckFailed"
    assert not rehearsal.is_complete


def test_the_test_that_is_shown_passes() -> None:
    exec(compile(TEST, "tasks.md", "exec"), {})


def test_the_grant_that_is_shown_is_there() -> None:
    from infra.components.job_scheduler import JobScheduler  # noqa: PLC0415 -- five seconds

    assert set(re.findall(r"scheduler\.(\w+)\(", GRANT)) == {"grant_task_writes"}
    assert callable(JobScheduler.grant_task_writes)


def test_all_that_a_context_has_is_on_the_page() -> None:
    fields = {name for name in Context.__dataclass_fields__ if not name.startswith("_")}
    public = {name for name in vars(Context) if not name.startswith("_")}

    named = {*re.findall(r"`ctx\.(\w+)", PAGE)}

    assert (fields | public) - named - {"signal", "calls", "task_version"} == set()


def test_the_figures_are_the_codes() -> None:
    assert f"up to {limits.CHECKPOINT_MAX_BYTES // 1024} KiB, in the place" in PART
    assert f"is there for {limits.CHECKPOINT_KEPT.days} days" in PART
    assert f"up to {limits.LEDGER_RESULT_MAX_BYTES // 1024} KiB, for a year" in PART
    assert limits.LEDGER_KEPT.days == 366
    assert f"up to {limits.COMPLETION_MAX_WRITES} writes (1 MiB of JSON)" in PART
    assert limits.COMPLETION_MAX_BYTES == 2**20
