"""Lanes whose workers are few: shares, reserved room, fairness and aging, in virtual time."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from infra.components.capacity import shares
from lamplighter.core.buckets import ExecutionId
from lamplighter.core.lanes import LaneRules, Rules
from lamplighter.core.lease import Kind, WorkItem
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import BACKED_UP_MESSAGES, ON_TIME, PROMOTED_INTO_MESSAGES
from lamplighter.core.model import Execution, Owner
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services.partitions import do
from lamplighter.services.tick import tick
from lamplighter.sim.faults import calls_of, every_crash, survives
from tests.support.jobs import created, new_job
from tests.support.pools import Pools

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
FLOOD = Owner("flood")
OTHER = Owner("other")
AGING: Rules = {"bulk": LaneRules(promotes_to="default", promote_after=150 * SECOND)}
WEIGHTS = {"critical": 8, "default": 4, "bulk": 1}


def pools(
    slots: Mapping[str, int], *, lasts: timedelta = SECOND, rules: Rules | None = None
) -> Pools:
    world = MemoryWorld(clock=VirtualClock(START), shards=4, partitions=1, lanes=rules or {})
    return Pools(world=world, slots=slots, lasts=lasts)


def submitted(system: Pools, *, lane: str, owner: Owner, in_: timedelta = 0 * SECOND) -> Execution:
    new = new_job(run_at=system.world.now() + in_, owner=owner)
    return created(system.ports, replace(new, spec=replace(new.spec, queue=lane))).first


def flooded(system: Pools, *, lane: str, jobs: int) -> list[ExecutionId]:
    return [submitted(system, lane=lane, owner=FLOOD).id for _ in range(jobs)]


def lateness(system: Pools, row: Execution) -> timedelta | None:
    starts = system.starts_of(row.id)
    return starts[0].at - row.run_at if starts else None


# Shares of what runs at once.


def test_lanes_that_are_all_full_get_on_in_the_ratio_of_their_weights() -> None:
    """S0-P1: 8 critical to 4 normal to 1 bulk, while there is more of each than can be run."""
    slots = shares(WEIGHTS, 26)
    system = pools(slots)
    for lane in slots:
        flooded(system, lane=lane, jobs=500)

    system.run_for(20 * SECOND)

    started = Counter(start.lane for start in system.starts)
    assert slots == {"critical": 16, "default": 8, "bulk": 2}
    assert started == {"critical": 320, "default": 160, "bulk": 40}


def test_a_flood_of_the_other_lanes_leaves_critical_its_own_room() -> None:
    """S0-P3, S2-K3: critical work starts on time while bulk and default are an hour behind."""
    system = pools(shares(WEIGHTS, 26))
    for lane in ("bulk", "default"):
        flooded(system, lane=lane, jobs=2000)
    system.run_for(5 * SECOND)

    mine = [submitted(system, lane="critical", owner=OTHER, in_=n * SECOND) for n in range(10)]
    system.run_for(15 * SECOND)

    found = [lateness(system, row) for row in mine]
    assert all(one is not None and one <= ON_TIME for one in found)
    assert system.world.queue.waiting("bulk") > 1900


@pytest.mark.parametrize("lane", sorted(WEIGHTS))
def test_no_lane_starves_however_full_the_others_are(lane: str) -> None:
    """S0-P1: also the lightest has its share, at each moment."""
    system = pools(shares(WEIGHTS, 26))
    for other in sorted(WEIGHTS.keys() - {lane}):
        flooded(system, lane=other, jobs=500)

    mine = submitted(system, lane=lane, owner=OTHER)
    system.run_for(5 * SECOND)

    assert lateness(system, mine) == 0 * SECOND


# One owner's flood.


@pytest.mark.parametrize(
    ("is_fair", "is_on_time"),
    [pytest.param(True, True, id="fair"), pytest.param(False, False, id="in order")],
)
def test_one_owners_flood_of_10_000_does_not_delay_another_in_a_fair_lane(
    is_fair: bool, is_on_time: bool
) -> None:
    """S0-N6: they share one lane of fifty workers, which takes 200 s for the flood."""
    system = pools({"default": 50}, rules={"default": LaneRules(fair=is_fair)})
    flooded(system, lane="default", jobs=10_000)
    system.run_for(5 * SECOND)

    mine = [submitted(system, lane="default", owner=OTHER, in_=n * SECOND) for n in range(10)]
    system.run_for(15 * SECOND)

    found = [lateness(system, row) for row in mine]
    assert all(one is not None and one <= ON_TIME for one in found) is is_on_time
    assert system.world.queue.waiting("default") > 8000


def test_one_owners_flood_of_10_000_does_not_delay_another_in_a_lane_of_its_own() -> None:
    """S0-N6: without fairness, whoever must not wait for others has another lane."""
    system = pools({"default": 10, "bulk": 40})
    flooded(system, lane="bulk", jobs=10_000)
    system.run_for(5 * SECOND)

    mine = [submitted(system, lane="default", owner=OTHER, in_=n * SECOND) for n in range(10)]
    system.run_for(15 * SECOND)

    found = [lateness(system, row) for row in mine]
    assert all(one is not None and one <= ON_TIME for one in found)


def test_a_fair_lane_keeps_nobody_s_messages_back() -> None:
    """S0-N6: it reorders, and with nobody else there the flood has every worker."""
    system = pools({"default": 50}, rules={"default": LaneRules(fair=True)})
    flooded(system, lane="default", jobs=500)

    system.run_for(11 * SECOND)

    assert len(system.starts) == 500


# Aging.


@pytest.mark.parametrize("second", [0, 20, 45])
@pytest.mark.parametrize("after_s", [150, 240, 600])
def test_what_waits_behind_a_backlog_is_promoted_to_the_second_and_runs_once(
    after_s: int, second: int
) -> None:
    """S0-P2: bulk takes 20 minutes for what came first; the default lane has room for all."""
    rules = {"bulk": LaneRules(promotes_to="default", promote_after=after_s * SECOND)}
    system = pools({"bulk": 1, "default": 100}, lasts=20 * SECOND, rules=rules)
    system.run_for(4 * MINUTE + second * SECOND)
    ahead = flooded(system, lane="bulk", jobs=60)

    last = submitted(system, lane="bulk", owner=OTHER)
    system.run_for(15 * MINUTE)

    (start,) = system.starts_of(last.id)
    assert start.lane == "default"
    # The sweep told it ahead; the message came by itself.
    assert 0 * SECOND <= start.at - last.run_at - after_s * SECOND <= 1 * SECOND
    assert Counter(start.execution_id for start in system.starts) == Counter([*ahead, last.id])
    assert system.world.counts.events["promoted"] > 0
    assert len(system.world.queue) == 0


def test_what_is_promoted_stays_in_the_lane_that_its_owner_chose() -> None:
    """S0-P2: only the message goes elsewhere."""
    system = pools({"default": 10}, rules=AGING)
    row = submitted(system, lane="bulk", owner=OTHER)

    system.run_for(9 * MINUTE)

    after = system.world.tables.executions[row.id]
    assert (after.state, after.queue) == (State.SUCCEEDED, "bulk")


def test_without_a_rule_it_waits_for_its_turn() -> None:
    """S0-P2: the contrast; nothing is promoted that no deployment asked for."""
    system = pools({"bulk": 1, "default": 10}, lasts=20 * SECOND)
    flooded(system, lane="bulk", jobs=60)
    last = submitted(system, lane="bulk", owner=OTHER)

    system.run_for(15 * MINUTE)

    assert system.starts_of(last.id) == []
    assert system.world.counts.events["promoted"] == 0


def test_a_lane_that_has_enough_to_do_gets_nothing_promoted() -> None:
    """S0-P2: aging must not move a backlog from one lane to the next."""
    system = pools({}, rules=AGING)
    waiting = flooded(system, lane="default", jobs=PROMOTED_INTO_MESSAGES)
    submitted(system, lane="bulk", owner=OTHER)

    system.run_for(20 * MINUTE)

    assert system.world.counts.events["promoted"] == 0
    assert len(waiting) >= PROMOTED_INTO_MESSAGES


def test_one_page_of_old_rows_does_not_flood_the_lane_above() -> None:
    """S0-P2: what a sweep promotes counts as waiting there at once."""
    system = pools({}, rules=AGING)
    flooded(system, lane="bulk", jobs=3 * PROMOTED_INTO_MESSAGES)

    system.run_for(9 * MINUTE)

    assert system.world.queue.waiting("default") == PROMOTED_INTO_MESSAGES
    assert system.world.counts.events["promoted"] == PROMOTED_INTO_MESSAGES


def test_a_row_that_nobody_runs_is_sent_a_few_times_in_an_hour() -> None:
    """S0-P2: one message a look, and looks grow further apart."""
    system = pools({}, rules=AGING)
    submitted(system, lane="bulk", owner=OTHER)

    system.run_for(60 * MINUTE)

    waiting = {lane: system.world.queue.waiting(lane) for lane in ("bulk", "default")}
    assert system.world.counts.events["promoted"] == waiting["default"] > 1
    assert sum(waiting.values()) <= 8


def test_what_waits_in_a_backlog_is_promoted_and_no_repair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """S0-P2: the alarm on repairs is for what was lost. Here nothing was."""
    system, row, sweeping = about_to_promote()
    depths = {"bulk": BACKED_UP_MESSAGES + 1, "default": 0}
    monkeypatch.setattr(system.world.queue, "waiting", depths.__getitem__)

    do(system.ports, sweeping, owner="sweeper")

    (message,) = system.world.queue.receive("default")
    assert message.message.execution_id == row.id
    assert system.world.counts.events["promoted"] == 1
    assert system.world.counts.events["recovered"] == 0


def test_a_message_that_was_lost_is_sent_again_in_its_own_lane() -> None:
    """S0-P2: nothing waits there, so it is a repair, and alarms."""
    system = pools({"bulk": 1}, rules=AGING)
    row = submitted(system, lane="bulk", owner=OTHER)
    system.world.queue.purge()

    system.run_for(5 * MINUTE)

    assert [start.lane for start in system.starts_of(row.id)] == ["bulk"]
    assert system.world.counts.events["recovered"] == 1
    assert system.world.counts.events["promoted"] == 0


def test_a_sweep_that_dies_while_it_promotes_neither_loses_the_row_nor_runs_it_twice() -> None:
    """S0-P2: killed between every two of its calls."""
    system, _, sweeping = about_to_promote()
    strikes = [*every_crash(calls_of(system.ports, partial(do, item=sweeping, owner="a")))]

    for strike in strikes:
        system, row, sweeping = about_to_promote()
        survives(system.ports, partial(do, item=sweeping, owner="a"), strike)
        system.slots = {"default": 1}
        system.run_for(20 * MINUTE)
        assert [start.lane for start in system.starts_of(row.id)] == ["default"], strike

    assert len(strikes) > 10


def about_to_promote() -> tuple[Pools, Execution, WorkItem]:
    """A row that is old enough, and the work of whoever sweeps for the first time."""
    system = pools({}, rules=AGING)
    row = submitted(system, lane="bulk", owner=OTHER)
    sweeping: list[WorkItem] = []
    for _ in range(5):
        system.world.pass_time(MINUTE)
        tick(system.ports)
        for item in system.world.queue.take_work():
            if item.work.kind is Kind.SWEEP:
                sweeping.append(item)
            else:
                do(system.ports, item, owner="dispatcher")
    return system, row, sweeping[-1]
