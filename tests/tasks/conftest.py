"""A registry of one test's own, where `lamplighter.task` registers."""

import pytest

from lamplighter.memory import MemoryWorld
from lamplighter.tasks import isolation
from lamplighter.tasks.registry import TASKS, Registry
from tests.tasks.isolated import Yard, rogue_tasks


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
def process_registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of this process, empty; what was in it comes back."""
    monkeypatch.setattr(TASKS, "_tasks", {})
    return TASKS


@pytest.fixture(scope="session")
def rogues() -> Registry:
    """The tasks of tests/tasks/rogues.py."""
    return rogue_tasks()


@pytest.fixture
def yard(rogues: Registry, monkeypatch: pytest.MonkeyPatch) -> Yard:
    """A yard in which nobody is waited for as long as on the street."""
    monkeypatch.setattr(isolation, "ASKED_FOR_S", 0.5)
    monkeypatch.setattr(isolation, "CANCELLED_FOR_S", 0.7)
    monkeypatch.setattr(isolation, "TERMINATED_FOR_S", 0.5)
    return Yard(tasks=rogues)
