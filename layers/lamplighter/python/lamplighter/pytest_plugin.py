"""The pytest fixture `scheduler`, there wherever Lamplighter is installed beside pytest.

Nothing else of Lamplighter is imported before a test asks for it.
"""

import secrets
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from lamplighter.testing import Scheduler

_OPTION: Final = "--lamplighter-seed"
_FRESH: Final = "fresh"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that says which faults strike."""
    parser.addoption(
        _OPTION,
        default="0",
        metavar="SEED",
        help="the seed of the fixture `scheduler`, a whole number; or `fresh`: another each time, "
        "which a failure's report names",
    )


@pytest.fixture
def scheduler(request: pytest.FixtureRequest) -> "Scheduler":
    """A Lamplighter of one test's own, in virtual time, with the tasks that were imported.

    Raises UsageError for a seed that is none.
    """
    from lamplighter.testing import Scheduler  # noqa: PLC0415 -- only where it is used

    seed = seed_of(str(request.config.getoption(_OPTION)))
    request.node.add_report_section("setup", "lamplighter", f"{_OPTION}={seed}")
    return Scheduler(seed=seed)


def seed_of(said: str) -> int:
    """The seed that the option says; raises UsageError for what is none."""
    if said == _FRESH:
        return secrets.randbelow(1_000_000_000)
    if not said.isdecimal():
        raise pytest.UsageError(f"{_OPTION} is a whole number or {_FRESH}, not {said!r}")
    return int(said)
