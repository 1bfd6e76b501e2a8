"""A payload is one of three things: text in its row, text elsewhere, or a reference."""

import pytest

from lamplighter.core import limits
from lamplighter.core.buckets import object_key, object_prefix
from lamplighter.core.errors import Rejected
from lamplighter.core.model import Payload, PayloadRef

REF = PayloadRef(key="prefix/name", version_id="v", sha256="0" * 64, size=100)


def test_a_reference_is_never_in_the_row_however_small_it_is() -> None:
    payload = Payload.referring(REF)

    assert (payload.text, payload.bytes, payload.ref) == (None, 100, REF)
    assert not payload.is_inline
    assert Payload.of("null").is_inline


@pytest.mark.parametrize("payload", [{"text": "null", "bytes": 100}, {"text": None, "bytes": 99}])
def test_a_payload_is_not_two_things_at_once(payload: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="that lies in"):
        Payload(**payload, ref=REF)  # type: ignore[arg-type] # what a bug would give it


def test_a_text_that_is_too_large_says_what_to_do_instead() -> None:
    with pytest.raises(Rejected, match="payload_ref"):
        Payload.of('"' + "x" * limits.PAYLOAD_MAX_BYTES + '"')


@pytest.mark.parametrize("size", [-1, 0, limits.PAYLOAD_REF_MAX_BYTES + 1, 2**63])
def test_a_size_that_none_has_is_refused(size: int) -> None:
    with pytest.raises(Rejected) as refused:
        PayloadRef(key="k", version_id="v", sha256="0" * 64, size=size)

    assert (refused.value.field, refused.value.value) == ("payload_ref.size", size)


@pytest.mark.parametrize("digest", ["", "0" * 63, "0" * 65, "g" * 64, "A" * 64, "0" * 64 + "\n"])
def test_a_digest_that_is_none_is_refused(digest: str) -> None:
    with pytest.raises(Rejected) as refused:
        PayloadRef(key="k", version_id="v", sha256=digest, size=1)

    assert refused.value.field == "payload_ref.sha256"


def test_a_key_has_its_owners_prefix_once() -> None:
    prefix = object_prefix("acme")

    assert object_key("acme", "a/b.json") == f"{prefix}a/b.json"
    assert object_key("acme", f"{prefix}a/b.json") == f"{prefix}a/b.json"
    assert object_key("acme", f"{object_prefix('other')}x") == f"{prefix}{object_prefix('other')}x"


def test_a_key_is_as_long_as_it_may_be_and_no_longer() -> None:
    room = limits.PAYLOAD_REF_KEY_MAX_CHARS - len(object_prefix("acme"))

    assert object_key("acme", "x" * room) is not None
    assert object_key("acme", "x" * (room + 1)) is None
