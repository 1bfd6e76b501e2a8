"""The release has one number, wherever it is said."""

import tomllib
from pathlib import Path

from lamplighter.version import VERSION


def test_the_code_says_the_projects_version() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))

    assert project["project"]["version"] == VERSION
