"""`ports.Executions`: what holds of every implementation, sentence by sentence."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from lamplighter.core.buckets import (
    ExecutionId,
    Position,
    before,
    body_of,
    execution_id_at,
    through,
)
from lamplighter.core.catch_up import CaughtUp
from lamplighter.core.errors import LostClaim, VersionMoved
from lamplighter.core.lifecycle import FINAL, NEEDS_ATTENTION, Event, State
from lamplighter.core.limits import PAYLOAD_MAX_BYTES
from lamplighter.core.model import (
    Arrival,
    Execution,
    Owner,
    Payload,
    Pointer,
    Row,
    Token,
    Trigger,
)
from lamplighter.core.outcome import Parked, Refused, Succeeded, ended, put_off, taken_over
from lamplighter.core.retry import Kind
from lamplighter.core.waits import Part, Waited
from lamplighter.ports import Page, Refusal
from tests.contract.racing import race
from tests.contract.worlds import World
from tests.support.rows import (
    GIVES_WAY,
    LEASE,
    MINUTE,
    OTHER_TOKEN,
    OWNER,
    STAYS,
    TOKEN,
    WORKER,
    Change,
    T,
    after,
    beside,
    blocked,
    cancelled,
    check_pointer,
    failed,
    id_at,
    occurrence,
    one_off,
    recurring,
    retry_pointer,
    revised,
    running,
    s,
    spec,
    succeeded,
)

BEGINNING = before(T)
END = through(T + s(59.999))


def claim(
    world: World,
    row: Execution,
    *,
    attempt: int = 1,
    token: Token = TOKEN,
    now: datetime = T,
) -> Execution | Refusal:
    return world.executions.claim(
        row.id, attempt=attempt, token=token, worker=WORKER, now=now, lease_until=now + LEASE
    )


def claimed(world: World, row: Execution) -> Execution:
    """The row, put and claimed at its run_at."""
    world.executions.put([row])
    won = claim(world, row, attempt=row.attempt, now=row.due_at)
    assert isinstance(won, Execution)
    return won


# Putting and getting.


def test_what_was_put_is_read_back_as_it_was(world: World) -> None:
    rows = [one_off(payload='{"to":"ada"}'), occurrence(recurring()), blocked(one_off(n=3))]

    assert [*world.executions.put(rows)] == rows

    assert [world.executions.get(row.id) for row in rows] == rows


def test_a_place_in_a_catch_up_is_kept_and_delays_no_claim(world: World) -> None:
    place = CaughtUp(decided_at=T + s(3600), number=7, step=s(0.6))
    row = replace(occurrence(recurring()), caught_up=place)

    assert [*world.executions.put([row])] == [row]
    won = claim(world, row, now=T + s(3601))

    assert isinstance(won, Execution)
    assert won.caught_up == place


def test_no_row_is_none(world: World) -> None:
    assert world.executions.get(id_at(T)) is None


def test_putting_nothing_makes_nothing(world: World) -> None:
    assert [*world.executions.put([])] == []


def test_a_put_of_more_rows_than_any_batch_takes_makes_them_all_in_order(world: World) -> None:
    rows = [one_off(n=n, shard=n % 16) for n in range(40)]

    assert [*world.executions.put(rows)] == rows


def test_a_put_leaves_a_row_that_exists_alone_and_answers_with_it(world: World) -> None:
    """S0-S4: a slot's row is made once, by a condition of its write."""
    row = one_off()
    held = claimed(world, row)

    answer = world.executions.put([one_off(n=2), row])

    assert [*answer] == [one_off(n=2), held]
    assert world.executions.get(row.id) == held


def test_a_put_that_is_done_again_answers_the_same(world: World) -> None:
    rows = [one_off(n=n) for n in range(3)]

    assert [*world.executions.put(rows)] == [*world.executions.put(rows)]


def test_a_row_that_ended_before_it_was_put_is_final_and_kept(world: World) -> None:
    row = ended(one_off(), Event.SKIP, now=T, reason="a later slot runs for it")

    world.executions.put([row])

    assert world.executions.get(row.id) == row


def test_a_large_payload_is_not_in_the_row(world: World) -> None:
    row = one_off(payload='"' + "x" * 600 + '"')

    world.executions.put([row])

    stored = world.executions.get(row.id)
    assert stored is not None
    assert stored.spec is not None
    assert stored.spec.payload == Payload(text=None, bytes=602)


def test_get_many_finds_what_exists_of_more_ids_than_a_batch_takes(world: World) -> None:
    rows = [one_off(n=n, shard=n % 16) for n in range(130)]
    world.executions.put(rows)
    missing = id_at(T, n=1000)

    found = world.executions.get_many([row.id for row in rows] + [missing, rows[0].id])

    assert found == {row.id: row for row in rows}


def test_get_many_of_nothing_is_nothing(world: World) -> None:
    assert world.executions.get_many([]) == {}


# Planning anew what an earlier version of the job had planned (P19).


@pytest.mark.parametrize("come_of", GIVES_WAY.values(), ids=GIVES_WAY.keys())
def test_a_row_of_an_earlier_version_of_which_nothing_has_come_gives_way(
    world: World, come_of: Change
) -> None:
    job = recurring()
    world.executions.put([come_of(occurrence(job))])
    planned = occurrence(revised(job))

    assert [*world.executions.put([planned])] == [planned]

    assert world.executions.get(planned.id) == planned


@pytest.mark.parametrize("come_of", STAYS.values(), ids=STAYS.keys())
def test_a_row_of_an_earlier_version_of_which_something_has_come_stays(
    world: World, come_of: Change
) -> None:
    job = recurring()
    there = come_of(occurrence(job))
    world.executions.put([there])

    assert [*world.executions.put([occurrence(revised(job))])] == [there]

    assert world.executions.get(there.id) == there


def test_what_may_have_come_of_a_row_is_every_state() -> None:
    states = {come_of(occurrence(recurring())).state for come_of in STAYS.values()}

    assert states == set(State) - {State.SCHEDULED}


