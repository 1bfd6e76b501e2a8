"""Another region goes on from tables that were restored there, queues empty (docs/regions.md).

S0-E6 (a regional failure), S0-N3, S0-N4, S1-N4, S2-M1 (what is in queues is rebuildable), S2-N4
(an outage is late, never never), S4-N2. Whatever was accepted by the instant that the executions
are of is run or accounted for, nothing early, nothing twice at once; and it is shown that it takes
each step of the runbook.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from lamplighter.core.buckets import before
from lamplighter.core.errors import Conflict, LostLease
from lamplighter.core.lease import Grant
from lamplighter.core.model import Execution, Job, MisfirePolicy, OverlapPolicy
from lamplighter.core.outcome import Failed, Outcome, Succeeded
from lamplighter.core.retry import Failure
from lamplighter.core.retry import Kind as FailureKind
from lamplighter.memory import MemoryWorld, Tables, VirtualClock
from lamplighter.memory.clock import SeededChance
from lamplighter.memory.restored import MemoryRestored, copied, joined
from lamplighter.services import manage
from lamplighter.services.completeness import account
from lamplighter.services.execute import Claimed
from lamplighter.services.failover import Prepared, prepare
from lamplighter.services.trigger import trigger
from lamplighter.sim.faults import Call, Crash, When, interposed
from lamplighter.sim.invariants import violations
from lamplighter.sim.system import System
from tests.support.api import caller
from tests.support.examples import examples
from tests.support.jobs import OWNER, created, every, new_job

START = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
RATES = ("1 minute", "3 minutes", "7 minutes", "20 minutes", "1 hour")
OVERLAPS = (OverlapPolicy.ALLOW, OverlapPolicy.SKIP, OverlapPolicy.BUFFER_ALL)


def failing_at_times(random: Random) -> Callable[[Claimed], Outcome]:
    def handle(_: Claimed) -> Outcome:
        if random.random() < 0.2:
            failure = Failure(kind=FailureKind.RETRYABLE, type="ValueError", message="no")
            return Failed(failure=failure)
        return Succeeded(result="null")

    return handle


@dataclass
class Story:
    """A region at work, whose tables are backed up each by itself, and is then lost."""

    seed: int
    random: Random = field(init=False)
    system: System = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        world = MemoryWorld(
            clock=VirtualClock(START), chance=SeededChance(self.seed), shards=4, partitions=2
        )
        self.system = System(world=world)
        self.system.handler = failing_at_times(self.random)
        self.system.lasts = lambda _: self.random.choice((0, 0, 1, 12, 100, 230)) * SECOND

    def live(self, duration: timedelta) -> None:
        """Owners create jobs, edit them, and run them by hand."""
        end = self.system.world.now() + duration
        while (left := end - self.system.world.now()) > timedelta(0):
            self.system.run_for(min(left, self.random.uniform(1, 90) * SECOND))
            self.random.choice(WHIMS)(self)

    def one_off(self) -> None:
        ahead = self.random.choice((0, 30, 100, 280, 3000, 9000)) * SECOND
        created(self.system.ports, new_job(run_at=self.system.world.now() + ahead))

    def recurring(self) -> None:
        if len(self.system.world.tables.jobs) >= 20:
            return
        new = new_job(
            schedule=every(self.random.choice(RATES)),
            misfire=self.random.choice([*MisfirePolicy]),
            overlap=self.random.choice(OVERLAPS),
            timeout=10 * MINUTE,
        )
        created(self.system.ports, new)

    def edit(self) -> None:
        if job := self._any_job():
            schedule = every(self.random.choice(RATES))(job.id, job.created_at)
            manage.edit(self.system.ports, OWNER, job.id, lambda it: replace(it, schedule=schedule))

    def by_hand(self) -> None:
        if job := self._any_job():
            trigger(self.system.ports, OWNER, job.id)

    def another_layout(self) -> None:
        self.system.world.shards = self.random.choice((2, 4, 8))
        self.system.world.partitions = self.random.choice((1, 2))

    def _any_job(self) -> Job | None:
        jobs = sorted(self.system.world.tables.jobs)
        return self.system.world.tables.jobs[self.random.choice(jobs)] if jobs else None


WHIMS: tuple[Callable[[Story], None], ...] = (
    *(Story.one_off, Story.one_off, Story.one_off, Story.recurring, Story.recurring),
    *(Story.edit, Story.by_hand, Story.by_hand, Story.another_layout),
)


@dataclass
class Region:
    """The other region: what was restored, its own queues, and nothing that runs yet."""

    system: System
    executions_as_of: datetime
    accepted: list[Execution]
    jobs: list[Job]

    @classmethod
    def of(cls, tables: Tables, *, as_of: datetime, now: datetime, seed: int = 1000) -> "Region":
        world = MemoryWorld(
            clock=VirtualClock(now),
            chance=SeededChance(seed),
            shards=4,
            partitions=2,
            tables=tables,
        )
        return cls(
            system=System(world=world),
            executions_as_of=as_of,
            accepted=[*tables.executions.values()],
            jobs=[*tables.jobs.values()],
        )

    def prepare(self, *, dry_run: bool = False) -> Prepared:
        return prepare(
            self.system.ports,
            MemoryRestored(self.system.world.tables),
            restored_to=self.executions_as_of,
            dry_run=dry_run,
        )

    def broken(self) -> list[str]:
        """Every promise that is broken once the region has run for a while."""
        return [*violations(self.system), *self._lost(), *self._missed()]

    def _lost(self) -> Iterator[str]:
        now = self.system.world.now()
        for row in self.accepted:
            there = self.system.world.tables.executions.get(row.id)
            if there is None:
                yield f"gone: {row.id}"
            elif not there.is_final and there.due_at <= now - 15 * MINUTE:
                yield f"still {there.state}: {row.id}, due {there.due_at}"

    def _missed(self) -> Iterator[str]:
        """What a job's ledger misses of what it planned since its version was written."""
        now = self.system.world.now()
        for job in self.jobs:
            found = account(
                self.system.ports, OWNER, job.id, start=job.since, end=now - 15 * MINUTE
            )
            if missed := [group for group in found.groups if group.entry.outcome == "missed"]:
                yield f"missed of {job.id} ({job.misfire}): {missed}"


