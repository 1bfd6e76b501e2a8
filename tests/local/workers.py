"""What becomes of workers that die, hang, are refused and race, measured on the local stack."""

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lamplighter.aws.queue import body_of
from lamplighter.client import Client
from lamplighter.core.buckets import parse_execution_id
from lamplighter.core.limits import TAKE_OVER_GRACE, WORKER_LEASE
from lamplighter.core.model import Message
from lamplighter.local.server import listen, port_of, serving
from tests.local.books import Try, at_once, tries_of
from tests.local.emulated import Emulated, events
from tests.local.measuring import (
    Execution,
    Scheduler,
    Verdict,
    ahead,
    attempts,
    instant,
    told,
    until,
)
from tests.local.product import Product

if TYPE_CHECKING:
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

CHOSEN: Final[Mapping[str, str]] = {
    "tasks_folder": str(Path(__file__).parent / "probes"),
    "tasks_module": "probes.tasks",
}
"""The context that the product is started with: tasks that hang, grow and hear nothing."""
SECOND_ONLY: Final = "probes.second"

# What the emulator adds: a pause of one second after a death, the look into an idle queue once
# a second, and the start of a process, which takes one to eight on cores that all of it shares.
EMULATOR: Final = timedelta(seconds=10)
TAKEN_OVER_WITHIN: Final = WORKER_LEASE + TAKE_OVER_GRACE + EMULATOR
UNSHRUNK_WITHIN: Final = timedelta(minutes=3)
TIMEOUT_S: Final = 3
NEIGHBOURS: Final = 9
NEIGHBOUR_S: Final = 8.0
# Asked to stop, five seconds of grace, its neighbours, and its process's end.
HUNG_ENDS_WITHIN: Final = timedelta(seconds=TIMEOUT_S + 5 + NEIGHBOUR_S) + EMULATOR
# Asked to stop, two seconds until SIGTERM, one more until SIGKILL.
DEAF_ENDS_WITHIN: Final = timedelta(seconds=TIMEOUT_S + 3) + EMULATOR
CALLS: Final = 1000
LET_IN_PER_SECOND: Final = 20
RETRY_AFTER_S: Final = 5
LIMIT: Final = 3
RACING: Final = 50
COPIES: Final = 10
ONCE: Final = {"max_attempts": 1}


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A scheduler, the machine that it runs on, and the books of its tries."""

    scheduler: Scheduler
    emulated: Emulated
    folder: Path

    @property
    def product(self) -> Product:
        return self.scheduler.product

    def book(self, name: str) -> Path:
        return self.folder / f"{name}.book"

    def witness(self, book: str, task: str = "witness", **fields: object) -> str:
        """A job whose tries write into a book; `seconds` and such are its payload's."""
        payload = {"book": str(self.book(book)), "seconds": fields.pop("seconds", 0)}
        return self.scheduler.create(task, payload, **fields)


def killed_in_mid_task(bench: Bench) -> Iterator[Verdict]:
    """`kill -9` long before the first beat: its last sign of life is its claim."""
    job = bench.witness("killed", seconds=8, queue="critical")
    [begun] = _await_tries(bench.book("killed"), 1)
    time.sleep(1)
    os.kill(begun.pid, signal.SIGKILL)
    died = time.time()
    execution = bench.scheduler.ended(job, within=timedelta(minutes=2))
    first, second = [instant(one["started_at"]) for one in attempts(execution)]
    noticed = _noticed(bench, str(execution["execution_id"]), after=died)
    yield Verdict(
        promise=f"a task whose worker is killed: another try within {_s(TAKEN_OVER_WITHIN)} of "
        "its last sign of life, and done",
        kept=execution["status"] == "SUCCEEDED" and second - first <= TAKEN_OVER_WITHIN,
        figure=f"{_s(second - first)} after it, {second.timestamp() - died:.1f} s after the kill; "
        f"{execution['status']}, {len(attempts(execution))} tries",
    )
    yield Verdict(
        promise=f"its death is noticed within {_s(WORKER_LEASE)} of the shrink",
        kept=noticed is not None and noticed <= (WORKER_LEASE + EMULATOR).total_seconds(),
        figure="not logged" if noticed is None else f"its message is back {noticed:.1f} s later",
    )


