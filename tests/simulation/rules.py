"""The protocol's rules P1–P11 and P17 as histories: each with the change that breaks it.

A history runs a system through the one interleaving that a rule is for, and says what went
wrong, in words. Held to the rule it says nothing; with the rule taken out it says something.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from lamplighter.core import claim as claiming
from lamplighter.core.buckets import Position, body_of
from lamplighter.core.claim import Drop
from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Job, Message
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.core.timing import is_inside
from lamplighter.memory import MemoryExecutions, MemoryJobs, MemoryWorld, VirtualClock
from lamplighter.ports import Page, Ports, Received, Refusal
from lamplighter.services import claim, dispatch, execute, manage, submit, sweep, timers
from lamplighter.services.execute import Claimed
from lamplighter.sim.faults import (
    Call,
    Crash,
    When,
    interposed,
)
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support import partition_work
from tests.support.jobs import OWNER, created, every, in_, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
ON_TIME = 2 * SECOND
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)

History = Callable[[], Iterator[str]]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule's id, the history that it is for, and how to take it out."""

    id: str
    says: str
    history: History
    without: Callable[[], AbstractContextManager[Any]]


def a_system(**settings: Any) -> System:
    """A system one second past a minute, with its first tick behind it."""
    system = System(world=MemoryWorld(clock=VirtualClock(START), **settings))
    system.run_for(MINUTE)
    return system


def on(method: str, when: When, act: Callable[[], None]) -> Callable[[Call, When], None]:
    """A hook that acts once, at the first call of a port's method."""
    left = [act]

    def hook(call: Call, at: When) -> None:
        if f"{call.port}.{call.method}" == method and at is when and left:
            left.pop()()

    return hook


def die() -> None:
    """What a hook does to kill the process."""
    raise Crash


def crashing(ports: Ports, method: str, when: When, use_case: Callable[[Ports], object]) -> None:
    """Run a use case that dies at the first call of a port's method."""
    try:
        use_case(interposed(ports, on(method, when, die)))
    except Crash:
        return
    raise AssertionError(f"{method} was never called")


def late(system: System, *, but: Sequence[str] = (), within: timedelta = ON_TIME) -> Iterator[str]:
    """Executions that started later than they should, or never."""
    starts = {run.execution_id: run.started_at for run in reversed(system.runs)}
    for row in system.world.tables.executions.values():
        due = row.run_at <= system.world.now() - MINUTE
        if row.id in but or not due or row.state in {State.SKIPPED, State.CANCELLED}:
            continue
        start = starts.get(row.id)
        if start is None or start - row.run_at > within:
            yield f"{row.id} was due {row.run_at} and started {start}"


def repaired(system: System) -> Iterator[str]:
    """What the sweep had to mend: it mends much, which a rule is there to make needless."""
    if repairs := system.world.counts.events["recovered"]:
        yield f"{repairs} repairs"


# P1


def put_that_commits_behind_the_watermark() -> Iterator[str]:
    """The API decides "beyond the line" and stalls; dispatch passes; then the put commits."""
    system = a_system()
    stall = on("jobs.create", When.BEFORE, lambda: system.run_for(3 * MINUTE))
    created(interposed(system.ports, stall), new_job(run_at=in_(system.ports, 290)))
    system.run_for(10 * MINUTE)
    yield from late(system)
    yield from violations(system)


def decide_before_the_put() -> AbstractContextManager[Any]:
    """P1 out: what was decided before the put is believed after it."""

    def look(ports: Ports, first: Execution, job: Job | None) -> None:
        if first.sent_directly:
            timers.send(ports, [timers.outgoing(first)])

    return patch.object(submit, "look", look)


# P2


def sent_before_its_successor_exists() -> Iterator[str]:
    """The first occurrence is put behind the watermark; its API dies at its first send."""
    system = a_system()
    stall = on("jobs.create", When.BEFORE, lambda: system.run_for(3 * MINUTE))
    crash = on("queue.send", When.AFTER, die)

    def hook(call: Call, when: When) -> None:
        stall(call, when)
        crash(call, when)

    with suppress(Crash):
        created(interposed(system.ports, hook), new_job(schedule=every("4 minutes")))
    system.run_for(30 * MINUTE)
    yield from repaired(system)
    yield from violations(system)


