"""Events with whatever in them: a message that is none costs its neighbours nothing.

Each that cannot be used is kept, by name and once, so that it ends where somebody sees it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lamplighter.aws.queue import Malformed, body_of, body_of_work, message_of, work_of
from lamplighter.core.lease import Kind, Work, WorkItem
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Message
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.runtime.batch import BatchRunner
from tests.support.bounded import bounded
from tests.support.examples import examples
from tests.support.jobs import created, new_job
from tests.support.lambdas import Context, Function, OnMemory, batch, record
from tests.support.rows import T, one_off

GOOD = json.loads(body_of(Message(execution_id=one_off().id, attempt=1, due_at=T)))
WORK = json.loads(body_of_work(WorkItem(work=Work(partition=0, kind=Kind.SWEEP), armed_by=1)))
_NUMBERS = st.integers(-2, 2**70) | st.sampled_from([0, 1, 10**400, -(10**400), 1.5, 1e308])
_VALUES = st.recursive(
    st.none() | st.booleans() | _NUMBERS | st.text(max_size=30) | st.just("ex_" + "z" * 26),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def nearly(good: dict[str, Any]) -> st.SearchStrategy[str]:
    """JSON text that has some of the fields, some of them as they should be."""
    of_some = st.fixed_dictionaries(
        {}, optional={name: st.just(value) | _VALUES for name, value in good.items()}
    )
    more = st.dictionaries(st.sampled_from(["hops", "epoch", "trace", "generation", "?"]), _VALUES)
    return st.builds(lambda one, other: json.dumps({**other, **one}), of_some, more)


ODD = st.sampled_from(["", "null", "[]", "{}", "[" * 999, "\ud800", "\0", '{"id":' * 500, "1e999"])
Bodies = st.SearchStrategy[list[str]]


def bodies(good: dict[str, Any]) -> Bodies:
    return st.lists(nearly(good) | ODD | st.text(max_size=80), min_size=1, max_size=9)


def handled(function: Function, event: Sequence[str]) -> list[str]:
    """The numbers of the messages that are to be kept."""
    records = [record(body, id=f"{n}", receipt=f"{1000 + n}") for n, body in enumerate(event)]
    with bounded(cpu_s=20, mebibytes=32):
        answer = cast("dict[str, Any]", function.handle(batch(records), Context()))
    assert answer.keys() == {"batchItemFailures"}
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def unusable(read: Callable[[str], object], event: Sequence[str]) -> set[str]:
    found = set()
    for number, body in enumerate(event):
        try:
            read(body)
        except Malformed:
            found.add(f"{number}")
    return found


def fuzz(number: int) -> settings:
    return settings(
        max_examples=examples(number),
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


@fuzz(40)
@given(found=bodies(GOOD), place=st.integers(0, 9))
def test_a_worker_keeps_what_it_cannot_use_and_runs_the_rest(
    worker: Function, monkeypatch: pytest.MonkeyPatch, found: list[str], place: int
) -> None:
    world = MemoryWorld(clock=VirtualClock(T))
    first = created(world.ports(), new_job()).first
    world.queue.purge()
    ours = body_of(Message(execution_id=first.id, attempt=1, due_at=first.run_at))
    event = [*found[:place], ours, *found[place:]]
    runner = cast("BatchRunner", vars(worker)["runner"])
    monkeypatch.setattr(worker, "runner", replace(runner, ports=world.ports()))

    kept = handled(worker, event)

    assert len(kept) == len({*kept})
    assert unusable(message_of, event) <= {*kept}
    assert world.tables.executions[first.id].state is State.SUCCEEDED


@fuzz(60)
@given(found=bodies(GOOD), place=st.integers(0, 9))
def test_the_dead_letter_handler_keeps_exactly_what_it_cannot_use(
    dead_letters: Function, on_memory: OnMemory, found: list[str], place: int
) -> None:
    world = MemoryWorld(clock=VirtualClock(T))
    first = created(world.ports(), new_job()).first
    world.queue.purge()
    ours = body_of(Message(execution_id=first.id, attempt=1, due_at=first.run_at))
    event = [*found[:place], ours, *found[place:]]

    kept = handled(on_memory(dead_letters, world.ports()), event)

    assert {*kept} == unusable(message_of, event)
    assert len(kept) == len({*kept})
    assert world.tables.executions[first.id].undeliverable == 1


@fuzz(60)
@given(found=bodies(WORK), place=st.integers(0, 9))
def test_the_scheduler_keeps_exactly_what_it_cannot_use(
    scheduler: Function, on_memory: OnMemory, found: list[str], place: int
) -> None:
    world = MemoryWorld(clock=VirtualClock(T), shards=2, partitions=1)
    work = Work(partition=0, kind=Kind.DISPATCH)
    event = [*found[:place], body_of_work(WorkItem(work=work)), *found[place:]]

    kept = handled(on_memory(scheduler, world.ports()), event)

    assert {*kept} == unusable(work_of, event)
    assert world.ports().control.progress([work])
