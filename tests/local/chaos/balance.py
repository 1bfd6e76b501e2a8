"""Whether the accounts balance: what was accepted, what ran, and what is said of it.

Each rule names what is wrong, one line for each case; none is a promise kept.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Final

from lamplighter.client import Document
from lamplighter.core.limits import CRASH_LIMIT, TAKE_OVER_GRACE, WORKER_LEASE
from lamplighter.core.retry import Kind
from tests.local.books import Try, pairs
from tests.local.chaos.load import Accepted

# Between two words of a handler that lives there is half a second; past this its host stood still.
STOOD_STILL_S: Final = (WORKER_LEASE - TAKE_OVER_GRACE).total_seconds()
# A host that wakes up has to notice that it has lost what it held: the grace, in which it is.
WOKEN_S: Final = TAKE_OVER_GRACE.total_seconds()
# Between an instant that is told in milliseconds and the clock.
ROUNDING_S: Final = 0.001


@dataclass(frozen=True, kw_only=True)
class Found:
    """All there is to judge by."""

    accepted: Sequence[Accepted]
    executions: Mapping[str, Sequence[Document]]
    """By job: those of one-offs, and all that is kept of recurring ones."""
    waiting: Sequence[Document]
    """What has not ended, of anybody's."""
    ledgers: Mapping[str, Document]
    listed: Sequence[Document]
    """All definitions."""
    tries: Sequence[Try]
    cancels: Collection[str]
    cancelled_at: Mapping[str, float]

    @property
    def every(self) -> Iterator[Document]:
        for executions in self.executions.values():
            yield from executions


def broken(found: Found) -> Mapping[str, Sequence[str]]:
    """By promise, what breaks it."""
    return {
        "each accepted job has its execution, and all have ended": [*_lost(found)],
        "nothing ended otherwise than it should": [*_ended_wrongly(found)],
        "nothing started early": [*_early(found)],
        "of one execution one try lived at a time": [*_two_lives(found)],
        "of one job that does not allow overlap one execution ran at a time": [*_overlaps(found)],
        "of each execution one result was accepted, that of a try": [*_results(found)],
        "nothing started after the answer that it is cancelled": [*_after_cancel(found)],
        "a key made one job": [*_made_twice(found)],
        "the ledgers balance, and miss nothing": [*_unaccounted(found)],
    }


def _lost(found: Found) -> Iterator[str]:
    for job in found.accepted:
        if not found.executions.get(job.job):
            yield f"{job.job} has no execution"
    for one in found.waiting:
        yield f"{one['execution_id']} of {one['job_id']} is {one['status']}"


def _ended_wrongly(found: Found) -> Iterator[str]:
    """Handlers fail a few times and then succeed; a try that dies or is stopped is made again."""
    for job in found.accepted:
        may = {"SUCCEEDED"}
        if job.overlap is not None:
            may |= {"SKIPPED", "CANCELLED"}
        elif job.job in found.cancels:
            may |= {"CANCELLED"}
        for one in found.executions.get(job.job, ()):
            if one["status"] not in may and not _is_killed_thrice(one):
                yield f"{one['execution_id']}: {one['status']}, {one['reason']}, {one['error']}"


def _is_killed_thrice(execution: Document) -> bool:
    """As it should be: workers died of it three times."""
    errors = [one["error"] or {} for one in execution["attempts"]]
    crashes = sum(error.get("kind") == Kind.LOST_LEASE for error in errors)
    return bool(execution["status"] == "DEAD_LETTERED") and crashes >= CRASH_LIMIT


def _early(found: Found) -> Iterator[str]:
    run_at = {one["execution_id"]: _seconds(one["run_at"]) for one in found.every}
    for one in found.tries:
        early = run_at.get(one.execution, 0) - one.begun_wall
        if early > ROUNDING_S:
            yield f"{one.execution} began {early:.3f} s early"


def _two_lives(found: Found) -> Iterator[str]:
    of_one = attrgetter("execution")
    for execution, tries in groupby(sorted(found.tries, key=of_one), of_one):
        for earlier, later in pairs(sorted(tries, key=attrgetter("begun"))):
            yield from _meeting(execution, earlier, later)


def _overlaps(found: Found) -> Iterator[str]:
    job_of = {one["execution_id"]: one["job_id"] for one in found.every}
    alone = {one.job for one in found.accepted if one.overlap not in {None, "ALLOW"}}
    of_jobs: dict[str, list[Try]] = {}
    for one in found.tries:
        if (job := job_of.get(one.execution)) in alone:
            of_jobs.setdefault(str(job), []).append(one)
    for job, tries in of_jobs.items():
        for earlier, later in pairs(tries):
            if earlier.execution != later.execution:
                yield from _meeting(job, earlier, later)


def _meeting(what: str, earlier: Try, later: Try) -> Iterator[str]:
    """Two that lived at one instant, unless the one had stood still, and stopped once it woke."""
    common = sum(
        max(0.0, min(mine[1], others[1]) - max(mine[0], others[0]))
        for mine in _lives(earlier)
        for others in _lives(later)
    )
    has_stood_still = len(_lives(earlier)) > 1 or len(_lives(later)) > 1
    if common > (WOKEN_S if has_stood_still else 0.0):
        yield f"{what}: tries {earlier.id[:8]} and {later.id[:8]} lived {common:.2f} s together"


def _lives(one: Try) -> Sequence[tuple[float, float]]:
    """From the first to the last word, without the times in which its host stood still."""
    lives = [[one.begun, one.begun]]
    for mark in one.marks:
        if mark - lives[-1][1] >= STOOD_STILL_S:
            lives.append([mark, mark])
        lives[-1][1] = mark
    return [(begun, ended) for begun, ended in lives]


def _results(found: Found) -> Iterator[str]:
    returned = {one.id: one.execution for one in found.tries if one.end == "returned"}
    for one in found.every:
        if one["status"] != "SUCCEEDED":
            continue
        id, accepted = one["execution_id"], Counter(t["status"] for t in one["attempts"])
        if accepted["SUCCEEDED"] != 1:
            yield f"{id}: {accepted['SUCCEEDED']} tries succeeded"
        if returned.get(one["result"]["try"]) != id:
            yield f"{id}: its result {one['result']} is of none of its tries"


def _after_cancel(found: Found) -> Iterator[str]:
    for one in found.tries:
        if (at := found.cancelled_at.get(one.execution)) is not None and one.begun_wall > at:
            yield f"{one.execution} began {one.begun_wall - at:.1f} s after the answer"


def _made_twice(found: Found) -> Iterator[str]:
    numbers = Counter(job.get("payload", {}).get("number", 0) for job in found.listed)
    for number, count in numbers.items():
        if number and count > 1:
            yield f"number {number} was made {count} times"


def _unaccounted(found: Found) -> Iterator[str]:
    outcomes = ("fired", "skipped", "cancelled", "expired", "pending", "missed")
    for job, ledger in found.ledgers.items():
        if ledger["missed"] or ledger["pending"]:
            yield f"{job}: {ledger['missed']} missed, {ledger['pending']} pending"
        if ledger["expected"] != sum(ledger[outcome] for outcome in outcomes):
            yield f"{job}: {ledger['expected']} expected, and {ledger['groups']}"


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
