"""What a job may call, as far as its URL says; and what an answer means."""

from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.addresses import Reach
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MAX_BACKOFF
from lamplighter.core.model import Payload, Spec
from lamplighter.core.retry import Kind
from lamplighter.core.targets import NOBODY, HttpRules, HttpTarget, failure_of

NOW = datetime(2026, 7, 12, 2, tzinfo=UTC)
ACME = HttpRules(owners=frozenset({"acme"}))
OPEN = HttpRules(owners=frozenset({"*"}), allow_http=True)


def refused(url: str, rules: HttpRules = OPEN) -> Rejected:
    with pytest.raises(Rejected) as found:
        rules.check(HttpTarget(url=url), owner="acme")
    return found.value


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://svc.example.com", ("https", "svc.example.com", 443, "/", "svc.example.com")),
        (
            "HTTPS://Svc.Example.com:8443/A/b?c=d&e=%2F",
            ("https", "svc.example.com", 8443, "/A/b?c=d&e=%2F", "svc.example.com:8443"),
        ),
        ("http://a_b.example:80?q", ("http", "a_b.example", 80, "/?q", "a_b.example")),
        ("https://8.8.8.8/x", ("https", "8.8.8.8", 443, "/x", "8.8.8.8")),
        (
            "https://[2606:4700::1111]:1024/",
            ("https", "[2606:4700::1111]", 1024, "/", "[2606:4700::1111]:1024"),
        ),
    ],
)
def test_a_url_leads_where_it_says(url: str, place: tuple[str, str, int, str, str]) -> None:
    target = HttpTarget(url=url)
    OPEN.check(target, owner="acme")

    found = target.place

    assert (found.scheme, found.host, found.port, found.path, found.authority) == place
    assert target.task_name == f"http:{found.host}"


# O-H01: each of these is refused before anything is resolved.
@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376", "169.254.43518"),
        *("127.1", "0", "0x7f.1", "127.0.0.01", "1.2.3.4.5", "256.1.1.1", "0x", "a.0x7f"),
        *("[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "[::1]", "[::]", "[fd00:ec2::254]"),
        *("169.254.170.2", "localhost", "LOCALHOST", "a.localhost", "10.0.0.1", "[fd12::1]"),
        *("169.254.169.254.", "example.com.", ".example.com", "a..b", "-a.example", "a-.example"),
        *("[64:ff9b::7f00:1]", "[::1.2.3]", "[1]", f"{'a' * 64}.example", "a." * 130 + "example"),
        *("svc.example.com:0", "svc.example.com:22", "svc.example.com:25", "svc.example.com:99999"),
    ],
)
@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_host_that_is_not_public_is_blocked_at_create(scheme: str, host: str) -> None:
    fault = refused(f"{scheme}://{host}/")

    assert fault.field == "target.url"
    assert fault.reason.startswith("blocked target: ")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("file:///etc/passwd", "not http:// or https://"),
        ("gopher://svc.example.com/", "not http:// or https://"),
        ("//svc.example.com/", "not http:// or https://"),
        ("svc.example.com", "not http:// or https://"),
        ("", "not http:// or https://"),
        ("https://good.example@169.254.169.254/", "a user's name"),
        ("https://me:secret@svc.example.com/", "a user's name"),
        ("https://svc.example.com/#part", "a fragment"),
        ("http://good.example\\@169.254.169.254/", "not http(s)://host"),
        ("https://\uff11\uff16\uff19.254.169.254/", "U+FF11 is not ASCII"),
        ("https://\u2460\u2461\u2466.0.0.1/", "U+2460 is not ASCII"),
        ("https://svc.example.com/\u00e4", "U+00E4 is not ASCII"),
        ("https://svc.example.com/a b", "not http(s)://host"),
        ("https://svc.example.com/\r\nHost: x", "not http(s)://host"),
        ("https://svc.example.com/\n", "not http(s)://host"),
        (" https://svc.example.com/", "not http:// or https://"),
        ("https://svc.example.com:/", "not http(s)://host"),
        ("https://svc.example.com:443443/", "not http(s)://host"),
        ("https://%31%32%37.0.0.1/", "not http(s)://host"),
        ("https:///path", "not http(s)://host"),
        # What ignores case takes these for an s and a k (U+017F, U+212A), and others for more.
        ("http\u017f://x.example/", "U+017F is not ASCII"),
        ("https://\u017fvc.example/", "U+017F is not ASCII"),
        ("https://x.example/\u017f", "U+017F is not ASCII"),
        ("https://x.example/?\u017f=1", "U+017F is not ASCII"),
        ("https://\u212a.example/", "U+212A is not ASCII"),
        ("https://\u212a\u017f/", "U+212A is not ASCII"),
        ("https://x.example/\u212a", "U+212A is not ASCII"),
        ("https://x.example/?k=\u212a", "U+212A is not ASCII"),
        ("https://x.example:\u0663\u0663\u0663\u0663/", "U+0663 is not ASCII"),
        ("https://svc.example.com/" + "a" * 2048, "longer than 2048"),
    ],
)
def test_a_url_that_parsers_might_read_differently_is_refused(url: str, reason: str) -> None:
    fault = refused(url)

    assert (fault.field, fault.reason[: len(reason)]) == ("target.url", reason)


