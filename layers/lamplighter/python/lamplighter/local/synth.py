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

# All that a template or an asset is made from, beside the folder of the tasks.
SOURCES: Final = ("infra", "functions", "layers", "cdk.json")
# Whose own files or decisions end up in a template or an asset.
TOOLS: Final = ("aws-cdk-lib", "cdk-nag", "constructs", "flask-swagger-ui", "uv")
IGNORED: Final = {"__pycache__", ".pytest_cache"}
LINES_SHOWN: Final = 30


def synthesize(home: Home, context: Mapping[str, str]) -> bool:
    """Bring the assembly up to date; False if it was.

    Raises CannotRun with the end of the synth's output if it failed. The assembly counts as up
    to date only once it is whole.
    """
    stamp = home.folder / "synth.sha256"
    wanted = fingerprint(home, context)
    if home.assembly.exists() and stamp.exists() and stamp.read_text() == wanted:
        return False
    stamp.unlink(missing_ok=True)
    _run(home, context)
    stamp.write_text(wanted)
    return True


def fingerprint(home: Home, context: Mapping[str, str]) -> str:
    """A digest of everything that a synth reads; `context` goes before what `cdk.json` says.

    Raises CannotRun if `cdk.json` cannot be read.
    """
    digest = hashlib.sha256()
    tools = (sys.version, *map(version, TOOLS), json.dumps(dict(context), sort_keys=True))
    digest.update("\0".join(tools).encode())
    # Anywhere, as the app finds it: beside the project too.
    tasks = {**home.context, **context}.get("tasks_folder")
    for source in (*SOURCES, *([tasks] if tasks else [])):
        for name, path in _files(home.checkout / source):
            digest.update(f"\0{source}\0{name}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(source: Path) -> Iterator[tuple[str, Path]]:
    """The files of a folder by their names in it, or the one file; none if there is none."""
    for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
        name = path.relative_to(source)
        if path.is_file() and not IGNORED & set(name.parts):
            yield name.as_posix(), path


def _run(home: Home, context: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "infra.app", "--output", str(home.assembly)]
    for name, value in context.items():
        command += ["--context", f"{name}={value}"]
    # The whole environment: a bundle may have to fetch wheels through a user's proxy or index.
    with Child(command, environment=os.environ, cwd=home.checkout) as child:
        lines = child.output.readlines()
        if child.wait():
            raise CannotRun("synth failed:\n" + "".join(lines[-LINES_SHOWN:]).rstrip())
