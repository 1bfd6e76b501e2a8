"""A chain is one: a successor, once armed, is never decided again (P2, P12)."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.catch_up import CatchUp
from lamplighter.core.model import MisfirePolicy, OverlapPolicy, Trigger
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import cancel, timers
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, new_job

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)


def a_system() -> System:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=1, partitions=1))
    system.run_for(3 * MINUTE)
    return system


def forks(system: System) -> list[object]:
    """Slots that two others follow."""
    after = Counter(
        row.predecessor
        for row in system.world.tables.executions.values()
        if row.predecessor and row.trigger is Trigger.SCHEDULE
    )
    return [id for id, count in after.items() if count > 1]


def made_in_an_outage(misfire: MisfirePolicy) -> System:
    """The API arms and sends the first minutes itself; dispatch meets them when they have run."""
    system = a_system()
    system.ticking = False
    new = new_job(
        schedule=every("1 minute"),
        overlap=OverlapPolicy.SKIP,
        misfire=misfire,
        catch_up=CatchUp(most=3),
    )
    created(system.ports, new)
    system.run_for(25 * MINUTE)
    system.ticking = True
    system.run_for(15 * MINUTE)
    return system


@pytest.mark.parametrize("misfire", [*MisfirePolicy])
def test_what_the_api_sent_in_an_outage_is_not_decided_again(misfire: MisfirePolicy) -> None:
    system = made_in_an_outage(misfire)

    assert forks(system) == []
    assert [*violations(system)] == []


def test_without_the_look_the_chain_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "_goes_on", lambda *_: False)

    assert forks(made_in_an_outage(MisfirePolicy.FIRE_ONCE))


def test_what_a_cancel_armed_in_an_outage_is_not_decided_again() -> None:
    """Its process died between arming the successor and ending the row."""
    system = a_system()
    new = new_job(schedule=every("7 minutes"), overlap=OverlapPolicy.SKIP)
    first = created(system.ports, new).first
    system.ticking = False
    (job,) = system.world.tables.jobs.values()
    timers.arm_chains(
        system.ports, timers.links_of(job, first), decided_at=system.world.now(), directly=True
    )
    system.run_for(40 * MINUTE)
    cancel.cancel(system.ports, OWNER, first.id)
    system.ticking = True

    system.run_for(30 * MINUTE)

    assert forks(system) == []
    assert [*violations(system)] == []
