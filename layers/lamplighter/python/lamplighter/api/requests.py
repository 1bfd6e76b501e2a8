"""What a request says, read from an HTTP API event (payload format 2.0)."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qsl

from lamplighter.api.problems import Problem, Refusal, brief
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import (
    BODY_MAX_BYTES,
    HEADERS_MAX_BYTES,
    IDEMPOTENCY_KEY_MAX_CHARS,
    QUERY_MAX_CHARS,
    QUERY_MAX_FIELDS,
)

Event = Mapping[str, Any]

_JSON: Final = re.compile(r"application/(?:[\w.+-]+\+)?json", re.ASCII | re.IGNORECASE)
# W3C Trace Context: version, trace-id and parent-id that are not all zeros, flags.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)

VERSION_TAG: Final = r'(?:W/)?"([1-9][0-9]{0,8})"|([1-9][0-9]{0,8})'
_VERSION_TAG: Final = re.compile(VERSION_TAG, re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query string of which every field is known."""

    values: Mapping[str, tuple[str, ...]]

    def all(self, name: str) -> tuple[str, ...]:
        """Every value of a field that may be repeated, or hold several between commas."""
        return tuple(part for value in self.values.get(name, ()) for part in value.split(","))

    def one(self, name: str) -> str | None:
        """The value of a field that may be given once."""
        values = self.values.get(name, ())
        if len(values) > 1:
            raise Rejected(field=name, value=list(values), reason="given more than once")
        return values[0] if values else None


@dataclass(frozen=True, kw_only=True)
class Request:
    """An event, with a method for each thing that it may say."""

    event: Event

    @property
    def id(self) -> str:
        """API Gateway's; the access log has it too."""
        return str(self.event["requestContext"].get("requestId", ""))

    @property
    def path(self) -> str:
        """Without the stage."""
        return str(self.event.get("rawPath", ""))

    @property
    def method(self) -> str:
        return str(self.event["requestContext"]["http"]["method"])

    def header(self, name: str) -> str | None:
        """A header, whatever the case of its name; repeated ones are joined by commas."""
        for known, value in (self.event.get("headers") or {}).items():
            if known.lower() == name.lower():
                return str(value)
        return None

    def check_headers(self) -> None:
        """Raise Refusal (431) for more bytes of names and values than a request may have."""
        headers = (self.event.get("headers") or {}).items()
        size = sum(len(str(text).encode()) for header in headers for text in header)
        if size > HEADERS_MAX_BYTES:
            detail = f"The headers have {size} bytes, more than {HEADERS_MAX_BYTES}"
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            raise Refusal(Problem(status=status, detail=detail))

    @property
    def claims(self) -> Mapping[str, object]:
        """The token's, which the authorizer has checked; none without a token."""
        authorizer = self.event.get("requestContext", {}).get("authorizer") or {}
        return (authorizer.get("jwt") or {}).get("claims") or {}

    def query(self, *known: str) -> Query:
        """The query string; Rejected when it holds a field that is not known here."""
        raw = str(self.event.get("rawQueryString") or "")
        if len(raw) > QUERY_MAX_CHARS:
            reason = f"longer than {QUERY_MAX_CHARS} characters"
            raise Rejected(field="query", value=raw, reason=reason)
        try:
            pairs = parse_qsl(
                raw, keep_blank_values=True, errors="strict", max_num_fields=QUERY_MAX_FIELDS
            )
        except ValueError as error:
            raise Rejected(field="query", value=raw, reason=str(error)) from None
        values: dict[str, tuple[str, ...]] = {}
        for name, value in pairs:
            if name not in known:
                reason = f"unknown; known here: {', '.join(known) or 'none'}"
                raise Rejected(field=name, value=value, reason=reason)
            values[name] = (*values.get(name, ()), value)
        return Query(values=values)

    def body(self, *, most: int = BODY_MAX_BYTES) -> bytes:
        """The body of a request that says it is JSON; raises Refusal (413, 415) or Rejected."""
        self._check_content_type()
        body = self._body()
        if len(body) > most:
            detail = f"The body has {len(body)} bytes, more than {most}"
            raise Refusal(Problem(status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail=detail))
        return body

    def idempotency_key(self) -> str | None:
        """The `Idempotency-Key`, if there is one."""
        key = self.header("Idempotency-Key")
        return None if key is None else checked_key("Idempotency-Key", key)

    def if_match(self) -> int | None:
        """The version that `If-Match` names; None without one, and for `*`: whichever it is."""
        text = self.header("If-Match")
        if text is None or text.strip() == "*":
            return None
        # A proxy that compresses makes a tag a weak one; it names the same version.
        found = _VERSION_TAG.fullmatch(text.strip())
        if found is None:
            reason = 'not the ETag of a job, such as "3", nor *'
            raise Rejected(field="If-Match", value=text, reason=reason)
        return int(found[1] or found[2])

    def traceparent(self) -> str | None:
        """The W3C trace context; one that is not well-formed is ignored, as the standard asks."""
        value = self.header("traceparent")
        return value if value and _TRACEPARENT.fullmatch(value) else None

    def _check_content_type(self) -> None:
        given = self.header("Content-Type")
        encoding = (self.header("Content-Encoding") or "identity").lower()
        # API Gateway passes a body without a type on; JSON is what it must be all the same.
        if encoding == "identity" and (given is None or _is_json(given)):
            return
        what = f"{brief(given or '')} {brief(encoding)}".strip()
        detail = f"Send application/json in UTF-8, not encoded (got {what})"
        raise Refusal(Problem(status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE, detail=detail))

    def _body(self) -> bytes:
        text = str(self.event.get("body") or "")
        try:
            if self.event.get("isBase64Encoded"):
                return base64.b64decode(text, validate=True)
            return text.encode()
        except ValueError as error:
            raise Rejected(field="body", value=text[:20], reason=str(error)) from None


def checked_key(field: str, text: str) -> str:
    """An idempotency key that can be one; else Rejected."""
    if is_plain(text, IDEMPOTENCY_KEY_MAX_CHARS):
        return text
    reason = f"not 1–{IDEMPOTENCY_KEY_MAX_CHARS} printable characters"
    raise Rejected(field=field, value=text, reason=reason)


def is_plain(text: str, most: int) -> bool:
    """Whether a text is 1 … most printable characters, with no space at its ends."""
    return 1 <= len(text) <= most and text.isprintable() and text == text.strip()


def _is_json(content_type: str) -> bool:
    media, *parameters = (part.strip() for part in content_type.split(";"))
    named = dict(part.lower().split("=", 1) for part in parameters if "=" in part)
    charset = named.get("charset", "utf-8").strip('"')
    return bool(_JSON.fullmatch(media)) and charset in {"utf-8", "utf8", "us-ascii"}
