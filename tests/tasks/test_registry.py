"""Tasks are found by importing a module; what is wrong with one is told, with its place."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import BaseModel, ValidationError
from typing_extensions import TypedDict

import lamplighter
from lamplighter import Context, RetryPolicy
from lamplighter.tasks.registry import InvalidTasks, Registry, load
from lamplighter.tasks.source import Source


class Model(BaseModel):
    to: str
    at: datetime


@dataclass
class Plain:
    to: str


class Typed(TypedDict):
    to: str


@pytest.fixture
def tasks() -> Registry:
    return Registry()


def test_a_pydantic_model_is_made_of_the_payload(tasks: Registry) -> None:
    @tasks.task("send")
    def send(payload: Model, ctx: Context) -> None: ...

    assert send.parse('{"to": "a", "at": "2026-01-01T00:00:00Z"}') == Model(
        to="a", at=datetime(2026, 1, 1, tzinfo=UTC)
    )


def test_a_dataclass_is_made_of_the_payload(tasks: Registry) -> None:
    @tasks.task("send")
    def send(payload: Plain, ctx: Context) -> None: ...

    assert send.parse('{"to": "a"}') == Plain(to="a")


def test_a_typed_dict_is_checked(tasks: Registry) -> None:
    @tasks.task("send")
    def send(payload: Typed, ctx: Context) -> None: ...

    assert send.parse('{"to": "a"}') == {"to": "a"}
    with pytest.raises(ValidationError):
        send.parse('{"for": "a"}')


def test_a_builtin_is_checked(tasks: Registry) -> None:
    @tasks.task("count")
    def count(payload: list[int], ctx: Context) -> None: ...

    assert count.parse("[1, 2]") == [1, 2]
    with pytest.raises(ValidationError):
        count.parse('["one"]')


def test_without_an_annotation_any_json_is_taken(tasks: Registry) -> None:
    @tasks.task("any")
    def any_json(payload, ctx): ...  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202

    assert any_json.parse('{"a": [1, null]}') == {"a": [1, None]}


def test_a_task_that_needs_nothing_takes_null_only(tasks: Registry) -> None:
    @tasks.task("nothing")
    def nothing(payload: None, ctx: Context) -> None: ...

    assert nothing.parse("null") is None
    with pytest.raises(ValidationError):
        nothing.parse("1")


def test_calling_a_task_calls_its_function(tasks: Registry) -> None:
    @tasks.task("double")
    def double(payload: int, ctx: Context | None) -> int:
        return 2 * payload

    assert double(4, None) == 8  # type: ignore[arg-type]


def test_the_newest_version_is_the_highest_number(tasks: Registry) -> None:
    def handler(payload: None, ctx: Context) -> None: ...

    for version in (2, 10, 1):
        tasks.task("send", version=version)(handler)

    newest = tasks.newest("send")
    assert newest is not None
    assert newest.version == 10
    assert tasks.names == ["send"]
    assert tasks.newest("other") is None


def test_the_same_name_and_version_twice_names_both_places(tasks: Registry) -> None:
    @tasks.task("send", version=3)
    def first(payload: None, ctx: Context) -> None: ...

    with pytest.raises(InvalidTasks) as refused:

        @tasks.task("send", version=3)
        def second(payload: None, ctx: Context) -> None: ...

    places = [part for part in str(refused.value).split() if part.startswith(__file__)]
    assert len(places) == len(set(places)) == 2
    assert "'send' version 3" in str(refused.value)
    assert tasks.newest("send") is first


async def _coroutine(payload: None, ctx: Context) -> None: ...


def _generator(payload: None, ctx: Context) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("handler", "reason"),
    [
        (lambda payload: None, "takes (payload, context)"),
        (lambda payload, ctx, more: None, "takes (payload, context)"),
        (_coroutine, "neither async nor a generator"),
        (_generator, "neither async nor a generator"),
    ],
    ids=["too few parameters", "too many parameters", "a coroutine", "a generator"],
)
def test_what_cannot_be_called_as_a_handler_is_refused(
    tasks: Registry, handler: Callable[..., object], reason: str
) -> None:
    with pytest.raises(InvalidTasks, match=r"test_registry\.py") as refused:
        tasks.task("send")(handler)

    assert reason in str(refused.value)
    assert tasks.names == []


@pytest.mark.parametrize("name", ["", " send", "a\nb", "x" * 129])
def test_a_name_that_no_job_could_give_is_refused(tasks: Registry, name: str) -> None:
    with pytest.raises(InvalidTasks):

        @tasks.task(name)
        def handler(payload: None, ctx: Context) -> None: ...


@pytest.mark.parametrize("version", [0, -1, True, 1.5, "1"])
def test_a_version_is_a_whole_number_from_one(tasks: Registry, version: int) -> None:
    with pytest.raises(InvalidTasks, match="whole number"):

        @tasks.task("send", version=version)
        def handler(payload: None, ctx: Context) -> None: ...


def module(folder: Path, name: str, text: str) -> None:
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"from lamplighter import Context, task\n{text}\n")


def handler(name: str, payload: str = "int") -> str:
    return f'@task("{name}")\ndef {name}(payload: "{payload}", ctx: Context) -> None: ...\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path; what is imported from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name, module in [*sys.modules.items()]:
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_module_is_imported_with_its_tasks(folder: Path, process_registry: Registry) -> None:
    module(folder, "billing", handler("charge"))

    assert load("billing").names == ["charge"]


def test_a_package_is_imported_with_all_its_modules(
    folder: Path, process_registry: Registry
) -> None:
    module(folder, "shop.__init__", "")
    module(folder, "shop.billing", handler("charge"))
    module(folder, "shop.mail.__init__", handler("write"))
    module(folder, "shop.mail.bulk", handler("send"))
    module(folder, "shop.__main__", "raise SystemExit('not a module of tasks')")

    assert load("shop").names == ["charge", "send", "write"]


def test_a_type_that_is_defined_further_down_is_found(
    folder: Path, process_registry: Registry
) -> None:
    module(folder, "late", handler("send", "list[Below]") + "Below = int")

    load("late")

    task = process_registry.newest("send")
    assert task is not None
    assert task.parse("[1]") == [1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_library", "'no_such_library', not installed"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def broken(:", "SyntaxError"),
        (handler("send", "Unknown"), "'Unknown' is not defined"),
        (handler("send", "complex | Context"), "payload type"),
        ("", "registers no task"),
    ],
    ids=["missing library", "raises", "syntax", "unknown type", "type not of JSON", "no task"],
)
def test_what_is_wrong_with_a_module_names_the_module(
    folder: Path, process_registry: Registry, text: str, reason: str
) -> None:
    module(folder, "shop.billing", text)

    with pytest.raises(InvalidTasks) as refused:
        load("shop.billing")

    assert reason in str(refused.value)
    assert "shop.billing" in str(refused.value) or "shop/billing.py" in str(refused.value)


def test_a_module_that_is_not_there_is_named(folder: Path, process_registry: Registry) -> None:
    with pytest.raises(InvalidTasks, match=r"'no_such\.module': not on the import path"):
        load("no_such.module")


def test_importing_lamplighter_is_cheap() -> None:
    """The infrastructure imports constants, and the API errors: neither pays for pydantic."""
    heavy = {"pydantic", "boto3", "botocore", "aws_lambda_powertools", "croniter", "httpx"}
    program = (
        "import sys, lamplighter, lamplighter.core.limits, lamplighter.core.errors\n"
        "from lamplighter import Permanent\n"
        f"print(sorted({heavy!r} & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )

    assert done.stdout == "[]\n", done.stderr


def test_the_process_of_an_isolated_call_imports_nothing_of_what_a_worker_does() -> None:
    """It is paid for by each call: neither stores, nor services, nor what speaks to AWS."""
    program = (
        "import sys, lamplighter.tasks.child\n"
        "foreign = tuple('lamplighter.' + one for one in ('services', 'ports', 'aws'))\n"
        "print([one for one in sys.modules if one.startswith((*foreign, 'boto', 'http'))])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )

    assert done.stdout == "[]\n", done.stderr


def test_the_package_offers_what_it_says_and_nothing_else() -> None:
    assert {name: getattr(lamplighter, name).__name__ for name in lamplighter.__all__} == {
        name: name for name in lamplighter.__all__ if name != "task"
    } | {"task": "task"}
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = lamplighter.no_such_name  # type: ignore[attr-defined]


def test_a_task_says_that_it_wants_a_process_of_its_own(tasks: Registry) -> None:
    @tasks.task("render", isolation="process", memory_mb=256)
    def render(payload: None, ctx: Context) -> None: ...

    assert (render.isolation, render.memory_mb) == ("process", 256)


def test_a_task_says_by_what_policy_it_is_tried_again(tasks: Registry) -> None:
    patient = RetryPolicy(max_attempts=20, max_seconds=600)

    @tasks.task("fetch", retry_policy=patient)
    def fetch(payload: None, ctx: Context) -> None: ...

    assert fetch.retry_policy == patient


def test_what_is_no_retry_policy_is_refused(tasks: Registry) -> None:
    def fetch(payload: None, ctx: Context) -> None: ...

    with pytest.raises(InvalidTasks, match="retry_policy is a RetryPolicy, not 3"):
        tasks.task("fetch", retry_policy=cast("Any", 3))(fetch)


@pytest.mark.parametrize(
    ("isolation", "memory_mb", "reason"),
    [
        ("thread", None, "isolation is 'process', or left out, not 'thread'"),
        (None, 256, "memory_mb is the limit of a process"),
        ("process", 63, "memory_mb is a whole number from 64, not 63"),
        ("process", 256.0, "memory_mb is a whole number from 64, not 256.0"),
        ("process", True, "memory_mb is a whole number from 64, not True"),
    ],
)
def test_an_isolation_that_there_is_not_is_refused(
    tasks: Registry, isolation: object, memory_mb: object, reason: str
) -> None:
    def render(payload: None, ctx: Context) -> None: ...

    with pytest.raises(InvalidTasks) as refused:
        tasks.task(
            "render",
            isolation=cast("Any", isolation),
            memory_mb=cast("Any", memory_mb),
        )(render)

    assert reason in str(refused.value)


def test_one_task_is_found_without_importing_what_it_does_not_need(
    folder: Path, process_registry: Registry
) -> None:
    """An isolated call imports the user's module, which may set things up, and the task's own."""
    module(folder, "big.__init__", "")
    module(folder, "big.billing", handler("charge"))
    module(folder, "big.heavy", "raise AssertionError('imported for nothing')")

    found = Source(module="big").find("charge", 1, home="big.billing", environ={})

    assert found.name == "charge"
    assert "big.heavy" not in sys.modules


def test_a_task_whose_function_is_from_elsewhere_is_found_too(
    folder: Path, process_registry: Registry
) -> None:
    module(folder, "library", "def send(payload: int, ctx: Context) -> None: ...")
    module(folder, "mine.__init__", "")
    module(folder, "mine.jobs", "from library import send\ntask('send')(send)")

    found = Source(module="mine").find("send", 1, home="library", environ={})

    assert found is process_registry.newest("send")
    with pytest.raises(InvalidTasks, match="no task 'send' version 2"):
        Source(module="mine").find("send", 2, home="library", environ={})


def test_the_shell_task_is_found_for_those_who_may(process_registry: Registry) -> None:
    source = Source(module="no_such_module", shell_owners=("acme",))

    assert source.find("shell", 1, home="lamplighter.tasks.shell", environ={}).name == "shell"
