"""Tasks: a function with a name, a version and a typed payload, found by importing its module."""

import inspect
import pkgutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Generic, Literal, TypeVar, get_type_hints

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from lamplighter.core.errors import LamplighterError, Rejected
from lamplighter.core.limits import MAX_TASK_VERSION
from lamplighter.core.model import check_name
from lamplighter.core.retry import RetryPolicy
from lamplighter.tasks.context import Context

# An interpreter with what every task imports has a third of it.
MEMORY_MB: Final = range(64, 1_048_576)

PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")


class InvalidTasks(LamplighterError):
    """The user's tasks cannot be taken in; the message names the module or the function."""


@dataclass(frozen=True, kw_only=True)
class Task(Generic[PayloadT, ResultT]):
    """A named, versioned handler; calling it calls the function, as a user's own test does."""

    name: str
    version: int
    handler: Callable[[PayloadT, Context], ResultT]
    where: str
    """File and line of the function."""
    accepts: frozenset[int] = frozenset()
    """Versions that it runs what was made for, beside its own."""
    isolation: Literal["process"] | None = None
    """None: in the worker's own process, beside its neighbours."""
    memory_mb: int | None = None
    """Of an isolated one's process; None: half of what its worker has."""
    retry_policy: RetryPolicy | None = None
    """Of jobs that name none; None: the default one."""

    def __call__(self, payload: PayloadT, context: Context) -> ResultT:
        return self.handler(payload, context)

    def parse(self, text: str) -> PayloadT:
        """The payload from JSON text; raises pydantic's ValidationError."""
        return self.payload_type.validate_json(text)

    @cached_property
    def payload_type(self) -> TypeAdapter[PayloadT]:
        """What the first parameter's annotation says, anything JSON without one.

        Raises InvalidTasks for what pydantic cannot check. Not made before the module is
        complete: the annotation may name a class further down.
        """
        first = next(iter(inspect.signature(self.handler).parameters))
        try:
            hints = get_type_hints(self.handler, include_extras=True)
            return TypeAdapter(hints.get(first, Any))
        except (NameError, PydanticSchemaGenerationError, PydanticUserError) as error:
            raise InvalidTasks(f"{self}: payload type: {_first_line(error)}") from error

    def __str__(self) -> str:
        return f"task {self.name!r} version {self.version} ({self.where})"


AnyTask = Task[Any, Any]
"""A task in a registry, where only its own adapter knows the types."""


