"""Schedules as the API shows them with a job, read back."""

from typing import Final

from lamplighter.client.http import Document
from lamplighter.core.schedule import PINNED, Schedule, ZoneDatabase, parse, parse_instant

_FIELDS: Final = (
    *("cron", "rate", "timezone", "dialect", "dst_gap", "dst_fold"),
    *("start_at", "end_at", "max_occurrences"),
)


def is_recurring(job: Document) -> bool:
    """Whether a job has a schedule, and not just one time."""
    return "cron" in job or "rate" in job


def schedule_of(job: Document, *, zones: ZoneDatabase = PINNED) -> Schedule:
    """The schedule of a recurring job, by a zone database of one's own.

    Raises Rejected for what that database or this release does not know.
    """
    said = {name: job[name] for name in _FIELDS if job.get(name) is not None}
    anchor = job.get("anchor")
    return parse(
        **said,
        flexible_window_seconds=int(job.get("flexible_window_seconds", 0)),
        except_=job["except"],
        seed=job["job_id"],
        anchor=None if anchor is None else parse_instant("anchor", anchor),
        zones=zones,
    )
