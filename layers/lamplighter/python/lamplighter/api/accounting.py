"""The completeness ledger of a job, and the load to come, over HTTP."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from lamplighter.api import cursors, documents, loads
from lamplighter.api.requests import Query
from lamplighter.core.buckets import JobId, parse_job_id
from lamplighter.core.completeness import Outcome, Place
from lamplighter.core.errors import Rejected
from lamplighter.core.forecast import Load
from lamplighter.core.limits import (
    FORECAST_BY_DEFAULT,
    FORECAST_MAX_RANGE,
    FORECAST_MOST_PER_SECOND,
    LEDGER_BY_DEFAULT,
    LEDGER_MAX_RANGE,
)
from lamplighter.core.model import Owner
from lamplighter.core.schedule import format_instant, parse_instant
from lamplighter.ports import Ports
from lamplighter.services.completeness import Account, account
from lamplighter.services.forecast import forecast

_HOUR: Final = timedelta(hours=1)
_NUMBER: Final = re.compile(r"\d{1,7}(\.\d{1,3})?", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Accounting:
    """Accounts for the slots of one owner's jobs."""

    ports: Ports
    owner: Owner

    def ledger(self, id: JobId, query: Query) -> documents.Ledger:
        """A part of a job's ledger; raises what Api answers with a problem."""
        now = self.ports.clock.now()
        end = _instant(query, "to", lambda: now)
        start = _instant(query, "from", lambda: end - LEDGER_BY_DEFAULT)
        if end - start > LEDGER_MAX_RANGE:
            reason = f"more than {LEDGER_MAX_RANGE.days} days before to"
            raise Rejected(field="from", value=query.one("from"), reason=reason)
        digested = [self.owner, "ledger", id, query.one("from"), query.one("to")]
        cursor = query.one("cursor")
        after = None if cursor is None else _read(cursors.read(cursor, digested))
        found = account(self.ports, self.owner, id, start=start, end=end, after=after)
        following = cursors.write(found.next.text, digested) if found.next else None
        return rendered(found, next_cursor=following)


@dataclass(frozen=True, kw_only=True)
class Forecasting:
    """Tells what one owner has planned."""

    ports: Ports
    owner: Owner
    lanes: Collection[str]
    """All of the stack's."""

    def forecast(self, query: Query) -> documents.Forecast:
        """A part of what is planned; raises what Api answers with a problem."""
        now = self.ports.clock.now()
        start = max(now, _instant(query, "from", lambda: now))
        end = _instant(query, "to", lambda: start + FORECAST_BY_DEFAULT)
        if not start < end <= start + FORECAST_MAX_RANGE:
            reason = f"not within {FORECAST_MAX_RANGE // _HOUR} hours after from, nor after now"
            raise Rejected(field="to", value=query.one("to"), reason=reason)
        asked = _per_second(query)
        digested = [self.owner, "forecast", query.one("from"), query.one("to")]
        cursor = query.one("cursor")
        after = None if cursor is None else parse_job_id(cursors.read(cursor, digested))
        found = forecast(self.ports, self.owner, start=start, end=end, after=after)
        return {
            "from": format_instant(start),
            "to": format_instant(end),
            **self._assessed(found.lanes, asked),
            "lanes": [
                loads.lane(queue, of_lane, per_second=self.ports.capacity.of(queue))
                for queue, of_lane in found.lanes.items()
            ],
            "next_cursor": cursors.write(found.next, digested) if found.next else None,
        }

    def _assessed(
        self, lanes: Mapping[str, Sequence[Load]], asked: float | None
    ) -> documents.Assessed:
        if asked is not None:
            return loads.as_one(lanes, per_second=asked)
        capacity = {lane: self.ports.capacity.of(lane) for lane in {*lanes, *self.lanes}}
        return loads.by_lane(lanes, capacity=capacity, per_second=sum(capacity.values()))


def _per_second(query: Query) -> float | None:
    text = query.one("per_second")
    if text is None:
        return None
    if _NUMBER.fullmatch(text) and 0 < float(text) <= FORECAST_MOST_PER_SECOND:
        return float(text)
    reason = f"not a number over 0, up to {FORECAST_MOST_PER_SECOND:.0f}"
    raise Rejected(field="per_second", value=text, reason=reason)


def _instant(query: Query, name: str, otherwise: Callable[[], datetime]) -> datetime:
    text = query.one(name)
    return otherwise() if text is None else parse_instant(name, text)


def rendered(found: Account, *, next_cursor: str | None) -> documents.Ledger:
    """A part of a ledger."""
    return {
        "job_id": found.job.id,
        "from": format_instant(min(found.start, found.end)),
        "to": format_instant(found.end),
        "forgotten_before": format_instant(found.start) if found.is_cut else None,
        "expected": found.count(),
        "fired": found.count(Outcome.FIRED),
        "skipped": found.count(Outcome.SKIPPED),
        "cancelled": found.count(Outcome.CANCELLED),
        "expired": found.count(Outcome.EXPIRED),
        "pending": found.count(Outcome.PENDING),
        "missed": found.count(Outcome.MISSED),
        "groups": [
            {
                "outcome": one.entry.outcome,
                "reason": one.entry.reason,
                "count": one.count,
                "first": format_instant(one.first),
                "last": format_instant(one.last),
            }
            for one in found.groups
        ],
        "unreadable_versions": [*found.unreadable],
        "next_cursor": next_cursor,
    }


def _read(text: str) -> Place:
    """The place that a cursor carries; Rejected for what never was one."""
    try:
        return Place.read(text)
    except ValueError:
        raise Rejected(field="cursor", value=text, reason="damaged, or from a list") from None
