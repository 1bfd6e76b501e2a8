"""This host's time and chance."""

from datetime import UTC, datetime, timedelta

from lamplighter.aws.clock import SystemChance, SystemClock
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
