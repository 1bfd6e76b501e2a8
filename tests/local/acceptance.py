"""The local product, measured: `make accept` prints a figure for each promise.

`python -m tests.local.acceptance light` goes through what a first user sees, in eight minutes;
`workers` through what becomes of workers that die, hang and are refused, in five. Without a name
it is both, one after the other. Everything goes through HTTP on 127.0.0.1, except what is done
to processes and queues of the run.
"""

import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Final

from lamplighter.core.lease import Ticker
from tests.local import workers
from tests.local.emulated import Emulated
from tests.local.measuring import (
    Scheduler,
    Verdict,
    ahead,
    attempts,
    instant,
    lateness,
    told,
)
from tests.local.product import Product, await_ready, run

BURST = 20
FAR = timedelta(minutes=6)
ON_TIME_MS = 2_000
FIRST_ON_TIME_MS = 5_000


def first_job(scheduler: Scheduler) -> Iterator[Verdict]:
    job = scheduler.create("echo", "first", run_at=ahead(timedelta(seconds=5)))
    late = lateness(scheduler.ended(job, within=timedelta(seconds=30)))
    yield Verdict(
        promise="the very first job, 5 s ahead, starts within 5 s and not before",
        kept=0 <= late < FIRST_ON_TIME_MS,
        figure=f"{late} ms late",
    )


def burst(scheduler: Scheduler) -> Iterator[Verdict]:
    jobs = [scheduler.create("echo", n, run_at=ahead(timedelta(seconds=5))) for n in range(BURST)]
    late = sorted(lateness(scheduler.ended(job, within=timedelta(seconds=30))) for job in jobs)
    on_time = sum(0 <= ms <= ON_TIME_MS for ms in late)
    yield Verdict(
        promise=f"of {BURST} jobs due 5 s ahead none starts early, 95 % within 2 s",
        kept=late[0] >= 0 and on_time >= 0.95 * BURST,
        figure=f"{late[0]} to {late[-1]} ms late, {on_time} within 2 s",
    )


def same_second(scheduler: Scheduler) -> Iterator[Verdict]:
    run_at = ahead(timedelta(seconds=6))
    jobs = [scheduler.create("echo", n, run_at=run_at) for n in range(BURST)]
    late = sorted(lateness(scheduler.ended(job, within=timedelta(seconds=30))) for job in jobs)
    on_time = sum(0 <= ms <= ON_TIME_MS for ms in late)
    yield Verdict(
        promise=f"the same with all {BURST} due at one instant",
        kept=late[0] >= 0 and on_time >= 0.95 * BURST,
        figure=f"{late[0]} to {late[-1]} ms late, {on_time} within 2 s",
    )


def flaky(scheduler: Scheduler) -> Iterator[Verdict]:
    quick = {"max_attempts": 3, "base_seconds": 1, "factor": 2, "max_seconds": 10}
    recovers = scheduler.create("flaky", {"failures": 2}, retry_policy=quick)
    never = scheduler.create("flaky", {"failures": 9}, retry_policy=quick)
    for promise, job, status in (
        ("flaky succeeds at its third attempt", recovers, "SUCCEEDED"),
        ("flaky that never succeeds is dead-lettered after three", never, "DEAD_LETTERED"),
    ):
        execution = scheduler.ended(job, within=timedelta(seconds=60))
        tries = attempts(execution)
        errors = [bool(attempt["error"]) for attempt in tries]
        yield Verdict(
            promise=f"{promise}, each with its time and error",
            kept=execution["status"] == status
            and errors == [True, True, status != "SUCCEEDED"]
            and all(attempt["started_at"] for attempt in tries),
            figure=f"{execution['status']}; started {_seconds_apart(tries)}",
        )


def crash(scheduler: Scheduler) -> Iterator[Verdict]:
    begun = time.monotonic()
    job = scheduler.create("crash", {"by": "kill"}, queue="bulk")
    execution = scheduler.ended(job, within=timedelta(minutes=4))
    yield Verdict(
        promise="a job that kills its process each time is given up, and its lane lives",
        kept=execution["status"] == "DEAD_LETTERED",
        figure=f"{execution['status']} after {time.monotonic() - begun:.0f} s, "
        f"{len(attempts(execution))} tries",
    )


