"""HTTP targets: what a job may call in place of a task, and what an answer means.

Whatever is here is known before any name is resolved. A name says nothing of where it leads:
the worker looks at the address that it connects to (`addresses.Reach`).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from lamplighter.core import limits
from lamplighter.core.addresses import Reach, literal
from lamplighter.core.deferral import Terms
from lamplighter.core.errors import Rejected
from lamplighter.core.retry import Failure, Kind

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
EVERYONE: Final = "*"
MASK: Final = "***"

# Nothing is left to a parser to make sense of: no user, no fragment, no escape in the host.
# Without ASCII, IGNORECASE has an s match U+017F, and a k the Kelvin sign.
_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>(?:/[a-z0-9._~:/@!$&'()*+,;=%-]*)?(?:\?[a-z0-9._~:/?@!$&'()*+,;=%-]*)?)",
    re.IGNORECASE | re.ASCII,
)
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.IGNORECASE | re.ASCII)
# What some resolver takes for an IPv4 address: 2852039166, 0xA9FEA9FE, 127.1 (WHATWG URL, 3.5).
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE | re.ASCII)
_HOST_MAX_CHARS: Final = 253  # RFC 1035, 2.3.4
_PORTS: Final = {"http": 80, "https": 443}
_FIRST_FREE_PORT: Final = 1024  # below lie mail, shells, directories: nothing that takes a job
_LAST_PORT: Final = 65_535

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_VALUE: Final = re.compile(r"(?:[!-~](?:[ -~]*[!-~])?)?")
_RESERVED: Final = frozenset(
    {
        # Of the connection, and of how the message is framed.
        *("connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "expect"),
        *("host", "content-length", "content-encoding", "accept-encoding", "http2-settings"),
        # Ours.
        *("content-type", "user-agent", "idempotency-key", "traceparent", "tracestate"),
    }
)
_RESERVED_PREFIXES: Final = ("proxy-", "webhook-", "lamplighter-")
_SECRET: Final = re.compile(
    r"auth|cookie|key|token|secret|passw|pwd|signature|sig$|credential|session|code$",
    re.IGNORECASE,
)
_PARAMETER: Final = re.compile(r"([^?&=]+)=([^&]+)")

_TRY_AGAIN: Final = frozenset({408, 425, 429})
_ASKED_TO_WAIT: Final = frozenset({429, 503})
# The three forms of a date, RFC 9110, 5.6.7.
_DATES: Final = ("%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A URL in its parts."""

    scheme: str
    host: str
    """In lower case; an IPv6 address in its brackets."""
    port: int
    path: str
    """With the query; `/` at least."""

    @property
    def authority(self) -> str:
        """What the Host header says."""
        is_usual = self.port == _PORTS[self.scheme]
        return self.host if is_usual else f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class HttpTarget:
    """A request to make in place of a task. Raises Rejected for what could never be sent."""

    url: str
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    deferred: Terms | None = None
    """Whether, and by which terms, an answer of 202 leaves its end to whoever was called."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise _rejected("method", self.method, f"not one of {', '.join(METHODS)}")
        _check_url(self.url)
        _check_headers(self.headers)

    @property
    def place(self) -> Place:
        """Where the URL leads."""
        found = _URL.fullmatch(self.url)
        if found is None:
            raise ValueError("a target's URL is checked when it is made")
        scheme, target = found["scheme"].lower(), found["target"]
        return Place(
            scheme=scheme,
            host=found["host"].lower(),
            port=int(found["port"] or _PORTS[scheme]),
            path=target if target.startswith("/") else f"/{target}",
        )

    @property
    def origin(self) -> tuple[str, str, int]:
        """Who is called: scheme, host and port."""
        place = self.place
        return place.scheme, place.host, place.port

    @property
    def task_name(self) -> str:
        """What stands for a task's name in lists, filters and metrics: `http:` and the host."""
        return f"http:{self.place.host}"[: limits.NAME_MAX_CHARS]

    @property
    def has_body(self) -> bool:
        """Whether the payload is sent: a GET and a DELETE have none."""
        return self.method not in {"GET", "DELETE"}

    @property
    def shown_url(self) -> str:
        """The URL for its owner, with parameters masked whose names say that they are secret."""
        before, question_mark, query = self.url.partition("?")
        return before + question_mark + _PARAMETER.sub(_masked_parameter, query)

    def unmasked_url(self, url: str) -> str:
        """Another URL, in which a masked parameter has the value that this URL's has.

        Where a name is there several times, they stand for each other in order. Raises
        Rejected for a mask without a value, and at another origin: what is secret stays here.
        """
        before, question_mark, query = url.partition("?")
        values: dict[str, list[str]] = {}
        for found in _PARAMETER.finditer(self.url.partition("?")[2]):
            values.setdefault(found[1], []).append(found[2])
        seen: Counter[str] = Counter()

        def unmasked(found: re.Match[str]) -> str:
            name, value = found.groups()
            number = seen[name]
            seen[name] += 1
            if value != MASK or not is_secret(name):
                return found[0]
            reason = f"{MASK} stands for a secret, and there is none for {name}: say it"
            if number >= len(values.get(name, [])):
                raise _rejected("url", url, reason)
            if HttpTarget(url=before).origin != self.origin:
                reason = f"another scheme, host or port, to which the secret {name} is not sent"
                raise _rejected("url", url, f"{reason}: say its value anew")
            return f"{name}={values[name][number]}"

        return before + question_mark + _PARAMETER.sub(unmasked, query)

    @property
    def shown_headers(self) -> dict[str, str]:
        """The headers for their owner, values masked where the name says that they are secret."""
        return {name: MASK if value and is_secret(name) else value for name, value in self.headers}


