"""Faults between port calls: a crash, a pause, a service that does not answer.

A use case runs on `interposed(ports, hook)`; the hook is told of every port call, before it
and after its effect, and may raise or let time pass. `every_crash` uses that to kill a use
case at each of its calls in turn.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from lamplighter.core.errors import Unavailable
from lamplighter.ports import Ports


class When(StrEnum):
    """Where in a port call a fault strikes."""

    BEFORE = "before"
    DURING = "during"
    """After the first half of a call that writes several things one by one."""
    AFTER = "after"


class Crash(BaseException):
    """The process is gone; not an Exception, so that nothing in the code catches it."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One port call of a use case: the n-th, from 0."""

    number: int
    port: str
    method: str

    def __str__(self) -> str:
        return f"#{self.number} {self.port}.{self.method}"


Hook = Callable[[Call, When], None]

# Calls whose items take effect one by one: a crash may leave the first half.
PIECEWISE = {"executions.put", "executions.point", "queue.send", "queue.hand_out"}


def interposed(ports: Ports, hook: Hook) -> Ports:
    """The same ports, with the hook told of every call that leaves the process."""
    numbers = itertools.count()

    def around(name: str) -> Any:
        return _Interposed(name, getattr(ports, name), hook, lambda: next(numbers))

    return replace(
        ports,
        executions=around("executions"),
        jobs=around("jobs"),
        tally=around("tally"),
        control=around("control"),
        payloads=around("payloads"),
        ledger=around("ledger"),
        permits=around("permits"),
        queue=around("queue"),
        notices=around("notices") if ports.notices is not None else None,
    )


class _Interposed:
    def __init__(self, name: str, port: object, hook: Hook, number: Callable[[], int]) -> None:
        self._name, self._port, self._hook, self._number = name, port, hook, number

    def __getattr__(self, method: str) -> Any:
        real = getattr(self._port, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            this = Call(number=self._number(), port=self._name, method=method)
            self._hook(this, When.BEFORE)
            if f"{self._name}.{method}" in PIECEWISE:
                # A caller may hand over what can be gone through once only.
                args = ([*args[0]], *args[1:])
                self._halfway(this, real, args, kwargs)
            answer = real(*args, **kwargs)
            self._hook(this, When.AFTER)
            return answer

        return call

    def _halfway(self, this: Call, real: Any, args: Any, kwargs: Any) -> None:
        items = args[0]
        if len(items) < 2:
            return
        try:
            self._hook(this, When.DURING)
        except BaseException:
            real(items[: len(items) // 2], *args[1:], **kwargs)
            raise


@dataclass(frozen=True, kw_only=True)
class Strike:
    """A fault at one call of a use case."""

    number: int
    when: When

    def __str__(self) -> str:
        return f"{self.when} call #{self.number}"


def crash_at(strike: Strike) -> Hook:
    """A hook that kills the process at one call."""
    return raise_at(strike, Crash)


def unavailable_at(strike: Strike) -> Hook:
    """A hook that makes one call fail: before its effect, or, worse, after it."""
    return raise_at(strike, lambda: Unavailable(f"struck {strike}"))


def raise_at(strike: Strike, error: Callable[[], BaseException]) -> Hook:
    """A hook that raises at one call."""

    def hook(call: Call, when: When) -> None:
        if (call.number, when) == (strike.number, strike.when):
            raise error()

    return hook


def pause_at(strike: Strike, meanwhile: Callable[[], None]) -> Hook:
    """A hook that stops the process at one call while the rest of the world goes on."""

    def hook(call: Call, when: When) -> None:
        if (call.number, when) == (strike.number, strike.when):
            meanwhile()

    return hook


def calls_of(ports: Ports, use_case: Callable[[Ports], object]) -> Sequence[Call]:
    """Run a use case undisturbed and tell which port calls it makes."""
    seen: list[Call] = []

    def hook(call: Call, when: When) -> None:
        if when is When.BEFORE:
            seen.append(call)

    use_case(interposed(ports, hook))
    return seen


def every_strike(calls: Sequence[Call], *, whens: Sequence[When] = tuple(When)) -> Iterator[Strike]:
    """Every place where a fault can strike a use case that makes these calls."""
    for call in calls:
        for when in whens:
            if when is not When.DURING or f"{call.port}.{call.method}" in PIECEWISE:
                yield Strike(number=call.number, when=when)


def every_crash(calls: Sequence[Call]) -> Iterator[Strike]:
    """Every state that a crash can leave: before the first call, and during or after each.

    Nothing leaves the process between two calls, so before the second is after the first.
    """
    yield Strike(number=0, when=When.BEFORE)
    yield from every_strike(calls, whens=(When.DURING, When.AFTER))


def survives(ports: Ports, use_case: Callable[[Ports], object], strike: Strike) -> bool:
    """Run a use case into a crash; True when it ended without meeting it."""
    try:
        use_case(interposed(ports, crash_at(strike)))
    except Crash:
        return False
    return True
