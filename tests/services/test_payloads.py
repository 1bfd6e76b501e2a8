"""Payloads by reference: pinned when a job is made, and held to it when it runs."""

from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256

import pytest

from lamplighter.core import limits
from lamplighter.core.buckets import object_prefix
from lamplighter.core.errors import Rejected, Unavailable
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Owner, Payload, PayloadRef
from lamplighter.core.outcome import Outcome, Succeeded
from lamplighter.core.retry import Kind
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports
from lamplighter.services import execute, payloads
from lamplighter.services.execute import Claimed
from lamplighter.services.payloads import Named
from lamplighter.services.settling import Put
from lamplighter.sim.faults import interposed
from lamplighter.sim.system import System
from tests.support.jobs import OWNER, created, every, new_job

OTHER = Owner("umbrella")
SECOND = timedelta(seconds=1)
CONTENT = '["größer", 1]'.encode()


def digest(content: bytes) -> str:
    return sha256(content).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Kept:
    """An object under an owner's prefix."""

    world: MemoryWorld
    key: str
    version_id: str
    content: bytes

    @property
    def named(self) -> Named:
        return Named(
            key=self.key,
            version_id=self.version_id,
            sha256=digest(self.content),
            size=len(self.content),
        )

    @property
    def ref(self) -> PayloadRef:
        return PayloadRef(
            key=self.key,
            version_id=self.version_id,
            sha256=digest(self.content),
            size=len(self.content),
        )


def keep(
    world: MemoryWorld,
    content: bytes = CONTENT,
    *,
    owner: str = OWNER,
    name: str = "rows",
    has_digest: bool = True,
) -> Kept:
    key = object_prefix(owner) + name
    version_id = world.payloads.put(key, content, has_digest=has_digest)
    return Kept(world=world, key=key, version_id=version_id, content=content)


@pytest.fixture
def system() -> System:
    return System(world=MemoryWorld(shards=4, partitions=1))


@pytest.fixture
def world(system: System) -> MemoryWorld:
    return system.world


@pytest.fixture
def ports(system: System) -> Ports:
    return system.ports


def found(ports: Ports, named: Named, owner: Owner = OWNER) -> Payload:
    return payloads.find(ports, owner, named)


def refusal(ports: Ports, named: Named, owner: Owner = OWNER) -> Rejected:
    with pytest.raises(Rejected) as raised:
        found(ports, named, owner)
    return raised.value


def test_a_payload_is_pinned_to_its_version_its_size_and_its_digest(
    world: MemoryWorld, ports: Ports
) -> None:
    kept = keep(world)

    assert found(ports, kept.named) == Payload.referring(kept.ref)


def test_what_is_not_said_is_taken_from_what_is_kept(world: MemoryWorld, ports: Ports) -> None:
    keep(world, b"[0]")
    latest = keep(world)

    assert found(ports, Named(key="rows")).ref == latest.ref


def test_a_key_is_the_same_with_its_owners_prefix_and_without(
    world: MemoryWorld, ports: Ports
) -> None:
    kept = keep(world)

    assert found(ports, Named(key="rows")) == found(ports, Named(key=kept.key))


def test_somebody_elses_payload_is_refused_in_the_words_for_what_was_never_there(
    world: MemoryWorld, ports: Ports
) -> None:
    theirs = keep(world, owner=OTHER)
    never = replace(theirs.named, key=f"{object_prefix(OTHER)}never")

    refused, missing = refusal(ports, theirs.named), refusal(ports, never)

    assert (refused.field, refused.reason) == (missing.field, missing.reason)
    assert refused.field == "payload_ref"
    assert found(ports, theirs.named, OTHER).ref == theirs.ref


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "..",
        "../rows",
        "./rows",
        "a/../rows",
        "a//b",
        "/rows",
        "rows/",
        ".rows",
        "a/.b",
        "röws",
        "rows\n",
        "rows?versionId=1",
        "%2e%2e/rows",
        "a b",
        "x" * 300,
        f"{object_prefix(OWNER)}../{object_prefix(OTHER)}rows",
        f"../{object_prefix(OTHER)}rows",
    ],
)
def test_a_key_that_is_none_is_not_there_and_nobody_is_asked_for_it(
    world: MemoryWorld, ports: Ports, key: str
) -> None:
    keep(world, owner=OTHER)
    world.payloads.put(key, CONTENT)
    world.payloads.put(object_prefix(OWNER) + key, CONTENT)

    refused = refusal(ports, Named(key=key))

    assert (refused.field, refused.reason) == ("payload_ref", "you have no such payload")


