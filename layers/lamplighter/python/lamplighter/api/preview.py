"""When a schedule would be due: by the very functions that dispatch goes by."""

from datetime import datetime, timedelta
from itertools import islice
from typing import Annotated, Final

from pydantic import Field

from lamplighter.api import documents
from lamplighter.api.bodies import SCHEDULE_FIELDS, ScheduleBody
from lamplighter.api.reading import read
from lamplighter.api.timing import schedule_said
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MIN_INTERVAL, NAME_MAX_CHARS, PREVIEW_MAX_OCCURRENCES
from lamplighter.core.schedule import check, explain, format_instant, parse_instant

_DEFAULT_COUNT: Final = 5


class PreviewBody(ScheduleBody):
    """A schedule as a job has it, exactly one of `cron`, `rate` and `at`, and how much of it."""

    after: Annotated[str, Field(description="RFC 3339; only what is later. Now, unless given.")] = (
        ""
    )
    count: Annotated[int, Field(ge=1, le=PREVIEW_MAX_OCCURRENCES)] = _DEFAULT_COUNT
    seed: Annotated[str, Field(description="What `H` hashes: a job's id.")] = ""


def preview(
    value: object, *, now: datetime, min_interval: timedelta = MIN_INTERVAL
) -> documents.Preview:
    """The next occurrences of a schedule, and what it says; what create refuses is Rejected.

    As if a job were created at `after`: a rate without a `start_at` is counted from then.
    """
    body = read(PreviewBody, value)
    if len(body.seed) > NAME_MAX_CHARS:
        reason = f"longer than {NAME_MAX_CHARS} characters"
        raise Rejected(field="seed", value=body.seed, reason=reason)
    after = parse_instant("after", body.after) if "after" in body.model_fields_set else now
    said = body.said("cron", "rate", "at", *SCHEDULE_FIELDS)
    schedule = schedule_said(said, seed=body.seed, anchor=after)
    check(schedule, now=after, min_interval=min_interval)
    return {
        "occurrences": [
            format_instant(instant) for instant in islice(schedule.occurrences(after), body.count)
        ],
        "explanation": explain(schedule),
        "tzdb_version": schedule.zones.version,
    }
