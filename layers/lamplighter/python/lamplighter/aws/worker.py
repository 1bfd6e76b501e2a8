"""The composition root of a worker: the user's tasks, the heartbeat, and what runs batches."""

import os
import sys
from typing import Final, NoReturn

import boto3
from botocore.config import Config

from lamplighter.aws.settings import Environment, WorkerSettings
from lamplighter.aws.signing import SecretKeys
from lamplighter.aws.wiring import CLIENT_CONFIG, Wired
from lamplighter.runtime.batch import BatchRunner
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.tasks import shell
from lamplighter.tasks.http import HttpCaller, Keys
from lamplighter.tasks.registry import load
from lamplighter.tasks.runner import TaskRunner

# It cannot be interrupted, and a handler that must stop has five seconds.
_ONE_TRY: Final = Config(retries={"mode": "standard", "total_max_attempts": 1})


def batch_runner(wired: Wired, settings: WorkerSettings, environment: Environment) -> BatchRunner:
    """What runs a worker's batches, with the tasks that the settings name.

    Raises InvalidTasks when they cannot be loaded, and NotAllowedHere when the shell task, or
    targets on this host itself, are switched on in a deployed Lambda: such a worker must not start.
    """
    tasks = load(settings.tasks)
    shell.enable(tasks, owners=settings.shell_owners, environ=environment)
    if settings.http.reach.loopback and not shell.is_our_own_machine(environment):
        raise shell.NotAllowedHere(
            "LAMPLIGHTER_HTTP_ALLOW has loopback in a deployed Lambda, whose runtime answers there"
        )
    heartbeats = Heartbeats(wired.ports)

    def end_process(code: int) -> NoReturn:
        wired.telemetry.flush()
        sys.stdout.flush()
        # Not sys.exit: a thread that does not end would be waited for.
        os._exit(code)

    return BatchRunner(
        ports=wired.ports,
        runner=TaskRunner(
            tasks,
            heartbeats,
            wired.ports.clock,
            http=HttpCaller(settings.http, wired.ports.clock, keys=_keys(wired, settings)),
        ),
        heartbeats=heartbeats,
        end_process=end_process,
    )


def _keys(wired: Wired, settings: WorkerSettings) -> Keys:
    if settings.signing_secret is None:
        return tuple
    return SecretKeys(
        # Made when a request is first to be signed: most workers have none.
        lambda: boto3.client("secretsmanager", config=CLIENT_CONFIG.merge(_ONE_TRY)),
        arn=settings.signing_secret,
        clock=wired.ports.clock,
        telemetry=wired.ports.telemetry,
    )
