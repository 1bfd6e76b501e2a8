"""`lamplighter worker`: the workers of a lane outside Lambda, in a container or on a laptop."""

import os
import signal
import socket
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lamplighter.cli.surroundings import FAILED, REFUSED, fail

if TYPE_CHECKING:
    from lamplighter.aws.settings import WorkerSettings
    from lamplighter.aws.wiring import Wired
    from lamplighter.runtime.serving import Serving

_MAX_CONCURRENCY: Final = 100


def worker(
    queue: Annotated[str, typer.Option(help="The lane to serve: default, critical, bulk, …")],
    concurrency: Annotated[
        int,
        typer.Option(help="How many executions run at once.", min=1, max=_MAX_CONCURRENCY),
    ] = 10,
    grace: Annotated[
        float,
        typer.Option(
            help="Seconds that what runs is given to end once the worker is told to; less than "
            "whoever ends it waits for.",
            min=0,
            max=3600,
        ),
    ] = 100.0,
    function: Annotated[
        str | None,
        typer.Option(
            help="A deployed worker function: what it is told by its environment, this worker is "
            "told too. Needs lambda:GetFunctionConfiguration.",
            show_default=False,
        ),
    ] = None,
    health_host: Annotated[str, typer.Option(help="Where GET /health answers.")] = "127.0.0.1",
    health_port: Annotated[
        int, typer.Option(help="0 leaves it to the system.", min=0, max=65535)
    ] = 8081,
    name: Annotated[
        str | None,
        typer.Option(
            help="In the history of what it runs. Unless given, this host's and a number."
        ),
    ] = None,
) -> None:
    """Run a lane's jobs here, until SIGTERM or Ctrl-C; a second one does not wait for them.

    Goes by the AWS credentials and the region of the environment, and by the same LAMPLIGHTER_*
    variables as the functions. Ends with 0 when all it held is done or given back, with 70 when
    a handler did not stop.
    """
    from lamplighter.aws.receiving import receivers  # noqa: PLC0415
    from lamplighter.aws.wiring import wire  # noqa: PLC0415
    from lamplighter.runtime.health import answering, document_of  # noqa: PLC0415

    settings, environment = _settings(queue, function)
    urls = settings.queues[queue]
    if concurrency < len(urls):
        raise fail(f"--concurrency {concurrency}: lane {queue!r} has {len(urls)} queues", REFUSED)
    wired = wire(settings)
    serving = _serving(wired, settings, environment, name=name, concurrency=concurrency)
    _end_by_signals(serving)
    try:
        with answering(health_host, health_port, lambda: document_of(serving, queue=queue)) as port:
            typer.echo(
                f"worker {serving.worker} serves {queue}, {concurrency} at once; "
                f"http://{health_host}:{port}/health",
                err=True,
            )
            serving.run(
                receivers(urls, lane=queue, telemetry=wired.telemetry),
                grace=timedelta(seconds=grace),
            )
    except OSError as error:
        raise fail(f"--health-port {health_port}: {error}", FAILED) from error
    except Exception as error:
        raise fail(f"{type(error).__name__}: {error}", FAILED) from error
    typer.echo(f"worker {serving.worker} has ended", err=True)


def _settings(queue: str, function: str | None) -> "tuple[WorkerSettings, Mapping[str, str]]":
    from lamplighter.aws.settings import LANE, BadSettings, WorkerSettings  # noqa: PLC0415

    environment = {**_environment_of(function), **os.environ, LANE.name: queue}
    # Powertools reads its own from there.
    os.environ.update(environment)
    try:
        return WorkerSettings.of(environment), environment
    except BadSettings as error:
        raise fail(str(error), REFUSED) from error


def _environment_of(function: str | None) -> Mapping[str, str]:
    if function is None:
        return {}
    import boto3  # noqa: PLC0415 -- no other command but this one and failover talks to AWS
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    try:
        answer = boto3.client("lambda").get_function_configuration(FunctionName=function)
    except (BotoCoreError, ClientError) as error:
        raise fail(f"--function {function}: {error}", FAILED) from error
    return answer.get("Environment", {}).get("Variables", {})


def _serving(
    wired: "Wired",
    settings: "WorkerSettings",
    environment: Mapping[str, str],
    *,
    name: str | None,
    concurrency: int,
) -> "Serving":
    from lamplighter.aws.worker import serving  # noqa: PLC0415
    from lamplighter.tasks.registry import InvalidTasks  # noqa: PLC0415
    from lamplighter.tasks.shell import NotAllowedHere  # noqa: PLC0415

    # As in Lambda, where a task's folder is on the path.
    sys.path.insert(0, str(Path.cwd()))
    try:
        return serving(
            wired,
            settings,
            environment,
            name=name or f"{socket.gethostname()}-{os.getpid()}",
            concurrency=concurrency,
        )
    except (InvalidTasks, NotAllowedHere) as error:
        raise fail(str(error), REFUSED) from error


def _end_by_signals(serving: "Serving") -> None:
    """The first asks it to drain; the second lets nothing that runs go on for its own time."""

    def end(_number: int, _frame: FrameType | None) -> None:
        if serving.is_stopping:
            serving.hurry()
        serving.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