def dies_before_the_shrink(bench: Bench) -> Iterator[Verdict]:
    """Frozen before it is given the message, and killed when it has it: it did nothing at all."""
    frozen = bench.product.processes_of("BulkWorker")
    _signal(frozen, signal.SIGSTOP)
    try:
        job = bench.witness("unshrunk", queue="bulk")
        taken = until(lambda: bench.emulated.in_flight("BulkWorker") > 0, timedelta(seconds=20))
    finally:
        _signal(frozen, signal.SIGKILL)
    died = time.time()
    execution = bench.scheduler.ended(job, within=timedelta(minutes=5))
    again = _started(execution) - died
    yield Verdict(
        promise=f"one that dies before the shrink is noticed within {_s(UNSHRUNK_WITHIN)}",
        kept=taken
        and execution["status"] == "SUCCEEDED"
        and 0 < again <= UNSHRUNK_WITHIN.total_seconds(),
        figure=f"started {again:.1f} s after the death; {execution['status']}",
    )


def hung(bench: Bench) -> Iterator[Verdict]:
    yield from _beside_neighbours(
        bench,
        "hung",
        queue="critical",
        error="TimedOut",
        within=HUNG_ENDS_WITHIN,
        promise=f"a task that hangs ends at its timeout of {TIMEOUT_S} s, after its neighbours",
    )


def deaf(bench: Bench) -> Iterator[Verdict]:
    yield from _beside_neighbours(
        bench,
        "deaf",
        queue="default",
        error="TimedOut",
        within=DEAF_ENDS_WITHIN,
        promise=f"a task that blocks signals is killed at its timeout of {TIMEOUT_S} s",
    )


def hungry(bench: Bench) -> Iterator[Verdict]:
    yield from _beside_neighbours(
        bench,
        "hungry",
        queue="default",
        error="MemoryLimit",
        within=timedelta(seconds=10) + EMULATOR,
        promise="a task over its 96 MB is killed, and its error says so",
    )


def _beside_neighbours(
    bench: Bench, task: str, *, queue: str, error: str, within: timedelta, promise: str
) -> Iterator[Verdict]:
    """The task dead-lettered in time with that error, and nine others done at their first try."""
    run_at = ahead(timedelta(seconds=4))
    timeout = TIMEOUT_S if error == "TimedOut" else 60
    job = bench.witness(
        task, task, run_at=run_at, queue=queue, timeout_seconds=timeout, retry_policy=ONCE
    )
    book = f"beside-{task}"
    neighbours = [
        bench.witness(book, seconds=NEIGHBOUR_S, run_at=run_at, queue=queue)
        for _ in range(NEIGHBOURS)
    ]
    execution = bench.scheduler.ended(job, within=timedelta(minutes=2))
    ends = [bench.scheduler.ended(one, within=timedelta(minutes=2)) for one in neighbours]
    unharmed = sum(end["status"] == "SUCCEEDED" and len(attempts(end)) == 1 for end in ends)
    [own] = tries_of(bench.book(task))
    together = sum(one.pid == own.pid for one in tries_of(bench.book(book)))
    lasted = instant(execution["finished_at"]) - instant(execution["started_at"])
    failure = execution["error"]
    said = failure["type"] if isinstance(failure, dict) else "no error"
    yield Verdict(
        promise=f"{promise}; its {NEIGHBOURS} neighbours are unharmed",
        kept=execution["status"] == "DEAD_LETTERED"
        and said == error
        and lasted <= within
        and unharmed == NEIGHBOURS,
        figure=f"{said} after {_s(lasted)} (at most {_s(within)}); {unharmed} neighbours done at "
        f"once, {together} in its process",
    )


