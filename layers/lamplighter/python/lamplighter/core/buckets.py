"""Ids, buckets and keys: the only place where a key is made or parsed.

An id is 26 characters of Crockford's base 32 (130 bits): 48 bits of milliseconds since 1970,
12 bits of shard, 70 bits of hash. So an id says which bucket its row lies in, ids sort by
time as text, and the id itself is the sort key.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NewType

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MAX_SHARDS, PAYLOAD_REF_KEY_MAX_CHARS

ExecutionId = NewType("ExecutionId", str)
JobId = NewType("JobId", str)
Position = NewType("Position", str)
"""A place in the one order of all rows, by time, then shard, then hash: a sort key."""
Minute = NewType("Minute", int)
"""Minutes since 1970, UTC: what a bucket is named by."""

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_LETTERS: Final = frozenset(_ALPHABET)
# To the digits that Python reads a number to base 32 by.
_DIGITS: Final = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
_LENGTH: Final = 26
# Two letters at a time: ids are made and read for every row that is dispatched.
_PAIRS: Final = tuple(high + low for high in _ALPHABET for low in _ALPHABET)
_SHIFTS: Final = tuple(range(5 * (_LENGTH - 2), -1, -10))
_MS_BITS: Final = 48
_SHARD_BITS: Final = 12
_HASH_BITS: Final = 70
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MINUTE: Final = timedelta(minutes=1)

_EXECUTION: Final = "ex_"
_RECURRING: Final = "job_"
_ONE_OFF: Final = "one_"

_ANY_EXECUTION: Final = re.compile(rf"{_EXECUTION}[{_ALPHABET}]{{{_LENGTH}}}")

_CHECK_GRID_MINUTES: Final = 5
# Never `.` or `..` between slashes: what is between us and the bucket may resolve them.
_OBJECT_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(?:/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")

OWNER_SUFFIXES: Final = 4
"""How many index partitions one owner's rows are spread over."""
_QUEUED: Final = "q"

JOB_SORT_KEY: Final = "job"
"""Of every job's current definition, and of nothing else."""
KEY_SORT_KEY: Final = "key"
"""Of every idempotency key."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a 26-character id body says: when, in which shard, and which of those."""

    at: datetime
    shard: int
    hash: int


def to_ms(instant: datetime) -> int:
    """Whole milliseconds since 1970; a naive instant is a bug and raises TypeError."""
    return (instant - _EPOCH) // _MILLISECOND


def ms_up(instant: datetime) -> int:
    """Whole milliseconds since 1970, rounded up: for what must not happen before it."""
    ms = to_ms(instant)
    return ms if from_ms(ms) == instant else ms + 1


def from_ms(ms: int) -> datetime:
    """The aware UTC instant of whole milliseconds since 1970."""
    return _EPOCH + ms * _MILLISECOND


def hash_of(*parts: str | int) -> int:
    """70 bits that depend on every part and on their order, the same on every machine."""
    digest = hashlib.sha256(json.dumps(parts).encode()).digest()
    return int.from_bytes(digest[:9], "big") >> 2


def shard_of(hash_bits: int, shards: int) -> int:
    """The shard, 0 … shards − 1, that a hash falls in."""
    return hash_bits % shards


def encode(at_ms: int, shard: int, hash_bits: int) -> Position:
    """The 26-character body of an id; it sorts as (at_ms, shard, hash) does."""
    if not (0 <= at_ms < 1 << _MS_BITS and 0 <= shard < MAX_SHARDS):
        raise ValueError(f"no id holds {at_ms} ms, shard {shard}")
    number = (at_ms << _SHARD_BITS | shard) << _HASH_BITS | hash_bits
    return Position("".join(_PAIRS[number >> shift & 1023] for shift in _SHIFTS))


@lru_cache(maxsize=1024)  # the few that a process is at are asked for again and again
def decode(body: str) -> Place:
    """The inverse of `encode`; raises ValueError for anything it would not have made."""
    if len(body) != _LENGTH or not _LETTERS.issuperset(body):
        raise ValueError(f"not an id body: {body[:40]!r}")
    number = int(body.translate(_DIGITS), 32)
    hash_bits = number & (1 << _HASH_BITS) - 1
    shard = number >> _HASH_BITS & MAX_SHARDS - 1
    try:
        at = from_ms(number >> _HASH_BITS + _SHARD_BITS)
    except OverflowError:
        # 48 bits of milliseconds reach past the year 9999: anyone may send such an id.
        raise ValueError(f"not an id body: {body!r}") from None
    return Place(at=at, shard=shard, hash=hash_bits)


