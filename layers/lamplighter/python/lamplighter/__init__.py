"""Lamplighter lights every job on time: what a module with tasks imports.

Names are loaded when they are first used: the infrastructure, which imports constants, and the
API must not pay for pydantic.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lamplighter.core.errors import Permanent, RateLimited, Retryable, WritesRefused
    from lamplighter.core.retry import RetryPolicy
    from lamplighter.tasks.context import Context, Stopped
    from lamplighter.tasks.registry import Task, task
else:
    _HOMES: Final = {
        "Permanent": "lamplighter.core.errors",
        "RateLimited": "lamplighter.core.errors",
        "Retryable": "lamplighter.core.errors",
        "WritesRefused": "lamplighter.core.errors",
        "RetryPolicy": "lamplighter.core.retry",
        "Context": "lamplighter.tasks.context",
        "Stopped": "lamplighter.tasks.context",
        "Task": "lamplighter.tasks.registry",
        "task": "lamplighter.tasks.registry",
    }

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "Context",
    "Permanent",
    "RateLimited",
    "RetryPolicy",
    "Retryable",
    "Stopped",
    "Task",
    "WritesRefused",
    "task",
]
