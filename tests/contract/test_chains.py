"""Chains of executions on every backend: waiting for one, joining at the end, ending a holder."""

from dataclasses import replace

import pytest

from lamplighter.core.errors import ChainMoved, LostClaim, VersionMoved
from lamplighter.core.lifecycle import Event, State
from lamplighter.core.model import Execution, Job, OverlapPolicy, Token, Trigger
from lamplighter.core.outcome import Succeeded, blocked, ended, terminated
from lamplighter.ports import Executions, Ports, Refusal
from tests.contract.racing import race
from tests.contract.worlds import World
from tests.support.rows import (
    LEASE,
    STAYS,
    TOKEN,
    WORKER,
    T,
    after,
    beside,
    key_record,
    occurrence,
    one_off,
    recurring,
    revised,
    s,
    succeeded,
)

OTHER = Token("ffffffffffffffffffffffffffffffff")


@pytest.fixture
def executions(world: World) -> Executions:
    return world.ports.executions


@pytest.fixture
def ports(world: World) -> Ports:
    return world.ports


def claimed(executions: Executions, row: Execution, token: Token = TOKEN) -> Execution:
    executions.put([row])
    answer = executions.claim(
        row.id,
        attempt=row.attempt,
        token=token,
        worker=WORKER,
        now=row.run_at,
        lease_until=T + LEASE,
    )
    assert isinstance(answer, Execution)
    return answer


def chained(job: Job) -> Job:
    return replace(job, overlap=OverlapPolicy.SKIP)


def a_job(ports: Ports) -> tuple[Job, Execution]:
    """A job with its armed row, an hour ahead of T."""
    job = chained(recurring())
    armed = job.occurrence(T, now=job.created_at, sent_directly=False, predecessor=one_off(n=9).id)
    ports.jobs.create(first=armed, job=job)
    return job, armed


def by_hand(job: Job, n: int) -> Execution:
    return beside(job.id, T - s(60), trigger=Trigger.MANUAL, n=n)


def test_a_row_that_waits_is_among_the_waiters_of_what_it_waits_for(
    executions: Executions,
) -> None:
    blocker, row = claimed(executions, one_off(n=1), OTHER), claimed(executions, one_off(n=2))

    answer = executions.block(blocked(row, by=blocker.id), token=TOKEN, alone=False)

    assert isinstance(answer, Execution)
    assert (answer.state, answer.blocker, answer.token) == (State.BLOCKED, blocker.id, None)
    assert answer == executions.get(row.id)
    found = executions.get(blocker.id)
    assert found == replace(blocker, waiters=frozenset({row.id}))


def test_who_ends_a_row_is_told_who_waits_for_it(executions: Executions) -> None:
    blocker, row = claimed(executions, one_off(n=1), OTHER), claimed(executions, one_off(n=2))
    executions.block(blocked(row, by=blocker.id), token=TOKEN, alone=False)

    settled = executions.settle(after(blocker, Succeeded(result="1")), token=OTHER)

    assert settled.waiters == {row.id}


def test_who_ends_a_row_with_a_look_at_its_job_is_told_too(ports: Ports) -> None:
    job, armed = a_job(ports)
    waiting = claimed(ports.executions, one_off(n=2))
    ports.executions.block(blocked(waiting, by=armed.id), token=TOKEN, alone=False)

    ended = ports.executions.end(
        armed, replace(armed, state=State.CANCELLED, finished_at=T), job_version=job.version
    )

    assert isinstance(ended, Execution)
    assert ended.waiters == {waiting.id}


@pytest.mark.parametrize("came_to", STAYS)
def test_nobody_waits_for_what_has_ended(executions: Executions, came_to: str) -> None:  # P14
    blocker, row = one_off(n=1), claimed(executions, one_off(n=2))
    there = STAYS[came_to](blocker)
    executions.put([there])

    answer = executions.block(blocked(row, by=blocker.id), token=TOKEN, alone=False)

    assert isinstance(answer, Refusal) == there.is_final
    if there.is_final:
        assert answer == Refusal(found=there)
        assert executions.get(row.id) == row


def test_nobody_waits_for_what_is_not_there(executions: Executions) -> None:
    row = claimed(executions, one_off(n=2))

    answer = executions.block(blocked(row, by=one_off(n=1).id), token=TOKEN, alone=False)

    assert answer == Refusal(found=None)