def send_then_arm() -> AbstractContextManager[Any]:
    """P2 out: the send comes first."""

    def look(ports: Ports, first: Execution, job: Job | None) -> None:
        now = ports.clock.now()
        if is_inside(first.run_at, now):
            timers.send(ports, [timers.outgoing(first)])
            links = [timers.link_of(job, first)] if job else []
            following = timers.arm_chains(ports, links, decided_at=now)
            timers.send(ports, [timers.outgoing(row) for row in following])

    return patch.object(submit, "look", look)


# P3


def marked_row_that_was_never_sent() -> Iterator[str]:
    """The API dies after it put a row marked "sent directly", before it armed or sent.

    The row lies just beyond the line, so dispatch meets it.
    """
    system = a_system()
    new = new_job(schedule=every("1 minute", start_at=in_(system.ports, 250)))
    crashing(system.ports, "jobs.create", When.AFTER, lambda ports: submit.submit(ports, new))
    (first,) = system.world.tables.executions
    system.run_for(10 * MINUTE)
    yield from late(system, but=[first])
    yield from violations(system)


def mark_excuses_the_arming() -> AbstractContextManager[Any]:
    """P3 out: a row marked "sent directly" is passed over altogether."""
    arm = timers.arm_chains

    def arm_unmarked(ports: Ports, links: Sequence[timers.Link], **how: Any) -> Any:
        rows = {row.scheduled_for: row for row in ports.executions.get_many(_all(ports)).values()}
        kept = [link for link in links if not rows[link.slot].sent_directly]
        return arm(ports, kept, **how)

    return patch.object(timers, "arm_chains", arm_unmarked)


def _all(ports: Ports) -> Sequence[Any]:
    return ports.executions.of_owner(new_job().owner, before=None, limit=1000)


# P4


def shards_read_to_different_positions() -> Iterator[str]:
    """A page ends inside a bucket with one shard read further than another."""
    system = a_system(shards=2, partitions=1)
    with patch.object(dispatch, "PAGE_ROWS", 3):
        for second in range(20):
            created(system.ports, new_job(run_at=in_(system.ports, 600 + second)))
        system.run_for(20 * MINUTE)
    yield from late(system)
    yield from violations(system)


def furthest_shard_moves_the_watermark() -> AbstractContextManager[Any]:
    """P4 out: `reached` is the furthest position of any shard."""
    due = MemoryExecutions.due

    def greedy(self: MemoryExecutions, minute: Any, shards: Any, **how: Any) -> Page:
        pages = [due(self, minute, [shard], **how) for shard in shards]
        rows = sorted((row for page in pages for row in page.rows), key=_position)
        short = [page.reached for page in pages if page.reached != how["until"]]
        return Page(rows=rows, reached=max(short, default=how["until"]))

    return patch.object(MemoryExecutions, "due", greedy)


def _position(row: Any) -> Position:
    return body_of(row.id)


# P5


def page_that_is_done_twice() -> Iterator[str]:
    """An owner stalls in its page before it arms; the next one redoes the page much later."""
    system = a_system(shards=1, partitions=1)
    created(system.ports, new_job(schedule=every("10 minutes")))
    system.ticking = False
    system.run_for(31 * MINUTE)

    def meanwhile() -> None:
        system.run_for(25 * MINUTE)
        partition_work.dispatch(system.ports, 0, owner="next")
        system.run_for(SECOND)

    stalled = interposed(system.ports, on("executions.put", When.BEFORE, meanwhile))
    partition_work.dispatch(stalled, 0, owner="stalled")
    until = system.world.now()
    system.ticking = True
    system.run_for(30 * MINUTE)
    runs = [run.run_at for run in system.runs if run.run_at <= until]
    if len(runs) != 1:
        yield f"runs for one outage: {runs}"
    yield from violations(system)


