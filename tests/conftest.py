"""What holds for all tests."""

import pytest
from hypothesis import settings

from tests.support.examples import examples
from tests.support.repeating import REPEATED_BY

# No deadline: on a shared machine an example may take long without anything being wrong.
settings.register_profile("ours", max_examples=examples(100), deadline=None, print_blob=True)
settings.load_profile("ours")


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
