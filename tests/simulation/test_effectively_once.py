"""What a handler writes with the end of its execution happens once, whoever dies where.

S0-L5, S2-F4, S4-L4: the worker is killed at each of its calls, stalled past its lease and resumed,
told nothing of writes that took effect, and given each message three times.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest

from lamplighter.core.errors import Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.ports import Ports
from lamplighter.sim.faults import (
    Call,
    Crash,
    Strike,
    When,
    calls_of,
    crash_at,
    every_crash,
    every_strike,
    interposed,
    pause_at,
    survives,
    unavailable_at,
)
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.simulation.ledger_scenarios import PAGES, UseCase, Works, working

MINUTE = timedelta(minutes=1)
RECOVERY = 20 * MINUTE

Trouble = Callable[[System, UseCase], None]


def undisturbed(system: System, use_case: UseCase) -> None:
    use_case(system.ports)


def killed(strike: Strike, system: System, use_case: UseCase) -> None:
    survives(system.ports, use_case, strike)


def stalled(strike: Strike, system: System, use_case: UseCase) -> None:
    hook = pause_at(strike, partial(system.run_for, 5 * MINUTE))
    use_case(interposed(system.ports, hook))


def unanswered(strike: Strike, system: System, use_case: UseCase) -> None:
    with suppress(Unavailable):
        use_case(interposed(system.ports, unavailable_at(strike)))


def stalled_and_killed(strike: Strike, system: System, use_case: UseCase) -> None:
    """It wakes up to one more call."""

    def hook(call: Call, when: When) -> None:
        pause_at(strike, partial(system.run_for, 5 * MINUTE))(call, when)
        crash_at(Strike(number=strike.number + 1, when=When.AFTER))(call, when)

    with suppress(BaseException):
        use_case(interposed(system.ports, hook))


def troubles() -> Iterator[tuple[str, Trouble]]:
    works = Works()
    system, use_case, _ = working(works, works.with_its_end)
    calls = calls_of(system.ports, use_case)
    assert {f"{call.port}.{call.method}" for call in calls} >= {
        "ledger.save",
        "ledger.record",
        "ledger.recorded",
        "ledger.complete",
    }
    yield "nothing", undisturbed
    for strike in every_crash(calls):
        yield f"killed {strike}", partial(killed, strike)
    for strike in every_strike(calls, whens=(When.BEFORE, When.AFTER)):
        yield f"stalled {strike}", partial(stalled, strike)
        yield f"stalled and killed {strike}", partial(stalled_and_killed, strike)
        yield f"unanswered {strike}", partial(unanswered, strike)


def test_every_execution_has_counted_once_whatever_happens() -> None:
    """S1-Q5, S0-L5."""
    for name, trouble in troubles():
        works = Works()
        system, use_case, rows = working(works, works.with_its_end, copies=2)

        trouble(system, use_case)
        system.run_for(RECOVERY)

        ids = [str(row.id) for row in rows]
        assert works.own.counts == {**dict.fromkeys(ids, 1), "all": len(ids)}, name
        ended = system.world.tables.executions
        assert {ended[row.id].state for row in rows} == {State.SUCCEEDED}, name
        assert [*violations(system)] == [], name


def test_what_came_of_a_step_is_told_as_one_whatever_happens() -> None:
    """S0-N5: a step is done at least once, and its first result is the one that all are told."""
    done_again = 0
    for name, trouble in troubles():
        works = Works()
        system, use_case, rows = working(works, works.with_its_end)

        trouble(system, use_case)
        system.run_for(RECOVERY)

        kept = [system.world.tables.executions[row.id].result for row in rows]
        charges = [f'"charge {n}"' for n in range(1, len(works.charged) + 1)]
        assert len({*kept}) == len(rows), name
        assert {*kept} <= {*charges}, name
        assert {*works.charged} == {row.id for row in rows}, name
        done_again += len(works.charged) > len(rows)
    # A worker that dies between a step and its record: nobody knows that it was done.
    assert done_again


def test_a_page_that_was_passed_is_not_done_again_whatever_happens() -> None:
    """S2-Q3: what another try begins with is the last checkpoint; the page under way is lost."""
    for name, trouble in troubles():
        works = Works()
        system, use_case, rows = working(works, works.with_its_end)

        trouble(system, use_case)
        system.run_for(RECOVERY)

        times = Counter(works.pages)
        assert {*times} == {(row.id, page) for row in rows for page in range(PAGES)}, name
        assert times.total() <= len(rows) * PAGES + 1, name


def test_without_one_transaction_a_counter_is_moved_twice() -> None:
    """S1-Q5: what the proof above would see if there were nothing to it."""
    most = 0
    for _, trouble in troubles():
        works = Works()
        system, use_case, _ = working(works, works.on_its_own)

        trouble(system, use_case)
        system.run_for(RECOVERY)

        most = max(most, *works.own.counts.values())
    assert most > 1


def test_an_end_that_took_effect_and_was_never_answered_is_found_by_the_message() -> None:
    works = Works()
    system, use_case, rows = working(works, works.with_its_end)

    def hook(call: Call, when: When) -> None:
        if (call.method, when) == ("complete", When.AFTER):
            raise Unavailable("never answered")

    use_case(interposed(system.ports, hook))
    before = [system.world.tables.executions[row.id] for row in rows]
    system.run_for(RECOVERY)

    assert {row.state for row in before} == {State.SUCCEEDED}
    assert [system.world.tables.executions[row.id] for row in rows] == before
    assert works.own.counts["all"] == len(rows)
    assert not system.world.queue.receive()


def test_a_worker_that_dies_with_the_lease_of_another_leaves_its_checkpoint() -> None:
    """The third try goes on where the second was killed."""
    works = Works()
    system, use_case, (row, _) = working(works, works.with_its_end)

    def hook(call: Call, when: When) -> None:
        if (call.port, call.method, when) == ("ledger", "recorded", When.BEFORE):
            raise Crash

    use_case_dies(system, use_case, hook)
    system.run_for(RECOVERY)

    assert [page for id, page in works.pages if id == row.id] == [*range(PAGES)]


def use_case_dies(system: System, use_case: UseCase, hook: Callable[[Call, When], None]) -> None:
    ports: Ports = interposed(system.ports, hook)
    with pytest.raises(Crash):
        use_case(ports)