def decide_at_the_redo() -> AbstractContextManager[Any]:
    """P5 out: a redo decides as of its own now."""
    redo = dispatch._Visit.redo

    def now(visit: dispatch._Visit) -> None:
        if visit.grant.intent is not None:
            intent = replace(visit.grant.intent, decided_at=visit.ports.clock.now())
            visit.grant = replace(visit.grant, intent=intent)
        redo(visit)

    return patch.object(dispatch._Visit, "redo", now)


# P6


def sweep_while_dispatch_is_down() -> Iterator[str]:
    """Dispatch is down for an hour while the sweep goes on."""
    system = a_system()
    created(system.ports, new_job(schedule=every("6 minutes")))
    system.ticking = False
    for _ in range(60):
        system.run_for(MINUTE)
        for partition in range(system.world.partitions):
            partition_work.sweep(system.ports, partition, owner="sweeper")
    until = system.world.now()
    system.ticking = True
    system.run_for(5 * MINUTE)
    runs = [run for run in system.runs if run.run_at <= until]
    # One on time before the outage was noticed at most, and one for the outage.
    if len(runs) > 1:
        yield f"{len(runs)} runs for one outage"
    yield from violations(system)


def sweep_ahead_of_the_watermark() -> AbstractContextManager[Any]:
    """P6 out: the sweep does not ask how far dispatch has come."""
    return patch.object(sweep, "min", lambda dispatched, *until: min(until), create=True)


# P7


def worker_that_dies_after_the_visit() -> Iterator[str]:
    """A long run is alive when its bucket is swept; then worker and message are gone."""
    system = a_system()
    first = created(system.ports, new_job(run_at=in_(system.ports, 5))).first
    system.world.pass_time(6 * SECOND)
    (received,) = system.world.queue.receive()
    begun = execute.begin(system.ports, received, worker="doomed")
    assert isinstance(begun, Claimed)
    for _ in range(18):
        system.world.pass_time(10 * SECOND)
        lease_until = in_(system.ports, 30)
        system.ports.executions.extend(first.id, token=begun.token, lease_until=lease_until)
        system.ports.queue.hide([received], timedelta(seconds=30))
        for partition in range(system.world.partitions):
            partition_work.dispatch(system.ports, partition, owner="dispatcher")
    for partition in range(system.world.partitions):
        partition_work.dispatch(system.ports, partition, owner="dispatcher")
        partition_work.sweep(system.ports, partition, owner="sweeper")
    system.world.queue.purge()
    system.run_for(30 * MINUTE)
    yield from violations(system)


def visit_only_once() -> AbstractContextManager[Any]:
    """P7 out: a visit books no other."""
    return patch.object(MemoryExecutions, "point", lambda self, pointers: None)


# P8


def holder_that_dies_after_a_redelivery() -> Iterator[str]:
    """A message comes again while its lease is live; then the holder dies."""
    system = a_system()
    first = created(system.ports, new_job(run_at=in_(system.ports, 5))).first
    system.world.pass_time(6 * SECOND)
    (received,) = system.world.queue.receive()
    assert isinstance(execute.begin(system.ports, received, worker="doomed"), Claimed)
    system.ports.queue.hide([received], 5 * SECOND)
    system.run_for(MINUTE)
    yield from late(system, within=MINUTE)
    if not any(run.execution_id == first.id for run in system.runs):
        yield f"{first.id} was not run by another worker within a minute"


def drop_what_is_held() -> AbstractContextManager[Any]:
    """P8 out: a claim lost to a live lease deletes its message."""
    return _refused(
        lambda meaning: Drop(reason="held") if isinstance(meaning, claiming.Keep) else meaning
    )


def _refused(change: Callable[[claiming.Refusal], claiming.Refusal]) -> AbstractContextManager[Any]:
    real = claiming.refused

    def refused(message: Message, row: Execution | None, now: datetime) -> claiming.Refusal:
        return change(real(message, row, now))

    return patch.object(claim, "refused", refused)


