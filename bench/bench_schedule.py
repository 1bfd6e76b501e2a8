"""How much a steady iterator costs beside cronsim's, expression by expression, in one run.

    python bench/bench_schedule.py

Both walk the same expression in the same zone from the same instant; each figure is the best of
five runs. The ratio is what to look at: it should stay under 6 on any machine.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from time import perf_counter
from zoneinfo import ZoneInfo

from cronsim import CronSim

from lamplighter.core.schedule import parse

START = datetime(2026, 1, 1, tzinfo=UTC)
CASES = (
    ("* * * * *", 20_000),
    ("*/5 * * * *", 10_000),
    ("0 * * * *", 10_000),
    ("0 9-17 * * 1-5", 2_000),
    ("30 2 * * *", 1_000),
    ("0 0 1,15 * *", 400),
    ("0 0 1 * 5", 400),
    ("0 9 * * 1#1", 200),
    ("0 0 L * *", 200),
    ("0 0 LW * *", 200),
    ("0 12 1 1 *", 100),
    ("0 0 29 2 *", 30),
)
ZONES = ("UTC", "Europe/Berlin")


def main() -> None:
    print(f"{'expression':16} {'zone':14} {'ours µs':>9} {'cronsim µs':>11} {'ratio':>6}")
    worst = 0.0
    for expression, count in CASES:
        for zone in ZONES:
            ours = _best(partial(_ours, expression, zone), count)
            theirs = _best(partial(_theirs, expression, zone), count)
            worst = max(worst, ours / theirs)
            print(f"{expression:16} {zone:14} {ours:9.2f} {theirs:11.2f} {ours / theirs:6.2f}")
    print(f"worst ratio {worst:.2f}")
    _single_calls()


def _single_calls() -> None:
    record = parse(cron="30 2 * * *", timezone="Europe/Berlin").to_record()
    schedule = parse(cron="30 2 * * *", timezone="Europe/Berlin")
    for name, call in (
        ("from_record + next", lambda: type(schedule).from_record(record).next(START)),
        ("next", lambda: schedule.next(START)),
        ("previous", lambda: schedule.previous(START)),
        ("contains", lambda: schedule.contains(START)),
    ):
        start = perf_counter()
        for _ in range(500):
            call()
        print(f"{name:20} {(perf_counter() - start) / 500 * 1e6:8.1f} µs")


def _ours(expression: str, zone: str) -> Iterator[datetime]:
    return parse(cron=expression, timezone=zone).occurrences(START)


def _theirs(expression: str, zone: str) -> Iterator[datetime]:
    return CronSim(expression, START.astimezone(UTC if zone == "UTC" else ZoneInfo(zone)))


def _best(start: Callable[[], Iterator[datetime]], count: int) -> float:
    """Microseconds an occurrence, construction included."""
    return min(_once(start, count) for _ in range(5)) / count * 1e6


def _once(start: Callable[[], Iterator[datetime]], count: int) -> float:
    begin = perf_counter()
    found = sum(1 for _ in islice(start(), count))
    elapsed = perf_counter() - begin
    if found != count:
        raise SystemExit(f"only {found} of {count} occurrences")
    return elapsed


if __name__ == "__main__":
    main()
