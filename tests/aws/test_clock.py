"""This host's time and chance."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lamplighter.aws.clock import SystemChance, SystemClock, process_began_at
from lamplighter.core.buckets import from_ms, to_ms
from lamplighter.ports import Chance, Clock


def test_now_is_aware_in_utc_and_in_whole_milliseconds() -> None:
    clock: Clock = SystemClock()

    before, now, after = datetime.now(UTC), clock.now(), datetime.now(UTC)

    assert before - timedelta(milliseconds=1) < now <= after
    assert now.tzinfo is UTC
    assert now == from_ms(to_ms(now))


def test_monotonic_time_goes_on() -> None:
    clock = SystemClock()

    assert clock.monotonic() <= clock.monotonic()


def test_a_sleep_is_never_too_short_on_the_wall_clock() -> None:
    clock = SystemClock()
    began = datetime.now(UTC)

    clock.sleep(timedelta(milliseconds=20))

    assert datetime.now(UTC) - began >= timedelta(milliseconds=20)


def test_a_sleep_of_less_than_nothing_returns() -> None:
    SystemClock().sleep(timedelta(seconds=-60))


def test_a_process_knows_when_it_began() -> None:
    """Long before its modules are loaded: what a message waits meanwhile is a cold start."""
    program = (
        "import time; time.sleep(0.3); from lamplighter.aws.clock import process_began_at; "
        "print(process_began_at().isoformat())"
    )

    before = datetime.now(UTC)
    said = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    ended = datetime.now(UTC)

    # The kernel counts in hundredths.
    tick = timedelta(milliseconds=20)
    began = datetime.fromisoformat(said.strip())
    assert before - tick <= began <= ended - timedelta(milliseconds=300) + tick


def test_where_no_kernel_tells_it_is_when_its_first_modules_were_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("lamplighter.aws.clock._STAT", tmp_path / "none")

    assert process_began_at() == process_began_at() < datetime.now(UTC)


def test_hashes_have_seventy_bits_and_differ() -> None:
    chance: Chance = SystemChance()
    hashes = [chance.hash() for _ in range(200)]

    assert len(set(hashes)) == 200
    assert 1 << 68 < max(hashes) < 1 << 70


def test_tokens_are_128_bits_as_hex_and_differ() -> None:
    chance = SystemChance()
    tokens = {chance.token() for _ in range(200)}

    assert len(tokens) == 200
    assert all(len(token) == 32 and int(token, 16) >= 0 for token in tokens)


def test_jitter_spreads_over_half_to_one_and_a_half() -> None:
    chance = SystemChance()
    drawn = [chance.jitter() for _ in range(2000)]

    assert 0.5 <= min(drawn) < 0.55
    assert 1.45 < max(drawn) < 1.5
