"""Real chaos on the local stack: `make chaos`, `SEED=7 DURATION=600 make chaos`.

A run of its own, with data in a temporary folder. A client submits while workers, dispatchers and
the API's processes are killed, hosts and the emulator are frozen past every lease, and queues are
purged; processes of this run only. Then all is let come to rest, and the accounts must balance.
The seed draws what is done; two runs of one seed are alike, and not the same. Linux only: whether a
dispatcher is at work is seen in /proc.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Final

from lamplighter.client import Client, ClientError, Document
from tests.local.books import tries_of
from tests.local.chaos.balance import Found, broken
from tests.local.chaos.faults import Faults, Strike, schedule
from tests.local.chaos.load import Load
from tests.local.emulated import Emulated, events
from tests.local.measuring import until
from tests.local.product import Product, await_ready, run
from tests.local.workers import CHOSEN

DURATION_S: Final = 240.0
# A worker that dies while its message is purged is found by a check, ten minutes after the sweep.
REST_WITHIN: Final = timedelta(minutes=18)
# What waits is listed by an index that follows its table: looked at twice.
LOOK_AGAIN_S: Final = 5.0
SHOWN: Final = 5
WAITING: Final = "scheduled,queued,running,retrying,blocked,parked"
SEEN: Final = (
    *("taken_over", "claim_lost", "late_result_refused", "recovered", "lost_lease"),
    *("hung", "undeliverable", "passed_over", "missed", "broke", "clock_refused"),
)
"""Of telemetry's events, those that tell of a fault that was met."""
CONTEXT: Final[Mapping[str, str]] = {
    **CHOSEN,
    "quotas": '{"min_interval_seconds": 1}',
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.local.chaos")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--duration", type=float, default=DURATION_S, metavar="SECONDS")
    chosen = parser.parse_args(arguments)
    if sys.platform != "linux":
        sys.exit("chaos needs Linux")
    folder = Path(tempfile.mkdtemp(prefix="lamplighter-chaos-"))
    print(f"seed {chosen.seed}, {chosen.duration:.0f} s; repeat with SEED={chosen.seed} make chaos")
    with run(folder, chosen=CONTEXT) as product:
        await_ready(product)
        print(f"ready after {product.ready_after_s:.1f} s", flush=True)
        with Client(product.url, product.token) as client:
            is_kept = _play(product, client, seed=chosen.seed, duration_s=chosen.duration)
    if is_kept:
        shutil.rmtree(folder)
    else:
        print(f"the log and the tries' book are in {folder}")
    return 0 if is_kept else 1


def _play(product: Product, client: Client, *, seed: int, duration_s: float) -> bool:
    """Trouble, rest, and the accounts; whether they balance."""
    book = product.folder / "tries.book"
    began_at = datetime.now(UTC)
    load = Load(client, book=book, seed=seed)
    load.begin()
    faults = Faults(Emulated(product), book, random.Random(f"{seed} faults"))
    with _submitting(load, duration_s), ThreadPoolExecutor(16) as side_by_side:
        strikes = schedule(duration_s, random.Random(f"{seed} schedule"))
        struck = []
        for at, strike in strikes:
            _sleep_until(faults.began + at)
            struck.append(side_by_side.submit(strike, faults))
        _sleep_until(faults.began + duration_s)
        for one in struck:
            one.result()
    load.end()
    trouble_s = time.monotonic() - faults.began
    came_to_rest, rest_s = _rest(client)
    found = _found(client, load, book=book, since=began_at)
    _report(faults, load, found, product.folder)
    print(f"{trouble_s:.0f} s of trouble, {rest_s:.0f} s until all had ended")
    promises = {
        "each fault took place": _not_struck(faults, strikes),
        **broken(found),
        "every message could be read": _unreadable(product.folder),
    }
    return _judge(promises) and came_to_rest


