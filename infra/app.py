"""The app that `cdk` and `python -m infra.app` synthesize, without docker or credentials."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from aws_cdk import Annotations, App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.bundling import BuildFailed
from infra.configuration import PRODUCTION, Configuration
from infra.paths import ROOT
from infra.stacks.data import DataStack
from infra.stacks.scheduler import SchedulerStack


def build(*, context: Mapping[str, str] | None = None, outdir: Path | None = None) -> App:
    """The app, not yet synthesized; `context` goes before what `cdk.json` says.

    Raises ValueError for a context that makes no sense. `synth()` raises if cdk-nag finds
    something that is not acknowledged.
    """
    defaults = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = App(
        context={**defaults, **(context or {})},
        outdir=str(outdir) if outdir else None,
        analytics_reporting=False,
        stack_traces=False,  # they hold paths of this machine: two synths should be the same
    )
    chosen = Configuration.of(app.node)
    data = DataStack(
        app,
        f"lamplighter-{chosen.stage}-data",
        production=chosen.stage == PRODUCTION,
        backup_copies=chosen.backup_copies,
        kms=chosen.kms,
    )
    scheduler = SchedulerStack(
        app,
        f"lamplighter-{chosen.stage}",
        tables=data.tables,
        tasks=chosen.tasks,
        authentication=chosen.authentication,
        target=chosen.target,
        stage=chosen.stage,
        shell_owners=chosen.shell_owners,
        http_owners=chosen.http_owners,
        http_allow=chosen.http_allow,
        http_signing_secret=chosen.http_signing_secret,
        targets=chosen.targets,
        quotas=chosen.quotas,
        shards=chosen.shards,
        partitions=chosen.partitions,
        drain_per_second=chosen.drain_per_second,
        lanes=chosen.lanes,
        worker_concurrency=chosen.worker_concurrency,
        starts_per_second=chosen.starts_per_second,
        notice_bus=chosen.notice_bus,
        notice_topic=chosen.notice_topic,
        parked_for_seconds=chosen.parked_for_seconds,
        task_tables=chosen.task_tables,
        task_names=chosen.task_names,
    )
    if chosen.issuer_is_missing:
        Annotations.of(scheduler).add_warning_v2(
            "lamplighter:issuer",
            "No token issuer is chosen (-c issuer=https://...): the API will let nobody in",
        )
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Under `cdk`, which passes context and folder its own way, there are no arguments.

    A context that makes no sense ends it with one line that says what is wrong.
    """
    parser = argparse.ArgumentParser(prog="python -m infra.app", description=__doc__)
    parser.add_argument(
        "-c", "--context", action="append", default=[], metavar="NAME=VALUE", help="as for cdk"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="cdk.out unless given")
    parsed = parser.parse_args(arguments)
    if wrong := [pair for pair in parsed.context if "=" not in pair]:
        parser.error(f"--context {wrong[0]!r} is not NAME=VALUE")
    context = dict(pair.split("=", 1) for pair in parsed.context)
    is_under_cdk = parsed.output is None and "CDK_OUTDIR" in os.environ
    # Absolute: the CDK's own process may be in another folder.
    outdir = None if is_under_cdk else (parsed.output or Path("cdk.out")).absolute()
    try:
        app = build(context=context, outdir=outdir)
    except (ValueError, BuildFailed) as error:
        sys.exit(f"{parser.prog}: {error}")
    written = app.synth().directory
    if outdir is not None:
        sys.stdout.write(f"templates and assets: {written}\n")


if __name__ == "__main__":
    main()
