"""What is written from the code says what the code says."""

import re
from pathlib import Path

import pytest

from lamplighter.core import errors
from tests.docs import lifecycle

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")


def test_the_lifecycle_page_is_what_the_table_says() -> None:
    assert lifecycle.PAGE.read_text() == lifecycle.text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_place_that_a_page_links_to_exists(page: Path) -> None:
    links: list[tuple[str, str]] = LINK.findall(page.read_text())
    dead = [
        f"{target}#{heading}"
        for target, heading in links
        if not (page.parent / target).exists()
        or (heading and heading not in headings(page.parent / target if target else page))
    ]

    assert dead == []


def test_the_pages_at_the_top_are_among_them() -> None:
    names = {page.name for page in PAGES if page.parent == ROOT}

    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"} <= names


def headings(page: Path) -> set[str]:
    """As links name them."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


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