def killed(scheduler: Scheduler) -> Iterator[Verdict]:
    begun = time.monotonic()
    job = scheduler.create("sleep", {"seconds": 8}, queue="critical")
    scheduler.running(job, within=timedelta(seconds=20))
    workers = scheduler.product.processes_of("CriticalWorker")
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    execution = scheduler.ended(job, within=timedelta(minutes=3))
    yield Verdict(
        promise="a job whose worker is killed in mid-job is done by another attempt",
        kept=bool(workers) and execution["status"] == "SUCCEEDED",
        figure=f"{execution['status']} {time.monotonic() - begun:.0f} s after it was created, "
        f"{len(attempts(execution))} tries",
    )


def long_job(scheduler: Scheduler) -> Iterator[Verdict]:
    job = scheduler.create("sleep", {"seconds": 70}, timeout_seconds=120)
    execution = scheduler.ended(job, within=timedelta(minutes=3))
    yield Verdict(
        promise="a job of 70 s keeps its lease, and runs once",
        kept=execution["status"] == "SUCCEEDED" and len(attempts(execution)) == 1,
        figure=f"{execution['status']}, {len(attempts(execution))} tries",
    )


def every_minute(scheduler: Scheduler) -> Iterator[Verdict]:
    job = scheduler.create("echo", "tick", rate="1 minute")
    time.sleep(4 * 60)
    ended = [e for e in scheduler.executions(job) if e["status"] == "SUCCEEDED"]
    slots = sorted(instant(execution["run_at"]) for execution in ended)
    gaps = [(later - earlier).total_seconds() for earlier, later in pairwise(slots)]
    late = [lateness(execution) for execution in ended]
    yield Verdict(
        promise="rate(1 minute) runs on each of three consecutive minutes",
        kept=len(slots) >= 3 and set(gaps) == {60.0} and min(late) >= 0,
        figure=f"{len(slots)} runs, {gaps} s apart, {sorted(late)} ms late",
    )
    scheduler.client.delete(f"/v1/jobs/{job}").raise_for_status()


def two_clocks(scheduler: Scheduler) -> Iterator[Verdict]:
    """Asked last: each ticks once a minute."""
    log = Emulated(scheduler.product).logged()
    ticks = {clock: len(re.findall(f'"ticks_by_{clock}": ?\\[', log)) for clock in Ticker}
    yield Verdict(
        promise="both clocks tick",
        kept=min(ticks.values()) >= 3,
        figure=", ".join(f"{count} times by {clock}" for clock, count in ticks.items()),
    )


def far_ahead(scheduler: Scheduler) -> Iterator[Verdict]:
    jobs = [scheduler.create("echo", n, run_at=ahead(FAR)) for n in range(5)]
    late = [lateness(scheduler.ended(job, within=FAR + timedelta(seconds=30))) for job in jobs]
    yield Verdict(
        promise="jobs 6 minutes out come through the dispatcher within 2 s",
        kept=all(0 <= ms <= ON_TIME_MS for ms in late),
        figure=f"{sorted(late)} ms late",
    )


def light(product: Product) -> Iterator[Verdict]:
    """What a first user sees, the long of it side by side."""
    with product.client() as client, ThreadPoolExecutor() as side_by_side:
        scheduler = Scheduler(product=product, client=client)
        yield from told(first_job(scheduler))
        long = [
            side_by_side.submit(told, check(scheduler))
            for check in (far_ahead, every_minute, long_job, killed, crash)
        ]
        for check in (burst, same_second, flaky, burst):
            yield from told(check(scheduler))
        for done in long:
            yield from done.result()
        yield from told(two_clocks(scheduler))


Section = tuple[Callable[[Product], Iterator[Verdict]], Mapping[str, str]]
SECTIONS: Final[Mapping[str, Section]] = {
    "light": (light, {}),
    "workers": (workers.workers, workers.CHOSEN),
}
"""What is measured, and the context that its product is started with."""


def main(names: Sequence[str]) -> int:
    if unknown := [name for name in names if name not in SECTIONS]:
        sys.exit(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    verdicts: list[Verdict] = []
    for name in names or SECTIONS:
        measured, chosen = SECTIONS[name]
        with tempfile.TemporaryDirectory() as folder, run(Path(folder), chosen=chosen) as product:
            await_ready(product)
            print(f"{name}: ready after {product.ready_after_s:.1f} s, from nothing but the set-up")
            verdicts += measured(product)
    return 0 if all(verdict.kept for verdict in verdicts) else 1


def _seconds_apart(tries: Sequence[Mapping[str, object]]) -> str:
    starts = [instant(attempt["started_at"]) for attempt in tries]
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    return " and ".join(f"{gap.total_seconds():.1f} s" for gap in gaps) + " apart"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