class Registry:
    """The tasks of one process."""

    def __init__(self) -> None:
        self._tasks: dict[tuple[str, int], AnyTask] = {}

    def task(
        self,
        name: str,
        *,
        version: int = 1,
        accepts: Collection[int] = (),
        isolation: Literal["process"] | None = None,
        memory_mb: int | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> Callable[[Callable[[PayloadT, Context], ResultT]], Task[PayloadT, ResultT]]:
        """Make a function of (payload, context) the handler of a task.

        The payload arrives as its annotation says: a pydantic model, a dataclass, a TypedDict
        or a builtin. What it returns is kept as JSON. It runs what was made for this version,
        for one of those that it `accepts`, or for none: `version=3, accepts=range(1, 3)`. With
        `isolation="process"` each call has a process of its own, which is killed at the
        time-out and when it holds more than `memory_mb` MiB, all of it counted. A job that has
        no `retry_policy` goes by this one. Raises InvalidTasks for what cannot be called so, and
        for a name and version that another function has.
        """

        def register(handler: Callable[[PayloadT, Context], ResultT]) -> Task[PayloadT, ResultT]:
            task = Task(
                name=name,
                version=version,
                handler=handler,
                where=_where(handler),
                accepts=frozenset(accepts),
                isolation=isolation,
                memory_mb=memory_mb,
                retry_policy=retry_policy,
            )
            self.add(task)
            return task

        return register

    def add(self, task: AnyTask) -> None:
        """Take a task in; raises InvalidTasks as `task` does."""
        _check(task)
        known = self._tasks.setdefault((task.name, task.version), task)
        if known is not task:
            raise InvalidTasks(
                f"task {task.name!r} version {task.version} is defined twice: "
                f"at {known.where} and at {task.where}"
            )

    def get(self, name: str, version: int) -> AnyTask | None:
        """The task of this name and version; None when there is none."""
        return self._tasks.get((name, version))

    def find(self, name: str, version: int | None) -> AnyTask | None:
        """The task that runs what was made for this version; None when none does.

        The one of that version, else the newest that accepts it; without a version the newest.
        """
        if version is None or (exact := self.get(name, version)) is None:
            able = [
                task
                for (known, _), task in self._tasks.items()
                if known == name and (version is None or version in task.accepts)
            ]
            return max(able, key=lambda task: task.version, default=None)
        return exact

    def versions(self, name: str) -> list[int]:
        """Those of a task that something here runs, in order."""
        return sorted(
            {
                version
                for (known, own), task in self._tasks.items()
                if known == name
                for version in (own, *task.accepts)
            }
        )

    def newest(self, name: str) -> AnyTask | None:
        """The task of this name with the highest version; None when there is none."""
        return self.find(name, None)

    @property
    def names(self) -> list[str]:
        """Every task's name, in order, once."""
        return sorted({name for name, _ in self._tasks})

    def load(self, module: str) -> None:
        """Import the user's module, or a package with all its modules.

        Raises InvalidTasks, which names the module at fault, when one cannot be imported, a
        payload's type cannot be checked, or nothing was registered.
        """
        for _ in _modules(module):
            pass
        if not self._tasks:
            raise InvalidTasks(f"tasks module {module!r} registers no task")
        for task in self._tasks.values():
            _ = task.payload_type


TASKS: Final = Registry()
"""Those of this process: where `lamplighter.task` registers."""

task = TASKS.task


def load(module: str) -> Registry:
    """Import the user's tasks into this process's registry, as `Registry.load`."""
    TASKS.load(module)
    return TASKS


def _modules(name: str) -> Iterator[ModuleType]:
    module = imported(name)
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        if not found.name.endswith(".__main__"):
            yield from _modules(found.name)


def imported(name: str) -> ModuleType:
    """The module, imported; raises InvalidTasks, which says why it cannot be."""
    try:
        return import_module(name)
    except InvalidTasks:
        raise
    except ModuleNotFoundError as error:
        missing = f"{name}.".startswith(f"{error.name}.")
        why = "not on the import path" if missing else f"it imports {error.name!r}, not installed"
        raise InvalidTasks(f"tasks module {name!r}: {why}") from error
    except Exception as error:
        why = f"{type(error).__name__}: {_first_line(error)}"
        raise InvalidTasks(f"tasks module {name!r} cannot be imported: {why}") from error


def _check(task: AnyTask) -> None:
    try:
        check_name("task", task.name)
    except Rejected as error:
        raise InvalidTasks(f"{task}: {error.reason}") from error
    for version in (task.version, *task.accepts):
        if type(version) is not int or not 1 <= version <= MAX_TASK_VERSION:
            raise InvalidTasks(f"{task}: {version!r}: a version is a whole number from 1")
    _check_isolation(task)
    if not isinstance(task.retry_policy, RetryPolicy | None):
        raise InvalidTasks(f"{task}: retry_policy is a RetryPolicy, not {task.retry_policy!r}")
    if not inspect.isroutine(task.handler) or _is_special(task.handler):
        raise InvalidTasks(f"{task}: a handler is a plain function, neither async nor a generator")
    try:
        inspect.signature(task.handler).bind(None, None)
    except TypeError as error:
        raise InvalidTasks(f"{task}: a handler takes (payload, context): {error}") from error


def _check_isolation(task: AnyTask) -> None:
    if task.isolation not in {None, "process"}:
        raise InvalidTasks(f"{task}: isolation is 'process', or left out, not {task.isolation!r}")
    if task.memory_mb is None:
        return
    if task.isolation is None:
        raise InvalidTasks(f"{task}: memory_mb is the limit of a process: it needs isolation")
    if type(task.memory_mb) is not int or task.memory_mb not in MEMORY_MB:
        raise InvalidTasks(
            f"{task}: memory_mb is a whole number from {MEMORY_MB.start}, not {task.memory_mb!r}"
        )


def _is_special(handler: Callable[..., object]) -> bool:
    return (
        inspect.iscoroutinefunction(handler)
        or inspect.isgeneratorfunction(handler)
        or inspect.isasyncgenfunction(handler)
    )


def _where(handler: Callable[..., object]) -> str:
    code = getattr(inspect.unwrap(handler), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(handler)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
