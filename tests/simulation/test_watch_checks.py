"""The simulator's own checks see what they are for: each is shown a bug, or a world, with it.

Those that `test_invariants` does not show: what is checked all along, and what only whole
histories have.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch

import pytest

import lamplighter.sim
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.catch_up import CaughtUp
from lamplighter.core.deferral import Deferral
from lamplighter.core.lanes import LaneRules
from lamplighter.core.lease import Kind, Work
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import CHAIN_READS, CRASH_LIMIT
from lamplighter.core.model import (
    Attempt,
    Execution,
    OverlapPolicy,
    Payload,
    PayloadRef,
    Token,
    Trigger,
)
from lamplighter.core.outcome import Failed, Interrupted, Parked, finished
from lamplighter.core.permits import Bound, Key, Use
from lamplighter.core.permits import Kind as LimitKind
from lamplighter.core.quotas import Quota, Quotas, Taken, Usage
from lamplighter.core.retry import Failure, RetryPolicy
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.memory import MemoryExecutions, MemoryWorld, VirtualClock, stores
from lamplighter.memory.ledger import MemoryLedger
from lamplighter.ports import Checkpoint, Outgoing, Ports, Received, Step
from lamplighter.services import bulk, ledger, settling, submit, sweep, timers
from lamplighter.services.execute import Claimed
from lamplighter.sim import features
from lamplighter.sim.books import Books, own_write, said_by
from lamplighter.sim.decisions import NONE
from lamplighter.sim.engine import Actor, Process
from lamplighter.sim.features import PLAIN, Feature
from lamplighter.sim.quiescence import of_jobs, violations
from lamplighter.sim.simulation import Setup, Simulation
from lamplighter.sim.system import System
from lamplighter.sim.watch import Mended, Watch
from lamplighter.sim.workload import Mood, Owners, What, Whim
from tests.simulation.mended_bugs import MENDED
from tests.simulation.mutations import (
    declare_pages_of_several_rows,
    forget_the_key,
    show_it_to_anybody,
    start_however_late_the_answer_is,
)
from tests.support.jobs import OWNER, created, every, new_job
from tests.support.rows import occurrence, recurring

START: Final = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
SHORT: Final = Setup(seed=1, trouble=timedelta(minutes=10), rest=timedelta(minutes=21))


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A bug, the promise that it breaks, and what has to be made use of."""

    bug: Callable[[], AbstractContextManager[Any]]
    promise: str
    plays: Feature | None
    seed: int
    """Of the first history that is looked at."""


def a_beat_may_shorten_a_lease() -> AbstractContextManager[Any]:
    """The lease ends when the last beat to arrive says so."""

    def extend(
        self: MemoryExecutions, id: ExecutionId, *, token: Token, lease_until: Any
    ) -> Execution:
        return self._write(replace(self._held(id, token), lease_until=lease_until))

    return patch.object(MemoryExecutions, "extend", extend)


def every_try_begins_anew() -> AbstractContextManager[Any]:
    """Nobody looks for a checkpoint."""
    return patch.object(ledger, "state", lambda _ports, _claimed: None)


def own_writes_are_made_by_themselves() -> AbstractContextManager[Any]:
    """The own writes are made, and nothing is written of their execution's end."""

    def complete(self: MemoryLedger, after: Execution, *, writes: Any, **_: Any) -> Execution:
        self._own.take(writes)
        return after

    return patch.object(MemoryLedger, "complete", complete)


def a_large_payload_is_forgotten() -> AbstractContextManager[Any]:
    """The row is written, and the item that it refers to is not."""
    return patch.object(submit, "keep_large_payload", lambda *_, **__: None)


def nobody_is_refused() -> AbstractContextManager[Any]:
    """What is counted is not compared with the quota."""
    return patch.object(Usage, "_over", lambda *_: iter(()))


def a_deleted_job_counts_on() -> AbstractContextManager[Any]:
    """Whoever deletes a job does not count it down."""
    real = stores.Tables.count

    def count(self: stores.Tables, owner: Any, quota: Any, more: Any) -> None:
        if more.live_jobs >= 0:
            real(self, owner, quota, more)

    return patch.object(stores.Tables, "count", count)