@lru_cache(maxsize=1024)  # the bounds of the minutes that are looked at now
def before(instant: datetime) -> Position:
    """The position just before every row of this instant."""
    return Position(encode(max(0, to_ms(instant)), 0, 0)[:-1])


def through(instant: datetime) -> Position:
    """The position just after every row of this instant."""
    return before(instant + _MILLISECOND)


def instant_of(position: Position) -> datetime:
    """The instant a position lies at; for what `through` made, the millisecond after."""
    return decode(position.ljust(_LENGTH, _ALPHABET[0])).at


def execution_id(run_at: datetime, shard: int, hash_bits: int) -> ExecutionId:
    """An execution's id; its row lies at run_at's minute, in this shard."""
    return ExecutionId(_EXECUTION + encode(to_ms(run_at), shard, hash_bits))


@lru_cache(maxsize=2048)  # whoever looks along a chain asks for its slots again
def occurrence_id(job_id: JobId, scheduled_for: datetime, run_at: datetime) -> ExecutionId:
    """The id of a recurring job's occurrence: planning it twice makes the same one."""
    hash_bits = hash_of("occurrence", job_id, to_ms(scheduled_for))
    return execution_id(run_at, place_of(job_id).shard, hash_bits)


def recurring_job_id(created_at: datetime, shard: int, hash_bits: int) -> JobId:
    """A recurring job's id, which keeps the shard of all its occurrences."""
    return JobId(_RECURRING + encode(to_ms(created_at), shard, hash_bits))


def one_off_job_id(execution: ExecutionId) -> JobId:
    """The id of the one-off job whose definition lies in this execution's row."""
    return JobId(_ONE_OFF + body_of(execution))


def execution_of(job_id: JobId) -> ExecutionId | None:
    """The one execution of a one-off job; None for a recurring one."""
    return ExecutionId(_EXECUTION + body_of(job_id)) if job_id.startswith(_ONE_OFF) else None


def execution_at(position: Position) -> ExecutionId:
    """The execution whose row lies at a position."""
    return ExecutionId(_EXECUTION + position)


def body_of(id: ExecutionId | JobId) -> Position:
    """The id without its prefix: for an execution, its row's sort key."""
    return Position(id.partition("_")[2])


def place_of(id: ExecutionId | JobId) -> Place:
    """When and in which shard the thing with this id lies."""
    return decode(body_of(id))


def parse_execution_id(text: str) -> ExecutionId:
    """The id, or Rejected: never a read for what cannot exist."""
    return ExecutionId(_parse(text, "execution_id", (_EXECUTION,)))


def parse_job_id(text: str) -> JobId:
    """The id of a recurring or one-off job, or Rejected."""
    return JobId(_parse(text, "job_id", (_RECURRING, _ONE_OFF)))


def execution_ids_in(text: str) -> Sequence[ExecutionId]:
    """What looks like an execution's id in a text, in order."""
    return [ExecutionId(found) for found in _ANY_EXECUTION.findall(text)]


def _parse(text: str, field: str, prefixes: tuple[str, ...]) -> str:
    prefix = next((known for known in prefixes if text.startswith(known)), None)
    try:
        decode(text.removeprefix(prefix) if prefix else "")
    except ValueError:
        raise Rejected(field=field, value=text, reason="not an id of this kind") from None
    return text


