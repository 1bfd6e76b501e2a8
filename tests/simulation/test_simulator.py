"""The interleaving simulator: one seed is one history, faults strike, promises hold, bugs show."""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import fields, replace
from datetime import timedelta
from functools import cache
from random import Random
from unittest.mock import patch

import pytest

from lamplighter.core.errors import Rejected
from lamplighter.memory import VirtualClock
from lamplighter.ports import Ports
from lamplighter.sim import features
from lamplighter.sim.decisions import ALL, NONE, Decisions, Fault, counted, parse
from lamplighter.sim.features import EVERYTHING, PLAIN, Feature, drawn
from lamplighter.sim.history import History
from lamplighter.sim.quiescence import violations
from lamplighter.sim.shrink import shrunk
from lamplighter.sim.simulate import Report, Result, played, simulate
from lamplighter.sim.simulation import Setup, Simulation
from lamplighter.sim.wire import PORTS
from lamplighter.sim.workload import What
from tests.simulation.mutations import MUTATIONS, PAGE, Mutation, hunted
from tests.support.short_histories import short_histories

# A few minutes of trouble, and as long a rest as it takes until everything is mended.
SHORT = Setup(seed=7, trouble=timedelta(minutes=6), rest=timedelta(minutes=21))
# The rest by `python -m tests.simulation.mutations`, which writes the table of the docs.
QUICK = [mutation for mutation in MUTATIONS if mutation.within <= 2000][:1]
# Of histories that have every fault between them.
EVERY_FAULT, SO_MANY = 15, 300
# Both strike in the two histories that have as many executions.
TWO_FAULTS = frozenset({Fault.PAUSE, Fault.DUPLICATE})


@cache
def short() -> Result:
    """The short history, played once for all who only look at what it came to."""
    return played(SHORT)


@cache
def kept() -> Simulation:
    """The short history with all its events, played once for all who only look at it."""
    simulation = Simulation(replace(SHORT, is_kept=True))
    simulation.run()
    return simulation


def two_faults(processes: int) -> Report:
    with short_histories():
        return simulate(seed=10, executions=150, faults=TWO_FAULTS, processes=processes)


@cache
def two_faults_alone() -> Report:
    """As one process sees it."""
    return two_faults(processes=1)


def test_the_same_seed_is_the_same_history() -> None:
    first, second = short(), played(SHORT)

    assert first.events > 1000
    assert first.digest == second.digest


def test_a_history_without_a_digest_has_the_same_events() -> None:
    undigested = played(replace(SHORT, is_digested=False))

    assert undigested.events == short().events
    assert undigested.digest == History(clock=VirtualClock()).digest


def test_another_seed_is_another_history() -> None:
    assert short().digest != played(replace(SHORT, seed=8)).digest


def test_the_same_seed_is_the_same_history_in_another_process() -> None:
    program = (
        "from datetime import timedelta\n"
        "from lamplighter.sim.simulate import played\n"
        "from lamplighter.sim.simulation import Setup\n"
        "minute = timedelta(minutes=1)\n"
        "print(played(Setup(seed=2, trouble=6 * minute, rest=21 * minute)).digest)\n"
    )
    # Sets and dictionaries of text are in another order there.
    elsewhere = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert elsewhere.stdout.strip() == played(replace(SHORT, seed=2)).digest


def test_a_history_that_is_kept_is_the_same_history() -> None:
    assert kept().history.digest == short().digest
    assert len(kept().history.events) > 1000


def test_every_fault_strikes() -> None:
    with short_histories():
        report = simulate(seed=EVERY_FAULT, executions=SO_MANY, processes=1)

    assert report.violations == []
    assert [fault for fault in Fault if not report.faults[fault]] == []


def test_where_nothing_goes_wrong_everything_is_on_time_and_nothing_is_mended() -> None:
    with short_histories():
        report = simulate(seed=1, executions=100, faults=NONE, processes=1)

    assert report.violations == []
    assert not report.faults


def test_only_the_faults_that_are_asked_for_strike() -> None:
    report = two_faults_alone()

    assert {fault for fault in Fault if report.faults[fault]} == TWO_FAULTS


def test_two_processes_see_what_one_does() -> None:
    alone, shared = two_faults_alone(), two_faults(processes=2)

    assert alone.histories > 1
    assert _said(alone) == _said(shared)


def _said(report: Report) -> object:
    document = report.document()
    return {key: document[key] for key in document if "cpu" not in key}