def many_are_replayed_each_time() -> AbstractContextManager[Any]:
    """Of many, none has a key of its own."""
    real = bulk.replay_once

    def replay_once(ports: Any, owner: Any, row: Any, key: Any, **how: Any) -> Any:
        return real(ports, owner, row, None, **how)

    return patch.object(bulk, "replay_once", replay_once)


def nobody_is_waited_for() -> AbstractContextManager[Any]:
    """A try that was told when to come again comes as any other."""
    real = RetryPolicy.decide

    def decide(self: RetryPolicy, *, failure: Any, **how: Any) -> Any:
        return real(self, failure=replace(failure, retry_after=None), **how)

    return patch.object(RetryPolicy, "decide", decide)


def the_sweep_sends_in_silence() -> AbstractContextManager[Any]:
    """What is due and not final is sent, and nobody is told."""
    real = sweep._look_at

    def look_at(ports: Any, row: Execution, *how: Any) -> None:
        real(ports, row, *how)
        if not row.is_final:
            timers.send(ports, [timers.outgoing(row)])

    return patch.object(sweep, "_look_at", look_at)


def what_waits_is_promoted_at_once() -> AbstractContextManager[Any]:
    """The message in the other lane is due when the row was."""
    return patch.object(
        timers, "promoted", lambda row, *, to, at: replace(timers.outgoing(row), queue=to)
    )


def send_again_what_is_to_be_kept() -> AbstractContextManager[Any]:
    """A message that somebody may still need is sent anew for in a second, and not hidden."""

    def keep(ports: Ports, received: Received, _: timedelta) -> settling.Put:
        soon = ports.clock.now() + timedelta(seconds=1)
        message = replace(received.message, due_at=max(received.message.due_at, soon))
        again = Outgoing(queue=received.queue, message=message)
        ports.queue.send([again], now=ports.clock.now())
        return settling.delete(ports, received)

    return patch.object(settling, "keep", keep)


PLANTED: Sequence[Planted] = (
    Planted(
        bug=a_beat_may_shorten_a_lease,
        promise="no lease is shortened",
        plays=Feature.BEATS,
        seed=1,
    ),
    Planted(
        bug=every_try_begins_anew,
        promise="a try goes on from the last checkpoint",
        plays=Feature.CHECKPOINTS,
        seed=1,
    ),
    Planted(
        bug=own_writes_are_made_by_themselves,
        promise="own writes are made with the end",
        plays=Feature.OWN_WRITES,
        seed=1,
    ),
    Planted(
        bug=a_large_payload_is_forgotten,
        promise="a payload is kept",
        plays=Feature.PAYLOADS,
        seed=1,
    ),
    Planted(
        bug=nobody_is_refused,
        promise="nobody has more than their quota",
        plays=Feature.QUOTAS,
        seed=5,
    ),
    Planted(
        bug=a_deleted_job_counts_on,
        promise="what is counted is there",
        plays=Feature.QUOTAS,
        seed=11,
    ),
    Planted(
        bug=many_are_replayed_each_time,
        promise="a key makes one execution",
        plays=Feature.BULK,
        seed=11,
    ),
    Planted(
        bug=nobody_is_waited_for,
        promise="a rate limit is waited for",
        plays=Feature.BUSY,
        seed=2,
    ),
    Planted(
        bug=what_waits_is_promoted_at_once,
        promise="nothing is promoted early",
        plays=Feature.AGING,
        seed=2,
    ),
    Planted(
        bug=the_sweep_sends_in_silence,
        promise="every repair is counted",
        plays=None,
        seed=1,
    ),
    # Where dispatch passes something, where the sweep does, what is put, and what is deleted.
    *(
        Planted(bug=MENDED[id][1], promise="nothing is left behind", plays=None, seed=1)
        for id in ("redo", "retrying", "put", "point")
    ),
    Planted(
        bug=start_however_late_the_answer_is,
        promise="one live try",
        plays=None,
        seed=3,
    ),
    Planted(
        bug=declare_pages_of_several_rows,
        promise="a page is declared before it is done",
        plays=None,
        seed=1,
    ),
    Planted(
        bug=send_again_what_is_to_be_kept,
        promise="nobody is kept busy by nothing",
        plays=None,
        seed=5,
    ),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.bug.__name__)
