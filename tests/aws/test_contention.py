"""Many who count against one quota at the same instant, as DynamoDB has them meet.

A transaction that meets another one at an item is cancelled, and an update is refused. moto
does neither.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import pytest
from moto import mock_aws

from lamplighter.core.errors import Contended, LamplighterError, OverQuota
from lamplighter.core.quotas import Quota, Quotas
from lamplighter.memory import Counts
from lamplighter.ports import Ports
from lamplighter.services import manage
from tests.contract import worlds
from tests.contract.racing import race
from tests.contract.worlds import Clients, World
from tests.support.atomic import OneAtATime
from tests.support.faulty import refusal
from tests.support.jobs import OWNER, created, every, new_job

# About what a transaction takes.
_FLIGHT_S = 0.01


class Meeting:
    """A client on which writes to one item, one of them in a transaction, do not go together."""

    def __init__(self, client: Any) -> None:  # noqa: ANN401 -- a botocore client
        self._client = client
        self._lock = threading.Lock()
        self._in_flight: set[str] = set()
        self.seen: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 -- as the client's
        return getattr(self._client, name)

    def transact_write_items(self, **request: Any) -> Mapping[str, Any]:  # noqa: ANN401 -- as the client's
        keys = [_key(part) for part in request["TransactItems"]]
        with self._flying(keys) as met:
            if met:
                self.seen["cancelled"] += 1
                codes = ["TransactionConflict" if key in met else "None" for key in keys]
                reasons = [{"Code": code} for code in codes]
                raise refusal("TransactionCanceledException", CancellationReasons=reasons)
            time.sleep(_FLIGHT_S)
            answer: Mapping[str, Any] = self._client.transact_write_items(**request)
            return answer

    @contextmanager
    def _flying(self, keys: Sequence[str]) -> Iterator[frozenset[str]]:
        with self._lock:
            met = self._in_flight.intersection(keys)
            ours = set() if met else {*keys}
            self._in_flight |= ours
        try:
            yield frozenset(met)
        finally:
            with self._lock:
                self._in_flight -= ours


def _key(part: Mapping[str, Any]) -> str:
    (write,) = part.values()
    key = write.get("Key") or {name: write["Item"][name] for name in ("pk", "sk")}
    return f"{write['TableName']} {key}"


@pytest.fixture
def meeting() -> Iterator[tuple[Meeting, World, Ports]]:
    with mock_aws():
        clients = Clients.of()
        OneAtATime().attach(clients.dynamodb)
        client = Meeting(clients.dynamodb)
        with worlds.aws(replace(clients, dynamodb=cast("Any", client))) as world:
            quotas = Quotas(default=Quota(live_jobs=10))
            yield client, world, replace(world.ports, quotas=quotas, telemetry=Counts())


def test_of_fifty_who_create_at_once_all_learn_whether_they_are_in(
    meeting: tuple[Meeting, World, Ports],
) -> None:
    """Case O-A07, with DynamoDB's own conflicts: nobody is told to try again."""
    client, world, ports = meeting

    def create(_: int) -> str:
        try:
            created(ports, new_job(schedule=every("1 hour")))
        except OverQuota:
            return "over quota"
        return "created"

    answers = Counter(race(create, 50))

    assert answers == {"created": 10, "over quota": 40}
    assert client.seen["cancelled"] > 10
    assert world.ports.tally.usage(OWNER).live_jobs == 10
    assert len(world.jobs.of_owner(OWNER, before=None, limit=100)) == 10


def test_of_fifty_who_delete_and_create_at_once_the_count_is_what_there_is(
    meeting: tuple[Meeting, World, Ports],
) -> None:
    _, world, ports = meeting
    jobs = [created(ports, new_job(schedule=every("1 hour"))) for _ in range(10)]

    def act(n: int) -> LamplighterError | None:
        try:
            if n < 10:
                manage.delete(ports, OWNER, jobs[n].job_id)
            else:
                created(ports, new_job(schedule=every("1 hour")))
        except OverQuota:
            return None
        except LamplighterError as error:
            return error
        return None

    # A create may go away with a conflict while there is room; a delete that does, changed nothing.
    others = [error for error in race(act, 30) if error is not None]

    assert all(isinstance(error, Contended) for error in others), others
    there = world.jobs.of_owner(OWNER, before=None, limit=100)
    assert world.ports.tally.usage(OWNER).live_jobs == len(there) <= 10