def a_region() -> System:
    system = System(world=MemoryWorld(clock=VirtualClock(START), shards=4, partitions=2))
    system.run_for(MINUTE)
    return system


def as_of_now(system: System) -> tuple[Tables, datetime]:
    return copied(system.world.tables), system.world.now()


@pytest.mark.parametrize("outage", [10 * MINUTE, 3 * HOUR], ids=["ten minutes", "three hours"])
@pytest.mark.parametrize("seed", range(examples(8)))
def test_another_region_goes_on_with_all_that_was_accepted(seed: int, outage: timedelta) -> None:
    """P1-P20, of tables each of its own instant, with jobs of every policy, in any layout."""
    story = Story(seed=seed)
    story.live(HOUR)
    executions, as_of = as_of_now(story.system)
    # The other tables a while later, as backups of their own.
    story.live(story.random.choice((0, 1, 50, 400)) * SECOND)
    jobs, _ = as_of_now(story.system)
    story.live(story.random.choice((0, 1, 50, 400)) * SECOND)
    control, lost_at = as_of_now(story.system)
    tables = joined(executions=executions, jobs=jobs, control=control)

    region = Region.of(tables, as_of=as_of, now=lost_at + outage)
    # Who was told by the region that is lost has been told.
    region.system.world.notices.given.extend(story.system.world.notices.given)
    region.prepare()
    region.system.run_for(3 * HOUR)

    assert region.broken() == []


def test_a_control_table_that_is_lost_is_made_anew() -> None:
    story = Story(seed=77)
    story.live(HOUR)
    tables, as_of = as_of_now(story.system)
    tables = joined(executions=tables, jobs=tables, control=Tables())

    region = Region.of(tables, as_of=as_of, now=as_of + HOUR)
    region.system.world.notices.given.extend(story.system.world.notices.given)
    # The most shards that there ever were.
    region.system.world.shards = 8
    region.prepare()
    region.system.run_for(3 * HOUR)

    assert region.broken() == []


class TestWithoutIt:
    """What breaks where a step of the runbook is left out."""

    def test_a_row_behind_a_watermark_from_later_is_orphaned(self) -> None:
        system = a_region()
        created(system.ports, new_job(schedule=every("1 minute")))
        system.run_for(5 * MINUTE)
        executions, as_of = as_of_now(system)
        system.run_for(20 * MINUTE)
        later, _ = as_of_now(system)

        def broken(*, prepared: bool) -> list[str]:
            tables = joined(executions=executions, jobs=copied(later), control=copied(later))
            region = Region.of(copied(tables), as_of=as_of, now=as_of + 40 * MINUTE)
            if prepared:
                region.prepare()
            region.system.run_for(HOUR)
            return [text.partition(":")[0] for text in region.broken()]

        assert "lost" in broken(prepared=False)
        assert broken(prepared=True) == []

    def test_a_job_without_its_first_row_never_begins(self) -> None:
        """Its write was in one of the tables and not in the other."""
        system = a_region()
        executions, as_of = as_of_now(system)
        job = created(system.ports, new_job(schedule=every("10 minutes"))).job_id
        jobs, _ = as_of_now(system)
        tables = joined(executions=executions, jobs=jobs, control=executions)

        def ran(*, prepared: bool) -> int:
            region = Region.of(copied(tables), as_of=as_of, now=as_of + 5 * MINUTE)
            if prepared:
                assert [one.id for one in region.prepare().begun] == [job]
            region.system.run_for(HOUR)
            return len(region.system.runs)

        assert ran(prepared=False) == 0
        assert ran(prepared=True) == 6

    def test_so_does_one_whose_edit_is_half_there(self) -> None:
        system = a_region()
        new = new_job(schedule=every("1 minute"), overlap=OverlapPolicy.SKIP)
        job = created(system.ports, new).job
        assert job is not None
        system.run_for(10 * MINUTE)
        executions, as_of = as_of_now(system)
        schedule = every("7 minutes")(job.id, job.created_at)
        manage.edit(system.ports, OWNER, job.id, lambda it: replace(it, schedule=schedule))
        jobs, _ = as_of_now(system)

        tables = joined(executions=executions, jobs=jobs, control=executions)
        region = Region.of(tables, as_of=as_of, now=as_of + 5 * MINUTE)
        prepared = region.prepare()
        region.system.run_for(HOUR)

        assert [one.version for one in prepared.begun] == [2]
        assert region.broken() == []


