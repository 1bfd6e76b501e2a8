"""When it is done: bodies for `POST /v1/jobs`, or for `lamplighter jobs create`."""

from typing import Final

SALARIES: Final = {
    "name": "salaries",
    "task": "pay_salaries",
    "payload": {"employees": {"ada": 612_300, "grace": 598_000}},
    "cron": "0 9 28 * *",
    "timezone": "Europe/Berlin",
    "overlap_policy": "BUFFER_ONE",
    "misfire_policy": "FIRE_ALL",
}
CLOSE_DAY: Final = {
    "name": "close day",
    "task": "close_day",
    "cron": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "misfire_policy": "FIRE_ALL",
    # Books that are closed late are closed all the same, after a week without dispatch.
    "catchup_window_seconds": 7 * 86_400,
    "deadline_seconds": 7 * 86_400,
}
