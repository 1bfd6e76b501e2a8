"""Deliberate bugs, each of which the simulator has to find, and how long it may take.

`python -m tests.simulation.mutations` hunts all of them and writes the table in
docs/simulator.md. What takes the rules out is shared with `rules`.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from lamplighter.core.buckets import JobId, Position, body_of
from lamplighter.core.lifecycle import State
from lamplighter.core.misfire import Successor, successor
from lamplighter.core.model import Execution, Job, Owner, Row, Token
from lamplighter.core.sweeping import is_sent_all_the_same
from lamplighter.memory import MemoryControl, MemoryExecutions, MemoryJobs, stores
from lamplighter.ports import Page, Ports, Received
from lamplighter.services import dispatch, execute, inspect, settling, sweep, timers, turns
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.sim import simulation
from lamplighter.sim.decisions import ALL, NONE, Fault
from lamplighter.sim.explore import Bound, Strike
from lamplighter.sim.simulate import played
from lamplighter.sim.simulation import Setup
from lamplighter.sim.small import Walk, explored
from lamplighter.sim.watch import Violation
from tests.simulation.amend_rules import AMEND_RULES
from tests.simulation.cancel_rules import CANCEL_RULES
from tests.simulation.chain_rules import CHAIN_RULES
from tests.simulation.mended_bugs import MENDED, arm_out_of_sight
from tests.simulation.rules import RULES, Rule
from tests.simulation.small_model import CALM, CRASH, walk_of

PAGE: Final = Path(__file__).parents[2] / "docs" / "simulator.md"
_BEGIN: Final = "<!-- mutations: begin -->"
_END: Final = "<!-- mutations: end -->"
FIRST_SEED: Final = 1
_ANYWHERE: Final = ("none", "one, anywhere", "two, anywhere")


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """A bug, and how it has to be found: within so many executions, or in a walk within a bound."""

    id: str
    says: str
    without: Callable[[], AbstractContextManager[Any]]
    within: int = 0
    faults: frozenset[Fault] = ALL
    walk: str | None = None
    """The small world in which every history is played; None: histories are drawn."""
    bound: Bound = CRASH


@dataclass(frozen=True, kw_only=True)
class Caught:
    """How a bug was found."""

    promise: str
    how: str
    """The seed and how many executions were seen until then, or the walk and its states."""


def hunted(mutation: Mutation, *, first_seed: int = FIRST_SEED) -> Caught | None:
    """The first history that shows the bug; None: it is not found in time."""
    if mutation.walk is not None:
        return _walked(mutation, walk_of(mutation.walk))
    seen = 0
    for seed in count(first_seed):
        setup = Setup(seed=seed, faults=mutation.faults)
        with mutation.without():
            result = played(setup)
        seen += result.executions
        if result.violations and (shown := _new_in(result.violations, setup)):
            how = f"seed {seed}, {seen:,} executions of at most {mutation.within:,}"
            return Caught(promise=shown.promise, how=how)
        if seen >= mutation.within:
            break
    return None


def _walked(mutation: Mutation, walk: Walk) -> Caught | None:
    """The first schedule of a walk that shows the bug, where as many show nothing without it."""
    with mutation.without():
        found = explored(walk, mutation.bound)
    if not found.broken or explored(walk, mutation.bound, budget=2 * found.states).broken:
        return None
    how = f"`{walk.name}`, {mutation.bound}, {found.states:,} states"
    return Caught(promise=found.broken[0].says.partition(":")[0], how=how)


def _new_in(violations: Sequence[Violation], setup: Setup) -> Violation | None:
    """The first that tells of a promise which the same history keeps without the bug."""
    broken_anyway = {violation.promise for violation in played(setup).violations}
    return next((one for one in violations if one.promise not in broken_anyway), None)


def advance_under_any_epoch() -> AbstractContextManager[Any]:
    """Whoever had the lease once may move the watermark."""
    real = MemoryControl.advance

    def advance(self: MemoryControl, grant: Any, **how: Any) -> Any:
        lease = self._tables.leases[grant.work]
        return real(self, replace(grant, epoch=lease.grant.epoch), **how)

    return patch.object(MemoryControl, "advance", advance)


def commit_before_the_page_is_done() -> AbstractContextManager[Any]:
    """The watermark is written past a page, then the page is done."""

    def take(self: Any, intent: Any, rows: Any) -> int:
        self.looked_at += 1
        self.grant = dispatch._at(self.grant, self._past(intent, 0))
        self._advance(self.grant.progress, None)
        return self._do(intent, rows) if rows else 0

    return patch.object(dispatch._Visit, "_take", take)


def settle_by_any_token() -> AbstractContextManager[Any]:
    """Whoever had a claim once may write what came of it."""

    def held(self: MemoryExecutions, id: Any, token: Token) -> Execution:
        return self._tables.executions[id]

    return patch.object(MemoryExecutions, "_held", held)


def delete_before_the_outcome() -> AbstractContextManager[Any]:
    """The message goes first, then the outcome is written; and no check is booked for it."""
    real = settling.close

    def close(ports: Ports, received: Received, *how: Any, **more: Any) -> settling.Put:
        ports.queue.delete([received])
        return real(ports, received, *how, **more)

    return patch.object(settling, "close", close)


def arm_from_now() -> AbstractContextManager[Any]:
    """What follows a slot is the next one from now on, not from that slot."""

    def from_now(job: Job, slot: Any, decided_at: Any, **how: Any) -> Successor:
        return successor(job, max(slot, decided_at), decided_at, **how)

    return patch.object(timers, "successor", from_now)


def start_beside_anything() -> AbstractContextManager[Any]:
    """Nobody looks back along the chain."""
    return patch.object(turns, "look_back", lambda *_: turns.Mine())


def take_over_whoever_holds_it() -> AbstractContextManager[Any]:
    """A take-over does not compare the holder's token and lease."""
    real = MemoryExecutions.take_over

    def take_over(self: MemoryExecutions, holder: Execution, **how: Any) -> Any:
        row = self._tables.executions[holder.id]
        return real(self, row if row.state is State.RUNNING else holder, **how)

    return patch.object(MemoryExecutions, "take_over", take_over)


