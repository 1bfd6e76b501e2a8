"""What looks like a secret is not kept with an error; what helps to understand it is."""

import time

import pytest

from lamplighter.tasks.masking import mask, shortened

# Made up, in the shapes that are looked for.
KEY_ID = "AKIA" + "ABCDEFGHIJKLMNOP"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLE123"
JWT = "eyJhbGciOiJSUzI1NiJ9" + ".eyJzdWIiOiJtZSJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("401: Authorization: Bearer abcdef123456", "401: Authorization: Bearer ***"),
        ("header Basic dXNlcjpwYXNz rejected", "header Basic *** rejected"),
        (f"key {KEY_ID} is not authorized", "key *** is not authorized"),
        (f"signed with {SECRET_KEY}!", "signed with ***!"),
        ("login failed: user=bob password=hunter2", "login failed: user=bob password=***"),
        ("password: hunter2, host: db", "password: ***, host: db"),
        ('{"api_key": "k-1", "page": 2}', '{"api_key": ***, "page": 2}'),
        ("{'token': 'abc def', 'n': 1}", "{'token': ***, 'n': 1}"),
        ("GET /x?access_token=abc&page=2 failed", "GET /x?access_token=***&page=2 failed"),
        (
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=0f&X-Amz-Date=1",
            "https://b.s3.amazonaws.com/k?X-Amz-Signature=***&X-Amz-Date=1",
        ),
        ("AWS_SECRET_ACCESS_KEY=abc", "AWS_SECRET_ACCESS_KEY=***"),
        ("postgres://app:pa55@db:5432/x", "postgres://***@db:5432/x"),
        ("https://ghtoken@github.com/a/b", "https://***@github.com/a/b"),
        (f"token was {JWT}", "token was ***"),
        ("push refused for ghp_" + "a" * 36, "push refused for ***"),
        ("sk_live_" + "0123456789abcdef", "***"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "***"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE, cut off", "***"),
    ],
)
def test_a_secret_is_masked(text: str, expected: str) -> None:
    assert mask(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "connection to db:5432 refused",
        "see https://example.com/docs?page=2",
        "commit da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "[Errno 2] No such file or directory: '/usr/lib/python3/dist-packages/x.py'",
        "mail to bob@example.com bounced",
        "execution ex_0cc5x1k8g0000000000000000",
        "500 Server Error for url: https://example.com/orders/17",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask(text) == text


def test_a_long_message_is_cut_and_says_so() -> None:
    assert shortened("word " * 1000, 100) == ("word " * 1000)[:99] + "…"
    assert shortened("short", 100) == "short"


def test_a_secret_that_is_cut_in_half_is_not_shown() -> None:
    # The cut falls into the address's password, before the @ that gives it away.
    text = "password=x " + "-----BEGIN PRIVATE KEY-----" + "A" * 290 + "-----END PRIVATE KEY-----"
    text += " https://user:" + "p" * 400 + "@host"

    assert "pp" not in shortened(text, 100)


def test_a_hostile_message_takes_no_time() -> None:
    begun = time.monotonic()

    for piece in ("a-", "password", "token=", "eyJ", "https://", "x", "-----BEGIN ", "A1b/"):
        shortened(piece * 1_000_000, 500)

    assert time.monotonic() - begun < 2