def test_alone_nobody_waits_for_one_that_waits(executions: Executions) -> None:  # P15
    first, second, third = (claimed(executions, one_off(n=n)) for n in (1, 2, 3))
    executions.block(blocked(second, by=first.id), token=TOKEN, alone=True)

    refused = executions.block(blocked(third, by=second.id), token=TOKEN, alone=True)
    assert isinstance(refused, Refusal)
    assert executions.get(third.id) == third

    allowed = executions.block(blocked(third, by=second.id), token=TOKEN, alone=False)
    assert isinstance(allowed, Execution)


def test_who_becomes_blocked_is_told_who_waits_for_it(executions: Executions) -> None:  # P15
    first, second, third = (claimed(executions, one_off(n=n)) for n in (1, 2, 3))
    executions.block(blocked(third, by=second.id), token=TOKEN, alone=True)

    answer = executions.block(blocked(second, by=first.id), token=TOKEN, alone=True)

    assert isinstance(answer, Execution)
    assert answer.waiters == {third.id}


def test_who_has_lost_its_claim_does_not_block(executions: Executions) -> None:
    first, second = (claimed(executions, one_off(n=n)) for n in (1, 2))

    with pytest.raises(LostClaim):
        executions.block(blocked(second, by=first.id), token=OTHER, alone=False)

    found = executions.get(first.id)
    assert found is not None
    assert found.waiters == frozenset()


def test_a_row_that_waits_is_claimed_by_its_message(executions: Executions) -> None:
    first, second = (claimed(executions, one_off(n=n)) for n in (1, 2))
    executions.block(blocked(second, by=first.id), token=TOKEN, alone=False)

    again = executions.claim(
        second.id, attempt=1, token=OTHER, worker=WORKER, now=T + s(5), lease_until=T + LEASE
    )

    assert isinstance(again, Execution)
    assert (again.state, again.blocker) == (State.RUNNING, first.id)


def test_a_holder_is_ended_over_its_head(executions: Executions) -> None:
    holder = claimed(executions, replace(one_off(n=1), predecessor=one_off(n=7).id))
    over = replace(terminated(holder, now=T + s(1), reason="overlap"), predecessor=None)

    ended = executions.end(holder, over)

    assert isinstance(ended, Execution)
    assert (ended.state, ended.token, ended.predecessor) == (State.CANCELLED, None, None)
    with pytest.raises(LostClaim):
        executions.settle(succeeded(holder), token=TOKEN)
    with pytest.raises(LostClaim):
        executions.extend(holder.id, token=TOKEN, lease_until=T + LEASE)


def test_a_holder_that_has_beaten_since_is_not_ended(executions: Executions) -> None:
    holder = claimed(executions, one_off(n=1))
    executions.extend(holder.id, token=TOKEN, lease_until=T + LEASE + s(10))

    answer = executions.end(holder, terminated(holder, now=T + s(1), reason="overlap"))

    assert isinstance(answer, Refusal)
    found = executions.get(holder.id)
    assert found is not None
    assert found.state is State.RUNNING


def test_rows_join_a_chain_before_the_armed_one(ports: Ports) -> None:  # P16
    job, armed = a_job(ports)
    first, last = by_hand(job, 1), replace(by_hand(job, 2), predecessor=by_hand(job, 1).id)

    assert ports.jobs.join([first, last], job=job, armed=armed) is None

    found = ports.executions.get(armed.id)
    assert found == replace(armed, predecessor=last.id)
    assert [ports.executions.get(row.id) for row in (first, last)] == [first, last]


def test_joining_again_finds_what_was_made(ports: Ports) -> None:
    job, armed = a_job(ports)
    row = by_hand(job, 1)
    record = key_record(row)
    ports.jobs.join([row], job=job, armed=armed, key=record)

    assert ports.jobs.join([row], job=job, armed=armed, key=record) is None

    found = ports.executions.get(armed.id)
    assert found is not None
    assert found.predecessor == row.id


def test_who_joins_where_another_did_is_told_so(ports: Ports) -> None:
    job, armed = a_job(ports)
    ports.jobs.join([by_hand(job, 1)], job=job, armed=armed)

    with pytest.raises(ChainMoved):
        ports.jobs.join([by_hand(job, 2)], job=job, armed=armed)

    assert ports.executions.get(by_hand(job, 2).id) is None


def test_who_joins_before_what_was_claimed_is_told_so(ports: Ports) -> None:
    job, armed = a_job(ports)
    ports.executions.claim(
        armed.id, attempt=1, token=TOKEN, worker=WORKER, now=T, lease_until=T + LEASE
    )

    with pytest.raises(ChainMoved):
        ports.jobs.join([by_hand(job, 1)], job=job, armed=armed)

    assert ports.executions.get(by_hand(job, 1).id) is None


