"""What limits of what runs at once cost an execution, beside one that comes under none.

    python bench/bench_permits.py

On moto, in one process: the same one-off run under no limit, under one, two and three, and looks
in vain. Look at the ratios; the milliseconds are moto's and not DynamoDB's. Request units are held
by `tests/contract/test_costs.py`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

import boto3
from moto import mock_aws

from lamplighter.aws.settings import SchedulerSettings
from lamplighter.aws.wiring import wire_to
from lamplighter.core.model import Owner, Payload, Spec
from lamplighter.core.outcome import Succeeded
from lamplighter.core.permits import Key, Kind
from lamplighter.memory import Counts
from lamplighter.ports import Ports, Received
from lamplighter.services import execute, permits
from lamplighter.services.submit import Created, NewJob, submit
from lamplighter.services.timers import outgoing
from tests.support.tables import create_tables

LIMITS = (
    Key(kind=Kind.QUEUE, name="default"),
    Key(kind=Kind.OWNER, name="acme"),
    Key(kind=Kind.TASK, name="echo"),
)
RUNS = 60


def main() -> None:
    with mock_aws():
        ports = _ports()
        _median(ports, _run)  # to warm up
        none_s = _median(ports, _run)
        print(f"no limit       {none_s * 1e3:6.2f} ms")
        for number, key in enumerate(LIMITS, start=1):
            permits.set_limit(ports, key, 20)
            took_s = _median(ports, _run)
            print(
                f"{number} of 20        {took_s * 1e3:6.2f} ms, {took_s / none_s:4.2f} of no limit"
            )
        for key in LIMITS[1:]:
            permits.remove_limit(ports, key)
        permits.set_limit(ports, LIMITS[0], 0)
        vain_s = _median(ports, _look)
        print(f"a look in vain {vain_s * 1e3:6.2f} ms, {vain_s / none_s:4.2f} of no limit")


def _ports() -> Ports:
    session = boto3.Session(
        aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )
    dynamodb, sqs = session.client("dynamodb"), session.client("sqs")
    names = create_tables(dynamodb, "bench")
    url = sqs.create_queue(QueueName="default")["QueueUrl"]
    settings = SchedulerSettings(
        stage="bench",
        executions_table=names.executions,
        jobs_table=names.jobs,
        control_table=names.control,
        queues={"default": (url,)},
        work_queue_url=url,
        log_sample_rate=0.0,
    )
    # Not the real telemetry: its lines would be the better part of a run.
    return replace(wire_to(settings, dynamodb=dynamodb, sqs=sqs).ports, telemetry=Counts())


def _median(ports: Ports, do: Callable[[Ports, Received], object]) -> float:
    took: list[float] = []
    for received in _due(ports):
        start = time.perf_counter()
        do(ports, received)
        took.append(time.perf_counter() - start)
    return median(took)


def _due(ports: Ports) -> Sequence[Received]:
    spec = Spec(task="echo", payload=Payload.of("null"))
    made = [submit(ports, NewJob(owner=Owner("acme"), spec=spec)) for _ in range(RUNS)]
    messages = [outgoing(one.first).message for one in made if isinstance(one, Created)]
    # No receipt that the queue knows: hiding and deleting cost a call, and are passed over.
    return [Received(queue="default", message=one, receipt="none") for one in messages]


def _run(ports: Ports, received: Received) -> object:
    return execute.process(ports, received, lambda _: Succeeded(result="1"), worker="bench")


def _look(ports: Ports, received: Received) -> object:
    return execute.begin(ports, received, worker="bench")


if __name__ == "__main__":
    main()
