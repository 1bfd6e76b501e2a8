"""The composition root of a worker: the user's tasks, the heartbeat, and what runs batches."""

import os
import sys
from typing import NoReturn

from lamplighter.aws.settings import Environment, WorkerSettings
from lamplighter.aws.wiring import Wired
from lamplighter.runtime.batch import BatchRunner
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.tasks import shell
from lamplighter.tasks.registry import load
from lamplighter.tasks.runner import TaskRunner


def batch_runner(wired: Wired, settings: WorkerSettings, environment: Environment) -> BatchRunner:
    """What runs a worker's batches, with the tasks that the settings name.

    Raises InvalidTasks when they cannot be loaded, and NotAllowedHere when the shell task is
    switched on in a deployed Lambda: such a worker must not start.
    """
    tasks = load(settings.tasks)
    shell.enable(tasks, owners=settings.shell_owners, environ=environment)
    heartbeats = Heartbeats(wired.ports)

    def end_process(code: int) -> NoReturn:
        wired.telemetry.flush()
        sys.stdout.flush()
        # Not sys.exit: a thread that does not end would be waited for.
        os._exit(code)

    return BatchRunner(
        ports=wired.ports,
        runner=TaskRunner(tasks, heartbeats, wired.ports.clock),
        heartbeats=heartbeats,
        end_process=end_process,
    )
