"""A registry of one test's own, where `lamplighter.task` registers."""

import pytest

from lamplighter.memory import MemoryWorld
from lamplighter.tasks.registry import TASKS, Registry


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
def process_registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of this process, empty; what was in it comes back."""
    monkeypatch.setattr(TASKS, "_tasks", {})
    return TASKS