def forget_the_key() -> AbstractContextManager[Any]:
    """An idempotency key is not looked for in the write."""
    real = MemoryJobs.create

    def create(self: MemoryJobs, *, key: Any = None, **how: Any) -> Any:
        return real(self, **how)

    return patch.object(MemoryJobs, "create", create)


def show_it_to_anybody() -> AbstractContextManager[Any]:
    """A recurring job is anybody's."""

    def recurring_job(ports: Ports, owner: Owner, id: JobId) -> Job:
        job = ports.jobs.get(id)
        assert job is not None
        return job

    return patch.object(inspect, "recurring_job", recurring_job)


def never_stop_a_handler() -> AbstractContextManager[Any]:
    """Nobody watches over the end of a lease."""
    return patch.object(Heartbeats, "check", lambda _: None)


@contextmanager
def start_when_it_comes() -> Iterator[None]:
    """A message is not held until it is due, and no claim is refused before."""
    real = execute.begin

    def begin(ports: Ports, received: Received, *, worker: str) -> Any:
        due_at = min(received.message.due_at, ports.clock.now())
        early = replace(received, message=replace(received.message, due_at=due_at))
        return real(ports, early, worker=worker)

    claimable = patch.object(stores, "_may_be_claimed", lambda _row, _now: True)
    with claimable, patch.object(simulation, "begin", begin):
        yield


@contextmanager
def claim_by_any_message() -> Iterator[None]:
    """A message claims whatever try the row waits for, due or not."""
    real = MemoryExecutions.claim

    def claim(self: MemoryExecutions, id: Any, *, attempt: int, **how: Any) -> Any:
        row = self._tables.executions[id]
        return real(self, id, attempt=row.attempt, **how)

    claimable = patch.object(stores, "_may_be_claimed", lambda _row, _now: True)
    with claimable, patch.object(MemoryExecutions, "claim", claim):
        yield


def follow_the_furthest_shard() -> AbstractContextManager[Any]:
    """`reached` is the furthest position of any shard."""
    real = MemoryExecutions.due

    def due(self: MemoryExecutions, minute: Any, shards: Any, **how: Any) -> Page:
        pages = [real(self, minute, [shard], **how) for shard in shards]
        rows = sorted((row for page in pages for row in page.rows), key=_position)
        short = [page.reached for page in pages if page.reached != how["until"]]
        return Page(rows=rows, reached=max(short, default=how["until"]))

    return patch.object(MemoryExecutions, "due", due)


def _position(row: Row) -> Position:
    return body_of(row.id) if isinstance(row, Execution) else row.position


def never_arm_a_retry() -> AbstractContextManager[Any]:
    """A failed try is written, and its next one left to the sweep."""
    return patch.object(timers, "arm_retry", lambda _ports, _row: None)


def mark_excuses_the_arming() -> AbstractContextManager[Any]:
    """What follows a row that is marked "sent directly" is armed by nobody but its API."""
    real = timers.arm_chains

    def arm_unmarked(ports: Ports, links: Sequence[timers.Link], **how: Any) -> Any:
        is_api = how.get("directly", False)
        rows = ports.executions.get_many([link.execution for link in links])
        kept = [one for one in links if is_api or not rows[one.execution].sent_directly]
        return real(ports, kept, **how)

    return patch.object(timers, "arm_chains", arm_unmarked)