def taken_out(bench: Bench) -> Iterator[Verdict]:
    """A deploy that has the second version of a task only; then one that has the first, too."""
    bench.emulated.deploy_tasks("BulkWorker", SECOND_ONLY)
    made_for = {"queue": "bulk", "payload": None}
    second = bench.scheduler.create("versioned", task_version=2, **made_for)
    first = bench.scheduler.create("versioned", task_version=1, **made_for)

    def is_parked() -> bool:
        return bench.scheduler.executions(first)[0]["status"] == "PARKED"

    parked = until(is_parked, timedelta(seconds=30))
    seen = bench.scheduler.executions(first)[0]
    listed = bench.scheduler.client.get("/v1/executions", params={"status": "parked"}).json()
    other = bench.scheduler.ended(second, within=timedelta(seconds=30))
    bench.emulated.deploy_tasks("BulkWorker", CHOSEN["tasks_module"])
    back = time.time()
    execution = bench.scheduler.ended(first, within=timedelta(minutes=2))
    yield Verdict(
        promise="a deploy without a task's version parks what was made for it, visibly",
        kept=parked
        and [one["job_id"] for one in listed["items"]] == [first]
        and other["result"] == "the second",
        figure=f"{seen['status']}: {seen['reason']}; meanwhile {other['result']!r}",
    )
    yield Verdict(
        promise="and it is done when the version is back, by its first attempt",
        kept=execution["result"] == "the first" and len(attempts(execution)) == 1,
        figure=f"{execution['status']}, started {_started(execution) - back:.1f} s after the "
        f"deploy, {len(attempts(execution))} tries",
    )


def permits(bench: Bench) -> Iterator[Verdict]:
    limit = {"kind": "task", "name": "held"}
    client = bench.scheduler.client
    client.put("/v1/limits", json={**limit, "limit": LIMIT}).raise_for_status()
    time.sleep(11)  # every worker has taken note of a first limit after ten
    run_at = ahead(timedelta(seconds=6))
    begun = time.monotonic()
    jobs = [bench.witness("held", "held", seconds=1, run_at=run_at) for _ in range(RACING)]
    ends = [bench.scheduler.ended(job, within=timedelta(minutes=4)) for job in jobs]
    lasted = time.monotonic() - begun
    client.delete("/v1/limits", params=limit).raise_for_status()
    tries = tries_of(bench.book("held"))
    done = sum(end["status"] == "SUCCEEDED" for end in ends)
    yield Verdict(
        promise=f"of {RACING} that race for {LIMIT} places never more run at once, and all do",
        kept=at_once(tries) == LIMIT and done == RACING == len(tries),
        figure=f"at most {at_once(tries)} at once, {done} done by {len(tries)} tries in "
        f"{lasted:.0f} s",
    )


def copies(bench: Bench) -> Iterator[Verdict]:
    """Each message in ten copies, all due at one instant: the lane's processes race for them."""
    run_at = ahead(timedelta(seconds=20))
    jobs = [bench.witness("copies", seconds=0.5, run_at=run_at) for _ in range(COPIES)]
    bodies = [_body(bench.scheduler.executions(job)[0]) for job in jobs]
    url = bench.emulated.queue_of("DefaultWorker")
    for body in bodies:
        entries: list[SendMessageBatchRequestEntryTypeDef] = [
            {"Id": str(n), "MessageBody": body, "DelaySeconds": 15} for n in range(COPIES)
        ]
        bench.emulated.sqs.send_message_batch(QueueUrl=url, Entries=entries)
    ends = [bench.scheduler.ended(job, within=timedelta(minutes=2)) for job in jobs]
    time.sleep(3)  # for the copies that come last
    tries = tries_of(bench.book("copies"))
    done = sum(end["status"] == "SUCCEEDED" for end in ends)
    yield Verdict(
        promise=f"of {COPIES} executions whose messages come {COPIES + 1} times each runs once",
        kept=done == COPIES == len(tries),
        figure=f"{done} done by {len(tries)} tries in {len({one.pid for one in tries})} processes",
    )


@dataclass(kw_only=True)
class Busy:
    """A server that lets in so many a second, and tells all others to come back later."""

    let_in: int = 0
    window: int = 0
    asked: Counter[int] = field(default_factory=Counter)
    """By second."""
    done: Counter[str] = field(default_factory=Counter)
    """By idempotency key."""
    refused: Counter[str] = field(default_factory=Counter)
    lock: Lock = field(default_factory=Lock)

    async def answer(self, request: Request) -> Response:
        key = request.headers["idempotency-key"]
        second = int(time.monotonic())
        with self.lock:
            self.asked[second] += 1
            if second != self.window:
                self.window, self.let_in = second, 0
            if self.let_in < LET_IN_PER_SECOND:
                self.let_in += 1
                self.done[key] += 1
                return Response(status_code=204)
            self.refused[key] += 1
        return Response(status_code=429, headers={"Retry-After": str(RETRY_AFTER_S)})


