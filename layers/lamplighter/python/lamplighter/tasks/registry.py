"""Tasks: a function with a name, a version and a typed payload, found by importing its module."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any, Final, Generic, TypeVar, get_type_hints

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from lamplighter.core.errors import LamplighterError, Rejected
from lamplighter.core.model import check_name
from lamplighter.tasks.context import Context

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
        self, name: str, *, version: int = 1
    ) -> Callable[[Callable[[PayloadT, Context], ResultT]], Task[PayloadT, ResultT]]:
        """Make a function of (payload, context) the handler of a task.

        The payload arrives as its annotation says: a pydantic model, a dataclass, a TypedDict
        or a builtin. What it returns is kept as JSON. Raises InvalidTasks for what cannot be
        called so, and for a name and version that another function has.
        """

        def register(handler: Callable[[PayloadT, Context], ResultT]) -> Task[PayloadT, ResultT]:
            task = Task(name=name, version=version, handler=handler, where=_where(handler))
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

    def newest(self, name: str) -> AnyTask | None:
        """The task of this name with the highest version; None when there is none."""
        versions = [version for known, version in self._tasks if known == name]
        return self._tasks[name, max(versions)] if versions else None

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
    module = _import(name)
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
        if not found.name.endswith(".__main__"):
            yield from _modules(found.name)


def _import(name: str) -> ModuleType:
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
    if type(task.version) is not int or task.version < 1:
        raise InvalidTasks(f"{task}: a version is a whole number from 1")
    if not inspect.isroutine(task.handler) or _is_special(task.handler):
        raise InvalidTasks(f"{task}: a handler is a plain function, neither async nor a generator")
    try:
        inspect.signature(task.handler).bind(None, None)
    except TypeError as error:
        raise InvalidTasks(f"{task}: a handler takes (payload, context): {error}") from error


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