def run_whatever_was_planned() -> AbstractContextManager[Any]:
    """A job plans whatever it ever planned, paused or deleted."""
    return patch.object(Job, "produces", lambda _job, _row: True)


def start_however_late_the_answer_is() -> AbstractContextManager[Any]:
    """Nobody asks, once a claim is answered, whether its lease may be over by now."""
    return patch.object(execute, "_HELD_S", float("inf"))


def declare_pages_of_several_rows() -> AbstractContextManager[Any]:
    """A page of one row is done without its intent."""

    def take(self: Any, intent: Any, rows: Any) -> int:
        self.looked_at += 1
        is_called_for = any(dispatch._is_dispatched(row) for row in rows)
        if (is_called_for and len(rows) > 1) or self._is_to_be_written_down():
            self._advance(self.grant.progress, intent)
        sent = self._do(intent, rows) if is_called_for else 0
        self.grant = dispatch._at(self.grant, self._past(intent, sent))
        return sent

    return patch.object(dispatch._Visit, "_take", take)


def wait_for_the_backlog() -> AbstractContextManager[Any]:
    """What a dead worker held waits for its lane's backlog, as what was never claimed does."""

    def holds(self: Any, row: Execution, now: datetime) -> bool:
        return not is_sent_all_the_same(row, now) and self.is_backed_up(row.queue)

    return patch.object(sweep._Backlog, "holds", holds)


def _rule(id: str, says: str = "") -> Callable[[], AbstractContextManager[Any]]:
    """What takes a rule out, by its id and how its sentence begins."""
    rules: Sequence[Rule] = [*RULES, *CHAIN_RULES, *CANCEL_RULES, *AMEND_RULES]
    return next(rule.without for rule in rules if rule.id == id and rule.says.startswith(says))


_STALL: Final = Bound(strikes=1, of=frozenset({Strike.STALL}), switches=0)
_STALL_AND_CRASH: Final = Bound(strikes=2, of=frozenset({Strike.STALL, Strike.CRASH}), switches=0)
_SWITCHES: Final = Bound(strikes=0, of=frozenset(), switches=2)

