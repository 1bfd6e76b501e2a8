"""Instants in and out: RFC 3339 text, whole milliseconds, years 1970 to 2199."""

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Final

from lamplighter.core.errors import Rejected
from lamplighter.core.limits import SCHEDULE_FIRST_YEAR, SCHEDULE_LAST_YEAR

FIRST: Final = datetime(SCHEDULE_FIRST_YEAR, 1, 1, tzinfo=UTC)
"""No occurrence is earlier."""
END: Final = datetime(SCHEDULE_LAST_YEAR + 1, 1, 1, tzinfo=UTC)
"""Every occurrence is earlier."""
TICK: Final = timedelta(microseconds=1)
"""The resolution of `datetime`: `after + TICK` is the first instant strictly after."""

_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)
_SHAPE: Final = "not RFC 3339 with seconds, such as 2026-07-12T02:00:00Z"


def parse_instant(field: str, value: object) -> datetime:
    """The aware UTC instant that RFC 3339 text or an aware datetime names.

    Cut to whole milliseconds, never rounded up. Text without an offset, 24:00, leap seconds
    and years outside 1970–2199 are Rejected.
    """
    moment = value if isinstance(value, datetime) else parse_timestamp(field, value)
    if moment.tzinfo is None:
        raise Rejected(field=field, value=value, reason="has no offset: end it with Z or +hh:mm")
    return checked(field, value, moment)


def parse_timestamp(field: str, value: object) -> datetime:
    """What RFC 3339 text says, to the millisecond: aware if it has an offset, else naive."""
    match = _TIMESTAMP.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Rejected(field=field, value=value, reason=_SHAPE)
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    milliseconds = int((match[7] or "").ljust(3, "0")[:3])
    try:
        zone = _offset(match[8]) if match[8] else None
        return datetime(year, month, day, hour, minute, second, milliseconds * 1000, zone)
    except ValueError as impossible:
        raise Rejected(field=field, value=value, reason=f"no such time: {impossible}") from None


def checked(field: str, value: object, moment: datetime) -> datetime:
    """An aware moment as UTC in whole milliseconds, refused outside 1970–2199."""
    # The year is looked at first: converting the year 1 or 9999 can overflow.
    if not SCHEDULE_FIRST_YEAR - 1 <= moment.year <= SCHEDULE_LAST_YEAR + 1 or not (
        FIRST <= (instant := whole_ms(moment.astimezone(UTC))) < END
    ):
        raise Rejected(
            field=field,
            value=value,
            reason=f"not in the years {SCHEDULE_FIRST_YEAR}–{SCHEDULE_LAST_YEAR}",
        )
    return instant


def whole_ms(moment: datetime) -> datetime:
    """The same moment without what it has below a millisecond."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def format_instant(instant: datetime) -> str:
    """RFC 3339 in UTC with milliseconds: `2026-07-12T02:00:00.000Z`."""
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _offset(text: str) -> timezone:
    if text in {"Z", "z"}:
        return UTC
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(f"offset {text} is not in -23:59–+23:59")
    width = timedelta(hours=hours, minutes=minutes)
    return timezone(-width if text[0] == "-" else width)