class TestKeys:
    def test_a_key_of_what_is_lost_is_forgotten_so_that_a_retry_makes_it(self) -> None:
        system = a_region()
        acme = caller(system.world)
        at = (START + HOUR).isoformat()
        kept = acme.post("/v1/jobs", {"task": "echo", "run_at": at}, Idempotency_Key="kept").json
        executions, as_of = as_of_now(system)
        lost = acme.post("/v1/jobs", {"task": "echo", "run_at": at}, Idempotency_Key="lost").json
        jobs, _ = as_of_now(system)

        tables = joined(executions=executions, jobs=jobs, control=executions)
        region = Region.of(tables, as_of=as_of, now=as_of + 5 * MINUTE)
        prepared = region.prepare()
        acme = caller(region.system.world)
        again = [
            acme.post("/v1/jobs", {"task": "echo", "run_at": at}, Idempotency_Key=key).json
            for key in ("kept", "lost")
        ]
        region.system.run_for(2 * HOUR)

        assert [key.key for key in prepared.forgotten] == ["lost"]
        assert again[0] == kept
        assert again[1]["job_id"] != lost["job_id"]
        assert {run.job_id for run in region.system.runs} == {one["job_id"] for one in again}

    def test_one_of_a_recurring_job_is_kept_with_its_job(self) -> None:
        system = a_region()
        executions, as_of = as_of_now(system)
        acme = caller(system.world)
        body = {"task": "echo", "rate": "10 minutes"}
        made = acme.post("/v1/jobs", body, Idempotency_Key="k").json
        jobs, _ = as_of_now(system)

        tables = joined(executions=executions, jobs=jobs, control=executions)
        region = Region.of(tables, as_of=as_of, now=as_of + 5 * MINUTE)
        prepared = region.prepare()
        again = caller(region.system.world).post("/v1/jobs", body, Idempotency_Key="k").json

        assert (prepared.forgotten, again) == ([], made)

    def test_one_of_a_run_by_hand_that_is_lost_is_forgotten(self) -> None:
        system = a_region()
        acme = caller(system.world)
        job = acme.post("/v1/jobs", {"task": "echo", "rate": "1 hour"}).json["job_id"]
        system.run_for(2 * MINUTE)
        acme.post(f"/v1/jobs/{job}/trigger", {}, Idempotency_Key="before")
        executions, as_of = as_of_now(system)
        acme.post(f"/v1/jobs/{job}/trigger", {}, Idempotency_Key="after")
        jobs, _ = as_of_now(system)

        tables = joined(executions=executions, jobs=jobs, control=executions)
        prepared = Region.of(tables, as_of=as_of, now=as_of + 5 * MINUTE).prepare()

        assert [key.key.rpartition(" ")[2][-5:] for key in prepared.forgotten] == ["after"]


def test_what_ran_when_the_region_was_lost_runs_again_under_the_same_key() -> None:
    """S1-N4: what it did before may happen again, so tasks go by the idempotency key."""
    system = a_region()
    system.lasts = lambda _: 10 * MINUTE
    row = created(system.ports, new_job(timeout=14 * MINUTE)).first
    system.run_for(MINUTE)
    tables, as_of = as_of_now(system)
    (before_it,) = tables.executions.values()

    region = Region.of(tables, as_of=as_of, now=as_of + HOUR)
    region.prepare()
    region.system.run_for(HOUR)

    after = region.system.world.tables.executions[row.id]
    assert (str(before_it.state), str(after.state), after.crashes) == ("RUNNING", "SUCCEEDED", 1)
    assert after.idempotency_key == before_it.idempotency_key


