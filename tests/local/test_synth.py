"""What a synth depends on: a change of any of it is seen, nothing else is."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from lamplighter.local.errors import CannotRun
from lamplighter.local.home import Home
from lamplighter.local.issuer import Issuer
from lamplighter.local.run import context
from lamplighter.local.synth import fingerprint as fingerprint_of

CONTEXT: Mapping[str, str] = {"stage": "local", "issuer": "http://127.0.0.1:4600"}
FILES = (
    "infra/app.py",
    "functions/worker/handler.py",
    "layers/lamplighter/python/lamplighter/core/limits.py",
    "layers/dependencies/requirements.txt",
    "examples/playground/playground/tasks.py",
)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in FILES:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("as it was")
    choose(tmp_path, tasks_folder="examples/playground")
    return tmp_path


def choose(checkout: Path, **context: str) -> None:
    (checkout / "cdk.json").write_text(json.dumps({"context": context}))


def fingerprint(checkout: Path, context: Mapping[str, str]) -> str:
    return fingerprint_of(Home(checkout=checkout, folder=checkout / ".lamplighter"), context)


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


def test_another_choice_in_cdk_json_makes_a_new_fingerprint(checkout: Path) -> None:
    before = fingerprint(checkout, CONTEXT)

    choose(checkout, tasks_folder="examples/playground", owner_claim="tenant")

    assert fingerprint(checkout, CONTEXT) != before


@pytest.mark.parametrize("place", ["mine", "../mine", "absolute"])
def test_one_s_own_task_edited_is_seen_wherever_it_lies(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, place: str
) -> None:
    """`make run` ran the code as it had been before the edit."""
    place = str(tmp_path_factory.mktemp("elsewhere")) if place == "absolute" else place
    task = checkout / place / "own" / "jobs.py"
    task.parent.mkdir(parents=True, exist_ok=True)
    task.write_text("as it was")
    choose(checkout, tasks_folder=place)
    before = fingerprint(checkout, CONTEXT)

    task.write_text("as it is now")

    assert fingerprint(checkout, CONTEXT) != before


def test_the_folder_of_a_run_s_own_context_goes_before_cdk_json(checkout: Path) -> None:
    chosen = {**CONTEXT, "tasks_folder": "mine"}
    (checkout / "mine").mkdir()
    before = fingerprint(checkout, chosen)

    (checkout / "mine" / "jobs.py").write_text("new")

    assert fingerprint(checkout, chosen) != before


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_cdk_json_that_cannot_be_read_is_named(checkout: Path, text: str) -> None:
    (checkout / "cdk.json").write_text(text)

    with pytest.raises(CannotRun, match=r"cdk\.json"):
        fingerprint(checkout, CONTEXT)


def test_who_may_use_the_shell_is_said_by_cdk_json_unless_the_run_says_it() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    issuer = Issuer(url="http://127.0.0.1:4600", key=key)

    assert "shell_owners" not in context(issuer, [])
    assert context(issuer, ["me", "you"])["shell_owners"] == "me,you"