def test_who_joins_a_job_that_was_edited_is_told_so(ports: Ports) -> None:
    job, armed = a_job(ports)
    ports.jobs.revise(job, revised(job))

    with pytest.raises(VersionMoved):
        ports.jobs.join([by_hand(job, 1)], job=job, armed=armed)


def test_without_an_armed_row_the_job_keeps_its_tail(ports: Ports) -> None:
    job, _ = a_job(ports)
    row = by_hand(job, 1)

    ports.jobs.join([row], job=job, armed=None)

    assert ports.jobs.get(job.id) == replace(job, tail=row.id)
    with pytest.raises(ChainMoved):
        ports.jobs.join([by_hand(job, 2)], job=job, armed=None)


def test_a_key_that_was_used_before_keeps_a_row_out_of_the_chain(ports: Ports) -> None:
    job, armed = a_job(ports)
    record = key_record(by_hand(job, 1))
    ports.jobs.join([by_hand(job, 1)], job=job, armed=armed, key=record)
    now_armed = replace(armed, predecessor=by_hand(job, 1).id)

    other = replace(key_record(by_hand(job, 2)), job_id=one_off(n=77).job_id)
    known = ports.jobs.join([by_hand(job, 2)], job=job, armed=now_armed, key=other)

    assert known == record
    assert ports.executions.get(by_hand(job, 2).id) is None


def test_of_many_that_join_at_once_one_does(ports: Ports) -> None:
    job, armed = a_job(ports)

    def join(n: int) -> bool:
        try:
            ports.jobs.join([by_hand(job, n + 1)], job=job, armed=armed)
        except ChainMoved:
            return False
        return True

    assert sum(race(join, 4)) == 1


def test_a_revision_checks_that_the_chain_ends_where_it_was_read_to(ports: Ports) -> None:
    job, armed = a_job(ports)
    ports.jobs.join([by_hand(job, 1)], job=job, armed=armed)
    after_it = revised(job)

    with pytest.raises(ChainMoved):
        ports.jobs.revise(job, after_it, armed=armed)

    assert ports.jobs.get(job.id) == job


def test_a_revision_checks_the_predecessor_of_the_row_that_it_takes_over(ports: Ports) -> None:
    job, armed = a_job(ports)
    ports.jobs.join([by_hand(job, 1)], job=job, armed=armed)
    after_it = revised(job)
    first = occurrence(after_it)
    assert first.id == armed.id

    with pytest.raises(ChainMoved):
        ports.jobs.revise(job, after_it, first=first, armed=armed)

    assert ports.jobs.get(job.id) == job


def test_a_revision_checks_the_job_s_tail(ports: Ports) -> None:
    job, _ = a_job(ports)
    ports.jobs.join([by_hand(job, 1)], job=job, armed=None)

    with pytest.raises(ChainMoved):
        ports.jobs.revise(job, revised(job))


def test_a_revision_takes_over_the_armed_row(ports: Ports) -> None:
    job, armed = a_job(ports)
    after_it = revised(job)
    first = replace(occurrence(after_it), predecessor=armed.predecessor)

    assert ports.jobs.revise(job, after_it, first=first, armed=armed) == after_it
    assert ports.executions.get(first.id) == first


def test_many_rows_are_read_strongly(executions: Executions) -> None:
    rows = [one_off(n=n) for n in range(5)]
    executions.put(rows)

    found = executions.get_many([row.id for row in rows], strongly=True)

    assert found == {row.id: row for row in rows}


def test_giving_way_is_refused_once_another_has_come_between(executions: Executions) -> None:
    """P16: the row would be ended for one that is no longer the one before it."""
    job = chained(recurring())
    row = replace(occurrence(job), predecessor=one_off(n=1).id)
    executions.put([row])
    skipped = replace(
        ended(row, Event.SKIP, now=row.run_at, reason="overlap"), blocker=row.predecessor
    )
    other = replace(row, predecessor=one_off(n=2).id)

    refused = executions.end(other, replace(skipped, predecessor=other.predecessor))
    done = executions.end(row, skipped)

    assert isinstance(refused, Refusal)
    assert refused.found == row
    assert isinstance(done, Execution)
    assert (done.state, done.blocker) == (State.SKIPPED, row.predecessor)