def test_no_letter_but_those_of_ascii_is_in_a_url() -> None:
    for code in (*range(0x80, 0x3000), *range(0xFF00, 0x10000), 0x1D5C4, 0xE0061):
        for url in (f"https://{chr(code)}.example/", f"https://x.example/{chr(code)}"):
            with pytest.raises(Rejected) as found:
                HttpTarget(url=url)
            assert found.value.reason.startswith(f"U+{code:04X} is not ASCII")


def test_the_schemes_that_are_named_are_those_that_are_allowed() -> None:
    for rules, said in [(ACME, "not https://"), (OPEN, "not http:// or https://")]:
        with pytest.raises(Rejected) as found:
            rules.check_scheme("ftp://svc.example.com/")

        assert found.value.reason == said
        rules.check_scheme("https://svc.example.com/")


def test_nobody_may_call_anything_unless_owners_are_named() -> None:
    target = HttpTarget(url="https://svc.example.com/")

    ACME.check(target, owner="acme")
    for rules, owner in [(NOBODY, "acme"), (ACME, "globex")]:
        with pytest.raises(Rejected, match=r"target\.kind: this deployment"):
            rules.check(target, owner=owner)


def test_plain_http_and_this_host_are_for_the_operator_to_allow() -> None:
    local = HttpRules(owners=frozenset({"*"}), allow_http=True, reach=Reach(loopback=True))
    for host in ("127.0.0.1:8000", "[::1]:8000", "localhost:8000"):
        local.check(HttpTarget(url=f"http://{host}/"), owner="acme")

    assert refused("http://svc.example.com/", ACME).reason == "not https://"
    assert "private" in refused("http://10.0.0.1/", local).reason


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"Host": "x"}, "is set by"),
        ({"content-length": "1"}, "is set by"),
        ({"Transfer-Encoding": "chunked"}, "is set by"),
        ({"Connection": "keep-alive"}, "is set by"),
        ({"Proxy-Authorization": "x"}, "is set by"),
        ({"Idempotency-Key": "x"}, "is set by"),
        ({"Webhook-Signature": "x"}, "is set by"),
        ({"Content-Type": "x"}, "is set by"),
        ({"User-Agent": "x"}, "is set by"),
        ({"x y": "x"}, "not the name"),
        ({"": "x"}, "not the name"),
        ({"x:": "x"}, "not the name"),
        ({"x\r\ny": "x"}, "not the name"),
        ({"\u00e4": "x"}, "not the name"),
        ({"x-a": "b\r\nHost: c"}, "its value"),
        ({"x-a": "b\n"}, "its value"),
        ({"x-a": " b"}, "its value"),
        ({"x-a": "b\0"}, "its value"),
        ({"x-a": "\u00e4"}, "its value"),
        ({"x-a": "b", "X-A": "c"}, "is there twice"),
        ({f"x-{n}": "" for n in range(21)}, "more than 20"),
        ({"x-a": "b" * 2046}, "larger than 2048"),
    ],
    ids=str,
)
def test_a_header_that_would_change_the_request_is_refused(
    headers: dict[str, str], reason: str
) -> None:
    with pytest.raises(Rejected) as found:
        HttpTarget(url="https://svc.example.com/", headers=tuple(headers.items()))

    assert found.value.field == "target.headers"
    assert found.value.reason.startswith(reason)


def test_a_refused_headers_value_is_in_no_message() -> None:
    with pytest.raises(Rejected) as found:
        HttpTarget(url="https://svc.example.com/", headers=(("Authorization", "hunter2\n"),))

    assert "hunter2" not in str(found.value)


def test_headers_at_the_limits_are_taken() -> None:
    HttpTarget(url="https://a.example/", headers=tuple((f"x-{n}", "") for n in range(20)))
    HttpTarget(url="https://a.example/", headers=(("x-a", "b" * 2045),))
    HttpTarget(url="https://a.example/", headers=(("Accept", "text/plain; q=0.5, */*"),))


