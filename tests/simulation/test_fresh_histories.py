"""Histories that nobody has seen: other ones at each run, under every fault."""

import os
import secrets
from collections.abc import Callable

import pytest

from lamplighter.sim.simulate import simulate
from tests.support.repeating import REPEATED_BY

# With 50,000 the suite takes two minutes longer on two cores.
BUDGET = int(os.environ.get("LAMPLIGHTER_EXECUTIONS", "10000"))
# Each plays whole histories, so that each plays half a one too many.
PARTS = 4


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_fresh_histories_break_no_promise(
    part: int, record_property: Callable[[str, object], None]
) -> None:
    """A seed that fails is printed, and says how to see it again."""
    seed, executions = secrets.randbelow(1_000_000_000), -(-BUDGET // PARTS)
    record_property(REPEATED_BY, f"lamplighter simulate --seed {seed} --executions {executions}")

    report = simulate(seed=seed, executions=executions, processes=1)

    assert [f"seed {failed}: {violation}" for failed, violation in report.violations] == []
    assert report.executions >= executions
