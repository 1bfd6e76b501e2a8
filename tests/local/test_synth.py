"""What a synth depends on: a change of any of it is seen, nothing else is."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from lamplighter.local.synth import fingerprint

CONTEXT: Mapping[str, str] = {"stage": "local", "issuer": "http://127.0.0.1:4600"}
FILES = (
    "infra/app.py",
    "functions/worker/handler.py",
    "layers/lamplighter/python/lamplighter/core/limits.py",
    "layers/dependencies/requirements.txt",
    "examples/playground/playground/tasks.py",
    "cdk.json",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in FILES:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("as it was")
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_makes_a_new_fingerprint(checkout: Path, name: str) -> None:
    before = fingerprint(checkout, CONTEXT)

    (checkout / name).write_text("as it is now")

    assert fingerprint(checkout, CONTEXT) != before


def test_a_moved_file_makes_a_new_fingerprint(checkout: Path) -> None:
    before = fingerprint(checkout, CONTEXT)

    (checkout / "infra" / "app.py").rename(checkout / "infra" / "application.py")

    assert fingerprint(checkout, CONTEXT) != before


def test_another_issuer_makes_a_new_fingerprint(checkout: Path) -> None:
    elsewhere = {**CONTEXT, "issuer": "http://127.0.0.1:4601"}

    assert fingerprint(checkout, elsewhere) != fingerprint(checkout, CONTEXT)


def test_what_python_leaves_behind_changes_nothing(checkout: Path) -> None:
    before = fingerprint(checkout, CONTEXT)

    (checkout / "infra" / "__pycache__").mkdir()
    (checkout / "infra" / "__pycache__" / "app.cpython-311.pyc").write_bytes(b"compiled")
    (checkout / "README.md").write_text("not deployed")

    assert fingerprint(checkout, CONTEXT) == before