@pytest.mark.parametrize("come_of", GIVES_WAY.values(), ids=GIVES_WAY.keys())
@pytest.mark.parametrize("versions", [0, 1, 2])
def test_a_row_of_the_same_version_stays(world: World, come_of: Change, versions: int) -> None:
    job = recurring()
    for _ in range(versions):
        job = revised(job)
    there = come_of(occurrence(job))
    world.executions.put([there])

    assert [*world.executions.put([replace(there, state=State.SKIPPED)])] == [there]

    assert world.executions.get(there.id) == there


@pytest.mark.parametrize("come_of", GIVES_WAY.values(), ids=GIVES_WAY.keys())
@pytest.mark.parametrize("versions", [1, 2])
def test_what_an_older_version_plans_late_leaves_the_row_of_a_later_one_alone(
    world: World, come_of: Change, versions: int
) -> None:
    older = recurring() if versions == 1 else revised(recurring())
    there = come_of(occurrence(revised(older)))
    world.executions.put([there])

    assert [*world.executions.put([occurrence(older)])] == [there]

    assert world.executions.get(there.id) == there


def test_a_row_gives_way_over_any_number_of_versions_and_more_than_once(world: World) -> None:
    job = recurring()
    for _ in range(12):
        world.executions.put([occurrence(job)])
        job = revised(revised(job))

    (answer,) = world.executions.put([occurrence(job)])

    assert answer.job_version == 25
    assert world.executions.get(answer.id) == occurrence(job)


def test_a_run_that_the_look_after_its_claim_refused_can_be_planned_and_claimed_again(
    world: World,
) -> None:
    job = recurring()
    won = claimed(world, occurrence(job))
    refused = after(won, Refused(reason="its job is PAUSED"))
    world.executions.settle(refused, token=TOKEN)
    planned = occurrence(revised(job))

    world.executions.put([planned])

    again = claim(world, planned, token=OTHER_TOKEN)
    assert again == running(planned, token=OTHER_TOKEN)


def test_what_may_be_planned_again_in_one_put_is_each_row_by_itself(world: World) -> None:
    job = recurring()
    slots = [T + s(3600) * n for n in range(3)]
    first, second, third = (occurrence(revised(job), slot) for slot in slots)
    held = running(occurrence(job, slots[1]))
    world.executions.put([occurrence(job, slots[0]), held])

    assert [*world.executions.put([first, second, third])] == [first, held, third]


def test_a_row_that_gives_way_is_in_its_owner_s_list_once_and_in_its_bucket_once(
    world: World,
) -> None:
    job = recurring()
    planned = occurrence(revised(job))
    world.executions.put([cancelled(occurrence(job))])

    world.executions.put([planned])

    page = world.executions.due(MINUTE, [0], after=BEGINNING, until=END, limit=10)
    assert [*page.rows] == [planned]
    assert [*world.executions.of_owner(OWNER, before=None, limit=10)] == [planned.id]


def test_of_a_claim_and_a_later_version_s_put_both_or_only_the_claim_is_seen(
    world: World,
) -> None:
    job = recurring()
    row, planned = occurrence(job), occurrence(revised(job))
    world.executions.put([row])

    def step(n: int) -> object:
        return claim(world, row) if n % 2 else world.executions.put([planned])

    race(step, 8)

    # Whichever was first: the claimed row keeps its version, the new one can be claimed.
    left = world.executions.get(row.id)
    assert left in (running(row), running(planned))


# What is due.


def walk(
    world: World,
    *,
    shards: list[int],
    after: Position = BEGINNING,
    until: Position = END,
    limit: int,
) -> list[Page]:
    """Page after page, as dispatch reads them."""
    pages = []
    while after < until:
        page = world.executions.due(MINUTE, shards, after=after, until=until, limit=limit)
        assert after < page.reached <= until
        pages.append(page)
        after = page.reached
    return pages


def position_of(row: Row) -> Position:
    return body_of(row.id) if isinstance(row, Execution) else row.position


def test_an_empty_bucket_is_read_to_its_end(world: World) -> None:
    page = world.executions.due(MINUTE, [0, 1], after=BEGINNING, until=END, limit=10)

    assert page == Page(rows=[], reached=END)


def test_rows_come_from_every_shard_asked_in_order_of_position(world: World) -> None:
    """S2-M2: the oldest first, a batch at a time."""
    rows = [one_off(T + s(n % 7), shard=n % 4, n=n) for n in range(20)]
    world.executions.put(rows)

    page = world.executions.due(MINUTE, [0, 1, 2, 3], after=BEGINNING, until=END, limit=100)

    assert page.reached == END
    assert [*page.rows] == sorted(rows, key=position_of)


def test_only_the_shards_asked_and_only_the_minute_asked_are_read(world: World) -> None:
    mine = one_off(shard=1)
    world.executions.put([mine, one_off(shard=2), one_off(T + s(60), shard=1)])

    page = world.executions.due(MINUTE, [1], after=BEGINNING, until=through(T + s(120)), limit=100)

    assert [*page.rows] == [mine]
    assert page.reached == through(T + s(120))


def test_the_row_at_after_is_left_out_and_the_row_at_until_is_in(world: World) -> None:
    first, second, third, fourth = (one_off(T + s(n), n=n) for n in range(4))
    world.executions.put([first, second, third, fourth])

    page = world.executions.due(
        MINUTE, [0], after=body_of(first.id), until=body_of(third.id), limit=100
    )

    assert [*page.rows] == [second, third]
    assert page.reached == body_of(third.id)


def test_an_instant_as_bound_takes_in_all_of_its_millisecond(world: World) -> None:
    rows = [one_off(T + s(1), n=0), one_off(T + s(1), n=(1 << 70) - 1)]
    later = one_off(T + s(1.001), n=0)
    world.executions.put([*rows, later])

    until_then = world.executions.due(
        MINUTE, [0], after=BEGINNING, until=through(T + s(1)), limit=100
    )
    since_then = world.executions.due(MINUTE, [0], after=through(T + s(1)), until=END, limit=100)

    assert [*until_then.rows] == rows
    assert [*since_then.rows] == [later]