def test_a_bug_breaks_its_promise_in_some_short_history(planted: Planted) -> None:
    plays = PLAIN if planted.plays is None else frozenset({planted.plays})
    setups = (replace(SHORT, seed=seed, features=plays) for seed in range(planted.seed, 40))

    with everything_is_about(), planted.bug():
        assert any(breaks(setup, planted.promise) for setup in setups)


def breaks(setup: Setup, promise: str) -> bool:
    simulation = Simulation(setup)
    simulation.run(until_broken=promise)
    return any(one.promise == promise for one in violations(simulation))


@contextmanager
def everything_is_about() -> Iterator[None]:
    """What a history may make use of, it does."""
    with patch.object(features, "_ABOUT", 1.0), patch.object(features, "_PLAIN", 0.0):
        yield


@dataclass(kw_only=True)
class Scene:
    """A world that is watched, in which two executions of one job run."""

    world: MemoryWorld = field(default_factory=lambda: MemoryWorld(clock=VirtualClock(START)))
    watch: Watch = field(init=False)
    claimed: list[Claimed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = Watch(world=self.world)
        system = System(world=self.world, lasts=lambda _: 10 * MINUTE)
        job = new_job(schedule=every("1 minute"), overlap=OverlapPolicy.ALLOW)
        created(system.ports, job)
        with patch.object(system, "_start", lambda claimed, _: self.claimed.append(claimed)):
            system.run_for(3 * MINUTE)

    @property
    def books(self) -> Books:
        return self.watch.books

    @property
    def first(self) -> Claimed:
        return self.claimed[0]

    @property
    def row(self) -> Execution:
        """Of the last that was claimed, which is held still."""
        return self.world.tables.executions[self.claimed[-1].execution.id]

    @property
    def told(self) -> set[str]:
        return {one.promise for one in self.watch.violations}

    def write(self, **changes: Any) -> None:
        row = self.row
        self.world.tables.executions[row.id] = replace(row, **changes)

    def let_go(self, state: State, **changes: Any) -> None:
        """Nobody holds it any more."""
        self.write(state=state, token=None, lease_until=None, **changes)

    def change_job(self, **changes: Any) -> None:
        (job,) = self.world.tables.jobs.values()
        self.world.tables.jobs[job.id] = replace(job, **changes)

    def at_the_end(self) -> None:
        for promise, says, about in self.books.broken(start=START):
            self.watch.tell(promise, says, about)


def run_beside_itself(scene: Scene) -> None:
    now = scene.world.clock.monotonic()
    for token in ("one", "another"):
        scene.watch.begins(replace(scene.first, token=Token(token), claimed_at=now))


def go_on_without_a_lease(scene: Scene) -> None:
    live = scene.watch.begins(scene.first)
    scene.world.pass_time(MINUTE)
    scene.watch.goes_on(live)


def take_over_too_soon(scene: Scene) -> None:
    scene.write(token=Token("another"), lease_until=scene.world.now() + MINUTE)


def delete_what_is_held(scene: Scene) -> None:
    scene.watch.deleted("worker", [scene.claimed[-1].received])


def start_what_kills_its_workers(scene: Scene) -> None:
    killed = replace(scene.first.execution, crashes=CRASH_LIMIT)
    scene.watch.begins(replace(scene.first, execution=killed))


def send_in_another_lane(scene: Scene) -> None:
    scene.watch.sent([replace(timers.outgoing(scene.row), queue="critical")])


def mend_in_silence(scene: Scene) -> None:
    scene.watch.swept("sweep", sent=[timers.outgoing(scene.row)], told=Mended(), waiting={})


def promote_too_soon(scene: Scene) -> None:
    scene.world.lanes = {"default": LaneRules(promotes_to="critical", promote_after=3 * MINUTE)}
    told = Mended()
    told.promoted(scene.row, to="critical")
    at = scene.row.due_at + 3 * MINUTE - SECOND
    sent = timers.promoted(scene.row, to="critical", at=at)
    scene.watch.swept("sweep", sent=[sent], told=told, waiting={})


def count_a_try_that_was_broken_off(scene: Scene) -> None:
    scene.watch.comes_to(scene.claimed[-1], Interrupted(reason="its worker has to end"))
    scene.let_go(State.RETRYING, next_run_at=scene.world.now(), attempt=2)


def give_up_what_is_parked(scene: Scene) -> None:
    scene.watch.comes_to(scene.claimed[-1], Parked(reason="nobody knows it"))
    scene.let_go(State.FAILED)


def end_what_was_heard_of(scene: Scene) -> None:
    now = scene.world.now()
    scene.write(
        deferral=Deferral(heartbeat=MINUTE, ends_at=now + 9 * MINUTE), lease_until=now + SECOND
    )
    scene.write(lease_until=now + MINUTE)
    error = Failure(kind=FailureKind.TIMEOUT, type="NoHeartbeat", message="nothing was heard")
    given_up = Attempt(
        number=1, started_at=START, finished_at=now, worker="w", state=State.FAILED, error=error
    )
    scene.let_go(State.FAILED, deferral=None, attempts=(given_up,))


def skip_what_is_made_up_for(scene: Scene) -> None:
    chosen = CaughtUp(decided_at=scene.world.now(), number=2)
    reason = "misfire: older than the catch-up window"
    scene.let_go(State.SKIPPED, caught_up=chosen, reason=reason)


def go_where_nothing_leads(scene: Scene) -> None:
    scene.let_go(State.SUCCEEDED)
    scene.let_go(State.RETRYING, next_run_at=scene.world.now())


def change_what_has_ended(scene: Scene) -> None:
    scene.let_go(State.SUCCEEDED, result="1")
    scene.write(result="2")


def start_early(scene: Scene) -> None:
    row = scene.first.execution
    early = replace(row, run_at=scene.world.now() + MINUTE)
    scene.watch.begins(replace(scene.first, execution=early))


def claim_a_retry_early(scene: Scene) -> None:
    later = scene.world.now() + MINUTE
    scene.let_go(State.RETRYING, next_run_at=later)
    scene.write(state=State.RUNNING, token=Token("early"), lease_until=later, next_run_at=None)


def run_beside_another(scene: Scene) -> None:
    scene.change_job(overlap=OverlapPolicy.SKIP)
    for one in scene.claimed[-2:]:
        scene.watch.begins(replace(one, claimed_at=scene.world.clock.monotonic()))


def run_beside_a_deferred_one(scene: Scene) -> None:
    scene.change_job(overlap=OverlapPolicy.SKIP)
    scene.watch.defers(scene.claimed[-1])
    scene.watch.begins(scene.first)


def run_over_a_limit(scene: Scene) -> None:
    key = Key(kind=LimitKind.QUEUE, name="default")
    scene.world.permits.held[key] = Use(limit=0)
    scene.watch.begins(replace(scene.first, permits=(Bound(key=key, most=0),)))


def shorten_a_lease(scene: Scene) -> None:
    lease_until = scene.row.lease_until
    assert lease_until is not None
    scene.write(lease_until=lease_until - SECOND)


def come_before_it_was_asked_to(scene: Scene) -> None:
    failure = Failure(kind=FailureKind.RATE_LIMITED, type="Busy", message="429", retry_after=MINUTE)
    now = scene.world.now()
    policy = RetryPolicy(max_attempts=3)
    after = finished(scene.row, Failed(failure=failure), policy=policy, now=now, jitter=1)
    scene.world.tables.executions[after.id] = replace(after, next_run_at=now + SECOND)


def go_back(scene: Scene) -> None:
    work = Work(partition=0, kind=Kind.SWEEP)
    for watermark in ("2", "1"):
        scene.watch.advanced(work, watermark)  # type: ignore[arg-type]


def keep_what_is_not_ones_own(scene: Scene) -> None:
    made = Checkpoint(text="1", number=1)
    scene.books.saved(scene.row.id, made, Token("another"))


def begin_anew(scene: Scene) -> None:
    held = scene.claimed[-1]
    scene.books.saved(held.execution.id, Checkpoint(text="1", number=1), held.token)
    scene.books.resumes(held, None)


def tell_another_result(scene: Scene) -> None:
    step = Step(owner=OWNER, idempotent_as="ex_1", key="charge")
    scene.books.recorded(step, "1")
    scene.books.recorded(step, "2")


def do_a_step_again(scene: Scene) -> None:
    step = Step(owner=OWNER, idempotent_as="ex_1", key="charge")
    scene.books.recalled(step, known=True, told=None)


def write_twice(scene: Scene) -> None:
    for _ in range(2):
        scene.world.own.take([own_write(scene.row.id, said_by("me"), is_refused=False)])


def write_without_an_end(scene: Scene) -> None:
    scene.world.own.take([own_write(scene.row.id, said_by("me"), is_refused=False)])
    scene.at_the_end()


def end_without_writes(scene: Scene) -> None:
    scene.let_go(State.SUCCEEDED, result=said_by("me"))
    scene.at_the_end()


def give_what_is_anothers(scene: Scene) -> None:
    scene.books.given[7].add("7")
    scene.books.begins(scene.first, 7)


def give_another_version(scene: Scene) -> None:
    ref = PayloadRef(key="a", version_id="v1", sha256="0" * 64, size=1)
    scene.books.uploads["v1"] = "1"
    spec = replace(scene.first.spec, payload=Payload.referring(ref))
    scene.books.begins(replace(scene.first, spec=spec), None)


def refer_to_nothing(scene: Scene) -> None:
    (job,) = scene.world.tables.jobs.values()
    large = replace(Payload.of("7" * 600), text=None)
    scene.change_job(spec=replace(job.spec, payload=large))


def lose_a_payload(scene: Scene) -> None:
    failure = Failure(kind=FailureKind.PERMANENT, type="PayloadGone", message="is not there")
    scene.let_go(State.FAILED, error=failure)
    scene.at_the_end()


def have_too_many_jobs(scene: Scene) -> None:
    scene.world.quotas = Quotas(default=Quota(live_jobs=1))
    (job,) = scene.world.tables.jobs.values()
    scene.books.lives(job)


def have_too_many_executions(scene: Scene) -> None:
    scene.world.quotas = Quotas(default=Quota(queued_executions=0))
    scene.books.queued(scene.row, reserved_at=scene.world.now())


def submit_too_fast(scene: Scene) -> None:
    scene.world.quotas = Quotas(default=Quota(submissions_per_second=0.01, burst=2))
    for tokens in (2, 99):
        scene.books.took(OWNER, Taken(tokens=tokens, full_at_ns=0))
    scene.at_the_end()


def count_what_is_not_there(scene: Scene) -> None:
    quota = Quota(live_jobs=9)
    scene.world.quotas = Quotas(default=quota)
    scene.world.tables.count(OWNER, quota, Usage(live_jobs=5))
    scene.at_the_end()


def replay_twice(scene: Scene) -> None:
    scene.books.replays[scene.row.id] = 1
    for number in range(2):
        id = ExecutionId(f"{scene.row.id}{number}")
        again = replace(scene.row, id=id, trigger=Trigger.REPLAY, replay_of=scene.row.id)
        dict.__setitem__(scene.world.tables.executions, id, again)
    scene.at_the_end()


# Where promises are checked by whoever plays.
MODULES: Final = [
    Path(lamplighter.sim.__file__ or "").parent / f"{name}.py"
    for name in ("watch", "behind", "declared", "books", "workload", "quiescence", "simulation")
]
SHOWN_BY_THEMSELVES: Final = {
    "no owner sees another",
    "a key makes one job",
    "nothing needs mending",
    "nothing breaks",
}
HARMS: Sequence[tuple[Callable[[Scene], None], str]] = (
    (run_beside_itself, "one live try"),
    (go_on_without_a_lease, "one live try"),
    (take_over_too_soon, "one live try"),
    (delete_what_is_held, "the outcome comes before the ack"),
    (mend_in_silence, "every repair is counted"),
    (promote_too_soon, "nothing is promoted early"),
    (go_where_nothing_leads, "rows are legal"),
    (change_what_has_ended, "rows are legal"),
    (start_early, "never early"),
    (claim_a_retry_early, "never early"),
    (run_beside_another, "no overlap"),
    (run_beside_a_deferred_one, "no overlap"),
    (run_over_a_limit, "never over a limit"),
    (shorten_a_lease, "no lease is shortened"),
    (come_before_it_was_asked_to, "a rate limit is waited for"),
    (go_back, "no watermark goes back"),
    (keep_what_is_not_ones_own, "a try goes on from the last checkpoint"),
    (begin_anew, "a try goes on from the last checkpoint"),
    (tell_another_result, "a step is told as one"),
    (do_a_step_again, "a step is told as one"),
    (write_twice, "own writes are made with the end"),
    (write_without_an_end, "own writes are made with the end"),
    (end_without_writes, "own writes are made with the end"),
    (give_what_is_anothers, "a payload is what was given"),
    (give_another_version, "a payload is what was given"),
    (refer_to_nothing, "a payload is kept"),
    (lose_a_payload, "a payload is kept"),
    (have_too_many_jobs, "nobody has more than their quota"),
    (have_too_many_executions, "nobody has more than their quota"),
    (submit_too_fast, "nobody has more than their quota"),
    (count_what_is_not_there, "what is counted is there"),
    (replay_twice, "a key makes one execution"),
    (start_what_kills_its_workers, "no more tries than it has"),
    (count_a_try_that_was_broken_off, "no more tries than it has"),
    (give_up_what_is_parked, "what is parked is waited for"),
    (end_what_was_heard_of, "one live try"),
    (skip_what_is_made_up_for, "what is made up for runs"),
    (send_in_another_lane, "each in its lane"),
)


@pytest.mark.parametrize(("harm", "promise"), HARMS, ids=lambda of: getattr(of, "__name__", ""))
def test_a_world_that_breaks_a_promise_is_told(harm: Callable[[Scene], None], promise: str) -> None:
    scene = Scene()
    scene.at_the_end()
    assert scene.told == set()

    harm(scene)

    assert promise in scene.told


def test_a_handler_that_has_completed_its_execution_is_in_nobodys_way() -> None:
    """It waits for the answer of its last act, which has taken effect."""
    scene = Scene()
    scene.change_job(overlap=OverlapPolicy.SKIP)
    now = scene.world.clock.monotonic()
    another, completed = scene.claimed[-2:]
    scene.watch.begins(replace(completed, claimed_at=now))
    scene.let_go(State.SUCCEEDED)

    scene.watch.begins(replace(another, claimed_at=now))

    assert scene.told == set()


def owners(scene: Scene) -> Owners:
    """Who ask for things in a scene's world, with nothing between."""
    return Owners(
        mood=Mood.of(Random(1)),
        rows=scene.world.tables.executions,
        wait=scene.world.pass_time,
        tell=scene.watch.tell,
        books=scene.books,
        more=Random,
    )


def test_an_owner_who_sees_another_is_told() -> None:
    scene = Scene()
    (job,) = scene.world.tables.jobs
    snooping = replace(owners(scene), jobs={0: job})

    with show_it_to_anybody():
        whim = Whim(number=1, what=What.SNOOP, at=START, of=0)
        snooping.do(scene.world.ports(), whim, Random(1))

    assert "no owner sees another" in scene.told


def test_a_key_that_makes_two_jobs_is_told() -> None:
    scene = Scene()
    asking = owners(scene)

    with forget_the_key():
        for number in range(20):
            whim = Whim(number=number, what=What.CREATE, at=START, of=number)
            asking.do(scene.world.ports(), whim, Random(number))

    assert "a key makes one job" in scene.told


def test_what_is_refused_and_made_all_the_same_is_told() -> None:
    scene = Scene()
    scene.world.quotas = Quotas(default=Quota(live_jobs=0, queued_executions=0))
    asking = replace(owners(scene), made=lambda: True)

    asking.do(scene.world.ports(), Whim(number=1, what=What.CREATE, at=START, of=1), Random(1))

    assert "nobody has more than their quota" in scene.told


@pytest.fixture(scope="module")
def calm() -> Simulation:
    """A few minutes in which nothing goes wrong, and nothing is made use of."""
    setup = Setup(seed=4, faults=NONE, features=PLAIN, trouble=10 * MINUTE, rest=25 * MINUTE)
    simulation = Simulation(setup)
    simulation.run()
    return simulation


def promises_of(simulation: Simulation) -> set[str]:
    return {one.promise for one in violations(simulation)}


Rows = dict[ExecutionId, Execution]


def slots(rows: Rows) -> Sequence[Execution]:
    """Those that ended, by their schedule, the first due first."""
    ended = [row for row in rows.values() if row.trigger is Trigger.SCHEDULE and row.is_final]
    return sorted(ended, key=lambda row: row.run_at)


def change(rows: Rows, row: Execution, **changes: Any) -> None:
    """Behind everybody's back."""
    dict.__setitem__(rows, row.id, replace(row, **changes))


def leave_one_waiting(rows: Rows) -> None:
    change(rows, slots(rows)[0], state=State.SCHEDULED)


def end_the_chains(rows: Rows) -> None:
    for row in [row for row in rows.values() if row.state is State.SCHEDULED]:
        del rows[row.id]


def fork_a_chain(rows: Rows) -> None:
    first = slots(rows)[0]
    for row in slots(rows)[1:3]:
        change(rows, row, predecessor=first.id, job_version=1, state=State.SUCCEEDED)


def lose_a_slot(rows: Rows) -> None:
    del rows[slots(rows)[3].id]


def start_late(rows: Rows) -> None:
    for row in slots(rows):
        change(rows, row, first_started_at=row.run_at + MINUTE, caught_up=None)


@pytest.mark.parametrize(("passed", "is_told"), [(CHAIN_READS - 1, True), (CHAIN_READS, False)])
def test_who_has_looked_back_past_a_hundred_and_keeps_where_it_is_forks_no_chain(
    passed: int, is_told: bool
) -> None:
    world, job = MemoryWorld(clock=VirtualClock(START)), recurring()
    first, *others = [occurrence(job, START + n * MINUTE) for n in range(passed + 2)]
    chain = {
        row.id: replace(row, predecessor=before.id) for before, row in pairwise([first, *others])
    }
    last = replace(others[-1], predecessor=first.id)
    world.tables.executions.update({first.id: first, **chain, last.id: last})

    told = {one.promise for one in of_jobs(world)}

    assert ("no chain forks" in told) is is_told


AT_THE_END: Sequence[tuple[Callable[[Rows], None], str]] = (
    (leave_one_waiting, "nothing is lost"),
    (end_the_chains, "no chain ends"),
    (fork_a_chain, "no chain forks"),
    (lose_a_slot, "the ledger balances"),
    (start_late, "on time"),
)


@pytest.mark.parametrize(
    ("harm", "promise"), AT_THE_END, ids=lambda of: getattr(of, "__name__", "")
)
def test_a_history_that_ends_ill_is_told(
    calm: Simulation, harm: Callable[[Rows], None], promise: str
) -> None:
    rows = calm.world.tables.executions
    before = dict(rows)
    assert promises_of(calm) == set()

    harm(rows)
    told = promises_of(calm)
    rows.clear()
    dict.update(rows, before)

    assert promise in told


def test_what_was_answered_for_and_is_gone_is_told(calm: Simulation) -> None:
    with patch.dict(calm.owners.accepted, {"ex_gone": START}):
        assert promises_of(calm) == {"nothing is lost"}


def test_a_repair_in_a_calm_night_is_told(calm: Simulation) -> None:
    with patch.object(calm.watch, "mended", ["SCHEDULED past its time"]):
        assert promises_of(calm) == {"nothing needs mending"}


def test_an_actor_that_breaks_is_told(calm: Simulation) -> None:
    with patch.object(calm.watch, "violations", []):
        calm._ended(Actor(name="worker", random=Random(1), process=Process()), ValueError("boom"))

        assert promises_of(calm) == {"nothing breaks"}


def test_every_promise_is_shown_to_be_checked() -> None:
    said = re.compile(r'(?:tell\(|promise=|promise = |yield )\s*"([a-z ]+)"')
    sources = [module.read_text(encoding="utf-8") for module in MODULES]
    named = {name for text in sources for name in said.findall(text)}

    shown = {promise for _, promise in (*HARMS, *AT_THE_END)} | SHOWN_BY_THEMSELVES
    shown |= {planted.promise for planted in PLANTED}

    assert named == shown