def test_values_whose_names_say_that_they_are_secret_are_masked() -> None:
    target = HttpTarget(
        url="https://svc.example.com/x?page=2&api_key=hunter2&X-Amz-Signature=hunter2&sig=hunter2",
        headers=(
            *(("Authorization", "Bearer hunter2"), ("X-Api-Key", "hunter2"), ("Cookie", "hunter2")),
            *(("x-gitlab-token", "hunter2"), ("x-a", "b")),
        ),
    )

    assert target.shown_headers == {
        **dict.fromkeys(("Authorization", "X-Api-Key", "Cookie", "x-gitlab-token"), "***"),
        "x-a": "b",
    }
    assert target.shown_url == (
        "https://svc.example.com/x?page=2&api_key=***&X-Amz-Signature=***&sig=***"
    )


@pytest.mark.parametrize("method", ["get", "HEAD", "CONNECT", "TRACE", "OPTIONS", ""])
def test_other_methods_are_refused(method: str) -> None:
    with pytest.raises(Rejected, match=r"target\.method"):
        HttpTarget(url="https://svc.example.com/", method=method)


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_request_without_a_body_has_no_payload(method: str) -> None:
    target = HttpTarget(url="https://svc.example.com/", method=method)

    Spec(task=target.task_name, target=target, payload=Payload.of("{}"))
    Spec(task=target.task_name, target=target, payload=Payload.of("null"))
    for payload in (Payload.of('{"a":1}'), Payload(text=None, bytes=600)):
        with pytest.raises(Rejected, match=f"a {method} sends none"):
            Spec(task=target.task_name, target=target, payload=payload)


def test_a_spec_is_named_as_its_target() -> None:
    with pytest.raises(ValueError, match=r"'echo' is not 'http:svc\.example\.com'"):
        Spec(
            task="echo",
            target=HttpTarget(url="https://svc.example.com/"),
            payload=Payload.of("{}"),
        )


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_a_success(status: int) -> None:
    assert failure_of(status, [], now=NOW) is None


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, Kind.PERMANENT) for status in (101, 301, 302, 307, 308, 400, 401, 403, 404)),
        *((status, Kind.PERMANENT) for status in (409, 410, 413, 422)),
        *((status, Kind.RETRYABLE) for status in (408, 425, 500, 502, 503, 504, 507, 599)),
        (429, Kind.RATE_LIMITED),
    ],
)
def test_a_status_says_whether_another_try_may_help(status: int, kind: Kind) -> None:
    """S0-R1, S2-F5."""
    failure = failure_of(status, [], now=NOW)

    assert failure is not None
    assert failure.kind is kind
    assert str(status) in failure.message


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        (["120"], 120),
        (["0"], 0),
        ([" 7 "], 7),
        (["Sun, 12 Jul 2026 02:01:30 GMT"], 90),
        (["Sunday, 12-Jul-26 02:01:30 GMT"], 90),
        (["Sun Jul 12 02:01:30 2026"], 90),
        (["Wed, 21 Oct 2015 07:28:00 GMT"], 0),
        (["Fri, 31 Dec 9999 23:59:59 GMT"], MAX_BACKOFF.total_seconds()),
        (["99999999999999"], MAX_BACKOFF.total_seconds()),
        (["9" * 5000], MAX_BACKOFF.total_seconds()),
    ],
    ids=lambda value: str(value)[:40],
)
@pytest.mark.parametrize("status", [429, 503])
def test_who_asks_us_to_wait_is_waited_for(status: int, values: list[str], seconds: float) -> None:
    """S0-R4, O-H04."""
    failure = failure_of(status, values, now=NOW)

    assert failure is not None
    assert failure.kind is Kind.RATE_LIMITED
    assert failure.retry_after == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "values",
    [
        *(["-5"], ["+3"], ["1.5"], [""], ["soon"], ["٣"], ["1e3"], ["120", "60"], ["-3 Jul 2026"]),
        *(["Sun, 12 Jul 2026 02:01:30 +0000"], ["2026-07-12T02:01:30Z"], []),
    ],
    ids=str,
)
def test_a_wait_that_makes_no_sense_is_the_usual_one(values: list[str]) -> None:
    """O-H04: ASCII digits or an HTTP date, once; whatever else Python would read."""
    limited, unavailable = (failure_of(status, values, now=NOW) for status in (429, 503))

    assert limited is not None
    assert (limited.kind, limited.retry_after) == (Kind.RATE_LIMITED, None)
    assert unavailable is not None
    assert (unavailable.kind, unavailable.retry_after) == (Kind.RETRYABLE, None)


def test_a_wait_of_another_answer_is_not_heeded() -> None:
    failure = failure_of(500, ["120"], now=NOW)

    assert failure is not None
    assert (failure.kind, failure.retry_after) == (Kind.RETRYABLE, None)
