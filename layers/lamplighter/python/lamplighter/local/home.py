"""Where a local run keeps what it makes."""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lamplighter.local.errors import CannotRun


@dataclass(frozen=True, kw_only=True)
class Home:
    """A checkout, and the folder beside it (ignored by git) for keys, templates and logs."""

    checkout: Path
    folder: Path

    @classmethod
    def of(cls, checkout: Path | None = None, folder: Path | None = None) -> "Home":
        """That of the checkout this file is in, unless told otherwise.

        Raises CannotRun outside a checkout: the local stack is made from the CDK app.
        """
        checkout = checkout or Path(__file__).resolve().parents[5]
        if not (checkout / "infra" / "app.py").is_file():
            raise CannotRun(f"{checkout} is no checkout of Lamplighter: the CDK app is not there")
        return cls(checkout=checkout, folder=folder or checkout / ".lamplighter")

    @property
    def emulator(self) -> Path:
        return self.checkout / ".venv-local" / "bin" / "ministack"

    @property
    def assembly(self) -> Path:
        """The synthesized app."""
        return self.folder / "cdk.out"

    @property
    def context(self) -> Mapping[str, str]:
        """What `cdk.json` chooses; raises CannotRun if it cannot be read."""
        try:
            context = json.loads((self.checkout / "cdk.json").read_text())["context"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CannotRun(f"cdk.json: {type(error).__name__}: {error}") from error
        return {name: value for name, value in context.items() if isinstance(value, str)}

    @property
    def emulator_url(self) -> str:
        """Of the run that is going on here, or was the last; for `aws --endpoint-url`."""
        return self._announcement.read_text().strip()

    def announce_emulator(self, url: str) -> None:
        self._announcement.write_text(f"{url}\n")

    @property
    def _announcement(self) -> Path:
        return self.folder / "emulator.url"

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Raises CannotRun if another run uses this folder; a run that was killed does not."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(lock, 20, 0).decode() or "unknown"
                raise CannotRun(f"already running here, as process {holder}") from None
            os.ftruncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
            yield
        finally:
            os.close(lock)
