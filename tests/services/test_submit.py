from datetime import timedelta

import pytest

from lamplighter.core.errors import KeyReused, Rejected
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import LOOK_AHEAD, MARGIN, MAX_HORIZON, PAYLOAD_INLINE_BYTES
from lamplighter.core.model import Owner
from lamplighter.core.outcome import Outcome, Succeeded
from lamplighter.memory import MemoryWorld
from lamplighter.services.execute import Claimed
from lamplighter.services.submit import Created, IdempotencyKey, Replayed, submit
from lamplighter.sim.system import System
from tests.support.jobs import created, cron, every, in_, new_job

SECOND = timedelta(seconds=1)
MS = timedelta(milliseconds=1)


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


def key(value: str, fingerprint: str = "body") -> IdempotencyKey[Created]:
    return IdempotencyKey(key=value, fingerprint=fingerprint, render=lambda made: made.job_id)


def test_a_job_without_a_schedule_is_due_now_and_sent(world: MemoryWorld) -> None:
    made = created(world.ports(), new_job())

    assert made.first.run_at == made.first.scheduled_for == world.now()
    assert [one.message.execution_id for one in world.queue.receive()] == [made.first.id]


def test_a_job_in_the_past_runs_now_and_keeps_the_instant_it_was_for(world: MemoryWorld) -> None:
    wanted = world.now() - timedelta(days=3)

    made = created(world.ports(), new_job(run_at=wanted))

    assert (made.first.scheduled_for, made.first.run_at) == (wanted, world.now())


def test_a_run_at_finer_than_a_millisecond_is_rounded_up_never_down(world: MemoryWorld) -> None:
    wanted = world.now() + timedelta(seconds=5, microseconds=1)

    made = created(world.ports(), new_job(run_at=wanted))

    assert made.first.run_at == world.now() + timedelta(seconds=5, milliseconds=1)


def test_what_lies_inside_the_line_and_its_margin_is_sent_at_once(world: MemoryWorld) -> None:
    """S1-H2, S4-D4: written first, then sent with its delay, past the tick."""
    edge = LOOK_AHEAD + MARGIN

    near = created(world.ports(), new_job(run_at=world.now() + edge))
    far = created(world.ports(), new_job(run_at=world.now() + edge + MS))

    assert (near.first.sent_directly, far.first.sent_directly) == (True, False)
    assert len(world.queue) == 1


def test_a_recurring_job_has_its_first_occurrence_armed(world: MemoryWorld) -> None:
    """S0-S1: a schedule is a template; what runs is a row of its own."""
    made = created(world.ports(), new_job(schedule=cron("0 2 * * *", "America/Chicago")))

    assert world.tables.jobs == {made.job_id: made.job}
    assert [*world.tables.executions.values()] == [made.first]
    assert f"{made.first.run_at:%H:%M}" == "08:00"


def test_a_recurring_job_due_soon_has_the_occurrence_after_it_armed_too(  # P2
    world: MemoryWorld,
) -> None:
    made = created(world.ports(), new_job(schedule=every("1 minute")))

    slots = [row.scheduled_for - world.now() for row in world.tables.executions.values()]

    # Four lie inside the line and its margin; the fifth is armed and not sent.
    assert slots == [n * timedelta(minutes=1) for n in (1, 2, 3, 4, 5)]
    assert len(world.queue) == 4
    assert made.first.sent_directly


def test_two_creates_of_one_instant_are_two_jobs(world: MemoryWorld) -> None:
    first, second = (created(world.ports(), new_job()) for _ in range(2))

    assert first.job_id != second.job_id
    assert len(world.tables.executions) == 2


def test_what_is_beyond_the_horizon_is_refused_and_nothing_is_written(world: MemoryWorld) -> None:
    ports = world.ports()

    with pytest.raises(Rejected, match="run_at: more than 3653 days ahead"):
        created(ports, new_job(run_at=world.now() + MAX_HORIZON + SECOND))

    assert not world.tables.executions
    created(ports, new_job(run_at=world.now() + MAX_HORIZON))


def test_a_schedule_with_nothing_to_come_is_refused_and_nothing_is_written(
    world: MemoryWorld,
) -> None:
    gone = every("1 minute", start_at=world.now() - SECOND, end_at=world.now())

    with pytest.raises(Rejected, match="end_at: earlier than the first occurrence"):
        created(world.ports(), new_job(schedule=gone))

    assert not world.tables.jobs


def test_a_reused_key_gets_the_first_answer_and_makes_nothing(world: MemoryWorld) -> None:
    ports = world.ports()
    first = submit(ports, new_job(), key("k"))
    assert isinstance(first, Created)
    world.pass_time(timedelta(hours=1))

    again = submit(ports, new_job(), key("k"))

    assert again == Replayed(job_id=first.job_id, answer=first.job_id)
    assert len(world.tables.executions) == 1


def test_a_key_reused_with_another_body_is_refused(world: MemoryWorld) -> None:
    submit(world.ports(), new_job(), key("k"))

    with pytest.raises(KeyReused):
        submit(world.ports(), new_job(), key("k", fingerprint="another body"))
    assert len(world.tables.executions) == 1


def test_two_owners_may_use_one_key(world: MemoryWorld) -> None:
    submit(world.ports(), new_job(), key("k"))

    other = submit(world.ports(), new_job(owner=Owner("globex")), key("k", "their body"))

    assert isinstance(other, Created)


def test_a_replay_sends_what_the_first_call_died_before_sending(world: MemoryWorld) -> None:
    system = System(world=world)
    made = submit(world.ports(), new_job(run_at=in_(world.ports(), 5)), key("k"))
    assert isinstance(made, Created)
    world.queue.purge()

    submit(world.ports(), new_job(), key("k"))
    system.run_for(6 * SECOND)

    assert world.tables.executions[made.first.id].state is State.SUCCEEDED


def test_a_large_payload_is_kept_apart_from_its_row(world: MemoryWorld) -> None:
    text = '"' + "x" * PAYLOAD_INLINE_BYTES + '"'
    seen: list[str] = []

    def handler(claimed: Claimed) -> Outcome:
        seen.append(claimed.payload)
        return Succeeded(result="1")

    made = created(world.ports(), new_job(payload=text))
    stored = world.tables.executions[made.first.id]
    System(world=world, handler=handler).run_for(SECOND)

    assert stored.spec is not None
    assert stored.spec.payload.text is None
    assert seen == [text]
