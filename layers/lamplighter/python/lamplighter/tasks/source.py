"""Where a worker's tasks come from, told so that another process can find them, too."""

from collections.abc import Mapping
from dataclasses import dataclass

from lamplighter.tasks import shell
from lamplighter.tasks.registry import TASKS, AnyTask, InvalidTasks, Registry, imported, load


@dataclass(frozen=True, kw_only=True)
class Source:
    """The user's module, and the owners that the shell task is switched on for."""

    module: str
    shell_owners: tuple[str, ...] = ()

    def load(self, environ: Mapping[str, str]) -> Registry:
        """All of them; raises InvalidTasks and NotAllowedHere."""
        tasks = load(self.module)
        shell.enable(tasks, owners=self.shell_owners, environ=environ)
        return tasks

    def find(self, name: str, version: int, *, home: str, environ: Mapping[str, str]) -> AnyTask:
        """One of them, with no more imported than it takes.

        The user's module comes first, whatever it sets up, then the one that the function is
        in. Raises InvalidTasks when it is not there.
        """
        shell.enable(TASKS, owners=self.shell_owners, environ=environ)
        if task := TASKS.get(name, version):
            return task
        for module in (self.module, home):
            imported(module)
            if task := TASKS.get(name, version):
                return task
        load(self.module)
        if task := TASKS.get(name, version):
            return task
        raise InvalidTasks(f"{self.module!r} has no task {name!r} version {version} here")
