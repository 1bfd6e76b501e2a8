"""The CDK app, synthesized for this machine; skipped when nothing it depends on has changed."""

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from lamplighter.local.children import Child
from lamplighter.local.errors import CannotRun
from lamplighter.local.home import Home

# All that a template or an asset is made from. `examples` holds the tasks that are bundled.
SOURCES: Final = ("infra", "functions", "layers", "examples", "cdk.json")
IGNORED: Final = {"__pycache__", ".pytest_cache"}
LINES_SHOWN: Final = 30


def synthesize(home: Home, context: Mapping[str, str]) -> bool:
    """Bring the assembly up to date; False if it was.

    Raises CannotRun with the end of the synth's output if it failed. The assembly counts as up
    to date only once it is whole.
    """
    stamp = home.folder / "synth.sha256"
    wanted = fingerprint(home.checkout, context)
    if home.assembly.exists() and stamp.exists() and stamp.read_text() == wanted:
        return False
    stamp.unlink(missing_ok=True)
    _run(home, context)
    stamp.write_text(wanted)
    return True


def fingerprint(checkout: Path, context: Mapping[str, str]) -> str:
    """A digest of everything that a synth reads."""
    digest = hashlib.sha256()
    tools = (sys.version, version("aws-cdk-lib"), json.dumps(dict(context), sort_keys=True))
    digest.update("\0".join(tools).encode())
    for path in _files(checkout):
        digest.update(f"\0{path.relative_to(checkout).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(checkout: Path) -> Iterator[Path]:
    for source in SOURCES:
        here = checkout / source
        for path in sorted(here.rglob("*")) if here.is_dir() else [here]:
            if path.is_file() and not IGNORED & set(path.parts):
                yield path


def _run(home: Home, context: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "infra.app", "--output", str(home.assembly)]
    for name, value in context.items():
        command += ["--context", f"{name}={value}"]
    # The whole environment: a bundle may have to fetch wheels through a user's proxy or index.
    with Child(command, environment=os.environ, cwd=home.checkout) as child:
        lines = child.output.readlines()
        if child.wait():
            raise CannotRun("synth failed:\n" + "".join(lines[-LINES_SHOWN:]).rstrip())
