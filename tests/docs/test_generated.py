"""What is written from the code says what the code says."""

import re
from pathlib import Path

import pytest

from lamplighter.core import errors
from tests.docs import lifecycle

DOCS = Path(__file__).parents[2] / "docs"


def test_the_lifecycle_page_is_what_the_table_says() -> None:
    assert lifecycle.PAGE.read_text() == lifecycle.text()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_every_page_that_a_page_links_to_exists(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())

    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_decision_is_in_the_list() -> None:
    records = {path.name for path in (DOCS / "decisions").glob("0*.md")}
    listed = (DOCS / "decisions" / "README.md").read_text()

    assert {name for name in records if f"({name})" not in listed} == set()


def test_every_error_is_in_the_tree_drawn_at_the_top_of_its_module() -> None:
    raised = {
        name
        for name, error in vars(errors).items()
        if isinstance(error, type) and error.__module__ == errors.__name__
    }
    assert errors.__doc__ is not None

    assert {name for name in raised if name not in errors.__doc__} == set()