def test_nothing_lies_between_a_position_and_itself(world: World) -> None:
    row = one_off()
    world.executions.put([row])
    here = body_of(row.id)

    page = world.executions.due(MINUTE, [0], after=here, until=here, limit=10)

    assert page == Page(rows=[], reached=here)


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 12, 13])
def test_pages_of_any_size_hold_every_row_once_in_order(world: World, limit: int) -> None:
    # Twelve rows, four shards; the first eight lie in one millisecond, two in each shard.
    rows = [one_off(T, shard=n % 4, n=n) for n in range(8)]
    rows += [one_off(T + s(n), shard=0, n=n) for n in range(1, 5)]
    world.executions.put(rows)

    pages = walk(world, shards=[0, 1, 2, 3], limit=limit)

    assert [row for page in pages for row in page.rows] == sorted(rows, key=position_of)
    assert all(len(page.rows) <= limit + 4 for page in pages)
    assert pages[-1].reached == END


@pytest.mark.parametrize("asked", [3, 4])
def test_a_page_of_as_many_rows_as_there_are_is_followed_by_the_end(
    world: World, asked: int
) -> None:
    """DynamoDB says that there is more, for it has not looked; what follows is empty."""
    rows = [one_off(T + s(n), n=n) for n in range(3)]
    world.executions.put(rows)

    pages = walk(world, shards=[0], limit=asked)

    assert [row for page in pages for row in page.rows] == rows
    assert pages[-1].reached == END
    assert len(pages) <= 2


def test_no_row_before_reached_is_left_out_when_one_shard_is_full(world: World) -> None:
    crowded = [one_off(T + s(0.001) * n, shard=0, n=n) for n in range(30)]
    lonely = one_off(T + s(0.020), shard=1, n=99)
    late = one_off(T + s(30), shard=2, n=98)
    world.executions.put([*crowded, lonely, late])

    pages = walk(world, shards=[0, 1, 2], limit=6)

    for page in pages[:-1]:
        assert all(position_of(row) <= page.reached for row in page.rows)
    read = [row for page in pages for row in page.rows]
    assert read == sorted([*crowded, lonely, late], key=position_of)


def test_rows_too_large_for_one_answer_are_all_read(world: World) -> None:
    # 70 × 16 KB in one shard: over the megabyte that one answer of DynamoDB holds.
    rows = [
        succeeded(running(one_off(T + s(n % 60), n=n)), result='"' + "r" * 16_000 + '"')
        for n in range(70)
    ]
    world.executions.put(rows)

    pages = walk(world, shards=[0], limit=500)

    assert [row for page in pages for row in page.rows] == sorted(rows, key=position_of)


def test_pointers_lie_among_the_rows_of_their_time(world: World) -> None:
    row = one_off(T - s(600))
    later = one_off(T + s(20))
    retry, check = retry_pointer(row, T + s(10)), check_pointer(row, T)
    rows: list[Execution | Pointer] = [retry, check, later]
    world.executions.put([later])

    world.executions.point([retry, check])

    page = world.executions.due(MINUTE, [0], after=BEGINNING, until=END, limit=100)
    assert [*page.rows] == sorted(rows, key=position_of)


def test_a_pointer_that_exists_is_left_as_it_is(world: World) -> None:
    first = check_pointer(one_off(T - s(600)), T)
    world.executions.point([first])

    world.executions.point([replace(first, at=T + s(30), attempt=2)])

    page = world.executions.due(MINUTE, [0], after=BEGINNING, until=END, limit=100)
    assert [*page.rows] == [first]


def test_more_pointers_than_any_batch_takes_are_all_made(world: World) -> None:
    pointers = [retry_pointer(one_off(n=n), T + s(1)) for n in range(40)]

    world.executions.point(pointers)

    page = world.executions.due(MINUTE, [0], after=BEGINNING, until=END, limit=100)
    assert {position_of(row) for row in page.rows} == {one.position for one in pointers}


# Claiming.


def test_a_claimed_row_is_running_under_the_token(world: World) -> None:
    """S0-L1."""
    row = one_off()
    world.executions.put([row])

    won = claim(world, row)

    assert won == replace(
        row,
        state=State.RUNNING,
        token=TOKEN,
        worker=WORKER,
        lease_until=T + LEASE,
        started_at=T,
        first_started_at=T,
    )
    assert world.executions.get(row.id) == won


def test_how_its_message_came_is_kept_with_a_try(world: World) -> None:
    row = one_off()
    world.executions.put([row])
    first = Arrival(sent_at=T - s(60), received_at=T + s(0.002))
    second = Arrival(sent_at=T - s(60), received_at=T + s(39.5), hold=s(0.25), cold_start=s(1.5))

    won = world.executions.claim(
        row.id,
        attempt=1,
        token=TOKEN,
        worker=WORKER,
        now=T + s(0.01),
        lease_until=T + LEASE,
        arrival=first,
    )
    assert isinstance(won, Execution)
    taken = world.executions.take_over(
        won,
        token=OTHER_TOKEN,
        worker=WORKER,
        now=T + s(40),
        lease_until=T + s(70),
        arrival=second,
    )

    assert isinstance(taken, Execution)
    assert (won.arrival, taken.arrival) == (first, second)
    done = world.executions.settle(succeeded(taken), token=OTHER_TOKEN)
    assert [attempt.arrival for attempt in done.attempts] == [first, second]
    assert world.executions.get(row.id) == done


def test_which_version_of_its_task_ran_is_kept_with_a_try(world: World) -> None:
    held = claimed(world, one_off())

    done = world.executions.settle(after(held, Succeeded(result="1", version=3)), token=TOKEN)

    assert [attempt.handler_version for attempt in done.attempts] == [3]
    assert world.executions.get(held.id) == done


def test_a_claim_that_led_to_no_handler_is_no_start(world: World) -> None:
    held = claimed(world, one_off())

    world.executions.settle(put_off(held, until=T + s(30), reason="no answer"), token=TOKEN)

    found = world.executions.get(held.id)
    assert found is not None
    assert found.first_started_at is None


