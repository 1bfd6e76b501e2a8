"""What `make scan` and `make audit` go by: findings with reasons, pins with hashes, licences."""

import re
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path

import pytest

from infra.paths import ROOT, RUNTIME_REQUIREMENTS
from tests.infra.scan import ALWAYS, WITHOUT_KEY, accepted, expected, findings, verdict

LOCKED = [*sorted((ROOT / "requirements").glob("*.txt")), RUNTIME_REQUIREMENTS]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
NEEDS_A_KEY = {"CKV_AWS_27", "CKV_AWS_119", "CKV_AWS_158", "CKV_AWS_173"}
# What may be shipped in a layer beside code under another licence.
PERMISSIVE = re.compile(
    r"MIT( No Attribution|-0)?|BSD|Apache|ISC|Python Software Foundation|PSF-2\.0|MPL|"
    r"Mozilla Public|Dual License"
)


def test_every_accepted_finding_has_a_reason_and_says_when() -> None:
    rows = accepted()

    assert len({one.check for one in rows}) == len(rows)
    for one in rows:
        assert re.fullmatch(r"CKV2?_AWS_\d+", one.check)
        assert one.found in (ALWAYS, WITHOUT_KEY)
        assert len(one.why) > 40


def test_with_a_key_nothing_about_keys_is_accepted() -> None:
    assert expected(with_key=False) - expected(with_key=True) == NEEDS_A_KEY


def test_a_new_finding_fails_and_so_does_an_acceptance_that_nobody_needs() -> None:
    found = {check: ["somewhere"] for check in expected(with_key=True)}
    assert verdict(found, with_key=True) == []

    assert verdict({**found, "CKV_AWS_1": ["here", "there"]}, with_key=True) == [
        "CKV_AWS_1: here, there"
    ]
    del found["CKV_AWS_18"]
    assert verdict(found, with_key=True) == ["CKV_AWS_18: accepted, and not found any more"]


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"passed": 0, "failed": 0, "resource_count": 0},
        {"summary": {"parsing_errors": 1, "resource_count": 9}, "results": {"failed_checks": []}},
        {"summary": {"parsing_errors": 0, "resource_count": 0}, "results": {"failed_checks": []}},
    ],
)
def test_a_scan_of_nothing_is_no_scan(report: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the scan looked at"):
        findings(report)


def pins(text: str) -> Iterator[tuple[str, str]]:
    """Each requirement of a compiled file: what it says, and all that belongs to it."""
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        if block and not block.startswith("#"):
            yield block.splitlines()[0], block


@pytest.mark.parametrize("file", LOCKED, ids=lambda file: file.name)
def test_whatever_is_installed_is_pinned_and_checked_against_its_hash(file: Path) -> None:
    """Of a release that somebody takes over, another file under the same version is refused."""
    text = file.read_text(encoding="utf-8")
    found = [*pins(text)]

    assert found
    assert "://" not in text
    for first, block in found:
        assert re.match(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==[^ ]+", first), first
        assert "--hash=sha256:" in block, first


def test_the_audit_is_of_every_file_and_nothing_is_let_off() -> None:
    (audit,) = re.findall(r"^audit:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)

    assert "--strict" in audit
    assert "--require-hashes" in audit
    assert "--ignore-vuln" not in audit
    assert "requirements/*.txt layers/dependencies/requirements.txt" in audit


def test_what_the_layer_ships_may_be_shipped() -> None:
    names = [first.partition("==")[0] for first, _ in pins(RUNTIME_REQUIREMENTS.read_text("utf-8"))]

    for name in names:
        about = metadata(name)
        named = ("License-Expression", "License", "Classifier")
        said = [text[:80] for name_ in named for text in about.get_all(name_) or []]
        assert any(PERMISSIVE.search(one) for one in said), (name, said)
    assert "pydantic" in names
