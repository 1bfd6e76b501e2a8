"""Hiding what looks like a secret before an error's message is kept and shown.

No list is complete: a task should not put secrets into its messages. What libraries put there
by themselves is what is known here: URLs, headers, connection strings, signed queries.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

MASK: Final = "***"

_NAMES: Final = (
    "passw(?:or)?d|passwd|pwd|passphrase|secret|token|credentials?|signature"
    "|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key|session[_-]?id"
)
_SECRETS_NAME: Final = re.compile(rf"(?i){_NAMES}")
# Shorter ones are words, and would be masked wherever they stand.
_SECRET_MIN_CHARS: Final = 8
_OF_PAYLOAD_MIN_CHARS: Final = 4
# What is longer names nothing: it is a text of the payload's.
_NAME_MAX_CHARS: Final = 64
_WORKING_DIRECTORIES: Final = frozenset({"PWD", "OLDPWD"})
_KNOWN_AT_MOST: Final = 1000
_LOOKED_AT: Final = 16
_VALUE: Final = r"""(?:"[^"]*"|'[^']*'|[^\s,;&"'})\]]+)"""

_PATTERNS: Final = (
    # A whole key, or as much of one as was not cut off.
    (re.compile(r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|\Z)"), MASK),
    # scheme://user:password@host, and https://token@host
    (re.compile(r"(?i)([a-z][a-z0-9+.-]{0,20}://)[^/\s@]+@"), rf"\1{MASK}@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}"), rf"\1 {MASK}"),
    # password=…, "token": "…", X-Amz-Signature=…, AWS_SECRET_ACCESS_KEY: …
    (
        re.compile(rf"""(?i)\b([\w-]{{0,40}}(?:{_NAMES})[\w-]{{0,40}}["']?\s*[=:]\s*){_VALUE}"""),
        rf"\1{MASK}",
    ),
    # AWS access key ids, by their prefixes; secret access keys, by length and mixture.
    (re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"), MASK),
    (
        re.compile(
            r"(?<![\w/+=])(?=[\w/+]*[a-z])(?=[\w/+]*[A-Z])(?=[\w/+]*\d)[A-Za-z0-9/+]{40}(?![\w/+=])"
        ),
        MASK,
    ),
    # JSON Web Tokens, and tokens that name their issuer in their first letters.
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?"), MASK),
    (
        re.compile(
            r"\b(?:gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-|[rs]k_(?:live|test)_|sk-|npm_|pypi-|cbt_)"
            r"[\w-]{10,}"
        ),
        MASK,
    ),
)


def mask(text: str) -> str:
    """The text with what looks like a secret replaced by three stars."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def shortened(text: str, max_chars: int, known: Sequence[str] = ()) -> str:
    """The masked text, cut to so many characters.

    No more than a few times that is looked at, and a word cut off at its end is left out: half
    a secret would not be recognised. What is `known` to be secret is masked wherever it stands.
    """
    if known:
        text = text[: _LOOKED_AT * max_chars]
        for secret in known:
            text = text.replace(secret, MASK)
    window = 4 * max_chars
    if len(text) > window:
        text = text[:window].rpartition(" ")[0] or MASK
    masked = mask(text)
    return masked if len(masked) <= max_chars else masked[: max_chars - 1] + "…"


def known_secrets(payload: str, environ: Mapping[str, str]) -> Sequence[str]:
    """What an error of this call must not quote, the longest first.

    Variables of the environment and fields of the payload (JSON text) that are named like
    secrets, and texts of the payload that are too long to be the name of anything.
    """
    found = {
        value
        for name, value in environ.items()
        if len(value) >= _SECRET_MIN_CHARS
        and _SECRETS_NAME.search(name)
        and name not in _WORKING_DIRECTORIES
    }
    for number, value in enumerate(_of_payload(_parsed(payload), is_secret=False)):
        if number >= _KNOWN_AT_MOST:
            break
        # As it is, and as `repr` and JSON write it.
        found |= {value, repr(value)[1:-1], json.dumps(value)[1:-1]}
    return sorted(found, key=lambda value: (-len(value), value))


def _parsed(payload: str) -> object:
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        # Then no handler was called with it.
        return None


def _of_payload(value: object, *, is_secret: bool) -> Iterator[str]:
    match value:
        case str():
            if len(value) > _NAME_MAX_CHARS or (is_secret and len(value) >= _OF_PAYLOAD_MIN_CHARS):
                yield value
        case dict():
            for name, part in value.items():
                yield from _of_payload(
                    part, is_secret=is_secret or bool(_SECRETS_NAME.search(name))
                )
        case list():
            for part in value:
                yield from _of_payload(part, is_secret=is_secret)
        case _:
            # A number, a truth, nothing: no text.
            return