# P9


def taker_whose_clock_is_fast() -> Iterator[str]:
    """The holder's clock is 0.5 s slow and the taker's 0.5 s fast; the holder still runs."""
    world = MemoryWorld(clock=VirtualClock(START))
    created(world.ports(), new_job(run_at=in_(world.ports(), 1)))
    world.pass_time(2 * SECOND)
    (received,) = world.queue.receive()
    world.clock.skew = -timedelta(milliseconds=500)
    held = execute.begin(world.ports(), received, worker="slow")
    assert isinstance(held, Claimed)
    assert held.execution.lease_until is not None
    # Until its own clock says that the lease is over, the holder may be running.
    world.pass_time(held.execution.lease_until - world.clock.now() - timedelta(milliseconds=1))
    world.clock.skew = timedelta(milliseconds=500)
    if isinstance(execute.begin(world.ports(), received, worker="fast"), Claimed):
        yield "two handlers at once"


def take_over_at_the_lease_end() -> AbstractContextManager[Any]:
    """P9 out: no grace."""
    return patch.object(claiming, "TAKE_OVER_GRACE", timedelta(0))


# P10


def duplicate_of_a_try_that_failed() -> Iterator[str]:
    """The first try failed and the next is due in a minute; its message comes once more."""
    system = a_system()
    policy = RetryPolicy(base_seconds=60, max_attempts=3)
    created(system.ports, new_job(run_at=in_(system.ports, 5), retry=policy))
    system.handler = _fail_first
    system.world.pass_time(6 * SECOND)
    system.world.queue.duplicate()
    system.run_for(30 * MINUTE)
    for row in system.world.tables.executions.values():
        first, second = row.attempts[0], row.attempts[1]
        assert first.finished_at is not None
        if second.started_at - first.finished_at < 30 * SECOND:
            yield f"the retry came {second.started_at - first.finished_at} after the failure"
    yield from violations(system)


def _fail_first(claimed: Claimed) -> Outcome:
    if claimed.execution.attempt > 1:
        return Succeeded(result="1")
    return Failed(failure=Failure(kind=FailureKind.RETRYABLE, type="ValueError", message="no"))


def claim_without_attempt_or_due() -> AbstractContextManager[Any]:
    """P10 out: any message claims whatever waits."""
    real = MemoryExecutions.claim

    def claim(self: MemoryExecutions, id: Any, **how: Any) -> Execution | Refusal:
        row = self._tables.executions[id]
        if row.next_run_at is not None:
            self._tables.executions[id] = replace(row, next_run_at=how["now"])
        return real(self, id, **how | {"attempt": row.attempt})

    return patch.object(MemoryExecutions, "claim", claim)


# P11


def crash_between_retrying_and_its_message() -> Iterator[str]:
    """A worker writes RETRYING and dies before it arms the next try."""
    system = a_system()
    policy = RetryPolicy(base_seconds=2, max_attempts=3)
    first = created(system.ports, new_job(run_at=in_(system.ports, 5), retry=policy)).first
    system.handler = _fail_first
    system.world.pass_time(6 * SECOND)
    (received,) = system.world.queue.receive()
    execute.shrink(system.ports, [received])

    def process(ports: Ports) -> object:
        return execute.process(ports, received, system.run, worker="doomed")

    crashing(system.ports, "executions.settle", When.AFTER, process)
    system.run_for(MINUTE)
    row = system.world.tables.executions[first.id]
    if row.state is not State.SUCCEEDED:
        yield f"{row.id} is {row.state} a minute later"


def drop_what_is_stale() -> AbstractContextManager[Any]:
    """P11 out: a stale message is deleted whatever the row waits for."""
    return _refused(
        lambda meaning: Drop(reason="stale") if isinstance(meaning, claiming.Rearm) else meaning
    )


# P1, of a far retry


