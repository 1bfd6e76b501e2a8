import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core import buckets
from lamplighter.core.buckets import Minute, to_ms
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MAX_SHARDS

INSTANTS = st.integers(86_400_000, to_ms(datetime(2199, 12, 31, tzinfo=UTC))).map(buckets.from_ms)
SHARDS = st.integers(0, MAX_SHARDS - 1)
HASHES = st.integers(0, 2**70 - 1)


@given(INSTANTS, SHARDS, HASHES)
def test_an_id_says_when_and_where_its_row_lies(at: datetime, shard: int, hash_bits: int) -> None:
    id = buckets.execution_id(at, shard, hash_bits)

    place = buckets.place_of(buckets.parse_execution_id(id))

    assert (place.at, place.shard, place.hash) == (at, shard, hash_bits)
    assert re.fullmatch(r"ex_[0-9a-hjkmnp-tv-z]{26}", id)


@given(st.tuples(INSTANTS, SHARDS, HASHES), st.tuples(INSTANTS, SHARDS, HASHES))
def test_ids_sort_as_their_places_do(
    one: tuple[datetime, int, int], other: tuple[datetime, int, int]
) -> None:
    """S0-T1, S4-D2: the sort key is the time, then what tells rows of that time apart."""
    ids = buckets.execution_id(*one), buckets.execution_id(*other)

    assert (ids[0] < ids[1]) == (one < other)


@given(INSTANTS, SHARDS, HASHES)
def test_the_position_before_an_instant_splits_what_is_due_then_from_what_came_earlier(
    at: datetime, shard: int, hash_bits: int
) -> None:
    own = buckets.encode(to_ms(at), shard, hash_bits)
    earlier = buckets.encode(to_ms(at) - 1, MAX_SHARDS - 1, 2**70 - 1)
    later = buckets.encode(to_ms(at) + 1, 0, 0)

    assert earlier < buckets.before(at) < own <= buckets.through(at) < later
    assert buckets.instant_of(buckets.before(at)) == at


@given(st.integers(0, 120_000_000), SHARDS)
def test_a_bucket_key_round_trips(minute: int, shard: int) -> None:
    key = buckets.bucket_key(Minute(minute), shard)

    assert buckets.parse_bucket_key(key) == (minute, shard)


def test_a_bucket_key_reads_as_its_minute_and_shard() -> None:
    """S0-T1, S4-D2: a partition key is a UTC minute and a shard, not an hour and one of 128."""
    minute = buckets.minute_of(datetime(2026, 7, 12, 2, 5, 59, tzinfo=UTC))

    assert buckets.bucket_key(minute, 0x7F) == "2026-07-12T02:05#07f"


@given(INSTANTS, SHARDS, HASHES)
def test_a_row_lies_in_the_bucket_of_its_minute(at: datetime, shard: int, hash_bits: int) -> None:
    position = buckets.body_of(buckets.execution_id(at, shard, hash_bits))

    key = buckets.row_key(position)

    assert key == (buckets.bucket_key(buckets.minute_of(at), shard), position)


@given(INSTANTS, st.integers(1, 20_000_000))
def test_the_minutes_between_two_positions_hold_every_position_between(
    start: datetime, span_ms: int
) -> None:
    end = start + timedelta(milliseconds=span_ms)

    minutes = [*buckets.minutes_between(buckets.before(start), buckets.through(end))]

    assert minutes == sorted(set(minutes))
    assert minutes[0] == buckets.minute_of(start)
    assert minutes[-1] >= buckets.minute_of(end)


def test_planning_an_occurrence_twice_makes_one_id() -> None:
    """S0-S4: the id is a hash of the job and its slot."""
    job = buckets.recurring_job_id(datetime(2026, 1, 1, tzinfo=UTC), 7, 12345)
    slot = datetime(2026, 7, 12, 2, 0, tzinfo=UTC)

    first, again = (buckets.occurrence_id(job, slot, slot) for _ in range(2))

    assert first == again
    assert buckets.place_of(first).shard == 7
    assert first != buckets.occurrence_id(job, slot + timedelta(minutes=1), slot)


def test_a_one_off_job_id_and_its_execution_lead_to_each_other() -> None:
    id = buckets.execution_id(datetime(2026, 7, 12, tzinfo=UTC), 3, 99)

    assert buckets.execution_of(buckets.one_off_job_id(id)) == id
    assert buckets.execution_of(buckets.recurring_job_id(datetime.now(UTC), 3, 99)) is None


@pytest.mark.parametrize(
    "text",
    ["", "ex_", "ex_" + "0" * 25, "ex_" + "0" * 27, "ex_" + "u" * 26, "job_" + "0" * 26,
     "EX_" + "0" * 26, "ex_" + "0" * 25 + "\n", "ex_" + "é" * 26],
)  # fmt: skip
def test_what_no_execution_is_called_is_refused_by_name(text: str) -> None:
    with pytest.raises(Rejected) as refused:
        buckets.parse_execution_id(text)

    assert refused.value.field == "execution_id"
    assert refused.value.value == text


@given(st.text(max_size=40))
def test_no_text_but_an_id_is_read_as_one(text: str) -> None:
    try:
        parsed = buckets.parse_execution_id(text)
    except Rejected:
        return
    place = buckets.place_of(parsed)
    assert buckets.execution_id(place.at, place.shard, place.hash) == text


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_a_job_s_versions_lie_beside_it_and_sort_as_they_were_made(one: int, other: int) -> None:
    id = buckets.recurring_job_id(datetime(2026, 7, 12, tzinfo=UTC), 3, 99)
    (place, first), (_, second) = (buckets.job_version_key(id, version) for version in (one, other))

    assert (first < second) == (one < other)
    assert place == buckets.job_key(id)[0]
    assert first != buckets.job_key(id)[1]


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20), st.data())
def test_no_two_owners_share_an_idempotency_key(owner: str, key: str, data: st.DataObject) -> None:
    joined = owner + key
    cut = data.draw(st.integers(0, len(joined)))
    other = joined[:cut], joined[cut:]

    same = buckets.idempotency_key(owner, key) == buckets.idempotency_key(*other)

    assert same == ((owner, key) == other)


def test_two_pointers_of_one_try_are_one_row_and_of_two_tries_are_two() -> None:
    at = datetime(2026, 7, 12, 2, 0, 30, tzinfo=UTC)
    id = buckets.execution_id(at, 3, 99)

    assert buckets.retry_position(id, 2, at) == buckets.retry_position(id, 2, at)
    assert buckets.retry_position(id, 2, at) != buckets.retry_position(id, 3, at)
    assert buckets.check_position(id, at) == buckets.check_position(id, at + timedelta(seconds=29))


def test_a_look_of_its_own_lies_in_the_minute_that_it_is_for() -> None:
    at = datetime(2026, 7, 12, 2, 1, 30, tzinfo=UTC)
    id = buckets.execution_id(at, 3, 99)
    minute, usual = at.replace(second=0), at.replace(minute=5, second=0)

    assert buckets.instant_of(buckets.check_position(id, at, exactly=True)) == minute
    assert buckets.instant_of(buckets.check_position(id, at)) == usual
    assert buckets.check_position(id, usual, exactly=True) == buckets.check_position(id, at)