def rate_limited(bench: Bench) -> Iterator[Verdict]:
    busy = Busy()
    with _served(busy) as url, Client(bench.product.url, bench.product.token) as client:
        body = {
            "target": {"kind": "http", "url": url},
            "payload": None,
            "retry_policy": {"max_attempts": 100},
        }
        begun = time.monotonic()
        for _ in range(CALLS // 50):
            made = client.create_many([body] * 50)
            refused = [one["body"] for one in made if one["status"] != 201]
            assert not refused, refused[0]
        until(lambda: len(busy.done) == CALLS, timedelta(minutes=8))
        lasted = time.monotonic() - begun
        time.sleep(5)  # for the last outcomes
        ends = [one for one in client.executions() if one["task"].startswith("http:")]
    status = Counter(one["status"] for one in ends)
    twice = sum(count > 1 for count in busy.done.values())
    rate = [count for _, count in sorted(busy.asked.items())]
    yield Verdict(
        promise=f"{CALLS} calls of a target that lets in {LET_IN_PER_SECOND} a second, and answers "
        f"429 with Retry-After: {RETRY_AFTER_S} else, are all done in the end",
        kept=status == {"SUCCEEDED": CALLS} and twice == 0,
        figure=f"{dict(status)} in {lasted:.0f} s; {sum(rate)} requests, {sum(rate) / lasted:.0f} "
        f"a second, {max(rate)} in the busiest; {busy.refused.total()} refused, at most "
        f"{max(busy.refused.values(), default=0)} times one; {twice} done twice",
    )


@contextmanager
def _served(busy: Busy) -> Iterator[str]:
    listening = listen(0)
    with serving(Starlette(routes=[Route("/", busy.answer, methods=["POST"])]), listening):
        yield f"http://127.0.0.1:{port_of(listening)}/"


def workers(product: Product) -> Iterator[Verdict]:
    """Lane by lane side by side, for all but the last is waiting; then what needs both cores."""
    lanes: Sequence[Sequence[Callable[[Bench], Iterator[Verdict]]]] = (
        (taken_out, dies_before_the_shrink),
        (killed_in_mid_task, hung),
        (deaf, hungry, permits, copies),
    )
    with product.client() as client, ThreadPoolExecutor() as side_by_side:
        bench = Bench(
            scheduler=Scheduler(product=product, client=client),
            emulated=Emulated(product),
            folder=product.folder,
        )

        def measured(checks: Sequence[Callable[[Bench], Iterator[Verdict]]]) -> list[Verdict]:
            return [verdict for check in checks for verdict in told(check(bench))]

        for done in [side_by_side.submit(measured, checks) for checks in lanes]:
            yield from done.result()
        yield from measured([rate_limited])


def _await_tries(book: Path, number: int) -> Sequence[Try]:
    until(lambda: len(tries_of(book)) >= number, timedelta(seconds=30))
    return tries_of(book)


def _noticed(bench: Bench, execution: str, *, after: float) -> float | None:
    """How long after an instant a worker was given an execution's message again, first."""
    seen = [
        instant(str(event["timestamp"]).replace(",", ".")).timestamp() - after
        for event in events(bench.folder)
        if event.get("execution_id") == execution
        and event["message"] in {"claim_lost", "taken_over"}
    ]
    return min((ago for ago in seen if ago > 0), default=None)


def _body(execution: Execution) -> str:
    return body_of(
        Message(
            execution_id=parse_execution_id(str(execution["execution_id"])),
            attempt=1,
            due_at=instant(execution["run_at"]),
        )
    )


def _started(execution: Execution) -> float:
    return instant(execution["started_at"]).timestamp()


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        os.kill(pid, number)


def _s(duration: timedelta) -> str:
    return f"{duration.total_seconds():.1f} s"