def pointer_put_behind_the_watermark() -> Iterator[str]:
    """A worker finds a retry beyond the line and stalls before it puts its pointer."""
    system = a_system()
    policy = RetryPolicy(base_seconds=300, max_attempts=2)
    first = created(system.ports, new_job(run_at=in_(system.ports, 5), retry=policy)).first
    system.handler = _fail_first
    system.world.pass_time(6 * SECOND)
    (received,) = system.world.queue.receive()
    stall = on("executions.point", When.BEFORE, lambda: system.run_for(2 * MINUTE))
    with patch.object(system.world.chance, "jitter", lambda: 1.0):
        execute.process(interposed(system.ports, stall), received, system.run, worker="slow")
    due = system.world.tables.executions[first.id].next_run_at
    assert due is not None
    system.run_for(30 * MINUTE)
    second = system.world.tables.executions[first.id].attempts[1]
    if second.started_at - due > ON_TIME:
        yield f"the retry was due {due} and started {second.started_at}"


def point_and_do_not_look() -> AbstractContextManager[Any]:
    """P1 out of the retry: what was decided before the pointer's put is believed after it."""

    def arm_retry(ports: Ports, execution: Execution) -> None:
        if is_inside(execution.due_at, ports.clock.now()):
            timers.send(ports, [timers.outgoing(execution)])
        else:
            ports.executions.point([timers._retry_pointer(execution)])

    return patch.object(timers, "arm_retry", arm_retry)


# P17


def chain_ended_by_a_stale_pause() -> Iterator[str]:
    """Dispatch reads a job as paused; it is resumed before dispatch ends its chain."""
    system = a_system(shards=1, partitions=1)
    job = created(system.ports, new_job(schedule=every("7 minutes"))).job
    assert job is not None
    system.run_for(2 * MINUTE)
    with patch.object(manage, "_stop_what_was_armed", lambda *_, **__: ()):
        manage.pause(system.ports, OWNER, job.id)
        system.world.pass_time(MINUTE)

        def resume() -> None:
            manage.resume(system.ports, OWNER, job.id)

        stale = interposed(system.ports, on("executions.end", When.BEFORE, resume))
        with suppress(Unavailable):
            partition_work.dispatch(stale, 0, owner="stale")
    system.run_for(30 * MINUTE)
    yield from late(system)
    yield from violations(system)
    slots = [run.due_at.minute for run in system.runs]
    if slots[:1] != [8]:
        yield f"the slot that resume found armed did not run: {slots}"


def end_whatever_the_version() -> AbstractContextManager[Any]:
    """P17 out: the end of a chain does not check the job's version."""
    end = MemoryExecutions.end

    def unchecked(self: MemoryExecutions, before: Any, after: Any, **_: Any) -> Any:
        return end(self, before, after)

    return patch.object(MemoryExecutions, "end", unchecked)


def paused_between_the_message_and_its_claim() -> Iterator[str]:
    """A worker has the message; the job is paused, and that answered; then the worker claims.

    Nothing that was armed is cancelled: that is for show, and may find nothing.
    """
    system = a_system()
    made = created(system.ports, new_job(schedule=every("5 minutes")))
    job, first = made.job, made.first
    assert job is not None
    system.run_until(first.run_at - SECOND)
    system.world.pass_time(SECOND)
    (received,) = system.world.queue.receive()

    def pause() -> None:
        with patch.object(manage, "_stop_what_was_armed", lambda *_, **__: []):
            manage.pause(system.ports, OWNER, job.id)

    meanwhile = interposed(system.ports, on("executions.claim", When.BEFORE, pause))
    if isinstance(execute.begin(meanwhile, received, worker="w"), Claimed):
        yield "it starts after the pause was answered"
    system.run_for(30 * MINUTE)
    yield from violations(system)


def read_before_the_claim() -> AbstractContextManager[Any]:
    """P17 out: the job is read first."""
    begin = execute.begin

    def reading(ports: Ports, received: Received, *, worker: str) -> Any:
        row = ports.executions.get(received.message.execution_id)
        stale = row and ports.jobs.get(row.job_id)
        with patch.object(MemoryJobs, "get", lambda *_: stale):
            return begin(ports, received, worker=worker)

    return patch.object(execute, "begin", reading)