class TestGuards:
    def test_a_region_at_work_is_left_alone(self) -> None:
        system = a_region()
        before_it = {**system.world.tables.leases}
        region = Region.of(
            system.world.tables, as_of=system.world.now() - MINUTE, now=system.world.now()
        )

        with pytest.raises(Conflict, match="dispatch runs: partition 0 has come to"):
            region.prepare()
        assert system.world.tables.leases == before_it

    def test_so_is_a_lease_that_somebody_holds(self) -> None:
        system = a_region()
        tables, as_of = as_of_now(system)
        region = Region.of(tables, as_of=as_of, now=as_of + HOUR)
        ports, now = region.system.ports, region.system.world.now()
        work = next(iter(ports.layouts().of[0].works()))
        ports.control.acquire(work, owner="a", now=now, until=now + MINUTE, start=before(START))

        with pytest.raises(Conflict, match="dispatch of partition 0 is held"):
            region.prepare()

    def test_no_owner_of_before_can_go_on(self) -> None:
        """S0-E1, S1-L2: a new grant has a higher epoch, and every write is fenced by it."""
        system = a_region()
        tables, as_of = as_of_now(system)
        region = Region.of(tables, as_of=as_of, now=as_of + HOUR)
        ports, now = region.system.ports, region.system.world.now()
        work = next(iter(ports.layouts().of[0].works()))
        stale = ports.control.acquire(work, owner="a", now=now, until=now, start=before(START))
        assert isinstance(stale, Grant)

        region.prepare()

        with pytest.raises(LostLease):
            ports.control.advance(stale, watermark=before(now), intent=None, until=now)

    @pytest.mark.parametrize("back", [timedelta(0), -HOUR], ids=["to come", "swept from later"])
    def test_instants_that_cannot_be_are_refused(self, back: timedelta) -> None:
        system = a_region()
        tables, as_of = as_of_now(system)
        region = Region.of(tables, as_of=as_of, now=as_of + HOUR)
        to = as_of + 2 * HOUR if not back else as_of

        with pytest.raises(Conflict, match="not in order"):
            prepare(
                region.system.ports,
                MemoryRestored(tables),
                restored_to=to,
                sweep_from=as_of + HOUR if back else None,
            )


def test_a_dry_run_tells_the_same_and_does_nothing() -> None:
    story = Story(seed=5)
    story.live(HOUR)
    executions, as_of = as_of_now(story.system)
    story.live(10 * MINUTE)
    later, _ = as_of_now(story.system)
    tables = joined(executions=executions, jobs=later, control=later)
    region = Region.of(tables, as_of=as_of, now=as_of + 2 * HOUR)

    foreseen = region.prepare(dry_run=True)
    assert content(tables) == content(joined(executions=executions, jobs=later, control=later))
    done = region.prepare()

    assert foreseen == done
    assert done.begun
    assert all(one.goes_on.watermark <= one.restored.watermark for one in done.works)


def content(tables: Tables) -> dict[str, object]:
    kept = vars(tables).items()
    return {name: value for name, value in kept if name not in {"lock", "unreadable"}}


def half_there() -> Region:
    system = a_region()
    created(system.ports, new_job(schedule=every("5 minutes")))
    system.run_for(10 * MINUTE)
    executions, as_of = as_of_now(system)
    created(system.ports, new_job(schedule=every("3 minutes"), overlap=OverlapPolicy.SKIP))
    acme = caller(system.world)
    acme.post("/v1/jobs", {"task": "echo", "rate": "1 hour"}, Idempotency_Key="k")
    acme.post("/v1/jobs", {"task": "echo"}, Idempotency_Key="lost")
    later, _ = as_of_now(system)
    tables = joined(executions=executions, jobs=later, control=later)
    return Region.of(tables, as_of=as_of, now=as_of + HOUR)


@pytest.mark.parametrize("strike", range(60))
def test_whoever_is_interrupted_does_it_again(strike: int) -> None:
    """Killed before, in the middle of, or after each of its calls."""
    region = half_there()
    struck = dies_at(region, strike)
    if not struck:
        # There are no more calls.
        assert strike > 20
        return
    # A lease that it held when it died is over by then.
    region.system.world.pass_time(MINUTE)

    prepared = region.prepare()
    region.system.run_for(2 * HOUR)

    assert region.broken() == []
    assert prepared.works


def dies_at(region: Region, strike: int) -> bool:
    """Whether a first try came so far."""
    left = [strike]

    def die(_: Call, when: When) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash

    try:
        prepare(
            interposed(region.system.ports, die),
            MemoryRestored(region.system.world.tables),
            restored_to=region.executions_as_of,
        )
    except Crash:
        return True
    return False
