"""One-offs that are changed before they run: whoever claims them later runs what was wanted."""

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest

from lamplighter.core.buckets import JobId
from lamplighter.core.errors import Conflict, NotFound, Rejected, WrongVersion
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import MAX_HORIZON, PAYLOAD_INLINE_BYTES, PAYLOAD_KEPT
from lamplighter.core.model import Execution, Owner, Payload, Spec
from lamplighter.core.outcome import Outcome, Succeeded
from lamplighter.memory import MemoryWorld, VirtualClock
from lamplighter.services import amend, execute, inspect, manage
from lamplighter.services.amend import Change
from lamplighter.services.execute import Claimed
from lamplighter.services.inspect import Wanted
from lamplighter.services.submit import IdempotencyKey, Replayed, submit
from lamplighter.sim.faults import When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.simulation.rules import on
from tests.support.jobs import OWNER, created, every, in_, new_job, to

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
LARGE = '"' + "x" * (2 * PAYLOAD_INLINE_BYTES) + '"'


@pytest.fixture
def system() -> System:
    start = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
    system = System(world=MemoryWorld(clock=VirtualClock(start), shards=4, partitions=2))
    system.run_for(MINUTE)
    return system


def payloads_seen(system: System) -> list[str]:
    """What handlers are given from now on."""
    seen: list[str] = []

    def handler(claimed: Claimed) -> Outcome:
        seen.append(claimed.payload)
        return Succeeded(result="1")

    system.handler = handler
    return seen


def started(system: System) -> list[datetime]:
    return [run.started_at for run in system.runs]


@pytest.mark.parametrize("seconds", [5, 200, 1000], ids=lambda s: f"due in {s} s")
@pytest.mark.parametrize("text", ['"new"', LARGE], ids=["inline", "large"])
def test_what_it_is_amended_to_is_what_runs(system: System, seconds: float, text: str) -> None:
    due = in_(system.ports, seconds)
    made = created(system.ports, new_job(run_at=due, payload='"old"'))
    seen = payloads_seen(system)

    row = amend.amend(system.ports, OWNER, made.job_id, to(payload=text, task="other"))
    system.run_for(HOUR)

    assert (row.id, row.job_version, row.task) == (made.first.id, 2, "other")
    assert seen == [text]
    assert started(system) == [due]
    assert [*violations(system)] == []


def test_what_changes_nothing_keeps_its_version(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 60), payload=LARGE))

    row = amend.amend(system.ports, OWNER, made.job_id, to())

    assert row == system.world.tables.executions[made.first.id]
    assert row.job_version == 1


@pytest.mark.parametrize("seconds", [5, 200, 1000], ids=lambda s: f"due in {s} s")
@pytest.mark.parametrize("later", [7, 300, 5000], ids=lambda s: f"then in {s} s")
def test_a_new_time_is_the_only_one_at_which_it_runs(
    system: System, seconds: float, later: float
) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, seconds)))
    due = in_(system.ports, later)

    row = amend.amend(system.ports, OWNER, made.job_id, to(run_at=due))
    system.run_for(2 * HOUR)

    assert row.id != made.first.id
    assert (row.job_id, row.created_at) == (made.job_id, made.first.created_at)
    assert (row.scheduled_for, row.run_at) == (due, due)
    assert started(system) == [due]
    assert [*violations(system)] == []


def test_a_time_that_has_passed_is_now(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 5000)))
    wanted = in_(system.ports, -5000)

    row = amend.amend(system.ports, OWNER, made.job_id, to(run_at=wanted))
    system.run_for(MINUTE)

    assert (row.scheduled_for, row.run_at) == (wanted, started(system)[0])


def test_the_time_that_it_has_already_moves_nothing(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 60)))

    row = amend.amend(system.ports, OWNER, made.job_id, to(run_at=made.first.run_at))

    assert (row.id, row.job_version) == (made.first.id, 1)


def test_a_time_too_far_ahead_is_refused(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 60)))
    far = system.world.now() + MAX_HORIZON + HOUR

    with pytest.raises(Rejected, match="run_at"):
        amend.amend(system.ports, OWNER, made.job_id, to(run_at=far))


def test_another_lane_is_another_place_even_when_the_message_is_out(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 30)))
    assert len(system.world.queue) == 1

    row = amend.amend(system.ports, OWNER, made.job_id, to(queue="bulk"))
    system.world.pass_time(31 * SECOND)
    (stale,) = system.world.queue.receive("default")
    (sent,) = system.world.queue.receive("bulk")
    for received in (stale, sent):
        execute.process(system.ports, received, system.run, worker="w")

    assert (row.run_at, row.queue) == (made.first.run_at, "bulk")
    assert (stale.message.execution_id, sent.message.execution_id) == (made.first.id, row.id)
    assert [run.execution_id for run in system.runs] == [row.id]


