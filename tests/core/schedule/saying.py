"""What a test may say to `parse`, as a type, so that tables of it can be checked."""

from datetime import datetime
from typing import TypedDict


class Said(TypedDict, total=False):
    cron: object
    rate: object
    at: object
    timezone: object
    dialect: object
    dst_gap: object
    dst_fold: object
    start_at: object
    end_at: object
    max_occurrences: object
    flexible_window_seconds: object
    except_: object
    seed: str
    anchor: datetime | None
