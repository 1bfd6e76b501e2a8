"""Quotas: what may be configured, and the arithmetic of a bucket."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamplighter.core.errors import OverQuota
from lamplighter.core.limits import MIN_INTERVAL, PAYLOAD_REF_MAX_BYTES, QUOTAS_MAX_BYTES
from lamplighter.core.quotas import (
    STEPS,
    Empty,
    Lease,
    Quota,
    Quotas,
    Rate,
    Taken,
    Usage,
    charged,
    charged_at,
    step_of,
    take,
)

SECOND_NS = 1_000_000_000
NOW = datetime(2026, 1, 1, tzinfo=UTC)


# What may be configured.


def test_an_owner_without_a_quota_of_their_own_has_everybodys() -> None:
    quotas = Quotas(default=Quota(live_jobs=5), owners={"ada": Quota(live_jobs=7)})

    assert quotas.of("ada").live_jobs == 7
    assert quotas.of("grace").live_jobs == 5
    assert Quotas().of("ada") == Quota()


@pytest.mark.parametrize(
    "quotas",
    [
        Quotas(),
        Quotas(default=Quota(live_jobs=5, submissions_per_second=0.5, burst=3)),
        Quotas(
            default=Quota(live_jobs=5, payload_bytes=10**9),
            owners={
                "ada": Quota(min_interval_seconds=1),
                'ü "quoted" #1': Quota(live_jobs=0, queued_executions=10),
                "as all": Quota(live_jobs=5, payload_bytes=10**9),
            },
        ),
    ],
    ids=["none", "for all", "for some"],
)
def test_quotas_are_what_their_json_says(quotas: Quotas) -> None:
    assert Quotas.from_json(quotas.to_json()) == quotas


def test_what_an_owner_leaves_out_is_as_for_all_and_null_lifts_it() -> None:
    quotas = Quotas.from_json(
        '{"live_jobs": 5, "queued_executions": 9, "owners": {"ada": {"live_jobs": null}}}'
    )

    assert quotas.of("ada") == Quota(queued_executions=9)


def test_without_quotas_their_json_is_empty() -> None:
    assert Quotas().to_json() == ""
    assert Quotas.from_json("") == Quotas.from_json("{}") == Quotas()


def test_more_quotas_than_a_functions_environment_has_room_for_are_refused() -> None:
    def of(owners: int, more: int = 0) -> Quotas:
        names = [f"{n:020}" for n in range(owners - 1)] + ["o" * (20 + more)]
        return Quotas(owners={name: Quota(live_jobs=1) for name in names})

    fitting = max(n for n in range(1, 100) if len(of_json(of(n))) <= QUOTAS_MAX_BYTES)
    room = QUOTAS_MAX_BYTES - len(of_json(of(fitting)))

    assert len(of(fitting, room).to_json()) == QUOTAS_MAX_BYTES
    with pytest.raises(ValueError, match=f"{QUOTAS_MAX_BYTES + 1} bytes of JSON, more than"):
        of(fitting, room + 1).to_json()


def of_json(quotas: Quotas) -> str:
    """The same text, however long."""
    owners = {owner: {"live_jobs": quota.live_jobs} for owner, quota in quotas.owners.items()}
    return json.dumps({"owners": owners}, separators=(",", ":"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "quotas: \\[\\] is not a JSON object"),
        ("{", "Expecting property name"),
        ('{"jobs": 1}', "quotas: unknown jobs; there are burst, live_jobs"),
        ('{"owners": []}', "owners: \\[\\] is not a JSON object"),
        ('{"owners": {"ada": 5}}', "ada: 5 is not a JSON object"),
        ('{"owners": {"ada": {"live_job": 5}}}', "ada: unknown live_job"),
        ('{"live_jobs": -1}', "live_jobs: -1 is not a whole number in 0–"),
        ('{"live_jobs": 1.5}', "live_jobs: 1.5 is not a whole number"),
        ('{"live_jobs": true}', "live_jobs: True is not a whole number"),
        ('{"live_jobs": "5"}', "live_jobs: '5' is not a whole number"),
        ('{"queued_executions": -1}', "queued_executions: -1"),
        ('{"payload_bytes": -1}', "payload_bytes: -1"),
        ('{"submissions_per_second": 0}', "submissions_per_second: 0 is not a number in 0.001–"),
        ('{"submissions_per_second": NaN}', "submissions_per_second: nan"),
        ('{"submissions_per_second": 100001}', "submissions_per_second: 100001"),
        ('{"submissions_per_second": 1, "burst": 0}', "burst: 0 is not a whole number in 1–"),
        ('{"burst": 5}', "burst 5: only with submissions_per_second"),
        ('{"min_interval_seconds": 0.9}', "min_interval_seconds: 0.9 is not a number in 1–60"),
        ('{"min_interval_seconds": 61}', "min_interval_seconds: 61 is not a number in 1–60"),
        ('{"min_interval_seconds": null}', "min_interval_seconds"),
    ],
)
def test_a_quota_that_makes_no_sense_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Quotas.from_json(text)


def test_a_quota_may_be_at_its_bounds() -> None:
    quota = Quota(live_jobs=0, submissions_per_second=0.001, burst=1, min_interval_seconds=1)

    assert quota.min_interval == timedelta(seconds=1)
    assert Quota(submissions_per_second=100_000).rate == Rate(per_second=100_000, burst=100_000)
    assert Quota().min_interval == MIN_INTERVAL


def test_a_burst_is_a_seconds_worth_unless_it_is_chosen() -> None:
    assert Quota(submissions_per_second=20).rate == Rate(per_second=20, burst=20)
    assert Quota(submissions_per_second=0.1).rate == Rate(per_second=0.1, burst=1)
    assert Quota(submissions_per_second=20, burst=100).rate == Rate(per_second=20, burst=100)
    assert Quota().rate is None


# What is counted.


@pytest.mark.parametrize(
    ("size", "counts_for"),
    [
        (1, 512),
        (512, 512),
        (513, 1024),
        (1024, 1024),
        (1025, 2048),
        (65_536, 65_536),
        (65_537, 131_072),
        (PAYLOAD_REF_MAX_BYTES, 8 * 1024 * 1024),
    ],
)
def test_a_payload_counts_for_its_size_rounded_up(size: int, counts_for: int) -> None:
    assert charged(size) == charged_at(step_of(size)) == counts_for
    assert 0 <= step_of(size) < STEPS


def test_the_step_of_a_payload_fits_into_its_place_of_a_key() -> None:
    # A hexadecimal digit, and one step more for an execution that has its job's payload.
    assert STEPS + 1 <= 16


@pytest.mark.parametrize(
    ("used", "more", "quota"),
    [
        (Usage(live_jobs=4), Usage(live_jobs=1), Quota(live_jobs=5)),
        (Usage(queued_executions=4), Usage(queued_executions=1), Quota(queued_executions=5)),
        (Usage(payload_bytes=1024), Usage(payload_bytes=512), Quota(payload_bytes=1536)),
        (Usage(), Usage(live_jobs=1), Quota(live_jobs=1)),
    ],
)
def test_as_much_as_the_quota_is_admitted_and_one_more_is_not(
    used: Usage, more: Usage, quota: Quota
) -> None:
    used.check(quota, more)

    with pytest.raises(OverQuota) as refused:
        used.plus(more).check(quota, more)

    (name,) = (name for name in vars(quota) if getattr(quota, name) not in {None, 60.0})
    over = refused.value
    assert (over.quota, over.limit, over.used) == (name, getattr(quota, name), over.limit)
    assert str(over) == (
        f"{name}: {over.used} of {over.limit} are in use, and this takes {getattr(more, name)} more"
    )


def test_what_takes_nothing_is_not_refused_over_a_quota() -> None:
    over = Usage(live_jobs=9, queued_executions=9, payload_bytes=9999)

    over.check(Quota(live_jobs=5, queued_executions=5), Usage(payload_bytes=512))
    over.check(Quota(live_jobs=5, payload_bytes=5), -Usage.of_job(9))


# The bucket.


def test_a_full_bucket_gives_its_burst_and_then_one_by_one() -> None:
    rate = Rate(per_second=10, burst=5)

    taken = take(rate, 0, now_ns=NOW_NS, least=5, most=5)

    assert isinstance(taken, Taken)
    assert taken.tokens == 5
    empty = take(rate, taken.full_at_ns, now_ns=NOW_NS, least=1, most=1)
    assert empty == Empty(until_ns=NOW_NS + SECOND_NS // 10)
    assert isinstance(take(rate, taken.full_at_ns, now_ns=empty.until_ns, least=1, most=1), Taken)
    before = empty.until_ns - 1
    assert isinstance(take(rate, taken.full_at_ns, now_ns=before, least=1, most=1), Empty)


def test_of_what_is_asked_for_it_gives_what_it_has() -> None:
    rate = Rate(per_second=10, burst=5)
    taken = take(rate, 0, now_ns=NOW_NS, least=3, most=3)
    assert isinstance(taken, Taken)

    rest = take(rate, taken.full_at_ns, now_ns=NOW_NS, least=1, most=100)

    assert isinstance(rest, Taken)
    assert rest.tokens == 2


NOW_NS = 1_767_225_600 * SECOND_NS


@given(
    st.floats(0.01, 10_000),
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(0, 3 * SECOND_NS), st.integers(1, 50)), max_size=60),
)
def test_it_never_gives_more_than_a_burst_and_what_has_come_since(
    per_second: float, burst: int, asked: list[tuple[int, int]]
) -> None:
    rate = Rate(per_second=per_second, burst=burst)
    now_ns = started = NOW_NS
    full_at_ns, given_out = 0, 0
    for wait_ns, number in asked:
        now_ns += wait_ns
        answer = take(rate, full_at_ns, now_ns=now_ns, least=number, most=number)
        if isinstance(answer, Taken):
            full_at_ns, given_out = answer.full_at_ns, given_out + answer.tokens
        elif number <= burst:
            later = take(rate, full_at_ns, now_ns=answer.until_ns, least=number, most=number)
            assert isinstance(later, Taken)

    assert given_out <= burst + (now_ns - started) / rate.interval_ns


def test_a_lease_lasts_for_a_tenth_of_the_time_to_a_full_bucket() -> None:
    assert Rate(per_second=10, burst=10).lease == timedelta(milliseconds=100)
    assert Rate(per_second=10, burst=100).lease == timedelta(seconds=1)


@pytest.mark.parametrize(
    ("left", "after_ms", "following"),
    [
        pytest.param(0, 25, 8, id="used up in a quarter of the time: twice as many, no more"),
        pytest.param(0, 80, 5, id="used up in four fifths of it: as many as the rest would need"),
        pytest.param(1, 100, 3, id="not used up in time: as many as were"),
        pytest.param(4, 100, 1, id="not used at all: one"),
        pytest.param(0, 150, 4, id="used up, and nothing since then: as many again"),
        pytest.param(0, 200, 1, id="long ago: one"),
        pytest.param(0, -1, 1, id="the clock was set back: one"),
    ],
)
def test_a_host_asks_for_as_many_tokens_as_it_is_likely_to_use(
    left: int, after_ms: int, following: int
) -> None:
    rate = Rate(per_second=100, burst=100)
    lease = Lease(tokens=left, chunk=4, taken_at=NOW, until=NOW + timedelta(milliseconds=100))

    now = NOW + timedelta(milliseconds=after_ms)

    assert rate.lease == timedelta(milliseconds=100)
    assert lease.following_chunk(rate, now) == following


def test_a_host_asks_for_no_more_than_a_tenth_of_a_burst_and_at_least_for_one() -> None:
    rate = Rate(per_second=100, burst=100)
    lease = Lease(tokens=0, chunk=80, taken_at=NOW, until=NOW + rate.lease)

    assert lease.following_chunk(rate, NOW) == 10
    assert lease.following_chunk(Rate(per_second=100, burst=5), NOW) == 1
