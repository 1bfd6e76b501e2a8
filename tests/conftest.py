"""What holds for all tests."""

import gc
from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.examples import examples
from tests.support.repeating import REPEATED_BY

# No deadline: on a shared machine an example may take long without anything being wrong.
settings.register_profile("ours", max_examples=examples(100), deadline=None, print_blob=True)
settings.load_profile("ours")

# Each has what takes long to set up: it is set up once if they go to one worker, side by side.
TOGETHER: Final[Mapping[str, tuple[str, ...]]] = {
    "infra": ("tests/infra/",),
    "docs": ("tests/docs/test_requirements.py",),
    "local": ("tests/local/test_run.py", "tests/cli/test_worker.py"),
}


# Thousands of short ones: to share out each by itself would take longer than some of them do.
BY_MODULE: Final = (
    *("tests/core/", "tests/handlers/", "tests/docs/", "tests/contract/", "tests/cli/"),
    "tests/simulation/test_simulator.py",
)
# The longest of those that go by themselves, so that nobody waits for them at the end.
FIRST: Final = "tests/simulation/test_fresh_histories.py"


class _Together(LoadScopeScheduling):  # type: ignore[misc]
    """Of what is not named above, each test goes to whoever is free.

    The marker `xdist_group` would say so, but pytest 9.2 shows xdist nothing of it.
    """

    def _split_scope(self, nodeid: str) -> str:
        for name, some in TOGETHER.items():
            if nodeid.startswith(some):
                return name
        return nodeid.partition("::")[0] if nodeid.startswith(BY_MODULE) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Share out the tests between the workers of `pytest -n`."""
    return _Together(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest; the order of the others stays."""
    items.sort(key=lambda item: not item.nodeid.startswith(FIRST))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported: it stays, and is a lot to look through."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which fresh seeds were played, whether they were good or not."""
    found = [
        f"{report.outcome}: {command}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, command in report.user_properties
        if name == REPEATED_BY
    ]
    if found:
        terminalreporter.section("fresh seeds")
    for line in found:
        terminalreporter.write_line(line)
