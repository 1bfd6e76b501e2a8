"""When a job is due: from what a caller says to a sequence of instants.

`parse` reads cron expressions (unix and EventBridge), rates and single times into a `Schedule`;
`check` is what else a new job must pass. Wall-clock times become instants by the rules of one
pinned release of the IANA zone database, `TZDB_VERSION`.
"""

from lamplighter.core.schedule.check import check, never_due, shortest_interval
from lamplighter.core.schedule.dst import DstFold, DstGap, DstPolicy
from lamplighter.core.schedule.explain import explain
from lamplighter.core.schedule.expression import Dialect
from lamplighter.core.schedule.instants import format_instant, parse_instant
from lamplighter.core.schedule.model import (
    Kind,
    Record,
    Schedule,
    UnreadableSchedule,
    read_record,
)
from lamplighter.core.schedule.parse import field_of, parse
from lamplighter.core.schedule.zones import PINNED, TZDB_VERSION, ZoneDatabase

__all__ = [
    "PINNED",
    "TZDB_VERSION",
    "Dialect",
    "DstFold",
    "DstGap",
    "DstPolicy",
    "Kind",
    "Record",
    "Schedule",
    "UnreadableSchedule",
    "ZoneDatabase",
    "check",
    "explain",
    "field_of",
    "format_instant",
    "never_due",
    "parse",
    "parse_instant",
    "read_record",
    "shortest_interval",
]