def test_what_a_row_waited_for_before_its_first_start_is_kept_with_it(world: World) -> None:
    """S0-N2: and a later claim leaves it as it is."""
    row = one_off()
    world.executions.put([row])
    arrival = Arrival(sent_at=T - s(60), received_at=T + s(2))
    held = world.executions.claim(
        row.id,
        attempt=1,
        token=TOKEN,
        worker=WORKER,
        now=T + s(3),
        lease_until=T + s(33),
        arrival=arrival,
    )
    assert isinstance(held, Execution)

    waiting = world.executions.settle(
        put_off(held, until=T + s(18), reason="no answer"), token=TOKEN
    )

    none = timedelta(0)
    expected = Waited(
        until=T + s(18), on=Part.CLAIM, spent=(none, none, none, s(2), none, none, s(16))
    )
    assert waiting.waited == expected
    again = world.executions.claim(
        row.id,
        attempt=1,
        token=OTHER_TOKEN,
        worker=WORKER,
        now=T + s(18),
        lease_until=T + s(48),
    )
    assert isinstance(again, Execution)
    assert again.waited == expected
    assert world.executions.settle(succeeded(again), token=OTHER_TOKEN).waited == expected


def test_a_blocked_row_can_be_claimed(world: World) -> None:
    row = blocked(one_off())
    world.executions.put([row])

    won = claim(world, row)

    assert isinstance(won, Execution)
    assert won.state is State.RUNNING


def test_nothing_is_claimed_a_millisecond_before_it_is_due(world: World) -> None:
    row = one_off()
    world.executions.put([row])

    assert claim(world, row, now=T - s(0.001)) == Refusal(found=row)

    assert world.executions.get(row.id) == row
    assert isinstance(claim(world, row, now=T), Execution)


def test_a_retry_is_claimed_at_its_own_time_and_keeps_the_first_start(world: World) -> None:
    retrying = settled_retry(world)
    due = retrying.next_run_at
    assert due is not None

    early = claim(world, retrying, attempt=2, now=due - s(0.001))
    on_time = claim(world, retrying, attempt=2, now=due)

    assert early == Refusal(found=retrying)
    assert isinstance(on_time, Execution)
    assert (on_time.state, on_time.attempt, on_time.next_run_at) == (State.RUNNING, 2, None)
    assert (on_time.first_started_at, on_time.started_at) == (T, due)


def settled_retry(world: World) -> Execution:
    held = claimed(world, one_off())
    return world.executions.settle(failed(held), token=TOKEN)


@pytest.mark.parametrize("attempt", [0, 2, 3], ids="message of try {}".format)
def test_a_message_of_another_try_claims_nothing(world: World, attempt: int) -> None:
    """S1-Q4."""
    row = one_off()
    world.executions.put([row])

    assert claim(world, row, attempt=attempt) == Refusal(found=row)
    assert world.executions.get(row.id) == row


def test_a_stale_message_does_not_start_the_retry(world: World) -> None:
    """S1-Q4, S4-R3."""
    retrying = settled_retry(world)

    assert claim(world, retrying, attempt=1, now=T + s(3600)) == Refusal(found=retrying)


def test_a_held_row_is_refused_and_shown_with_its_holder(world: World) -> None:
    held = claimed(world, one_off())

    assert claim(world, held, token=OTHER_TOKEN, now=T + s(3600)) == Refusal(found=held)

    assert world.executions.get(held.id) == held


@pytest.mark.parametrize("state", sorted(FINAL))
def test_nothing_final_is_claimed(world: World, state: State) -> None:
    """O-F21: a stale hit does nothing."""
    row = replace(cancelled(one_off()), state=state)
    world.executions.put([row])

    assert claim(world, row, now=T + s(1)) == Refusal(found=row)
    assert world.executions.get(row.id) == row


def test_what_does_not_exist_is_refused_and_not_made(world: World) -> None:
    row = one_off()

    assert claim(world, row) == Refusal(found=None)

    assert world.executions.get(row.id) is None


def test_of_ten_who_claim_at_once_exactly_one_wins(world: World) -> None:
    """S0-L4, S4-L1."""
    row = one_off()
    world.executions.put([row])
    tokens = [Token(f"{n:032x}") for n in range(10)]

    answers = race(lambda n: claim(world, row, token=tokens[n]), 10)

    winners = [answer for answer in answers if isinstance(answer, Execution)]
    assert len(winners) == 1
    assert world.executions.get(row.id) == winners[0]
    assert {answer.found for answer in answers if isinstance(answer, Refusal)} == {winners[0]}


# Taking over.


def take_over(
    world: World, holder: Execution, *, token: Token = OTHER_TOKEN
) -> Execution | Refusal:
    return world.executions.take_over(
        holder, token=token, worker="worker-2", now=T + s(40), lease_until=T + s(70)
    )


def test_a_take_over_has_the_crash_in_its_history_and_a_new_token(world: World) -> None:
    """S0-L1, S0-E2."""
    held = claimed(world, one_off())

    taken = take_over(world, held)

    assert taken == replace(
        taken_over(held),
        token=OTHER_TOKEN,
        worker="worker-2",
        started_at=T + s(40),
        lease_until=T + s(70),
    )
    assert isinstance(taken, Execution)
    assert (taken.crashes, taken.attempt, len(taken.attempts)) == (1, 1, 1)
    assert world.executions.get(held.id) == taken


def test_crashes_add_up_and_do_not_move_the_attempt(world: World) -> None:
    """S0-E2."""
    first = claimed(world, one_off())
    second = take_over(world, first)
    assert isinstance(second, Execution)

    third = take_over(world, second, token=Token("c" * 32))

    assert isinstance(third, Execution)
    assert (third.crashes, third.attempt, len(third.attempts)) == (2, 1, 2)


def test_a_holder_who_has_beaten_since_is_not_taken_over(world: World) -> None:
    held = claimed(world, one_off())
    beaten = world.executions.extend(held.id, token=TOKEN, lease_until=T + s(60))

    assert take_over(world, held) == Refusal(found=beaten)

    assert world.executions.get(held.id) == beaten