def test_whatever_starts_at_the_job_s_id_follows_it(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 600), payload=LARGE))
    row, *_ = [
        amend.amend(system.ports, OWNER, made.job_id, to(run_at=in_(system.ports, hours * 3600)))
        for hours in (1, 2, 3)
    ][::-1]

    detail = inspect.job(system.ports, OWNER, made.job_id)
    listed = inspect.executions_of(system.ports, OWNER, made.job_id, Wanted(), after=None, limit=10)

    assert [seen.row.id for seen in detail.executions] == [row.id]
    assert detail.executions[0].payload == LARGE
    assert [seen.row.id for seen in listed.items] == [row.id]
    manage.delete(system.ports, OWNER, made.job_id)
    assert system.world.tables.executions[row.id].state is State.CANCELLED
    assert inspect.one_off_row(system.ports, OWNER, made.job_id).id == row.id


def test_lists_show_it_once_where_it_is(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 600)))
    row = amend.amend(
        system.ports, OWNER, made.job_id, to(run_at=in_(system.ports, 7200), payload="2")
    )

    executions = inspect.executions(system.ports, OWNER, Wanted(), after=None, limit=10)
    jobs = inspect.jobs(system.ports, OWNER, Wanted(), after=None, limit=10)

    assert [seen.row.id for seen in executions.items] == [row.id]
    assert [job.execution.row.id for job in jobs.items if isinstance(job, inspect.OneOff)] == [
        row.id
    ]


def test_the_place_that_it_left_says_where_it_went(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 600), payload=LARGE))
    row = amend.amend(system.ports, OWNER, made.job_id, to(run_at=in_(system.ports, 7200)))

    left = inspect.execution(system.ports, OWNER, made.first.id)

    assert (left.row.state, left.row.reason) == (State.CANCELLED, f"moved to {row.id}")
    assert left.payload == LARGE


def test_a_large_payload_is_kept_for_as_long_as_its_new_time_asks(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 600), payload=LARGE))
    kept: list[datetime | None] = []
    put_payload = system.world.ports().executions.put_payload
    late = system.world.now() + timedelta(days=3000)

    def keep(id: JobId, payload: Payload, *, kept_until: datetime | None) -> None:
        kept.append(kept_until)
        put_payload(id, payload, kept_until=kept_until)

    ports = system.ports
    ports.executions.put_payload = keep  # type: ignore[method-assign]
    row = amend.amend(ports, OWNER, made.job_id, to(run_at=late))
    del ports.executions.put_payload

    assert kept == [late + PAYLOAD_KEPT]
    assert inspect.execution(system.ports, OWNER, row.id).payload == LARGE


def test_of_two_edits_that_race_the_payload_of_the_one_that_won_runs(system: System) -> None:
    """The loser had written its payload first, under the same next version."""
    made = created(system.ports, new_job(run_at=in_(system.ports, 60), payload="1"))
    seen = payloads_seen(system)
    mine, theirs = LARGE.replace("x", "m"), LARGE.replace("x", "t")

    def meanwhile() -> None:
        amend.amend(system.ports, OWNER, made.job_id, to(payload=theirs), version=1)

    raced = interposed(system.ports, on("executions.amend", When.BEFORE, meanwhile))
    with pytest.raises(WrongVersion):
        amend.amend(raced, OWNER, made.job_id, to(payload=mine), version=1)
    system.run_for(2 * MINUTE)

    assert seen == [theirs]


def test_of_two_edits_of_a_recurring_job_too(system: System) -> None:
    job = created(system.ports, new_job(schedule=every("1 minute"), payload="1")).job
    assert job is not None
    mine, theirs = LARGE.replace("x", "m"), LARGE.replace("x", "t")

    def to_text(text: str) -> manage.Change:
        payload = Payload.of(text)
        return lambda job: replace(job, spec=replace(job.spec, payload=payload))

    def meanwhile() -> None:
        manage.edit(system.ports, OWNER, job.id, to_text(theirs), version=1)

    raced = interposed(system.ports, on("jobs.revise", When.BEFORE, meanwhile))
    with pytest.raises(WrongVersion):
        manage.edit(raced, OWNER, job.id, to_text(mine), version=1)

    assert inspect.job(system.ports, OWNER, job.id).definition.payload == theirs  # type: ignore[union-attr]