def test_a_decision_that_is_left_out_leaves_the_others_as_they_are() -> None:
    taken = kept().decisions.taken
    again = Simulation(replace(SHORT, only=frozenset(taken)))
    again.run()
    without = Simulation(replace(SHORT, only=frozenset(taken) - {next(iter(taken))}))
    without.run()

    assert again.history.digest == kept().history.digest
    assert set(without.decisions.taken) < set(taken)


@pytest.mark.parametrize("mutation", QUICK, ids=[mutation.id for mutation in QUICK])
@pytest.mark.timeout(300)
def test_a_bug_is_found_at_once(mutation: Mutation) -> None:
    assert hunted(mutation) is not None


def test_a_failing_history_is_made_short_and_readable() -> None:
    mutation = next(one for one in MUTATIONS if one.id == "arm")
    # Of those seeds that break a promise, one that is soon as short as can be.
    setup = replace(SHORT, seed=2)
    with mutation.without():
        whole = played(setup)
        minimal = shrunk(setup, whole.violations[0].promise, replays=20)

    assert minimal.violation.promise == whole.violations[0].promise
    # A job or two, and hardly a fault, is enough for that.
    assert len(minimal.decisions) <= 8
    assert minimal.violation.about[0] in "".join(map(str, minimal.events))


def test_a_history_that_is_made_short_ends_where_its_promise_is_broken() -> None:
    mutation = next(one for one in MUTATIONS if one.id == "ack")
    with mutation.without():
        minimal = shrunk(SHORT, "the outcome comes before the ack", replays=1)

    assert minimal.violation.about[0] in str(minimal.events[-1])
    assert minimal.events[-1].at < kept().end_of_trouble


def test_a_history_that_breaks_nothing_is_not_made_short() -> None:
    with pytest.raises(LookupError, match="seed 7 does not break 'never early'"):
        shrunk(SHORT, "never early")


def test_the_page_names_every_bug_every_fault_and_every_feature() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert [one.id for one in MUTATIONS if f"**{one.id}**: {one.says}" not in page] == []
    assert [fault.value for fault in Fault if f"`{fault.value}`" not in page] == []
    assert [feature.value for feature in Feature if f"`{feature.value}`" not in page] == []


def test_every_port_that_leaves_the_process_goes_through_the_wire() -> None:
    local = {"clock", "clock_offset", "chance", "telemetry", "leases", "boot"}
    plain = {
        "shards",
        "partitions",
        "drain_per_second",
        "quotas",
        "capacity",
        "lanes",
        "parked_for",
    }

    assert {field.name for field in fields(Ports)} == {*PORTS, *local, *plain}


def test_every_feature_is_made_use_of_in_some_histories_and_none_in_others() -> None:
    about = [drawn(Random(seed), EVERYTHING, Decisions(faults=ALL)) for seed in range(50)]

    assert frozenset().union(*about) == EVERYTHING
    assert PLAIN in about


def test_what_is_made_use_of_leaves_traces() -> None:
    with patch.object(features, "_ABOUT", 1.0), patch.object(features, "_PLAIN", 0.0):
        simulation = Simulation(replace(SHORT, trouble=timedelta(minutes=15)))
    simulation.run()
    books, rows = simulation.books, simulation.world.tables.executions.values()

    assert [*violations(simulation)] == []
    assert books.checkpoints
    assert books.steps
    assert books.own
    assert books.uploads
    assert any(row.error and row.error.type == "Busy" for row in rows)
    assert any(whim.startswith(What.REPLAY_MANY) for whim in simulation.decisions.taken)


def test_a_feature_that_is_left_out_leaves_the_others_as_they_are() -> None:
    whole = Simulation(replace(SHORT, seed=11))
    left = next(iter(whole.features))

    without = Simulation(replace(SHORT, seed=11, features=EVERYTHING - {left}))

    assert without.features == whole.features - {left}


def test_the_names_of_features_are_read() -> None:
    assert features.parse("all") == EVERYTHING
    assert features.parse("none") == PLAIN
    assert features.parse("steps, own-writes") == {Feature.STEPS, Feature.OWN_WRITES}
    with pytest.raises(Rejected, match="'magic'"):
        features.parse("steps,magic")


def test_the_names_of_faults_are_read() -> None:
    assert parse("all") == ALL
    assert parse("none") == NONE
    assert parse("pause, loss") == {Fault.PAUSE, Fault.LOSS}
    assert counted([Fault.PAUSE, None, Fault.PAUSE]) == Counter({Fault.PAUSE: 2})
    with pytest.raises(Rejected, match="'fire'"):
        parse("pause,fire")