def test_a_holder_who_has_finished_is_not_taken_over(world: World) -> None:
    held = claimed(world, one_off())
    done = world.executions.settle(succeeded(held), token=TOKEN)

    assert take_over(world, held) == Refusal(found=done)


def test_a_holder_who_was_taken_over_holds_nothing_any_more(world: World) -> None:
    held = claimed(world, one_off())
    taken = take_over(world, held)

    with pytest.raises(LostClaim):
        world.executions.extend(held.id, token=TOKEN, lease_until=T + s(90))
    with pytest.raises(LostClaim):
        world.executions.settle(succeeded(held), token=TOKEN)
    assert world.executions.get(held.id) == taken


def test_a_lease_that_ends_at_the_same_instant_under_another_token_is_another(
    world: World,
) -> None:
    held = claimed(world, one_off())
    taken = world.executions.take_over(
        held, token=OTHER_TOKEN, worker="worker-2", now=T + s(1), lease_until=T + LEASE
    )
    assert isinstance(taken, Execution)
    assert taken.lease_until == held.lease_until

    assert take_over(world, held, token=Token("c" * 32)) == Refusal(found=taken)

    assert world.executions.get(held.id) == taken


def test_a_row_that_is_gone_is_not_taken_over(world: World) -> None:
    assert take_over(world, running(one_off())) == Refusal(found=None)


def test_of_ten_who_take_over_at_once_exactly_one_wins(world: World) -> None:
    held = claimed(world, one_off())
    tokens = [Token(f"{n:032x}") for n in range(10)]

    answers = race(lambda n: take_over(world, held, token=tokens[n]), 10)

    winners = [answer for answer in answers if isinstance(answer, Execution)]
    assert len(winners) == 1
    assert winners[0].crashes == 1
    assert world.executions.get(held.id) == winners[0]


# Beating.


def test_a_beat_moves_the_end_of_the_lease(world: World) -> None:
    """S0-L2."""
    held = claimed(world, one_off())

    beaten = world.executions.extend(held.id, token=TOKEN, lease_until=T + s(40))

    assert beaten == replace(held, lease_until=T + s(40))
    assert world.executions.get(held.id) == beaten


def test_a_beat_tells_whether_a_cancel_was_requested(world: World) -> None:
    held = claimed(world, one_off())
    asked = world.executions.request_cancel(held.id, now=T + s(5))

    beaten = world.executions.extend(held.id, token=TOKEN, lease_until=T + s(40))

    assert isinstance(asked, Execution)
    assert beaten.cancel_requested_at == asked.cancel_requested_at == T + s(5)


def test_a_beat_with_another_token_is_a_lost_claim_and_writes_nothing(world: World) -> None:
    """S0-L3."""
    held = claimed(world, one_off())

    with pytest.raises(LostClaim):
        world.executions.extend(held.id, token=OTHER_TOKEN, lease_until=T + s(90))

    assert world.executions.get(held.id) == held


def test_a_beat_after_the_end_is_a_lost_claim(world: World) -> None:
    held = claimed(world, one_off())
    done = world.executions.settle(succeeded(held), token=TOKEN)

    with pytest.raises(LostClaim):
        world.executions.extend(held.id, token=TOKEN, lease_until=T + s(90))

    assert world.executions.get(held.id) == done


def test_a_beat_for_what_does_not_exist_is_a_lost_claim_and_makes_nothing(world: World) -> None:
    row = one_off()

    with pytest.raises(LostClaim):
        world.executions.extend(row.id, token=TOKEN, lease_until=T + s(90))

    assert world.executions.get(row.id) is None


# Settling.


OUTCOMES = {
    "SUCCEEDED with a result": lambda held: succeeded(held, result='{"sent":3}'),
    "RETRYING": failed,
    "FAILED for good": lambda held: failed(held, Kind.PERMANENT),
    "DEAD_LETTERED, attempts exhausted": lambda held: failed(held, max_attempts=1),
    "CANCELLED by the look after the claim": lambda held: after(held, Refused(reason="paused")),
}


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES.keys())
def test_what_a_try_led_to_is_read_back_as_it_was(world: World, outcome: object) -> None:
    assert callable(outcome)
    held = claimed(world, one_off())
    result: Execution = outcome(held)

    assert world.executions.settle(result, token=TOKEN) == result

    assert world.executions.get(held.id) == result


def test_a_late_success_from_a_token_that_lost_the_row_is_refused(world: World) -> None:
    """S0-L3, S1-W3."""
    held = claimed(world, one_off())

    with pytest.raises(LostClaim):
        world.executions.settle(succeeded(held), token=OTHER_TOKEN)

    assert world.executions.get(held.id) == held


def test_settling_what_does_not_exist_is_a_lost_claim_and_makes_nothing(world: World) -> None:
    held = running(one_off())

    with pytest.raises(LostClaim):
        world.executions.settle(succeeded(held), token=TOKEN)

    assert world.executions.get(held.id) is None


def test_a_cancel_requested_while_it_ran_stays_in_the_row(world: World) -> None:
    held = claimed(world, one_off())
    world.executions.request_cancel(held.id, now=T + s(5))

    world.executions.settle(succeeded(held), token=TOKEN)

    stored = world.executions.get(held.id)
    assert stored == replace(succeeded(held), cancel_requested_at=T + s(5))


def test_of_ten_who_settle_with_one_token_one_outcome_stands(world: World) -> None:
    """S2-E5."""
    held = claimed(world, one_off())

    def settle(n: int) -> Execution | None:
        result = succeeded(held, result=str(n))
        try:
            return world.executions.settle(result, token=TOKEN)
        except LostClaim:
            return None

    answers = race(settle, 10)

    winners = [answer for answer in answers if answer is not None]
    assert len(winners) == 1
    assert world.executions.get(held.id) == winners[0]


def test_settling_with_the_version_that_the_job_has_writes(world: World) -> None:
    job = recurring()
    world.jobs.create(first=occurrence(job), job=job)
    won = claim(world, occurrence(job))
    assert isinstance(won, Execution)
    result = after(won, Refused(reason="its job is PAUSED"))

    assert world.executions.settle(result, token=TOKEN, job_version=1) == result

    assert world.executions.get(won.id) == result


