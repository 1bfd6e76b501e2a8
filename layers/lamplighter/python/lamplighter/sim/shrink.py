"""A failing history with as little in it as still fails: decision by decision."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lamplighter.core.buckets import ExecutionId
from lamplighter.sim.decisions import Fault, group_of, is_of_a_job
from lamplighter.sim.history import Event
from lamplighter.sim.quiescence import violations
from lamplighter.sim.simulation import Setup, Simulation
from lamplighter.sim.watch import Violation

DEFAULT_REPLAYS: Final = 120

Grouping = Callable[[Mapping[str, Fault | None]], Sequence[Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class Minimal:
    """A setup that breaks a promise, and what happens to what the promise was about."""

    setup: Setup
    violation: Violation
    replays: int
    """How many histories it took to find it."""
    events: Sequence[Event]

    @property
    def decisions(self) -> Sequence[str]:
        """The faults that strike, and what the owners do."""
        return sorted(self.setup.only or ())


def shrunk(setup: Setup, promise: str, *, replays: int = DEFAULT_REPLAYS) -> Minimal:
    """The same promise broken by fewer decisions, of one seed.

    The same for the same setup, whatever machine it runs on: it is bounded by the number of
    replays, not by time. Raises LookupError when the setup breaks no such promise.
    """
    search = _Search(setup=setup, promise=promise, left=replays)
    if search.replay(setup.only) is None:
        raise LookupError(f"seed {setup.seed} does not break {promise!r}")
    # Most often the other jobs have nothing to do with it.
    search.replay(frozenset(search.kept) & search.of_its_jobs)
    for grouped in (_by_job_or_kind, _one_by_one):
        search.leave_out(grouped)
    return _told(replace(setup, only=frozenset(search.kept)), promise, replays - search.left)


def _by_job_or_kind(taken: Mapping[str, Fault | None]) -> Sequence[Sequence[str]]:
    groups: dict[str, list[str]] = {}
    for name, fault in taken.items():
        groups.setdefault(group_of(name, fault), []).append(name)
    return [*groups.values()]


def _one_by_one(taken: Mapping[str, Fault | None]) -> Sequence[Sequence[str]]:
    return [[name] for name in taken]


def _told(setup: Setup, promise: str, replays: int) -> Minimal:
    simulation = Simulation(replace(setup, is_kept=True))
    violation = _broken(simulation, promise)
    if violation is None:
        raise AssertionError(f"seed {setup.seed} is not the same twice")
    ids = _related(simulation, violation)
    events = [
        event
        for event in simulation.history.events
        if event.is_about(ids) or event.who == "weather"
    ]
    return Minimal(setup=setup, violation=violation, replays=replays, events=events)


def _related(simulation: Simulation, violation: Violation) -> frozenset[str]:
    """What a violation is about, and the job of each execution in it."""
    rows = simulation.world.tables.executions
    about = set(violation.about)
    for id in violation.about:
        row = rows.get(ExecutionId(id))
        if row is not None and len(violation.about) == 1:
            about.add(row.job_id)
    return frozenset(about)


def _of_its_jobs(simulation: Simulation, violation: Violation) -> frozenset[str]:
    ids = _related(simulation, violation)
    jobs = simulation.owners.jobs.items()
    rows = simulation.world.tables.executions
    mine = {group_of(f"-{number}", None) for number, job in jobs if job in ids}
    mine |= {
        group_of(f"-{number}", None)
        for number, job in jobs
        if any(id in rows and rows[ExecutionId(id)].job_id == job for id in ids)
    }
    taken = simulation.decisions.taken
    return frozenset(
        name
        for name, fault in taken.items()
        if not is_of_a_job(name, fault) or group_of(name, fault) in mine
    )


def _broken(simulation: Simulation, promise: str) -> Violation | None:
    simulation.run(until_broken=promise)
    return next((one for one in violations(simulation) if one.promise == promise), None)


@dataclass(kw_only=True)
class _Search:
    """Leaves out half of what is decided, then quarters, and so on down to single decisions."""

    setup: Setup
    promise: str
    left: int
    kept: dict[str, Fault | None] = field(default_factory=dict)
    """What was decided for in the shortest history that still fails."""
    of_its_jobs: frozenset[str] = frozenset()
    """Of those, all faults, and what was done about the jobs that it is about."""

    def replay(self, only: frozenset[str] | None) -> Violation | None:
        """How the promise is broken by no other decisions than these; None: it is not."""
        self.left -= 1
        simulation = Simulation(replace(self.setup, only=only))
        found = _broken(simulation, self.promise)
        if found is not None:
            # Of what is allowed, what does not come up any more is not needed either.
            self.kept = simulation.decisions.taken
            self.of_its_jobs = _of_its_jobs(simulation, found)
        return found

    def leave_out(self, grouped: Grouping) -> None:
        """Leave out whatever is not needed, in groups as large as can be."""
        size = len(grouped(self.kept)) // 2
        while size > 0:
            at = 0
            while self.left > 0 and at < len(groups := grouped(self.kept)):
                rest = [*groups[:at], *groups[at + size :]]
                if not self.replay(frozenset(name for group in rest for name in group)):
                    at += size
            size = min(size // 2, len(grouped(self.kept)) // 2) if size > 1 else 0