def test_a_version_of_another_object_is_not_one_of_this(world: MemoryWorld, ports: Ports) -> None:
    kept, other = keep(world), keep(world, name="other")

    assert refusal(ports, replace(kept.named, version_id=other.version_id)).field == "payload_ref"


def test_another_size_or_digest_than_it_has_is_refused_by_its_name(
    world: MemoryWorld, ports: Ports
) -> None:
    kept = keep(world)

    size = refusal(ports, replace(kept.named, size=99))
    other = refusal(ports, replace(kept.named, sha256=digest(b"other")))

    assert (size.field, size.value) == ("payload_ref.size", 99)
    assert size.reason == f"the payload has {len(CONTENT)} bytes"
    assert other.field == "payload_ref.sha256"


def test_what_is_kept_without_a_digest_needs_the_callers(world: MemoryWorld, ports: Ports) -> None:
    kept = keep(world, has_digest=False)

    refused = refusal(ports, Named(key="rows"))

    assert refused.field == "payload_ref.sha256"
    assert "x-amz-checksum-sha256" in refused.reason
    assert found(ports, kept.named).ref == kept.ref


@pytest.mark.parametrize("size", [0, limits.PAYLOAD_REF_MAX_BYTES + 1])
def test_what_is_empty_or_too_large_is_refused_whatever_is_said_of_it(
    world: MemoryWorld, ports: Ports, size: int
) -> None:
    keep(world, b"x" * size)

    refused = refusal(ports, Named(key="rows"))

    assert (refused.field, refused.value) == ("payload_ref.size", size)


def test_the_largest_that_is_allowed_is(world: MemoryWorld, ports: Ports) -> None:
    kept = keep(world, b"x" * limits.PAYLOAD_REF_MAX_BYTES)

    assert found(ports, kept.named).bytes == limits.PAYLOAD_REF_MAX_BYTES


def test_a_grant_is_under_the_owners_prefix_and_never_the_same_twice(ports: Ports) -> None:
    grants = [
        payloads.grant(ports, OWNER, size=3, digest=digest(b"[1]"), content_type="application/json")
        for _ in range(2)
    ]

    assert {one.key.rpartition("/")[0] + "/" for one in grants} == {object_prefix(OWNER)}
    assert len({one.key for one in grants}) == 2
    assert grants[0].closes_at == ports.clock.now() + timedelta(minutes=15)


def test_no_two_owners_share_a_prefix_and_any_name_has_one_that_is_a_key() -> None:
    owners = ["a", "A", "a/b", "a b", "..", "ä", "漢" * 255, "a%2Fb", "a#0"]

    prefixes = {object_prefix(owner) for owner in owners}

    assert len(prefixes) == len(owners)
    assert all(len(prefix) == 65 and prefix.isascii() for prefix in prefixes)


# A job that has one.


def submitted(ports: Ports, kept: Kept, *, is_recurring: bool = False) -> Execution:
    schedule = every("1 minute") if is_recurring else None
    new = replace(new_job(schedule=schedule), named=kept.named)
    return created(ports, new).first


def played(system: System) -> list[str]:
    """The payloads that handlers of this system are given from here on."""
    given: list[str] = []

    def handler(claimed: Claimed) -> Outcome:
        given.append(claimed.payload)
        return Succeeded(result="null")

    system.handler = handler
    return given


def row_of(world: MemoryWorld, row: Execution) -> Execution:
    return world.tables.executions[row.id]