def test_settling_with_a_version_that_has_moved_writes_nothing(world: World) -> None:
    job = recurring()
    world.jobs.create(first=occurrence(job), job=job)
    won = claim(world, occurrence(job))
    assert isinstance(won, Execution)
    world.jobs.delete(job)

    with pytest.raises(VersionMoved):
        world.executions.settle(
            after(won, Refused(reason="its job is PAUSED")), token=TOKEN, job_version=1
        )

    assert world.executions.get(won.id) == won


def test_settling_with_the_version_of_a_job_that_is_gone_writes_nothing(world: World) -> None:
    held = claimed(world, occurrence(recurring()))

    with pytest.raises(VersionMoved):
        world.executions.settle(succeeded(held), token=TOKEN, job_version=1)

    assert world.executions.get(held.id) == held


def test_the_job_s_version_does_not_make_up_for_a_lost_token(world: World) -> None:
    job = recurring()
    world.jobs.create(first=occurrence(job), job=job)
    won = claim(world, occurrence(job))
    assert isinstance(won, Execution)

    with pytest.raises(LostClaim):
        world.executions.settle(succeeded(won), token=OTHER_TOKEN, job_version=1)

    assert world.executions.get(won.id) == won


# Ending without a try.


@pytest.mark.parametrize("event", [Event.CANCEL, Event.SKIP, Event.EXPIRE, Event.DEAD_LETTER])
@pytest.mark.parametrize("state", [State.SCHEDULED, State.BLOCKED])
def test_a_row_that_nobody_holds_can_be_made_final(
    world: World, state: State, event: Event
) -> None:
    row = replace(one_off(), state=state)
    world.executions.put([row])
    result = ended(row, event, now=T, reason="the test says so")

    assert world.executions.end(row, result) == result

    assert world.executions.get(row.id) == result


def test_a_retry_can_be_cancelled(world: World) -> None:
    retrying = settled_retry(world)
    result = ended(retrying, Event.CANCEL, now=T + s(2), reason="not needed any more")

    assert world.executions.end(retrying, result) == result

    assert world.executions.get(retrying.id) == result


def test_a_row_that_was_claimed_meanwhile_is_not_ended(world: World) -> None:
    row = one_off()
    held = claimed(world, row)

    assert world.executions.end(row, cancelled(row)) == Refusal(found=held)

    assert world.executions.get(row.id) == held


def test_a_row_of_another_try_is_not_ended(world: World) -> None:
    retrying = settled_retry(world)
    earlier = replace(retrying, attempt=1)

    answer = world.executions.end(
        earlier, ended(earlier, Event.CANCEL, now=T, reason="not needed any more")
    )

    assert answer == Refusal(found=retrying)
    assert world.executions.get(retrying.id) == retrying


def test_what_does_not_exist_is_not_ended(world: World) -> None:
    row = one_off()

    assert world.executions.end(row, cancelled(row)) == Refusal(found=None)

    assert world.executions.get(row.id) is None


def test_an_end_with_the_version_that_the_job_has_writes(world: World) -> None:
    job = recurring()
    row = occurrence(job)
    world.jobs.create(first=row, job=job)

    assert world.executions.end(row, cancelled(row), job_version=1) == cancelled(row)

    assert world.executions.get(row.id) == cancelled(row)


def test_an_end_with_a_version_that_has_moved_writes_nothing(world: World) -> None:
    job = recurring()
    row = occurrence(job)
    world.jobs.create(first=row, job=job)
    world.jobs.delete(job)

    with pytest.raises(VersionMoved):
        world.executions.end(row, cancelled(row), job_version=1)

    assert world.executions.get(row.id) == row


def test_an_end_with_the_job_s_version_is_refused_once_an_edit_has_taken_the_row_over(
    world: World,
) -> None:
    job = recurring()
    row = occurrence(job)
    world.jobs.create(first=row, job=job)
    edited = replace(job, version=2, name="later")
    taken_over = replace(row, job_version=2)
    world.jobs.revise(job, edited, first=taken_over)

    answer = world.executions.end(row, cancelled(row), job_version=2)

    assert answer == Refusal(found=taken_over)
    assert world.executions.get(row.id) == taken_over


def test_an_end_with_the_job_s_version_is_refused_when_the_row_has_moved(world: World) -> None:
    job = recurring()
    row = occurrence(job)
    world.jobs.create(first=row, job=job)
    won = claim(world, row)

    assert world.executions.end(row, cancelled(row), job_version=1) == Refusal(
        found=won if isinstance(won, Execution) else None
    )


@pytest.mark.parametrize("version", [None, 1])
def test_an_end_that_its_owner_asked_for_says_so_and_stays(
    world: World, version: int | None
) -> None:
    job = recurring()
    row = occurrence(job)
    world.jobs.create(first=row, job=job)
    asked_for = replace(cancelled(row), cancel_requested_at=T)

    assert world.executions.end(row, asked_for, job_version=version) == asked_for

    assert world.executions.get(row.id) == asked_for
    assert [*world.executions.put([occurrence(revised(job))])] == [asked_for]


def test_an_end_that_was_asked_for_before_keeps_that_instant(world: World) -> None:
    held = claimed(world, one_off())
    world.executions.request_cancel(held.id, now=T + s(1))
    waiting = put_off(held, until=T + s(20), reason="no answer")
    waiting = world.executions.settle(waiting, token=TOKEN)

    over = ended(waiting, Event.CANCEL, now=T + s(9), reason="not needed any more")
    answer = world.executions.end(waiting, replace(over, cancel_requested_at=T + s(9)))

    assert isinstance(answer, Execution)
    assert answer.cancel_requested_at == T + s(1)
    assert world.executions.get(held.id) == answer


# Asking a running one to stop, and counting what could not be delivered.


def test_a_running_row_can_be_asked_to_stop(world: World) -> None:
    held = claimed(world, one_off())

    asked = world.executions.request_cancel(held.id, now=T + s(5))

    assert asked == replace(held, cancel_requested_at=T + s(5))
    assert world.executions.get(held.id) == asked