@dataclass(frozen=True, kw_only=True)
class HttpRules:
    """What the operator allows of HTTP targets: nothing, unless owners are named."""

    owners: frozenset[str] = frozenset()
    """With `*` among them: everybody."""
    allow_http: bool = False
    reach: Reach = field(default_factory=Reach)

    def check_scheme(self, url: str) -> None:
        """Raises Rejected for a URL of which already the scheme is none that can be called."""
        if url.isascii() and url.partition("://")[0].lower() not in _PORTS:
            reason = "not http:// or https://" if self.allow_http else "not https://"
            raise _rejected("url", url, reason)

    def check(self, target: HttpTarget, *, owner: str) -> None:
        """Raises Rejected for what nobody, or not this owner, may call from here."""
        if self.owners.isdisjoint({owner, EVERYONE}):
            reason = "this deployment lets nobody call HTTP targets"
            if self.owners:
                reason = "this deployment does not let this owner call HTTP targets"
            raise _rejected("kind", "http", reason)
        place = target.place
        if place.scheme == "http" and not self.allow_http:
            raise _rejected("url", target.shown_url, "not https://")
        refusal = self._refusal(place.host)
        if refusal is not None:
            raise _rejected("url", target.shown_url, f"blocked target: {place.host} is {refusal}")

    def _refusal(self, host: str) -> str | None:
        if (address := literal(host)) is not None:
            return self.reach.refusal(address)
        # RFC 6761, 6.3: these never leave the host, whatever a resolver says.
        is_local = host == "localhost" or host.endswith(".localhost")
        return "this host itself" if is_local and not self.reach.loopback else None


NOBODY: Final = HttpRules()
"""The rules of a deployment without HTTP targets."""


def failure_of(status: int, retry_after: Sequence[str], *, now: datetime) -> Failure | None:
    """What an answer's status means for the try; None: it succeeded.

    `retry_after` are the values of the headers of that name.
    """
    if 200 <= status < 300:
        return None
    wait = asked_wait(retry_after, now) if status in _ASKED_TO_WAIT else None
    if status == 429 or wait is not None:
        kind = Kind.RATE_LIMITED
    elif status in _TRY_AGAIN or status >= 500:
        kind = Kind.RETRYABLE
    else:
        kind = Kind.PERMANENT
    told = "; redirects are not followed" if 300 <= status < 400 else ""
    return Failure(
        kind=kind,
        type="HttpStatus",
        message=f"the target answered {status}{told}",
        retry_after=wait,
    )


