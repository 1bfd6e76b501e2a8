"""Executions in a worker's hands, made through the real services on memory ports."""

from datetime import timedelta

from lamplighter.core.model import Payload, Spec
from lamplighter.core.retry import RetryPolicy
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Received
from lamplighter.services.execute import Claimed, begin
from lamplighter.services.submit import Created, NewJob, submit
from tests.support.jobs import OWNER


def submitted(
    world: MemoryWorld,
    *,
    task: str,
    payload: str = "null",
    timeout: timedelta = timedelta(seconds=60),
    retry: RetryPolicy | None = None,
    task_version: int | None = None,
) -> Created:
    """A job that is due now, and its message in the queue."""
    spec = Spec(
        task=task,
        task_version=task_version,
        payload=Payload.of(payload),
        timeout=timeout,
        retry=retry or RetryPolicy(),
    )
    created = submit(world.ports(), NewJob(owner=OWNER, spec=spec))
    assert isinstance(created, Created)
    return created


def received(world: MemoryWorld) -> Received:
    """The one message that is visible."""
    (message,) = world.queue.receive()
    return message


def claimed(
    world: MemoryWorld, *, task: str, payload: str = "null", task_version: int | None = None
) -> Claimed:
    """An execution of the task, held and about to be run."""
    submitted(world, task=task, payload=payload, task_version=task_version)
    begun = begin(world.ports(), received(world), worker="worker-1")
    assert isinstance(begun, Claimed)
    return begun
