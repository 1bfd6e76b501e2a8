"""Layers made without docker: hash-checked wheels by uv, folders as they lie.

Wheels are installed once into `.build/wheels/<hash>` and copied from there, so that a synth after
`make setup` needs no network.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import jsii
from aws_cdk import BundlingOptions, DockerImage, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from uv import find_uv_bin

from infra.paths import BUILD, RUNTIME_REQUIREMENTS


class BuildFailed(RuntimeError):
    """A layer could not be built; the message is uv's."""


@dataclass(frozen=True, kw_only=True)
class LambdaTarget:
    """What the functions run on, and which wheels fit there."""

    architecture: lambda_.Architecture
    runtime: lambda_.Runtime
    wheels: tuple[str, ...]
    """Arguments to `uv pip install` that choose the wheels."""
    machine: tuple[str, ...] = ()
    """What else the wheels depend on, when they are for this machine alone."""

    @classmethod
    def graviton(cls) -> "LambdaTarget":
        """The default: a fifth cheaper per GB-second than x86."""
        return cls(
            architecture=lambda_.Architecture.ARM_64,
            runtime=lambda_.Runtime.PYTHON_3_13,
            wheels=("--python-platform", "aarch64-manylinux2014", "--python-version", "3.13"),
        )

    @classmethod
    def intel(cls) -> "LambdaTarget":
        return cls(
            architecture=lambda_.Architecture.X86_64,
            runtime=lambda_.Runtime.PYTHON_3_13,
            wheels=("--python-platform", "x86_64-manylinux2014", "--python-version", "3.13"),
        )

    @classmethod
    def this_machine(cls) -> "LambdaTarget":
        """For the local stack, whose emulator runs functions on the Python that runs this.

        With bytecode: each of its processes unpacks a layer anew, and would compile it anew.
        """
        arm = platform.machine().lower() in {"arm64", "aarch64"}
        return cls(
            architecture=lambda_.Architecture.ARM_64 if arm else lambda_.Architecture.X86_64,
            runtime=lambda_.Runtime.PYTHON_3_13,
            wheels=("--python", sys.executable, "--compile-bytecode"),
            machine=(sys.version, platform.platform()),
        )


@dataclass(frozen=True, kw_only=True)
class Wheels:
    """A file of pinned requirements with hashes, installed for a target."""

    requirements: Path
    target: LambdaTarget

    @property
    def digest(self) -> str:
        """The same for the same inputs on every machine, unless they are for this machine."""
        digest = hashlib.sha256()
        for choice in (*self.target.wheels, *self.target.machine):
            digest.update(f"{choice}\0".encode())
        digest.update(self.requirements.read_bytes())
        return digest.hexdigest()

    def built(self) -> Path:
        """The folder that holds them, built now or earlier; whole or not there at all."""
        home = BUILD / "wheels" / self.digest
        if home.exists():
            return home
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
            unfinished = Path(scratch, "wheels")
            self.install(unfinished)
            try:
                unfinished.rename(home)
            except OSError:
                if not home.exists():  # else another process was quicker, with the same contents
                    raise
        return home

    def install(self, into: Path) -> None:
        """Install from uv's cache alone if that has everything, else from the package index.

        Raises BuildFailed when neither works, or a package has another hash.
        """
        command = [
            *(find_uv_bin(), "pip", "install", "--quiet", "--target", str(into)),
            *("--requirements", str(self.requirements), "--require-hashes"),
            *("--only-binary", ":all:", "--no-compile-bytecode", *self.target.wheels),
        ]
        done = _run([*command, "--offline"])
        if done.returncode != 0:
            done = _run(command)
        if done.returncode != 0:
            raise BuildFailed(f"{self.requirements.name}: {done.stderr.strip()}")
        # uv's lock, and console scripts that hold paths of this machine.
        (into / ".lock").unlink(missing_ok=True)
        shutil.rmtree(into / "bin", ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The recipe of one layer: everything ends up under `python/`, on the import path."""

    wheels: Wheels | None = None
    folder: Path | None = None
    """Its contents are copied."""
    only: tuple[str, ...] = ()
    """Those of its contents that are; none named: all."""

    @property
    def digest(self) -> str:
        """Covers every byte that goes in."""
        digest = hashlib.sha256()
        if self.wheels:
            digest.update(self.wheels.digest.encode())
        for name, path in self._files():
            digest.update(f"\0{name.as_posix()}\0".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()

    def build(self, into: Path) -> None:
        python = into / "python"
        python.mkdir(parents=True)
        if self.wheels:
            shutil.copytree(self.wheels.built(), python, dirs_exist_ok=True)
        for name, path in self._files():
            (python / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, python / name)

    def code(self) -> lambda_.Code:
        source = self.folder or RUNTIME_REQUIREMENTS.parent  # hashed by us, so any will do
        return lambda_.Code.from_asset(
            str(source),
            asset_hash=self.digest,
            bundling=BundlingOptions(
                image=DockerImage.from_registry("never-pulled"), local=_BuildHere(self)
            ),
        )

    def _files(self) -> Iterator[tuple[Path, Path]]:
        """Name in the layer, and the file, in a fixed order."""
        if self.folder is None:
            return
        named = [self.folder / name for name in self.only]
        for path in sorted(named or self.folder.rglob("*")):
            name = path.relative_to(self.folder)
            if path.is_file() and "__pycache__" not in name.parts:
                yield name, path


@jsii.implements(ILocalBundling)
class _BuildHere:
    """The CDK's hook for a bundle that is made here and not in a container."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer

    def try_bundle(self, output_dir: str, *_docker: object, **_options: object) -> bool:
        # jsii passes the options as one argument; the interface declares them as keywords.
        self._layer.build(Path(output_dir))
        return True


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    # Into the target, and not into the environment that this runs in.
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    # What a layer is unpacked to has other dates than its bytecode notes.
    environment["PYC_INVALIDATION_MODE"] = "UNCHECKED_HASH"
    return subprocess.run(  # noqa: S603 -- uv, by its full path, with our own arguments
        command, env=environment, capture_output=True, text=True, check=False
    )


def main() -> None:
    """Install the dependencies ahead, for Lambda and for the local stack."""
    for target in (LambdaTarget.graviton(), LambdaTarget.this_machine()):
        Wheels(requirements=RUNTIME_REQUIREMENTS, target=target).built()


if __name__ == "__main__":
    main()
