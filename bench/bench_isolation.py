"""What a process of its own costs a call, beside a call in the worker's process, in one run.

    python bench/bench_isolation.py

The same task, which does nothing, both ways; one that imports boto3, to see what a module adds;
and what of it is the bare interpreter. Each figure is the median. What to look at are ratios:
an isolated call should stay under 60 bare interpreters on any machine.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import median

from lamplighter.core.model import Owner, Payload, Spec
from lamplighter.core.outcome import Succeeded
from lamplighter.memory import MemoryWorld
from lamplighter.services.execute import Claimed, begin
from lamplighter.services.heartbeat import Heartbeats
from lamplighter.services.submit import NewJob, submit
from lamplighter.tasks.isolation import Isolation
from lamplighter.tasks.runner import TaskRunner
from lamplighter.tasks.source import Source

LIGHT = """
from lamplighter import Context, task

@task("nothing")
def nothing(payload: None, ctx: Context) -> None: ...
"""
HEAVY = "import boto3, boto3.session\nboto3.session.Session()\n"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        Path(folder, "light.py").write_text(LIGHT)
        Path(folder, "heavy.py").write_text(HEAVY + LIGHT.replace('"nothing"', '"loaded"'))
        bare_s = _median(_bare, 20)
        here_s = _median(_call("light", "nothing", is_isolated=False), 200)
        light_s = _median(_call("light", "nothing", is_isolated=True), 20)
        heavy_s = _median(_call("heavy", "loaded", is_isolated=True), 10)
    print(f"bare interpreter        {bare_s * 1e3:8.1f} ms")
    print(f"in the worker's process {here_s * 1e3:8.3f} ms")
    print(f"isolated                {light_s * 1e3:8.1f} ms")
    print(f"isolated, imports boto3 {heavy_s * 1e3:8.1f} ms")
    print(f"isolated / in the worker's process {light_s / here_s:8.0f}")
    print(f"isolated / bare interpreter        {light_s / bare_s:8.1f}")
    print(f"with boto3 / without               {heavy_s / light_s:8.1f}")


def _bare() -> None:
    subprocess.run([sys.executable, "-c", "pass"], check=True)


def _call(module: str, task: str, *, is_isolated: bool) -> Callable[[], None]:
    world, source = MemoryWorld(), Source(module=module)
    isolation = Isolation(source, lambda _, line: print(json.dumps(line)))
    tasks = source.load({})
    runner = TaskRunner(tasks, Heartbeats(world.ports()), world.clock, isolation=isolation)
    claimed = _claimed(world, task)
    if is_isolated:
        claimed = replace(claimed, execution=replace(claimed.execution, crashes=1))

    def call() -> None:
        outcome = runner(claimed)
        if not isinstance(outcome, Succeeded):
            raise SystemExit(f"it failed: {outcome}")

    return call


def _claimed(world: MemoryWorld, task: str) -> Claimed:
    spec = Spec(task=task, payload=Payload.of("null"), timeout=timedelta(seconds=60))
    submit(world.ports(), NewJob(owner=Owner("bench"), spec=spec))
    (received,) = world.queue.receive()
    claimed = begin(world.ports(), received, worker="worker-1")
    if not isinstance(claimed, Claimed):
        raise SystemExit(f"not claimed: {claimed}")
    return claimed


def _median(call: Callable[[], None], times: int) -> float:
    return median(_timed(call) for _ in range(times))


def _timed(call: Callable[[], None]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
