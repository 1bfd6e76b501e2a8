"""The tables of limits and quotas in docs/api.md say what the code goes by."""

import re
from pathlib import Path

import pytest

from lamplighter.core import limits
from lamplighter.core.buckets import OWNER_SUFFIXES
from lamplighter.core.limits import MIN_INTERVAL, SHORTEST_INTERVAL
from lamplighter.core.quotas import STEPS, Measure, Quota, Quotas

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "api.md").read_text(encoding="utf-8")
DEPLOYING = (DOCS / "deploy.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", PAGE.split("## Limits")[1], re.MULTILINE))

SAID = {
    "shortest interval of a recurring job": f"{MIN_INTERVAL.total_seconds():g} s; down to "
    f"{SHORTEST_INTERVAL.total_seconds():g} s for",
    "longest interval of a `rate`": f"{limits.MAX_INTERVAL.days:,} days",
    "`run_at`, and `start_at` of a recurring job": f"{limits.MAX_HORIZON.days:,} days",
    "text of a schedule": f"{limits.SCHEDULE_TEXT_MAX_CHARS} characters",
    "`except`": f"{limits.MAX_EXCLUSIONS} entries",
    "`max_occurrences`": f"{limits.MAX_OCCURRENCES:,}; of a `rate`, up to the last of them "
    f"`except` takes away no more than {limits.MAX_COUNTING_MISSES:,}",
    "`flexible_window_seconds`": f"{int(limits.MAX_FLEXIBLE_WINDOW.total_seconds()):,}",
    "`max_attempts`": f"{limits.MAX_ATTEMPTS}",
    "`retry_on`, `no_retry_on`": f"{limits.RETRY_MAX_NAMES} names of "
    f"{limits.RETRY_NAME_MAX_CHARS} characters",
    "`timeout_seconds`": f"{limits.MAX_TIMEOUT.total_seconds():g}",
    "`task`, `queue`, `name`": f"{limits.NAME_MAX_CHARS} characters",
    "idempotency key": f"{limits.IDEMPOTENCY_KEY_MAX_CHARS} characters",
    "payload in a body": f"{limits.PAYLOAD_MAX_BYTES:,} bytes",
    "payload by reference": f"{limits.PAYLOAD_REF_MAX_BYTES:,} bytes",
    "body": f"{limits.BODY_MAX_BYTES:,} bytes (413)",
    "body of a batch": f"{limits.BATCH_MAX_BYTES:,} bytes (413), {limits.BATCH_MAX_JOBS} jobs",
    "depth of JSON": f"{limits.JSON_MAX_DEPTH}",
    "headers, their names and values together": f"{limits.HEADERS_MAX_BYTES:,} bytes (431)",
    "query": f"{limits.QUERY_MAX_CHARS:,} characters, {limits.QUERY_MAX_FIELDS} fields",
    "items of a page, executions of a bulk verb": f"{limits.BULK_MAX_EXECUTIONS}",
    "slots of a backfill": f"{limits.BACKFILL_MAX_SLOTS:,}",
    "owner's name in a token": f"{limits.OWNER_MAX_CHARS} characters",
}


@pytest.mark.parametrize("limit", SAID, ids=lambda limit: limit)
def test_a_limit_is_what_the_page_says(limit: str) -> None:
    assert ROWS[limit].startswith(SAID[limit])


def test_a_page_has_as_many_items_as_a_bulk_verb_has_executions() -> None:
    assert limits.LIST_MAX_ITEMS == limits.BULK_MAX_EXECUTIONS


@pytest.mark.parametrize("measure", Measure)
def test_every_quota_is_on_both_pages(measure: Measure) -> None:
    assert f"\n| `{measure}` | " in PAGE
    assert f"\n| `{measure}` | " in DEPLOYING


def test_the_figures_of_counting_are_the_codes() -> None:
    seconds = f"{limits.RECOUNT_AFTER.total_seconds():g} s"

    assert f"within {seconds}, at times" in PAGE
    assert (
        f"at most every {seconds}, a recount: {(1 + STEPS) * OWNER_SUFFIXES} queries" in DEPLOYING
    )
    assert f"{1 + limits.LEASED_SHARE:g} × (`burst` + rate × its length)" in PAGE
    assert f"may have {limits.QUOTAS_MAX_BYTES:,} bytes" in DEPLOYING


def test_the_quotas_that_deploying_shows_are_some() -> None:
    (shown,) = re.findall(r"-c quotas='(.*?)'", DEPLOYING, re.DOTALL)
    (code,) = re.findall(
        r"```python\n(from dataclasses import replace.*?)```", DEPLOYING, re.DOTALL
    )
    made: dict[str, Quotas] = {}

    exec(compile(code, "example", "exec"), made)

    assert Quotas.from_json(shown).of("acme") == Quota(
        live_jobs=5000,
        queued_executions=1000,
        payload_bytes=50_000_000,
        submissions_per_second=10,
        burst=50,
        min_interval_seconds=1,
    )
    assert made["quotas"].of("acme").live_jobs == 5000
    assert made["quotas"].of("other").live_jobs == 100