def test_asked_to_stop_again_it_was_asked_at_the_first_instant(world: World) -> None:
    held = claimed(world, one_off())
    asked = world.executions.request_cancel(held.id, now=T + s(5))

    assert world.executions.request_cancel(held.id, now=T + s(6)) == asked

    assert world.executions.get(held.id) == asked


@pytest.mark.parametrize("state", sorted(set(State) - {State.RUNNING, State.RETRYING}))
def test_only_a_running_row_is_asked_to_stop(world: World, state: State) -> None:
    row = replace(one_off(), state=state)
    world.executions.put([row])

    assert world.executions.request_cancel(row.id, now=T) == Refusal(found=row)

    assert world.executions.get(row.id) == row


def test_what_does_not_exist_is_not_asked_to_stop(world: World) -> None:
    assert world.executions.request_cancel(id_at(T), now=T) == Refusal(found=None)


def test_landings_in_a_dead_letter_queue_are_counted(world: World) -> None:
    row = one_off()
    world.executions.put([row])

    world.executions.count_undeliverable(row.id)
    answer = world.executions.count_undeliverable(row.id)

    assert answer == replace(row, undeliverable=2)
    assert world.executions.get(row.id) == answer


def test_a_message_of_nothing_counts_nothing_and_makes_nothing(world: World) -> None:
    assert world.executions.count_undeliverable(id_at(T)) is None
    assert world.executions.get(id_at(T)) is None


def test_that_its_owner_was_told_is_noted_once_and_changes_nothing_else(world: World) -> None:
    """S4-R4."""
    row = failed(running(one_off()), max_attempts=1)
    world.executions.put([row])

    for at in (T, T + s(60)):
        world.executions.mark_told(row.id, now=at)

    assert world.executions.get(row.id) == replace(row, told_at=T)


def test_that_nothing_follows_it_is_noted_once_and_stays_whatever_becomes_of_it(
    world: World,
) -> None:
    """Whoever holds it, or ends it, may have read it before."""
    waits, runs = one_off(), running(one_off(T + s(1)))
    world.executions.put([waits, runs])
    for row in (waits, runs):
        for at in (T, T + s(60)):
            world.executions.mark_last(row.id, decided_at=at)

    skipped = ended(waits, Event.SKIP, now=T + s(90), reason="misfire: late")
    world.executions.end(waits, skipped)
    dead = failed(runs, max_attempts=1)
    world.executions.settle(dead, token=TOKEN)

    assert world.executions.get(waits.id) == replace(skipped, last_since=T)
    assert world.executions.get(runs.id) == replace(dead, last_since=T)


def test_of_what_is_gone_nothing_is_noted_and_nothing_is_made(world: World) -> None:
    world.executions.mark_told(id_at(T), now=T)
    world.executions.mark_last(id_at(T), decided_at=T)

    assert world.executions.get(id_at(T)) is None


def test_what_is_parked_can_be_claimed_once_it_is_due_and_says_since_when(world: World) -> None:
    """S0-O10."""
    made_for = replace(spec(), task_version=4)
    row = replace(one_off(), spec=made_for, task_version=4)
    world.executions.put([running(row)])
    waits = after(running(row), Parked(reason="no worker knows version 4"))
    assert waits.next_run_at is not None

    settled = world.executions.settle(waits, token=TOKEN)
    claimed = world.executions.claim(
        row.id,
        attempt=1,
        token=OTHER_TOKEN,
        worker=WORKER,
        now=waits.next_run_at,
        lease_until=waits.next_run_at + LEASE,
    )

    assert settled == waits
    assert settled.is_parked
    assert isinstance(claimed, Execution)
    assert (claimed.parked_since, claimed.task_version) == (waits.parked_since, 4)
    done = world.executions.settle(after(claimed, Succeeded(result="1")), token=OTHER_TOKEN)
    assert done.parked_since is None


# Payloads that are items of their own.


