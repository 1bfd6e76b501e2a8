"""What else a worker does with a message: it beats, gives up, hands back, mends what is dead."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from lamplighter.core.errors import Unavailable
from lamplighter.core.limits import CRASH_LIMIT, UNDELIVERABLE_AFTER, UNDELIVERABLE_LIMIT
from lamplighter.core.model import Execution, Message
from lamplighter.core.outcome import Failed, Interrupted, Outcome, Succeeded, Withdrawn
from lamplighter.core.retry import Failure, Kind, RetryPolicy
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.ports import Ports, Received
from lamplighter.services import execute
from lamplighter.services.cancel import cancel
from lamplighter.services.execute import Claimed
from lamplighter.services.heartbeat import Heartbeats, Stop
from lamplighter.services.undeliverable import undeliverable
from lamplighter.sim.faults import Call, When, interposed
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, in_, new_job

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DOOMED = "doomed"

UseCase = Callable[[Ports], object]
Ready = tuple[System, UseCase]
Handler = Callable[[Claimed], Outcome]


def a_system() -> System:
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1)
    system = System(world=world)
    system.run_for(timedelta(minutes=1))
    return system


def received_by(system: System) -> Received:
    """The message of a one-off that has just become due."""
    created(system.ports, new_job(run_at=in_(system.ports, 1), retry=RetryPolicy(base_seconds=3)))
    system.world.pass_time(2 * SECOND)
    (message,) = system.world.queue.receive()
    execute.shrink(system.ports, [message])
    return message


def doomed(system: System, message: Received, handler: Handler) -> UseCase:
    """One worker that takes one message; whoever comes after it succeeds."""

    def play(claimed: Claimed) -> Outcome:
        is_doomed = claimed.execution.worker == DOOMED
        return handler(claimed) if is_doomed else Succeeded(result="1")

    system.handler = play
    return lambda ports: execute.process(ports, message, system.run, worker=DOOMED)


class Handling:
    """A handler that goes on until it is told to stop."""

    why: Stop | None = None

    def stop(self, why: Stop) -> None:
        self.why = self.why or why


def beat_for_what_runs() -> Ready:
    """Twice, and then it is done; what lost its lease meanwhile says nothing more."""
    system = a_system()
    message = received_by(system)

    def use_case(ports: Ports) -> None:
        begun = execute.begin(ports, message, worker=DOOMED)
        if not isinstance(begun, Claimed):
            return
        handling, heartbeats = Handling(), Heartbeats(ports)
        with heartbeats.watch(begun, handling):
            for _ in range(2):
                system.world.pass_time(10 * SECOND)
                heartbeats.tick()
        if handling.why is None:
            execute.conclude(ports, begun, Succeeded(result="1"))

    return system, use_case


def fail_for_good() -> Ready:
    """S4-R4: its owner is told."""
    system = a_system()
    failure = Failure(kind=Kind.PERMANENT, type="ValueError", message="no")
    return system, doomed(system, received_by(system), lambda _: Failed(failure=failure))


def end_what_was_asked_to_stop() -> Ready:
    system = a_system()
    message = received_by(system)

    def leave(claimed: Claimed) -> Outcome:
        cancel(system.ports, OWNER, claimed.execution.id)
        return Withdrawn(reason="cancelled on request")

    return system, doomed(system, message, leave)


def hand_back_when_told_to_stop() -> Ready:
    """The worker is to end: the same try goes on elsewhere."""
    system = a_system()
    message = received_by(system)
    return system, doomed(system, message, lambda _: Interrupted(reason="a deploy"))


def give_up_what_kills_its_workers() -> Ready:
    """S0-E2: the last of so many silent workers was the last one."""
    system = a_system()
    message = received_by(system)
    for _ in range(CRASH_LIMIT):
        assert isinstance(execute.begin(system.ports, message, worker="silent"), Claimed)
        system.world.pass_time(36 * SECOND)
        (message,) = system.world.queue.receive()
        execute.shrink(system.ports, [message])
    return system, doomed(system, message, lambda _: Succeeded(result="1"))


def put_off_what_cannot_be_looked_at() -> Ready:
    """The jobs table does not answer after the claim."""
    system = a_system()
    row = created(system.ports, new_job(schedule=every("3 minutes"))).first
    system.world.clock.move_to(row.run_at)
    (message,) = system.world.queue.receive()
    execute.shrink(system.ports, [message])

    def silent(call: Call, when: When) -> None:
        if (call.port, call.method) == ("jobs", "get"):
            raise Unavailable("no answer")

    def use_case(ports: Ports) -> object:
        return execute.process(interposed(ports, silent), message, system.run, worker=DOOMED)

    return system, use_case


def mend_what_waits() -> Ready:
    """A dead-letter queue received its message, and it was never tried."""
    system = a_system()
    row = created(system.ports, new_job(run_at=in_(system.ports, 1))).first
    return undelivered(system, row)


def mend_what_runs() -> Ready:
    system = a_system()
    message = received_by(system)
    begun = execute.begin(system.ports, message, worker="silent")
    assert isinstance(begun, Claimed)
    return undelivered(system, begun.execution)


def mend_what_was_ended_and_told_to_nobody() -> Ready:
    """Its worker died between its last write and the notice."""
    system = a_system()
    message = received_by(system)
    begun = execute.begin(system.ports, message, worker="silent")
    assert isinstance(begun, Claimed)
    failure = Failure(kind=Kind.PERMANENT, type="ValueError", message="no")

    def dies(call: Call, when: When) -> None:
        if (call.port, when) == ("notices", When.BEFORE):
            raise Unavailable("the process is gone")

    execute.conclude(interposed(system.ports, dies), begun, Failed(failure=failure))
    return undelivered(system, begun.execution)


def give_up_what_cannot_be_delivered() -> Ready:
    """For the third time, a day late; it was tried once."""
    system = a_system()
    failure = Failure(kind=Kind.RETRYABLE, type="ValueError", message="no")
    message = received_by(system)
    execute.process(system.ports, message, lambda _: Failed(failure=failure), worker="w")
    (row,) = system.world.tables.executions.values()
    for _ in range(UNDELIVERABLE_LIMIT - 1):
        system.ports.executions.count_undeliverable(row.id)
    system.world.pass_time(UNDELIVERABLE_AFTER + timedelta(minutes=5))
    return undelivered(system, row)


def undelivered(system: System, row: Execution) -> Ready:
    """Its message is among the dead letters, and stays there until somebody is done with it."""
    queue = system.world.queue
    queue.purge()
    message = Message(execution_id=row.id, attempt=row.attempt, due_at=row.due_at)
    system.world.pass_time(2 * SECOND)

    def use_case(ports: Ports) -> None:
        undeliverable(ports, message)
        queue.dead.clear()

    queue.dead.append(Received(queue=row.queue, message=message, receipt="dead", receive_count=100))
    return system, use_case


WORKER_SCENARIOS = [
    beat_for_what_runs,
    fail_for_good,
    end_what_was_asked_to_stop,
    hand_back_when_told_to_stop,
    give_up_what_kills_its_workers,
    put_off_what_cannot_be_looked_at,
    mend_what_waits,
    mend_what_runs,
    mend_what_was_ended_and_told_to_nobody,
    give_up_what_cannot_be_delivered,
]
