"""Signatures that any receiver of Standard Webhooks checks."""

import re
from base64 import b64encode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lamplighter.core.webhooks import parse_keys, signed

# The specification's own example.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
AT = datetime.fromtimestamp(1614265330, UTC)
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
PAGE = Path(__file__).parents[2] / "docs" / "targets.md"
OTHER = "whsec_" + b64encode(b"b" * 32).decode()


def test_the_specifications_example_is_signed_as_it_says() -> None:
    headers = signed(parse_keys(SECRET), id=ID, timestamp=AT, body=BODY)

    assert headers == {
        "webhook-id": ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": SIGNATURE,
    }


@pytest.mark.parametrize("between", [" ", "\n", ", ", "\n\n  "])
def test_while_keys_are_rotated_each_of_them_signs(between: str) -> None:
    headers = signed(parse_keys(SECRET + between + OTHER), id=ID, timestamp=AT, body=BODY)

    first, second = headers["webhook-signature"].split(" ")
    assert first == SIGNATURE
    assert second.startswith("v1,")
    assert second != first


def test_another_byte_is_another_signature() -> None:
    keys = parse_keys(SECRET)
    signatures = {
        signed(keys, id=id, timestamp=at, body=body)["webhook-signature"]
        for id, at, body in [
            (ID, AT, BODY),
            (ID + "x", AT, BODY),
            (ID, AT.replace(year=2022), BODY),
            (ID, AT, BODY + b" "),
        ]
    }

    assert len(signatures) == 4


@pytest.mark.parametrize(
    "text",
    [
        *("", "  ", SECRET.removeprefix("whsec_"), "whsec_", "whsec_short", "whsec_" + "!" * 40),
        *("whsec_" + b64encode(b"b" * size).decode() for size in (23, 65)),
        f"{SECRET} nonsense",
    ],
)
def test_a_secret_that_is_none_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ValueError, match="key") as refused:
        parse_keys(text)

    assert not any(word in str(refused.value) for word in text.split() if len(word) > 6)


def test_the_receiver_in_the_docs_knows_our_requests_from_others() -> None:
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    receiver: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), receiver)
    is_ours = receiver["is_ours"]
    headers = signed(parse_keys(f"{OTHER} {SECRET}"), id=ID, timestamp=AT, body=BODY)
    now = AT.timestamp()

    assert is_ours(headers, BODY, SECRET, now=now + 299)
    assert is_ours(headers, BODY, OTHER, now=now)
    assert not is_ours(headers, BODY + b" ", SECRET, now=now)
    assert not is_ours({**headers, "webhook-id": "x"}, BODY, SECRET, now=now)
    assert not is_ours(headers, BODY, SECRET, now=now + 301)
    assert not is_ours(headers, BODY, "whsec_" + b64encode(b"c" * 32).decode(), now=now)
