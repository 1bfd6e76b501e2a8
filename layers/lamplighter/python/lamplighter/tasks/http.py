"""HTTP targets: a job's request, made once for each try, and what its answer says of the try.

No redirect is followed, no proxy of the environment is asked, and nothing is decompressed. What
may be called, and by whom, is looked at again: the operator may have changed it since.
"""

import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import httpcore

from lamplighter.core.errors import Rejected, Retryable
from lamplighter.core.limits import ANSWER_KEPT_BYTES, ANSWER_READ_BYTES
from lamplighter.core.retry import Failure
from lamplighter.core.targets import HttpRules, HttpTarget, failure_of
from lamplighter.core.webhooks import SigningKey, signed
from lamplighter.ports import Clock
from lamplighter.services.execute import Claimed
from lamplighter.tasks.context import Context
from lamplighter.tasks.pinned import BlockedTarget, Dialer, Patience, Resolve, resolved
from lamplighter.version import VERSION

CONTENT_TYPE: Final = "application/json; charset=utf-8"
_HEADERS_KEPT: Final = ("content-type", "x-request-id")
_VALUE_KEPT_CHARS: Final = 200

Keys = Callable[[], Sequence[SigningKey]]
"""The keys to sign with, none if nothing is to be signed; raises Unavailable."""


class BadAnswer(Retryable):
    """The target's answer broke off, or was no HTTP."""


@dataclass(frozen=True, kw_only=True)
class HttpAnswer:
    """What is kept of an answer of 2xx."""

    status: int
    headers: Mapping[str, str]
    body: str
    """Its first 4 KiB; what is no text is replaced by U+FFFD."""
    truncated: bool
    """Whether there was more."""


@cache
def _tls() -> ssl.SSLContext:
    return httpcore.default_ssl_context()


class HttpCaller:
    """Makes the requests of one process: a connection for each, and as many as messages at once."""

    def __init__(
        self,
        rules: HttpRules,
        clock: Clock,
        *,
        keys: Keys = tuple,
        tls: Callable[[], ssl.SSLContext] = _tls,
        resolve: Resolve = resolved,
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._keys = keys
        self._tls = tls
        self._resolve = resolve

    def __call__(
        self, target: HttpTarget, claimed: Claimed, context: Context
    ) -> HttpAnswer | Failure:
        """The answer if it is one of 2xx, complete or as far as it is read; else what it means.

        Raises BlockedTarget, Unreachable, BadAnswer, Unavailable when the signing keys are not
        at hand, and Stopped when the call had to end: then its connection is closed.
        """
        self._check(target, context)
        patience = Patience(
            signal=context.signal,
            ends_at=time.monotonic() + claimed.spec.timeout.total_seconds(),
        )
        body = claimed.payload.encode() if target.has_body else b""
        headers = self._headers(target, claimed, context, body)
        try:
            return self._exchange(target, headers, body, patience)
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise BadAnswer("the answer broke off, or was no HTTP") from error

    def _check(self, target: HttpTarget, context: Context) -> None:
        try:
            self._rules.check(target, owner=context.owner)
        except Rejected as refused:
            raise BlockedTarget(refused.reason) from refused

    def _exchange(
        self, target: HttpTarget, headers: Mapping[str, str], body: bytes, patience: Patience
    ) -> HttpAnswer | Failure:
        place = target.place
        host, port = place.host.strip("[]").encode(), place.port
        scheme, path = place.scheme.encode(), place.path.encode()
        dialer = Dialer(reach=self._rules.reach, patience=patience, resolve=self._resolve)
        with (
            httpcore.HTTPConnection(
                httpcore.Origin(scheme, host, port),
                ssl_context=self._tls() if place.scheme == "https" else None,
                network_backend=dialer,
            ) as connection,
            connection.stream(
                target.method,
                httpcore.URL(scheme=scheme, host=host, port=port, target=path),
                headers=[*headers.items()],
                content=body if target.has_body else None,
            ) as response,
        ):
            waits = _values(response, "retry-after")
            return failure_of(response.status, waits, now=self._clock.now()) or _read(response)

    def _headers(
        self, target: HttpTarget, claimed: Claimed, context: Context, body: bytes
    ) -> Mapping[str, str]:
        key, traceparent = context.idempotency_key, claimed.execution.traceparent
        keys = self._keys()
        return {
            "Host": target.place.authority,
            **({"Content-Type": CONTENT_TYPE} if target.has_body else {}),
            "User-Agent": f"Lamplighter/{VERSION}",
            "Accept-Encoding": "identity",
            "Connection": "close",
            "Idempotency-Key": key,
            **({"traceparent": traceparent} if traceparent else {}),
            **_callback_of(target, claimed),
            # A try that comes later has a time of its own, and so another signature.
            **(signed(keys, id=key, timestamp=self._clock.now(), body=body) if keys else {}),
            **dict(target.headers),
        }


def _callback_of(target: HttpTarget, claimed: Claimed) -> Mapping[str, str]:
    """What ends this try later, for a target that may answer that it was accepted."""
    if target.deferred is None:
        return {}
    return {
        "Lamplighter-Execution-Id": claimed.execution.id,
        "Lamplighter-Callback-Token": claimed.tell(),
    }


def _read(response: httpcore.Response) -> HttpAnswer:
    """An answer counts once its body has ended, or when enough of it was read."""
    kept, size = b"", 0
    for chunk in response.iter_stream():
        size += len(chunk)
        kept = (kept + chunk)[:ANSWER_KEPT_BYTES]
        if size >= ANSWER_READ_BYTES:
            break
    return HttpAnswer(
        status=response.status,
        headers={
            name: _text(value)[:_VALUE_KEPT_CHARS]
            for name in _HEADERS_KEPT
            for value in _values(response, name)[:1]
        },
        body=_text(kept),
        truncated=size > len(kept),
    )


def _values(response: httpcore.Response, name: str) -> Sequence[str]:
    return [
        value.decode("latin-1")
        for found, value in response.headers
        if found.decode("latin-1").lower() == name
    ]


def _text(content: bytes | str) -> str:
    text = content if isinstance(content, str) else content.decode(errors="replace")
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)