@pytest.mark.parametrize("wanted", ["payload", "run_at", "queue"])
def test_what_is_claimed_while_it_is_amended_is_not_amended(system: System, wanted: str) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 5), payload="1"))
    seen = payloads_seen(system)
    changes: dict[str, Change] = {
        "payload": to(payload="2"),
        "run_at": to(run_at=in_(system.ports, 600)),
        "queue": to(queue="bulk"),
    }
    method = "amend" if wanted == "payload" else "move"
    hook = on(f"executions.{method}", When.BEFORE, lambda: system.run_for(MINUTE))

    with pytest.raises(Conflict, match="SUCCEEDED"):
        amend.amend(interposed(system.ports, hook), OWNER, made.job_id, changes[wanted])
    system.run_for(HOUR)

    assert seen == ["1"]


def test_two_moves_that_meet_both_hold_and_the_second_is_the_last(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 5)))
    first, second = in_(system.ports, 600), in_(system.ports, 900)

    def meanwhile() -> None:
        amend.amend(system.ports, OWNER, made.job_id, to(run_at=first))

    raced = interposed(system.ports, on("executions.move", When.BEFORE, meanwhile))
    row = amend.amend(raced, OWNER, made.job_id, to(run_at=second))
    system.run_for(HOUR)

    assert row.job_version == 3
    assert started(system) == [second]
    assert [*violations(system)] == []


@pytest.mark.parametrize(
    "come_of",
    [
        lambda system, id: system.run_for(2 * MINUTE),
        lambda system, id: manage.delete(system.ports, OWNER, id),
    ],
    ids=["that has run", "that was deleted"],
)
def test_a_one_off_is_not_amended(system: System, come_of: Callable[[System, JobId], None]) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 60)))
    come_of(system, made.job_id)

    with pytest.raises(Conflict, match=r"SUCCEEDED|CANCELLED"):
        amend.amend(system.ports, OWNER, made.job_id, to(payload="2"))


def test_another_version_than_the_one_that_was_meant_changes_nothing(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 60)))
    amend.amend(system.ports, OWNER, made.job_id, to(payload="2"), version=1)

    with pytest.raises(WrongVersion) as refused:
        amend.amend(system.ports, OWNER, made.job_id, to(payload="3"), version=1)

    assert refused.value.version == 2


def test_nobody_amends_somebody_elses(system: System) -> None:
    made = created(system.ports, new_job(run_at=in_(system.ports, 60)))

    with pytest.raises(NotFound):
        amend.amend(system.ports, Owner("globex"), made.job_id, to(payload="2"))


def test_an_idempotent_replay_sends_what_was_moved_since(system: System) -> None:
    """The move's process died before it sent what it had moved."""
    key = IdempotencyKey[object](key="k", fingerprint="f", render=lambda _: "{}")
    new = new_job(run_at=in_(system.ports, 600))
    first = submit(system.ports, new, key)
    assert not isinstance(first, Replayed)
    due = in_(system.ports, 30)
    row = first.first
    after = replace(
        row,
        id=created(system.ports, new_job(run_at=due, owner=Owner("other"))).first.id,
        run_at=due,
        scheduled_for=due,
        job_version=2,
    )
    system.world.tables.executions.pop(after.id)
    system.world.queue.purge()
    system.ports.executions.move(row, after, now=system.world.now())

    assert isinstance(submit(system.ports, new, key), Replayed)

    system.world.pass_time(30 * SECOND)
    assert [one.message.execution_id for one in system.world.queue.receive()] == [after.id]


def test_all_of_a_row_is_either_its_job_s_or_its_own() -> None:
    """A new field of an execution has its place here, or an amendment loses it or keeps it."""
    of_its_definition = {
        *("owner", "trigger", "task", "task_version", "queue", "spec", "scheduled_for")
    }
    of_one_that_waits = {
        *("state", "attempt", "crashes", "token", "lease_until", "worker", "next_run_at"),
        *("started_at", "first_started_at", "finished_at", "result", "error", "reason"),
        *("attempts", "cancel_requested_at", "moved_to", "arrival", "waited", "told_at"),
        *("parked_since", "deferral", "called_back", "last_since"),
    }
    of_a_chain = {"replay_of", "idempotent_as", "predecessor", "blocker", "waiters", "caught_up"}

    known = {*amend.KEPT, *amend.KEPT_IN_PLACE} | of_its_definition | of_one_that_waits | of_a_chain

    assert {field.name for field in fields(Execution)} == known
    assert isinstance(new_job().spec, Spec)