@pytest.mark.parametrize("is_recurring", [False, True])
def test_its_handler_is_given_what_lies_in_the_bucket(
    system: System, world: MemoryWorld, is_recurring: bool
) -> None:
    given = played(system)
    row = submitted(system.ports, keep(world), is_recurring=is_recurring)

    system.run_for(timedelta(minutes=1, seconds=30))

    assert given == [CONTENT.decode()]
    assert row_of(world, row).state is State.SUCCEEDED


def test_it_runs_by_the_version_that_it_was_made_with(system: System, world: MemoryWorld) -> None:
    given = played(system)
    kept = keep(world)
    submitted(system.ports, kept)
    keep(world, b'"something else"')
    world.payloads.delete(kept.key)

    system.run_for(SECOND)

    assert given == [CONTENT.decode()]


def ended(system: System, row: Execution) -> Execution:
    """How it ended: with one failed try, and no handler called."""
    given = played(system)
    system.run_for(10 * SECOND)
    settled = row_of(system.world, row)
    assert given == []
    assert settled.state is State.FAILED
    assert [attempt.state for attempt in settled.attempts] == [State.FAILED]
    assert settled.error is not None
    assert settled.error.kind is Kind.PERMANENT
    assert settled.reason == f"{settled.error.type} is permanent"
    # Nothing of it comes back.
    assert system.world.queue.next_visible_at() is None
    return settled


def test_one_whose_version_was_deleted_fails_for_good(system: System, world: MemoryWorld) -> None:
    kept = keep(world)
    row = submitted(system.ports, kept)
    world.payloads.delete(kept.key, kept.version_id)

    settled = ended(system, row)

    assert settled.error is not None
    assert settled.error.type == "PayloadGone"
    assert settled.error.message == "the payload of its payload_ref is not there any more"


@pytest.mark.parametrize(
    ("content", "name", "what"),
    [
        (CONTENT + b" ", "PayloadMismatch", "bytes"),
        (CONTENT[:-1], "PayloadMismatch", "bytes"),
        (b"", "PayloadMismatch", "bytes"),
        (b"x" * len(CONTENT), "PayloadMismatch", "SHA-256"),
    ],
)
def test_one_whose_bytes_are_others_fails_for_good_and_tells_nothing_of_them(
    system: System,
    world: MemoryWorld,
    monkeypatch: pytest.MonkeyPatch,
    content: bytes,
    name: str,
    what: str,
) -> None:
    row = submitted(system.ports, keep(world))
    monkeypatch.setattr(world.payloads, "fetch", lambda _, within: content)

    settled = ended(system, row)

    assert settled.error is not None
    assert settled.error.type == name
    assert what in settled.error.message
    assert "xx" not in settled.error.message


def test_one_that_is_no_text_fails_for_good(system: System, world: MemoryWorld) -> None:
    row = submitted(system.ports, keep(world, b'"\xff\xfe"'))

    settled = ended(system, row)

    assert settled.error is not None
    assert (settled.error.type, settled.error.message) == (
        "InvalidPayload",
        "the payload of its payload_ref is not UTF-8: see byte 1",
    )


def test_while_the_bucket_does_not_answer_no_attempt_is_used(
    system: System, world: MemoryWorld
) -> None:
    row = submitted(system.ports, keep(world))
    (received,) = world.queue.receive()

    def silent(call: object, when: object) -> None:
        if str(call).endswith("payloads.fetch"):
            raise Unavailable("get_object: SlowDown")

    put = execute.process(interposed(system.ports, silent), received, system.run, worker="w")

    assert put == Put(deleted=False)
    waiting = row_of(world, row)
    assert (waiting.state, waiting.attempt, waiting.attempts) == (State.RETRYING, 1, ())
    given = played(system)
    system.run_for(30 * SECOND)
    assert given == [CONTENT.decode()]
    assert row_of(world, row).state is State.SUCCEEDED


def test_nothing_is_written_for_a_job_whose_payload_is_not_there(
    world: MemoryWorld, ports: Ports
) -> None:
    kept = keep(world)
    world.payloads.delete(kept.key, kept.version_id)

    with pytest.raises(Rejected):
        submitted(ports, kept)

    assert not world.tables.executions
    assert world.queue.receive() == []