def minute_of(instant: datetime) -> Minute:
    """The bucket minute that an instant falls in."""
    return Minute(to_ms(instant) // 60_000)


def start_of(minute: Minute) -> datetime:
    """The first instant of a bucket minute."""
    return from_ms(minute * 60_000)


def minutes_between(after: Position, until: Position) -> Iterator[Minute]:
    """Each bucket minute that holds a position in (after, until], in order."""
    first, last = minute_of(instant_of(after)), minute_of(instant_of(until))
    return (Minute(minute) for minute in range(first, last + 1))


def bucket_key(minute: Minute, shard: int) -> str:
    """The partition key of one shard of one minute: `2026-07-12T02:05#07f`."""
    return f"{start_of(minute):%Y-%m-%dT%H:%M}#{shard:03x}"


def parse_bucket_key(key: str) -> tuple[Minute, int]:
    """The inverse of `bucket_key`; raises ValueError for anything else."""
    text, _, shard = key.partition("#")
    minute = minute_of(datetime.strptime(text, "%Y-%m-%dT%H:%M").replace(tzinfo=UTC))
    return minute, int(shard, 16)


def row_key(position: Position) -> tuple[str, str]:
    """(partition key, sort key) of the row at a position."""
    place = decode(position)
    return bucket_key(minute_of(place.at), place.shard), position


def retry_position(execution: ExecutionId, attempt: int, at: datetime) -> Position:
    """Where the pointer that arms one far retry lies; made twice, it is the same row."""
    return encode(to_ms(at), place_of(execution).shard, hash_of("retry", execution, attempt))


def check_position(execution: ExecutionId, at: datetime, *, exactly: bool = False) -> Position:
    """Where the pointer that has an execution looked at again lies: at `at` or soon after.

    Every five minutes there is one place: a visit that is made again books the same row.
    `exactly`, it is the minute of `at`, which is then the same at each such visit.
    """
    minute = -(-to_ms(at) // (_CHECK_GRID_MINUTES * 60_000)) * _CHECK_GRID_MINUTES
    placed = start_of(minute_of(at) if exactly else Minute(minute))
    return encode(to_ms(placed), place_of(execution).shard, hash_of("check", execution))


def watch_place(job: JobId, after: datetime, every: timedelta) -> datetime:
    """The next of the minutes, one each `every`, in which a job's ledger may be looked at.

    Those of a longer distance are among those of any that divides it. Which they are depends on
    the job, so that the jobs of a deployment do not all come in the same minute.
    """
    step = every // _MINUTE
    turn = _watch_hash(job) % step
    minute = (minute_of(after) - turn) // step * step + turn + step
    return start_of(Minute(minute))


def watch_position(job: JobId, at: datetime) -> Position:
    """Where the row lies that has a job's ledger looked at then."""
    return encode(to_ms(at), place_of(job).shard, _watch_hash(job))


def _watch_hash(job: JobId) -> int:
    return hash_of("watch", job)


def payload_key(id: JobId, version: int) -> tuple[str, str]:
    """(partition key, sort key) of a payload that is an item of its own."""
    return f"payload#{id}", f"{version:08d}"


def checkpoint_key(id: ExecutionId) -> tuple[str, str]:
    """(partition key, sort key) of an execution's last checkpoint."""
    return f"checkpoint#{id}", "last"


def ledger_key(owner: str, idempotent_as: str, key: str) -> tuple[str, str]:
    """(partition key, sort key) of what a handler did once; no two owners share one.

    `idempotent_as` is the idempotency key of its execution.
    """
    whose = f"{hash_of('ledger', owner):018x}#{hash_of(owner, 'ledger'):018x}"
    return f"ledger#{whose}#{idempotent_as}", key


def object_prefix(owner: str) -> str:
    """What the keys of an owner's objects begin with: no two owners share one.

    A digest, because an owner's name may be longer than a key, and hold any character.
    """
    return f"{hashlib.sha256(owner.encode()).hexdigest()}/"


def object_key(owner: str, name: str) -> str | None:
    """The key of an owner's object by its name, which may have the prefix already.

    So whatever is said, it is looked for under the owner's own prefix. None for what can be
    no name there: between slashes, letters, digits, `_`, `-` and `.`, but no `.` at first.
    """
    prefix = object_prefix(owner)
    key = prefix + name.removeprefix(prefix)
    is_name = len(key) <= PAYLOAD_REF_KEY_MAX_CHARS and _OBJECT_NAME.fullmatch(name)
    return key if is_name else None


def job_key(job_id: JobId) -> tuple[str, str]:
    """(partition key, sort key) of a job's current definition."""
    return job_id, JOB_SORT_KEY


def job_version_key(job_id: JobId, version: int) -> tuple[str, str]:
    """(partition key, sort key) of an earlier definition of a job; they sort by version."""
    return job_id, f"version#{version:08d}"


def idempotency_key(owner: str, key: str) -> tuple[str, str]:
    """(partition key, sort key) of an owner's idempotency key; no two owners share one."""
    return f"key#{hash_of('key', owner, key):018x}#{hash_of(key, owner):018x}", KEY_SORT_KEY


def owner_key(owner: str, suffix: int) -> str:
    """One of an owner's index partitions, suffix 0 … OWNER_SUFFIXES − 1."""
    return f"{owner}#{suffix:x}"


def owner_keys(owner: str) -> Sequence[str]:
    """All of an owner's index partitions."""
    return [owner_key(owner, suffix) for suffix in range(OWNER_SUFFIXES)]


def owner_key_of(owner: str, id: ExecutionId | JobId) -> str:
    """The index partition that a row of this owner belongs to."""
    return owner_key(owner, place_of(id).hash % OWNER_SUFFIXES)


def queued_keys(owner: str, steps: int) -> Mapping[str, int]:
    """All index partitions of an owner's queued executions, each with the step of its payloads.

    None of them is anybody's `owner_key`: what follows the last `#` is longer.
    """
    return {
        _queued_key(owner, step, suffix): step
        for step in range(steps)
        for suffix in range(OWNER_SUFFIXES)
    }


def queued_key_of(owner: str, id: ExecutionId, step: int) -> str:
    """The index partition of an owner's queued execution whose payload is of this step."""
    return _queued_key(owner, step, place_of(id).hash % OWNER_SUFFIXES)


def is_queued_key(key: str) -> bool:
    """Whether an index partition is one of queued executions."""
    return key.rpartition("#")[2].startswith(_QUEUED)


def _queued_key(owner: str, step: int, suffix: int) -> str:
    return f"{owner}#{_QUEUED}{step:x}{suffix:x}"


def usage_key(owner: str) -> tuple[str, str]:
    """(partition key, sort key) of what an owner is counted to have."""
    return _usage(owner), "held"


def rate_key(owner: str) -> tuple[str, str]:
    """(partition key, sort key) of an owner's bucket of submissions."""
    return _usage(owner), "rate"


def _usage(owner: str) -> str:
    return f"usage#{hash_of('usage', owner):018x}#{hash_of(owner, 'usage'):018x}"


def job_index_keys(job_id: JobId) -> Sequence[str]:
    """All of the index partitions of a job's additional executions."""
    return [owner_key(job_id, suffix) for suffix in range(OWNER_SUFFIXES)]


def job_index_key_of(job_id: JobId, id: ExecutionId) -> str:
    """The index partition that an additional execution of a job belongs to."""
    return owner_key_of(job_id, id)


def owner_of(key: str) -> str:
    """The owner whose index partition this is: the inverse of `owner_key`."""
    return key.rpartition("#")[0]


def execution_id_at(position: Position) -> ExecutionId:
    """The id of the execution whose row lies at this position: the inverse of `body_of`."""
    return ExecutionId(_EXECUTION + position)


def job_id_at(position: Position) -> JobId:
    """Where a position lies in the order of recurring jobs' ids, by time of creation."""
    return JobId(_RECURRING + position)


def partition_key(generation: int, partition: int, work: str) -> tuple[str, str]:
    """(partition key, sort key) of a partition's control item for one kind of work."""
    return f"partition#{generation:04d}#{partition:04d}", work


LAYOUT_KEY: Final = ("layout", "current")

LIMITS_KEY: Final = ("permit#limits", "current")
"""Of all limits of what runs at once; like those of each, it begins with `permit#`."""
WAITS: Final = "wait#"
"""What the sort keys of those that wait for a place begin with; they sort by time."""


def permit_key(kind: str, name: str) -> tuple[str, str]:
    """(partition key, sort key) of who has a place under a limit; no two limits share one."""
    return _permit(kind, name), "held"


def waits_key(kind: str, name: str, id: ExecutionId) -> tuple[str, str]:
    """(partition key, sort key) of an execution that waits for a place under a limit."""
    return _permit(kind, name), f"{WAITS}{body_of(id)}"


def _permit(kind: str, name: str) -> str:
    return f"permit#{hash_of('permit', kind, name):018x}#{hash_of(name, kind, 'permit'):018x}"