def test_a_payload_of_the_largest_size_is_given_back(world: World) -> None:
    payload = Payload.of('"' + "é" * ((PAYLOAD_MAX_BYTES - 2) // 2) + '"')
    job_id = recurring().id

    world.executions.put_payload(job_id, payload, kept_until=None)

    assert world.executions.get_payload(job_id, 1) == payload.text


def test_each_version_of_a_payload_is_kept(world: World) -> None:
    job_id = recurring().id
    for version in (1, 2):
        payload = replace(Payload.of(f'"v{version}"'), version=version)
        world.executions.put_payload(job_id, payload, kept_until=T + s(3600))

    assert world.executions.get_payload(job_id, 1) == '"v1"'
    assert world.executions.get_payload(job_id, 2) == '"v2"'


def test_a_payload_that_is_put_again_is_the_same(world: World) -> None:
    job_id = one_off().job_id
    for _ in range(2):
        world.executions.put_payload(job_id, Payload.of('"x"'), kept_until=T)

    assert world.executions.get_payload(job_id, 1) == '"x"'


def test_a_payload_whose_text_is_elsewhere_cannot_be_kept(world: World) -> None:
    with pytest.raises(ValueError, match="no text"):
        world.executions.put_payload(
            one_off().job_id, Payload(text=None, bytes=600), kept_until=None
        )


# An owner's executions.


def test_an_owner_s_executions_are_listed_newest_first(world: World) -> None:
    rows = [one_off(T + s(n), shard=n % 4, n=n) for n in range(12)]
    world.executions.put(rows)
    world.executions.put([one_off(owner=Owner("other"), n=77)])

    listed = world.executions.of_owner(OWNER, before=None, limit=100)

    assert [*listed] == [row.id for row in reversed(rows)]


def test_an_owner_without_executions_has_none(world: World) -> None:
    assert [*world.executions.of_owner(Owner("nobody"), before=None, limit=10)] == []


@pytest.mark.parametrize("limit", [1, 3, 4, 12, 13])
def test_pages_of_a_list_hold_every_execution_once(world: World, limit: int) -> None:
    rows = [one_off(T + s(n // 3), shard=n % 4, n=n) for n in range(12)]
    world.executions.put(rows)

    listed: list[ExecutionId] = []
    before = None
    while page := world.executions.of_owner(OWNER, before=before, limit=limit):
        listed += page
        before = body_of(page[-1])
        if len(page) < limit:
            break

    assert listed == sorted((row.id for row in rows), reverse=True)


def test_a_list_starts_before_its_position(world: World) -> None:
    rows = [one_off(T + s(n), n=n) for n in range(4)]
    world.executions.put(rows)

    listed = world.executions.of_owner(OWNER, before=body_of(rows[2].id), limit=100)

    assert [*listed] == [rows[1].id, rows[0].id]


@pytest.mark.parametrize("name", ["a", "a#0", "a#", "#", "ä ö", "x" * 128])
def test_owners_with_awkward_names_see_their_own_rows_only(world: World, name: str) -> None:
    owners = [Owner(one) for one in ("a", "a#0", "a#", "#", "ä ö", "x" * 128)]
    rows = {owner: one_off(owner=owner, n=4 * n + n % 4) for n, owner in enumerate(owners)}
    world.executions.put([*rows.values()])

    listed = world.executions.of_owner(Owner(name), before=None, limit=10)

    assert [*listed] == [rows[Owner(name)].id]
    assert world.executions.get(listed[0]) == rows[Owner(name)]


# What runs beside a job's schedule.


def test_a_jobs_executions_beside_its_schedule_are_listed_newest_first(world: World) -> None:
    job, other = recurring(), recurring(n=2)
    rows = [
        beside(job.id, T + s(n), trigger=trigger, shard=n % 4, n=n)
        for n, trigger in enumerate((Trigger.MANUAL, Trigger.BACKFILL, Trigger.REPLAY) * 3)
    ]
    world.executions.put([*rows, beside(other.id, n=77), occurrence(job), one_off(n=78)])

    listed = world.executions.additional_of(job.id, before=None, limit=100)

    assert [*listed] == [row.id for row in reversed(rows)]
    assert [world.executions.get(id) for id in listed] == [*reversed(rows)]


def test_the_replays_of_a_one_off_are_beside_it_and_it_is_not(world: World) -> None:
    first = one_off()
    replay = beside(first.job_id, T + s(5), trigger=Trigger.REPLAY, n=2)
    world.executions.put([first, replay])

    listed = world.executions.additional_of(first.job_id, before=None, limit=10)

    assert [*listed] == [replay.id]


@pytest.mark.parametrize("limit", [1, 3, 4, 12, 13])
def test_pages_of_what_ran_beside_a_schedule_hold_all_of_it_once(world: World, limit: int) -> None:
    job = recurring()
    # Three at each instant: a page may end between them.
    rows = [beside(job.id, T + s(n // 3), shard=n % 4, n=n) for n in range(12)]
    world.executions.put(rows)

    listed: list[ExecutionId] = []
    position = None
    while page := world.executions.additional_of(job.id, before=position, limit=limit):
        listed += page
        position = body_of(page[-1])
        if len(page) < limit:
            break

    assert listed == sorted((row.id for row in rows), reverse=True)


def test_what_ran_beside_a_schedule_stays_listed_once_it_has_ended(world: World) -> None:
    job = recurring()
    row = beside(job.id)
    world.executions.settle(succeeded(claimed(world, row)), token=TOKEN)

    assert [*world.executions.additional_of(job.id, before=None, limit=10)] == [row.id]
    assert [*world.executions.of_owner(OWNER, before=None, limit=10)] == [row.id]


def test_a_job_of_which_nothing_ran_beside_its_schedule_has_none(world: World) -> None:
    job = recurring()
    world.executions.put([occurrence(job)])

    assert [*world.executions.additional_of(job.id, before=None, limit=10)] == []


def test_pointers_and_payloads_are_in_no_list(world: World) -> None:
    row = one_off()
    world.executions.put([row])
    world.executions.point([retry_pointer(row, T + s(10))])
    world.executions.put_payload(row.job_id, Payload.of('"x"'), kept_until=None)

    assert [*world.executions.of_owner(OWNER, before=None, limit=10)] == [row.id]


@pytest.mark.parametrize("state", sorted(FINAL))
def test_what_failed_or_expired_needs_attention_and_nothing_else(
    world: World, state: State
) -> None:
    """S2-E2."""
    row = one_off()
    world.executions.put([row, one_off(n=2)])
    make_final(world, row, state)

    listed = world.executions.needing_attention(OWNER, before=None, limit=10)

    assert [*listed] == ([row.id] if state in NEEDS_ATTENTION else [])


def make_final(world: World, row: Execution, state: State) -> None:
    """By a try where the state needs one, else without."""
    if state not in (State.SUCCEEDED, State.FAILED):
        world.executions.end(row, replace(cancelled(row), state=state))
        return
    won = claim(world, row)
    assert isinstance(won, Execution)
    result = succeeded(won) if state is State.SUCCEEDED else failed(won, Kind.PERMANENT)
    world.executions.settle(result, token=TOKEN)


def test_a_retry_does_not_need_attention_yet(world: World) -> None:
    settled_retry(world)

    assert [*world.executions.needing_attention(OWNER, before=None, limit=10)] == []


def test_what_needs_attention_is_paged_newest_first(world: World) -> None:
    rows = [
        ended(one_off(T + s(n), shard=n % 4, n=n), Event.EXPIRE, now=T, reason="late")
        for n in range(9)
    ]
    world.executions.put(rows)

    first = world.executions.needing_attention(OWNER, before=None, limit=5)
    second = world.executions.needing_attention(OWNER, before=body_of(first[-1]), limit=5)

    assert [*first, *second] == [row.id for row in reversed(rows)]
    assert len(second) < 5


def test_a_pointer_is_no_execution_though_its_id_can_be_computed(world: World) -> None:
    pointer = check_pointer(one_off(), T)
    world.executions.point([pointer])
    id = execution_id_at(pointer.position)

    assert world.executions.get(id) is None
    assert world.executions.get_many([id]) == {}
