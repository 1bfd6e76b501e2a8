"""Running histories until enough executions were seen: what `lamplighter simulate` does."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from multiprocessing import get_context

from lamplighter.sim.decisions import ALL, Fault
from lamplighter.sim.features import EVERYTHING, Feature
from lamplighter.sim.quiescence import violations
from lamplighter.sim.simulation import Setup, Simulation
from lamplighter.sim.watch import Violation


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one history came to."""

    seed: int
    digest: str
    """Of what happened; says nothing where the setup wants none."""
    executions: int
    """How many were due before the trouble ended, and have ended."""
    events: int
    faults: Mapping[Fault, int]
    violations: Sequence[Violation]
    cpu_s: float


@dataclass(kw_only=True)
class Report:
    """What a run of many histories came to."""

    seed: int
    histories: int = 0
    executions: int = 0
    events: int = 0
    faults: Counter[Fault] = field(default_factory=Counter)
    violations: list[tuple[int, Violation]] = field(default_factory=list)
    """Each with the seed of its history."""
    cpu_s: float = 0.0

    @property
    def executions_per_cpu_s(self) -> float:
        """Of one core."""
        return self.executions / self.cpu_s if self.cpu_s else 0.0

    def add(self, result: Result) -> None:
        """Count one history in."""
        self.histories += 1
        self.executions += result.executions
        self.events += result.events
        self.faults.update(result.faults)
        self.violations += [(result.seed, violation) for violation in result.violations]
        self.cpu_s += result.cpu_s

    def document(self) -> dict[str, object]:
        """The report as JSON."""
        return {
            "seed": self.seed,
            "histories": self.histories,
            "executions": self.executions,
            "events": self.events,
            "faults": {fault.value: self.faults[fault] for fault in Fault if self.faults[fault]},
            "violations": [
                {
                    "seed": seed,
                    "promise": violation.promise,
                    "says": violation.says,
                    "about": [*violation.about],
                }
                for seed, violation in self.violations
            ],
            "cpu_seconds": round(self.cpu_s, 3),
            "executions_per_cpu_second": round(self.executions_per_cpu_s, 1),
        }


def played(setup: Setup) -> Result:
    """One history, from its beginning to its end."""
    began = time.process_time()
    simulation = Simulation(setup)
    simulation.run()
    found = [*violations(simulation)]
    return Result(
        seed=setup.seed,
        digest=simulation.history.digest,
        executions=_executions(simulation),
        events=simulation.history.count,
        faults=simulation.decisions.counts(),
        violations=found,
        cpu_s=time.process_time() - began,
    )


def simulate(
    *,
    seed: int,
    executions: int,
    faults: frozenset[Fault] = ALL,
    features: frozenset[Feature] = EVERYTHING,
    processes: int | None = None,
    told: Callable[[Report], object] = lambda _: None,
) -> Report:
    """Play the histories of this seed and those after it, until so many executions were seen.

    The report is the same however many processes share the work, but for the time it took.
    `told` is called after each history.
    """
    report = Report(seed=seed)
    setups = (
        Setup(seed=number, faults=faults, features=features, is_digested=False)
        for number in count(seed)
    )
    for result in _results(setups, processes or os.cpu_count() or 1):
        report.add(result)
        told(report)
        if report.executions >= executions:
            break
    return report


def _results(setups: Iterator[Setup], processes: int) -> Iterator[Result]:
    """The histories' results, in order of their seeds."""
    if processes == 1:
        yield from map(played, setups)
        return
    # A process of its own for each worker, from nothing: no greenlet survives a fork.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        ahead = [pool.submit(played, next(setups)) for _ in range(2 * processes)]
        try:
            while True:
                yield ahead.pop(0).result()
                ahead.append(pool.submit(played, next(setups)))
        finally:
            for future in ahead:
                future.cancel()


def _executions(simulation: Simulation) -> int:
    return sum(
        1
        for row in simulation.world.tables.executions.values()
        if row.is_final and row.run_at < simulation.end_of_trouble
    )
