"""The load to come: what then is due, minute by minute, of one owner."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest

from lamplighter.core.buckets import JobId
from lamplighter.core.forecast import Load
from lamplighter.core.model import Owner
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import forecast as forecasts
from lamplighter.services import manage
from lamplighter.services.forecast import Planned, forecast
from lamplighter.services.trigger import trigger
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, cron, every, new_job

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def system() -> System:
    return System(world=MemoryWorld(clock=VirtualClock(NOON)))


def parts(system: System, *, start: datetime, end: datetime) -> list[Planned]:
    found: list[Planned] = []
    after: JobId | None = None
    while not found or after is not None:
        found.append(forecast(system.ports, OWNER, start=start, end=end, after=after))
        after = found[-1].next
    return found


def planned(system: System, *, hours: int = 2) -> list[Load]:
    (part,) = parts(system, start=NOON, end=NOON + hours * HOUR)
    return in_all(part)


def in_all(part: Planned) -> list[Load]:
    """Of a system with one lane."""
    return [load for loads in part.lanes.values() for load in loads]


def test_what_it_says_is_what_then_runs(system: System) -> None:
    created(system.ports, new_job(schedule=cron("*/7 * * * *")))
    created(system.ports, new_job(schedule=every("90 seconds")))
    for seconds in (61, 4000, 4000):
        created(system.ports, new_job(run_at=NOON + timedelta(seconds=seconds)))

    found = planned(system)
    system.run_until(NOON + 2 * HOUR - timedelta(seconds=1))

    ran = Counter(run.run_at.replace(second=0) for run in system.runs)
    assert {load.minute: load.planned for load in found} == ran
    assert max(load.burst for load in found) == 2


def test_a_spike_stands_out(system: System) -> None:
    for _ in range(20):
        created(system.ports, new_job(schedule=cron("0 * * * *")))

    found = planned(system)

    assert [(load.minute, load.planned, load.burst) for load in found] == [(NOON + HOUR, 20, 20)]


def test_what_is_paused_deleted_or_of_others_is_no_load(system: System) -> None:
    paused = created(system.ports, new_job(schedule=every("1 minute")))
    deleted = created(system.ports, new_job(schedule=every("1 minute")))
    one_off = created(system.ports, new_job(run_at=NOON + HOUR))
    created(system.ports, new_job(schedule=every("1 minute"), owner=Owner("eve")))
    manage.pause(system.ports, OWNER, paused.job_id)
    manage.delete(system.ports, OWNER, deleted.job_id)
    manage.delete(system.ports, OWNER, one_off.job_id)

    assert planned(system) == []


def test_a_job_that_is_armed_already_counts_once(system: System) -> None:
    created(system.ports, new_job(schedule=every("1 minute")))
    system.run_for(10 * MINUTE)

    (part,) = parts(system, start=NOON + 10 * MINUTE, end=NOON + HOUR)

    assert {load.planned for load in in_all(part)} == {1}


def test_what_waits_beside_a_schedule_counts_too(system: System) -> None:
    job = created(system.ports, new_job(schedule=every("1 hour"))).job_id
    system.world.clock.sleep(MINUTE)
    trigger(system.ports, OWNER, job)

    (part,) = parts(system, start=NOON + MINUTE, end=NOON + 30 * MINUTE)

    assert [load.planned for load in in_all(part)] == [1]


def test_a_range_is_open_at_its_end(system: System) -> None:
    created(system.ports, new_job(schedule=cron("0 * * * *")))
    created(system.ports, new_job(run_at=NOON + HOUR))

    assert planned(system, hours=1) == []


def test_parts_sum_to_the_whole(system: System) -> None:
    for _ in range(7):
        created(system.ports, new_job(schedule=every("1 minute")))
    (whole,) = parts(system, start=NOON, end=NOON + HOUR)

    with patch.object(forecasts, "FORECAST_SLOTS", 100):
        found = parts(system, start=NOON, end=NOON + HOUR)

    assert len(found) == 4
    total: Counter[datetime] = Counter()
    for part in found:
        total.update({load.minute: load.planned for load in in_all(part)})
    assert total == {load.minute: load.planned for load in in_all(whole)}


def test_a_part_reads_a_thousand_executions_at_most(system: System) -> None:
    for n in range(1100):
        created(system.ports, new_job(run_at=NOON + timedelta(seconds=60 + n)))

    found = parts(system, start=NOON, end=NOON + HOUR)

    assert [sum(load.planned for load in in_all(part)) for part in found] == [1000, 100]
