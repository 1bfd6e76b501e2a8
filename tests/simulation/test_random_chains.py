"""Jobs whose executions must not overlap, under whatever their owner thinks of, seed by seed.

Handlers of up to four minutes run while the job is triggered, paused, resumed, edited and has
occurrences cancelled; now and then the API dies in the middle of it, and is asked again or not.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from lamplighter.core.errors import Conflict, Unavailable
from lamplighter.core.model import Job, OverlapPolicy
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.memory.clock import SeededChance
from lamplighter.ports import Ports
from lamplighter.services import cancel, manage, trigger
from lamplighter.sim.faults import Call, Crash, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.examples import examples
from tests.support.jobs import OWNER, created, every, new_job

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
RATES = ("1 minute", "2 minutes", "5 minutes", "7 minutes", "20 minutes", "1 hour", "8 hours")
POLICIES = [policy for policy in OverlapPolicy if policy is not OverlapPolicy.ALLOW]


@dataclass
class Story:
    """One job and its owner's whims, all from one seed."""

    seed: int
    policy: OverlapPolicy
    system: System = field(init=False)
    job: Job = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        world = MemoryWorld(
            clock=VirtualClock(START), chance=SeededChance(self.seed), shards=4, partitions=2
        )
        self.system = System(world=world)
        self.system.lasts = lambda _: self.random.choice((0, 1, 12, 45, 100, 230)) * SECOND
        new = new_job(
            schedule=every(self.random.choice(RATES)), overlap=self.policy, timeout=10 * MINUTE
        )
        made = created(self.system.ports, new).job
        assert made is not None
        self.job = made

    def play(self, steps: int) -> list[str]:
        """What is broken at the end of so many whims."""
        for _ in range(steps):
            self.system.run_for(self.random.uniform(1, 60) * SECOND)
            whim = self.random.choice(self.whims)
            with suppress(Conflict, Crash, Unavailable):
                whim(self, self.api())
        self.system.lasts = lambda _: timedelta(0)
        with suppress(Conflict):
            manage.resume(self.system.ports, OWNER, self.job.id)
        self.system.run_for(timedelta(minutes=45))
        return [*violations(self.system)]

    def api(self) -> Ports:
        """The API's ports: one time in four it dies at one of its next calls."""
        left = [self.random.randrange(8)] if self.random.random() < 0.25 else []

        def die(_: Call, when: When) -> None:
            if left and when is not When.DURING:
                left[0] -= 1
                if left[0] < 0:
                    left.clear()
                    raise Crash

        return interposed(self.system.ports, die)

    def triggered(self, ports: Ports) -> None:
        trigger.trigger(ports, OWNER, self.job.id)

    def paused(self, ports: Ports) -> None:
        manage.pause(ports, OWNER, self.job.id)

    def resumed(self, ports: Ports) -> None:
        manage.resume(ports, OWNER, self.job.id)

    def edited(self, ports: Ports) -> None:
        schedule = every(self.random.choice(RATES))(self.job.id, self.job.created_at)
        manage.edit(ports, OWNER, self.job.id, lambda job: replace(job, schedule=schedule))

    def one_cancelled(self, ports: Ports) -> None:
        rows = self.system.world.tables.executions.values()
        waiting = sorted(row.id for row in rows if not row.is_final)
        if waiting:
            cancel.cancel(ports, OWNER, self.random.choice(waiting))

    whims: "tuple[Callable[[Story, Ports], None], ...]" = (
        triggered,
        triggered,
        triggered,
        paused,
        resumed,
        resumed,
        edited,
        one_cancelled,
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(examples(20)))
def test_whatever_its_owner_does_a_job_keeps_every_promise(
    seed: int, policy: OverlapPolicy
) -> None:
    assert Story(seed=seed, policy=policy).play(steps=60) == []