@contextmanager
def _submitting(load: Load, duration_s: float) -> Iterator[None]:
    stop = Event()
    far_until = time.monotonic() + duration_s / 2
    with ThreadPoolExecutor(2) as threads:
        working = [
            threads.submit(load.submit, stop, far_until=far_until),
            threads.submit(load.meddle, stop),
        ]
        try:
            yield
        finally:
            stop.set()
        for one in working:
            one.result()


def _rest(client: Client) -> tuple[bool, float]:
    """Whether nothing waits any more, and how long that took."""
    begun = time.monotonic()

    def rests() -> bool:
        if _waiting(client) != []:
            time.sleep(LOOK_AGAIN_S)
            return False
        time.sleep(LOOK_AGAIN_S)
        return _waiting(client) == []

    return until(rests, REST_WITHIN), time.monotonic() - begun


def _waiting(client: Client) -> Sequence[Document] | None:
    """None: the API did not answer."""
    try:
        return [*client.executions(status=WAITING)]
    except ClientError:
        return None


def _found(client: Client, load: Load, *, book: Path, since: datetime) -> Found:
    accounts = load.accounts
    start = (since - timedelta(minutes=1)).isoformat()
    return Found(
        accepted=accounts.accepted,
        executions={one.job: [*client.executions(job=one.job)] for one in accounts.accepted},
        waiting=_waiting(client) or [],
        ledgers={
            one.job: client.ledger(one.job, start=start)
            for one in accounts.accepted
            if one.overlap is not None
        },
        listed=[*client.jobs()],
        tries=tries_of(book),
        cancels=accounts.cancels,
        cancelled_at=accounts.cancelled_at,
    )


def _report(faults: Faults, load: Load, found: Found, folder: Path) -> None:
    accounts = load.accounts
    logged = [*events(folder)]
    seen = Counter(str(event["message"]) for event in logged)
    lost = Counter(str(one["reason"]) for one in logged if one["message"] == "claim_lost")
    states = Counter(str(one["status"]) for one in found.every)
    ledgers = [*found.ledgers.values()]
    rows = {
        "struck": _counted(Counter(one.fault for one in faults.struck)),
        "answered": _counted(accounts.done),
        "asked again": f"{accounts.asked_again}, never answered {accounts.unanswered}",
        "accepted": f"{len(accounts.accepted)} jobs, {len([*found.every])} executions",
        "ended": _counted(states),
        "slots": f"{sum(one['expected'] for one in ledgers)} expected, "
        f"{sum(one['fired'] for one in ledgers)} fired, "
        f"{sum(one['missed'] for one in ledgers)} missed",
        "tries": f"{len(found.tries)}, of which {_unended(found)} never said how they ended",
        "seen": _counted({name: seen[name] for name in SEEN if seen[name]}),
        "lost claims": _counted(dict(lost.most_common(SHOWN))),
    }
    print()
    for name, told in rows.items():
        print(f"{name:>12}  {told}")


def _unended(found: Found) -> int:
    return sum(one.end is None for one in found.tries)


def _not_struck(faults: Faults, strikes: Sequence[Strike]) -> Sequence[str]:
    """What proves nothing, for it found nobody to strike."""
    missing = len(strikes) - len(faults.struck)
    return [f"{missing} of {len(strikes)} found nothing to strike"] if missing else []


def _unreadable(folder: Path) -> Sequence[str]:
    return [
        f"{event['queue']}: {event['begins']}"
        for event in events(folder)
        if event["message"] == "unreadable"
    ]


def _judge(promises: Mapping[str, Sequence[str]]) -> bool:
    print()
    is_kept = True
    for promise, cases in promises.items():
        print(f"{'BROKEN' if cases else 'kept  '} {promise}")
        for case in cases[:SHOWN]:
            print(f"         {case}")
        if len(cases) > SHOWN:
            print(f"         and {len(cases) - SHOWN} more")
        is_kept = is_kept and not cases
    return is_kept


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "nothing"


def _sleep_until(instant: float) -> None:
    time.sleep(max(0.0, instant - time.monotonic()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
