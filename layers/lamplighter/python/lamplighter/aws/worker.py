"""The composition root of a worker: the user's tasks, the heartbeat, and what runs batches."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NoReturn, TypedDict

import boto3
from botocore.config import Config

from lamplighter.aws.clock import process_began_at
from lamplighter.aws.settings import Environment, WorkerSettings
from lamplighter.aws.signing import SecretKeys
from lamplighter.aws.targets import AwsTargets
from lamplighter.aws.wiring import CLIENT_CONFIG, Wired
from lamplighter.core.waits import Boot
from lamplighter.ports import Ports
from lamplighter.runtime.batch import BatchRunner
from lamplighter.runtime.serving import Places, Serving
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.tasks import shell
from lamplighter.tasks.answers import ContextAnswers
from lamplighter.tasks.http import HttpCaller, Keys
from lamplighter.tasks.isolation import Isolation
from lamplighter.tasks.named import NamedCaller
from lamplighter.tasks.runner import TaskRunner
from lamplighter.tasks.source import Source

# It cannot be interrupted, and a handler that must stop has five seconds.
_ONE_TRY: Final = Config(retries={"mode": "standard", "total_max_attempts": 1})


class _Crew(TypedDict):
    ports: Ports
    runner: TaskRunner
    heartbeats: Heartbeats
    end_process: Callable[[int], NoReturn]


def batch_runner(wired: Wired, settings: WorkerSettings, environment: Environment) -> BatchRunner:
    """What runs a Lambda worker's batches, with the tasks that the settings name.

    Raises InvalidTasks, NotAllowedHere: such a worker must not start.
    """
    return BatchRunner(**_crew(wired, settings, environment))


def serving(
    wired: Wired,
    settings: WorkerSettings,
    environment: Environment,
    *,
    name: str,
    concurrency: int,
) -> Serving:
    """The same for a worker that is no Lambda, which runs `concurrency` executions at once.

    Raises InvalidTasks, NotAllowedHere.
    """
    return Serving(
        **_crew(wired, settings, environment),
        worker=name,
        places=Places(concurrency),
        flush=wired.telemetry.flush,
    )


def _crew(wired: Wired, settings: WorkerSettings, environment: Environment) -> _Crew:
    """What runs messages, with the tasks that the settings name.

    Raises InvalidTasks when they cannot be loaded, and NotAllowedHere when the shell task, or
    targets on this host itself, are switched on in a deployed Lambda: such a worker must not start.
    """
    source = Source(module=settings.tasks, shell_owners=tuple(sorted(settings.shell_owners)))
    tasks = source.load(environment)
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

    answers = ContextAnswers(wired.ports)
    runner = TaskRunner(
        tasks,
        heartbeats,
        wired.ports.clock,
        http=HttpCaller(settings.http, wired.ports.clock, keys=_keys(wired, settings)),
        named=NamedCaller(settings.targets, AwsTargets(telemetry=wired.ports.telemetry)),
        isolation=Isolation(source, wired.ports.telemetry.said, answers=answers),
        answers=answers,
    )
    # Last of all: what is loaded above is loaded while messages wait.
    boot = Boot(began_at=process_began_at(), ready_at=wired.ports.clock.now())
    return {
        "ports": replace(wired.ports, boot=boot),
        "runner": runner,
        "heartbeats": heartbeats,
        "end_process": end_process,
    }


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
