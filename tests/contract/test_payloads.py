"""The bucket of payloads by reference: who may upload what, and what is found there."""

from datetime import timedelta
from hashlib import sha256

import pytest

from lamplighter.core.buckets import object_prefix
from lamplighter.core.model import PayloadRef
from lamplighter.ports import Stored, Upload
from tests.contract.conftest import LOCAL
from tests.contract.worlds import Uploaded, World

KEY = f"{object_prefix('acme')}5f0c2a1de4b34c6d9a7e8b1f2c3d4e5f"
OTHER = f"{object_prefix('acme')}another"
CONTENT = '{"rows": ["größer"]}'.encode()
SOON = timedelta(seconds=10)


def digest(content: bytes = CONTENT) -> str:
    return sha256(content).hexdigest()


def offered(world: World, content: bytes = CONTENT, *, key: str = KEY) -> Upload:
    return world.payloads.offer(
        key,
        size=len(content),
        sha256=digest(content),
        content_type="application/json",
        open_for=timedelta(minutes=15),
    )


def uploaded(world: World, content: bytes = CONTENT, *, key: str = KEY) -> PayloadRef:
    """A payload that was uploaded as it was offered."""
    answer = world.upload(offered(world, content, key=key), content)
    assert answer.status == 200
    assert answer.version_id
    return ref(answer.version_id, content, key=key)


def ref(version_id: str, content: bytes = CONTENT, *, key: str = KEY) -> PayloadRef:
    return PayloadRef(key=key, version_id=version_id, sha256=digest(content), size=len(content))


def fetched(world: World, wanted: PayloadRef) -> bytes | None:
    return world.payloads.fetch(wanted, within=SOON)


def test_what_was_uploaded_as_it_was_offered_is_there_with_its_digest(world: World) -> None:
    made = uploaded(world)

    stored = Stored(version_id=made.version_id, size=len(CONTENT), sha256=digest())
    assert world.payloads.look(KEY, made.version_id) == stored
    assert world.payloads.look(KEY, None) == stored
    assert fetched(world, made) == CONTENT


def test_an_offer_writes_nothing(world: World) -> None:
    offered(world)

    assert world.payloads.look(KEY, None) is None


# moto takes whatever comes (docs/conformance.md).
@pytest.mark.parametrize("world", ["memory", *LOCAL], indirect=True)
@pytest.mark.parametrize("content", [CONTENT[::-1], CONTENT[:-1], CONTENT + b" "])
def test_bytes_other_than_those_that_were_offered_are_refused(world: World, content: bytes) -> None:
    answer = world.upload(offered(world), content)

    assert answer.status >= 400
    assert world.payloads.look(KEY, None) is None


def test_to_upload_twice_makes_one_version(world: World) -> None:
    """Whoever did not get the answer to the first asks again."""
    offer = offered(world)
    first = world.upload(offer, CONTENT)

    again = world.upload(offer, CONTENT)

    assert again == Uploaded(status=412, version_id=None)
    found = world.payloads.look(KEY, None)
    assert found is not None
    assert found.version_id == first.version_id


def test_a_key_that_has_an_object_takes_no_other(world: World) -> None:
    made = uploaded(world)

    assert world.upload(offered(world, b"[1]"), b"[1]").status == 412
    assert fetched(world, made) == CONTENT


def test_what_nobody_uploaded_is_not_there(world: World) -> None:
    made = uploaded(world)

    assert world.payloads.look(OTHER, None) is None
    assert world.payloads.look(OTHER, made.version_id) is None
    assert fetched(world, ref(made.version_id, key=OTHER)) is None


@pytest.mark.parametrize("version_id", ["null", "nope", "0" * 32, "größer", "a/b?c&d"])
def test_a_version_that_never_was_is_not_there(world: World, version_id: str) -> None:
    uploaded(world)

    assert world.payloads.look(KEY, version_id) is None
    assert fetched(world, ref(version_id)) is None


def test_a_version_of_another_object_is_not_there(world: World) -> None:
    uploaded(world)
    other = uploaded(world, b"[2]", key=OTHER)

    assert world.payloads.look(KEY, other.version_id) is None
    assert fetched(world, ref(other.version_id)) is None


def test_a_version_stays_when_its_object_is_replaced(world: World) -> None:
    made = uploaded(world)
    latest = world.bucket.put(KEY, b"[3]")

    assert fetched(world, made) == CONTENT
    assert fetched(world, ref(latest, b"[3]")) == b"[3]"
    found = world.payloads.look(KEY, None)
    assert found is not None
    assert (found.version_id, found.size) == (latest, 3)


def test_a_version_stays_when_its_object_is_deleted(world: World) -> None:
    made = uploaded(world)
    world.bucket.delete(KEY)

    assert world.payloads.look(KEY, None) is None
    assert world.payloads.look(KEY, made.version_id) is not None
    assert fetched(world, made) == CONTENT


def test_a_version_that_was_deleted_itself_is_gone(world: World) -> None:
    made = uploaded(world)
    world.bucket.delete(KEY, made.version_id)

    assert world.payloads.look(KEY, made.version_id) is None
    assert fetched(world, made) is None


def test_what_was_kept_without_a_digest_has_none(world: World) -> None:
    version_id = world.bucket.put(KEY, CONTENT)

    assert world.payloads.look(KEY, None) == Stored(
        version_id=version_id, size=len(CONTENT), sha256=None
    )


def test_of_what_is_larger_than_it_should_be_one_byte_too_many_is_read(world: World) -> None:
    """However large it is: a worker's memory is not the uploader's to fill."""
    version_id = world.bucket.put(KEY, b"x" * 1_000_000)

    assert fetched(world, ref(version_id, b"x" * 10)) == b"x" * 11


def test_of_what_is_smaller_all_is_read(world: World) -> None:
    version_id = world.bucket.put(KEY, b"abc")

    assert fetched(world, ref(version_id, b"x" * 10)) == b"abc"


def test_the_largest_comes_back_whole(world: World) -> None:
    content = bytes(range(256)) * 20_480
    version_id = world.bucket.put(KEY, content)

    assert fetched(world, ref(version_id, content)) == content