def asked_wait(values: Sequence[str], now: datetime) -> timedelta | None:
    """How long a single Retry-After asks to wait, a day at most; None: it makes no sense."""
    text = values[0].strip(" \t") if len(values) == 1 else ""
    # `isdigit` alone takes digits of every script, and `int` a sign.
    if text.isascii() and text.isdigit():
        # A number too long to be read is too long to be waited for.
        seconds = int(text) if len(text) < 10 else limits.MAX_BACKOFF.total_seconds()
        return min(timedelta(seconds=seconds), limits.MAX_BACKOFF)
    date = _date(text)
    return None if date is None else min(max(date - now, timedelta(0)), limits.MAX_BACKOFF)


def _date(text: str) -> datetime | None:
    if not text.isascii():
        return None
    for form in _DATES:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
    return None


def _check_url(url: str) -> None:
    if len(url) > limits.TARGET_URL_MAX_CHARS:
        longest = limits.TARGET_URL_MAX_CHARS
        raise _rejected("url", f"{len(url)} characters", f"longer than {longest} characters")
    found = _URL.fullmatch(url)
    if found is None:
        raise _rejected("url", url, _what_is_wrong(url))
    host, port = found["host"], int(found["port"] or _PORTS[found["scheme"].lower()])
    if not _is_host(host):
        reason = f"{host} is neither a name nor an address in its usual form"
        raise _rejected("url", url, f"blocked target: {reason}")
    if port not in _PORTS.values() and not _FIRST_FREE_PORT <= port <= _LAST_PORT:
        raise _rejected("url", url, f"blocked target: port {port} is not 80, 443 or 1024–65535")


def _what_is_wrong(url: str) -> str:
    if not url.isascii():
        odd = next(character for character in url if not character.isascii())
        return f"U+{ord(odd):04X} is not ASCII: a name is written as xn--…, all else as %XX"
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in _PORTS:
        return "not http:// or https://"
    if "@" in re.split(r"[/?#\\]", rest)[0]:
        return "a user's name or password does not belong into a URL: send a header"
    if "#" in rest:
        return "a fragment is never sent"
    return "not http(s)://host[:port]/path?query in the characters of RFC 3986, others as %XX"


def _is_host(host: str) -> bool:
    labels = host.split(".")
    if host.startswith("[") or _NUMBER.fullmatch(labels[-1]):
        return literal(host) is not None
    return len(host) <= _HOST_MAX_CHARS and all(_LABEL.fullmatch(label) for label in labels)


def _check_headers(headers: Sequence[tuple[str, str]]) -> None:
    if len(headers) > limits.TARGET_MAX_HEADERS:
        reason = f"more than {limits.TARGET_MAX_HEADERS}"
        raise _rejected("headers", f"{len(headers)} headers", reason)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in headers)
    if size > limits.TARGET_HEADERS_MAX_BYTES:
        reason = f"larger than {limits.TARGET_HEADERS_MAX_BYTES} bytes"
        raise _rejected("headers", f"{size} bytes", reason)
    seen: set[str] = set()
    for name, value in headers:
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            raise _rejected("headers", name, "not the name of a header")
        if lower in _RESERVED or lower.startswith(_RESERVED_PREFIXES):
            raise _rejected("headers", name, "is set by Lamplighter, or by the connection")
        if lower in seen:
            raise _rejected("headers", name, "is there twice")
        if not _VALUE.fullmatch(value):
            # The value may be a secret, which no message repeats.
            reason = "its value is not printable ASCII without spaces at its ends"
            raise _rejected("headers", name, reason)
        seen.add(lower)


def is_secret(name: str) -> bool:
    """Whether the name of a header or a parameter says that its value is nobody's to see."""
    return _SECRET.search(name) is not None


def _masked_parameter(found: re.Match[str]) -> str:
    name, value = found.groups()
    return f"{name}={MASK if is_secret(name) else value}"


def _rejected(field: str, value: object, reason: str) -> Rejected:
    return Rejected(field=f"target.{field}", value=value, reason=reason)
