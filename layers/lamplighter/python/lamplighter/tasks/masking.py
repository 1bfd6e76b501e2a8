"""Hiding what looks like a secret before an error's message is kept and shown.

No list is complete: a task should not put secrets into its messages. What libraries put there
by themselves is what is known here: URLs, headers, connection strings, signed queries.
"""

import re
from typing import Final

MASK: Final = "***"

_NAMES: Final = (
    "passw(?:or)?d|passwd|pwd|passphrase|secret|token|credentials?|signature"
    "|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?key|session[_-]?id"
)
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
            r"\b(?:gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-|[rs]k_(?:live|test)_|sk-|npm_|pypi-)"
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


def shortened(text: str, max_chars: int) -> str:
    """The masked text, cut to so many characters.

    No more than a few times that is looked at, and a word cut off at its end is left out: half
    a secret would not be recognised.
    """
    window = 4 * max_chars
    if len(text) > window:
        text = text[:window].rpartition(" ")[0] or MASK
    masked = mask(text)
    return masked if len(masked) <= max_chars else masked[: max_chars - 1] + "…"
