"""The synth itself: no docker, no credentials, the same twice."""

import filecmp
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.bundling import BuildFailed, LambdaTarget, Layer, Wheels
from infra.components.layers import NOT_IN_LAMBDA
from infra.paths import ROOT, RUNTIME_REQUIREMENTS
from tests.infra.templates import Assembly

AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_REGION")


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Synthesized as a user does it, where there is no docker, no Node and no credentials."""
    folder = tmp_path_factory.mktemp("second")
    environment = {name: value for name, value in os.environ.items() if name not in AWS}
    subprocess.run(
        [sys.executable, "-m", "infra.app", "--output", str(folder)],
        cwd=ROOT,
        env={
            **environment,
            "PATH": str(folder),
            "CDK_DOCKER": "/bin/false",
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        check=True,
        capture_output=True,
    )
    return folder


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_two_synths_are_the_same_to_the_byte(assembly: Assembly, second: Path) -> None:
    # The traces of warnings in the metadata name the temporary folder that Node ran from.
    files = [name for name in files_in(assembly.folder) if not name.endswith(".metadata.json")]

    _, different, unreadable = filecmp.cmpfiles(assembly.folder, second, files, shallow=False)

    assert files_in(assembly.folder) == files_in(second)
    assert (different, unreadable) == ([], [])


def test_no_template_names_a_path_of_the_machine_that_made_it(assembly: Assembly) -> None:
    for template in assembly.folder.glob("*.template.json"):
        assert str(ROOT) not in template.read_text()
        assert str(Path.home()) not in template.read_text()


def test_no_look_up_is_left_to_whoever_deploys(assembly: Assembly) -> None:
    manifest = json.loads((assembly.folder / "manifest.json").read_text())

    assert "missing" not in manifest


def test_cfn_lint_finds_nothing(assembly: Assembly) -> None:
    templates = [*assembly.folder.glob("*.template.json")]

    linted = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), *templates],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert len(templates) == 2
    assert (linted.returncode, linted.stdout) == (0, "")


def test_dependencies_installed_twice_are_the_same_to_the_byte(tmp_path: Path) -> None:
    wheels = Wheels(requirements=RUNTIME_REQUIREMENTS, target=LambdaTarget.graviton())

    wheels.install(tmp_path / "one")
    wheels.install(tmp_path / "two")

    files = files_in(tmp_path / "one")
    same, _, _ = filecmp.cmpfiles(tmp_path / "one", tmp_path / "two", files, shallow=False)
    assert any("pydantic_core" in name and "aarch64" in name for name in files)
    assert same == files == files_in(tmp_path / "two")


def test_tasks_bring_their_own_requirements(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "billing.py").write_text("import six\n")
    pinned = RUNTIME_REQUIREMENTS.read_text().partition("\nsix==")[2].partition("    # via")[0]
    (tmp_path / "pinned.txt").write_text(f"six=={pinned}")
    wheels = Wheels(requirements=tmp_path / "pinned.txt", target=LambdaTarget.this_machine())

    Layer(wheels=wheels, folder=tmp_path / "tasks").build(tmp_path / "layer")

    found = {path.name for path in (tmp_path / "layer" / "python").iterdir()}
    assert {"billing.py", "six.py"} <= found


def test_bytecode_for_this_machine_is_good_whatever_dates_a_layer_is_unpacked_with(
    tmp_path: Path,
) -> None:
    wheels = Wheels(requirements=RUNTIME_REQUIREMENTS, target=LambdaTarget.this_machine())

    compiled = wheels.built() / "__pycache__" / f"six.{sys.implementation.cache_tag}.pyc"

    # PEP 552: in the place of the date, that it goes by a hash, which nobody is to check.
    assert compiled.read_bytes()[4:8] == (1).to_bytes(4, "little")


def test_a_layer_changes_its_hash_with_each_thing_that_it_is_made_of(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("one")
    before = Layer(folder=tmp_path).digest

    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "tasks.pyc").write_text("compiled")
    untouched = Layer(folder=tmp_path).digest
    (tmp_path / "tasks.py").write_text("two")
    edited = Layer(folder=tmp_path).digest
    with_wheels = [
        Layer(folder=tmp_path, wheels=Wheels(requirements=RUNTIME_REQUIREMENTS, target=target))
        for target in (LambdaTarget.graviton(), LambdaTarget.intel())
    ]

    assert before == untouched
    assert len({before, edited, *(layer.digest for layer in with_wheels)}) == 4


def test_requirements_without_hashes_are_refused_with_the_installers_words(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("six==1.17.0\n")
    wheels = Wheels(requirements=tmp_path / "requirements.txt", target=LambdaTarget.graviton())

    with pytest.raises(BuildFailed, match="hash"):
        wheels.install(tmp_path / "layer")


def test_the_code_layer_leaves_out_what_no_function_imports(assembly: Assembly) -> None:
    layer = assembly.scheduler.properties("AWS::Lambda::LayerVersion")["Layers/Code"]

    (package,) = (assembly.asset(layer["Content"]) / "python").iterdir()

    shipped = {path.name for path in package.iterdir()}
    assert {"core", "aws", "services", "py.typed"} <= shipped
    assert not shipped & {*NOT_IN_LAMBDA, "__pycache__"}


def test_the_tasks_layer_holds_the_users_module_where_python_finds_it(assembly: Assembly) -> None:
    layer = assembly.scheduler.properties("AWS::Lambda::LayerVersion")["Layers/Tasks"]

    assert (assembly.asset(layer["Content"]) / "python" / "playground" / "tasks.py").is_file()