MUTATIONS: Sequence[Mutation] = (
    Mutation(
        id="epoch",
        says="the epoch condition is dropped",
        without=advance_under_any_epoch,
        within=20_000,
    ),
    Mutation(
        id="watermark",
        says="the watermark is written before the page is done",
        without=commit_before_the_page_is_done,
        walk="fire-once",
    ),
    Mutation(
        id="token",
        says="the token is not checked",
        without=settle_by_any_token,
        within=2_000,
    ),
    Mutation(
        id="ack",
        says="the message is deleted before the outcome is written",
        without=delete_before_the_outcome,
        within=2_000,
    ),
    Mutation(
        id="arm",
        says="what follows a slot is armed from now",
        without=arm_from_now,
        within=2_000,
    ),
    Mutation(
        id="early",
        says="a message is run when it comes",
        without=start_when_it_comes,
        within=2_000,
    ),
    Mutation(
        id="overlap",
        says="nobody looks back along the chain",
        without=start_beside_anything,
        within=2_000,
    ),
    Mutation(
        id="holder",
        says="a take-over does not compare the holder",
        without=take_over_whoever_holds_it,
        within=20_000,
    ),
    Mutation(id="key", says="the key is not looked for", without=forget_the_key, within=2_000),
    Mutation(
        id="owner",
        says="a job is anybody's",
        without=show_it_to_anybody,
        within=2_000,
    ),
    Mutation(
        id="stop",
        says="nobody stops a handler at the end of its lease",
        without=never_stop_a_handler,
        within=2_000,
    ),
    Mutation(
        id="retry",
        says="a retry is left to the sweep",
        without=never_arm_a_retry,
        within=2_000,
        faults=NONE,
    ),
    Mutation(
        id="P4",
        says="one shard moves the watermark",
        without=follow_the_furthest_shard,
        within=20_000,
    ),
    Mutation(id="P7", says="a visit books no other", without=_rule("P7"), within=2_000),
    Mutation(id="P9", says="a take-over waits for no grace", without=_rule("P9"), within=2_000),
    Mutation(id="P10", says="any message claims", without=claim_by_any_message, within=2_000),
    Mutation(
        id="P14b",
        says="a waiter is registered on what has ended",
        without=_rule("P14", "a waiter"),
        within=20_000,
    ),
    Mutation(id="P12", says="only the very next is looked at", without=_rule("P12"), within=20_000),
    Mutation(id="P13", says="an ended lease is no run", without=_rule("P13"), within=20_000),
    Mutation(
        id="P14",
        says="nobody wakes who waits",
        without=_rule("P14", "whoever ends"),
        within=2_000,
        faults=NONE,
    ),
    Mutation(
        id="P1",
        says="whoever put a row does not look at the clock again",
        without=_rule("P1", "after every put"),
        walk="create",
        bound=_STALL,
    ),
    Mutation(
        id="P1b",
        says="nor after the pointer of a far retry",
        without=_rule("P1", "and after the put of a far retry"),
        walk="far-retry",
        bound=_STALL,
    ),
    Mutation(
        id="P2",
        says="a row is sent before its successor exists",
        without=_rule("P2", "an occurrence"),
        walk="slow-create",
        bound=_STALL_AND_CRASH,
    ),
    Mutation(
        id="P3",
        says="the mark excuses the arming",
        without=mark_excuses_the_arming,
        walk="create",
    ),
    Mutation(
        id="P5",
        says="a redo decides as of its own now",
        without=_rule("P5"),
        walk="redo",
        bound=_STALL,
    ),
    Mutation(
        id="P6",
        says="the sweep does not ask how far dispatch has come",
        without=_rule("P6"),
        walk="fire-once",
        bound=CALM,
    ),
    Mutation(
        id="P8",
        says="a claim lost to a live lease deletes its message",
        without=_rule("P8"),
        walk="line",
    ),
    Mutation(
        id="P11",
        says="a stale message is deleted whatever the row waits for",
        without=_rule("P11"),
        walk="far-retry",
    ),
    Mutation(
        id="P15",
        says="of BUFFER_ONE, who waits is in nobody's way",
        without=_rule("P15", "of BUFFER_ONE"),
        walk="buffer-one",
        bound=CALM,
    ),
    Mutation(
        id="P16",
        says="nobody checks where a chain ends",
        without=_rule("P16", "a run by hand"),
        walk="skip",
        bound=_SWITCHES,
    ),
    Mutation(
        id="P17",
        says="nobody asks after the claim whether the job plans it still",
        without=run_whatever_was_planned,
        walk="pause",
        bound=_SWITCHES,
    ),
    Mutation(
        id="P17b",
        says="the end of a chain does not check the job's version",
        without=_rule("P17", "a chain ends"),
        walk="pause",
        bound=_SWITCHES,
    ),
    Mutation(
        id="P18",
        says="a version and its first row are two writes",
        without=_rule("P18"),
        walk="pause",
    ),
    Mutation(
        id="P19",
        says="a row that is there stays as it is",
        without=_rule("P19", "a row"),
        walk="pause",
        bound=CALM,
    ),
    Mutation(
        id="P19b",
        says="who cancelled a row is not noted",
        without=_rule("P19", "what its owner"),
        walk="cancel",
        bound=CALM,
    ),
    Mutation(
        id="P20",
        says="a one-off is moved whatever has come of it",
        without=_rule("P20", "a one-off"),
        walk="move",
        bound=_SWITCHES,
    ),
    Mutation(
        id="answer",
        says="nobody asks how long the answer to a claim took",
        without=start_however_late_the_answer_is,
        within=10_000,
    ),
    Mutation(
        id="intent",
        says="a page of one row is done without its intent",
        without=declare_pages_of_several_rows,
        within=5_000,
    ),
    Mutation(
        id="backed-up",
        says="what a dead worker held waits for its lane's backlog",
        without=wait_for_the_backlog,
        within=20_000,
    ),
    Mutation(
        id="out-of-sight",
        says="what is armed behind the sweep has no check",
        without=arm_out_of_sight,
        within=40_000,
    ),
    *(
        Mutation(id=id, says=says, without=plant, within=10_000)
        for id, (says, plant) in MENDED.items()
    ),
)


def table(found: Sequence[tuple[Mutation, Caught | None, float]]) -> str:
    """The page's table of bugs."""
    lines = [
        "| bug | faults | found by the promise | how | CPU s |",
        "|---|---|---|---|---:|",
    ]
    for mutation, caught, cpu_s in found:
        faults = "none" if mutation.faults == NONE else "all"
        of = faults if mutation.walk is None else _ANYWHERE[mutation.bound.strikes]
        how = f"{caught.promise} | {caught.how}" if caught else "not found |"
        lines.append(f"| **{mutation.id}**: {mutation.says} | {of} | {how} | {cpu_s:.1f} |")
    return "\n".join(lines)


def main() -> int:
    """Hunt every bug, and write down how each was found; 1 if one was not."""
    found = []
    for mutation in MUTATIONS:
        began = time.process_time()
        caught = hunted(mutation)
        found.append((mutation, caught, time.process_time() - began))
        print(mutation.id, caught, flush=True)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    PAGE.write_text(f"{before}{_BEGIN}\n{table(found)}\n{_END}{after}", encoding="utf-8")
    return int(any(caught is None for _, caught, _ in found))


if __name__ == "__main__":
    sys.exit(main())