def refused_by_a_version_that_is_over() -> Iterator[str]:
    """A worker claims, and reads its job as paused; it is resumed before the worker refuses."""
    system = a_system()
    made = created(system.ports, new_job(schedule=every("5 minutes")))
    job, first = made.job, made.first
    assert job is not None
    system.run_until(first.run_at - SECOND)
    with patch.object(manage, "_stop_what_was_armed", lambda *_, **__: []):
        manage.pause(system.ports, OWNER, job.id)
    system.world.pass_time(SECOND)
    (received,) = system.world.queue.receive()

    def resume() -> None:
        manage.resume(system.ports, OWNER, job.id)

    meanwhile = interposed(system.ports, on("jobs.get", When.AFTER, resume))
    if not isinstance(execute.begin(meanwhile, received, worker="w"), Claimed):
        yield f"{first.id} did not start, though its job is active"


def refuse_whatever_the_version() -> AbstractContextManager[Any]:
    """P17 out: a refusal does not check the job's version."""
    settle = MemoryExecutions.settle

    def unchecked(self: MemoryExecutions, after: Any, *, token: Any, **_: Any) -> Any:
        return settle(self, after, token=token)

    return patch.object(MemoryExecutions, "settle", unchecked)


RULES: Sequence[Rule] = (
    Rule(
        id="P1",
        says="after every put, look at the clock again",
        history=put_that_commits_behind_the_watermark,
        without=decide_before_the_put,
    ),
    Rule(
        id="P1",
        says="and after the put of a far retry's pointer",
        history=pointer_put_behind_the_watermark,
        without=point_and_do_not_look,
    ),
    Rule(
        id="P2",
        says="an occurrence is sent only once its successor exists",
        history=sent_before_its_successor_exists,
        without=send_then_arm,
    ),
    Rule(
        id="P3",
        says="the mark excuses the send, never the arming",
        history=marked_row_that_was_never_sent,
        without=mark_excuses_the_arming,
    ),
    Rule(
        id="P4",
        says="the watermark moves only as far as every shard was read",
        history=shards_read_to_different_positions,
        without=furthest_shard_moves_the_watermark,
    ),
    Rule(
        id="P5",
        says="a redo decides as of the intent's instant",
        history=page_that_is_done_twice,
        without=decide_at_the_redo,
    ),
    Rule(
        id="P6",
        says="the sweep touches only what is behind the watermark",
        history=sweep_while_dispatch_is_down,
        without=sweep_ahead_of_the_watermark,
    ),
    Rule(
        id="P7",
        says="a visit that leaves a row not final books another",
        history=worker_that_dies_after_the_visit,
        without=visit_only_once,
    ),
    Rule(
        id="P8",
        says="a claim lost to a live lease keeps its message",
        history=holder_that_dies_after_a_redelivery,
        without=drop_what_is_held,
    ),
    Rule(
        id="P9",
        says="a take-over waits past the lease for twice the clock error",
        history=taker_whose_clock_is_fast,
        without=take_over_at_the_lease_end,
    ),
    Rule(
        id="P10",
        says="a claim names the row's own try, and not before it is due",
        history=duplicate_of_a_try_that_failed,
        without=claim_without_attempt_or_due,
    ),
    Rule(
        id="P11",
        says="a stale message that finds RETRYING arms the current try",
        history=crash_between_retrying_and_its_message,
        without=drop_what_is_stale,
    ),
    Rule(
        id="P17",
        says="what is claimed after a pause was answered does not start",
        history=paused_between_the_message_and_its_claim,
        without=read_before_the_claim,
    ),
    Rule(
        id="P17",
        says="a refusal after the claim checks the job's version",
        history=refused_by_a_version_that_is_over,
        without=refuse_whatever_the_version,
    ),
    Rule(
        id="P17",
        says="a chain ends only in a write that checks the job's version",
        history=chain_ended_by_a_stale_pause,
        without=end_whatever_the_version,
    ),
)
