"""What is left behind is in somebody's hands: else no more than the sweep would find it.

The sweep mends it, minutes late, and in the end no promise is broken. So whoever leaves
something behind is looked at when they do: dispatch and the sweep where a watermark passes a
row, or they put one; a worker that deletes a message, and the dead-letter queue's function.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from lamplighter.core.buckets import (
    ExecutionId,
    JobId,
    Position,
    body_of,
    decode,
    instant_of,
    minutes_between,
)
from lamplighter.core.lease import Backlog, Grant, Kind, Progress, Work
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import CHECK_RUNNING_AFTER_LEASE, LOOK_AHEAD, MAX_CLOCK_ERROR
from lamplighter.core.model import (
    Execution,
    JobStatus,
    Message,
    Pointer,
    PointerKind,
    Row,
    Trigger,
    Watch,
)
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Outgoing, Refusal
from lamplighter.sim.chains import next_slot
from lamplighter.sim.engine import Actor, Engine

Try = tuple[ExecutionId, int]
"""An execution, and which of its attempts."""
_MINUTE: Final = timedelta(minutes=1)
_JUST_DUE: Final = timedelta(seconds=1)
# What often comes twice is sent on as often.
_SENDS_A_MINUTE: Final = 50
# As every host sees it, whose clocks may be apart.
_SURELY_SILENT: Final = CHECK_RUNNING_AFTER_LEASE + 2 * MAX_CLOCK_ERROR


@dataclass(kw_only=True)
class Behind:
    """Remembers what was sent, armed and booked in one history; times are true times."""

    world: MemoryWorld
    engine: Engine
    tell: Callable[..., None]
    """Told of a broken promise: which, in words, and what it is about."""
    _sent: dict[Try, datetime] = field(default_factory=dict)
    """When a message of it was last sent, be it lost."""
    _due_again: dict[Try, Position] = field(default_factory=dict)
    """The place of the pointer at which dispatch sends it."""
    _pointed: dict[Position, datetime] = field(default_factory=dict)
    """When each of these was made."""
    _booked: dict[ExecutionId, Position] = field(default_factory=dict)
    """The last place at which the sweep looks at it."""
    _put: dict[ExecutionId, datetime] = field(default_factory=dict)
    """When it was made, or made anew, to be dispatched."""
    _written: dict[ExecutionId, datetime] = field(default_factory=dict)
    """When its row was last written."""
    _ended: dict[ExecutionId, datetime] = field(default_factory=dict)
    _armed: dict[tuple[JobId, int], datetime] = field(default_factory=dict)
    """The last slot that a version of a job has a row of."""
    _progress: dict[Work, Progress] = field(default_factory=dict)
    _sends: dict[Try, deque[datetime]] = field(default_factory=lambda: defaultdict(deque))
    """When messages of it were sent within the last minute."""
    _to_send: dict[str, list[ExecutionId]] = field(default_factory=lambda: defaultdict(list))
    """What each visit put inside the line, where dispatch may have been (P1)."""
    _out_of_sight: dict[str, list[ExecutionId]] = field(default_factory=lambda: defaultdict(list))
    """What each put where the sweep has been, and will not come again (P7)."""
    _wrote: dict[str, dict[ExecutionId, Execution]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """What each worker has claimed, as it wrote down what came of it."""
    _found: dict[str, dict[ExecutionId, Execution]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """What each worker was refused, as they found it."""
    _outrun: set[tuple[str, ExecutionId]] = field(default_factory=set)
    """Who found that something had ended, after they had read it as it was before."""
    _began: dict[str, datetime] = field(default_factory=dict)
    """When each visit was granted its work: what it reads, it reads later."""

    def written(self, row: Execution) -> None:
        """A row is about to be written."""
        before = self.world.tables.executions.get(row.id)
        self._written[row.id] = self._now()
        if row.state is State.SCHEDULED:
            self._put[row.id] = self._now()
            if self.engine.is_busy:
                self._made(self.engine.current.name, row)
        if row.is_final and not (before and before.is_final):
            self._ended[row.id] = self._now()
        if row.trigger is Trigger.SCHEDULE:
            version = (row.job_id, row.job_version)
            slot = row.scheduled_for
            self._armed[version] = max(slot, self._armed.get(version, slot))

    def _made(self, who: str, row: Execution) -> None:
        if row.run_at <= self._now() + LOOK_AHEAD:
            self._to_send[who].append(row.id)
        if self._is_swept(body_of(row.id)) and not self._is_looked_at(row.id):
            self._out_of_sight[who].append(row.id)
            if who in self._began:
                # An API books it once it is there: who is not answered asks again.
                self._tell_unseen(who)

    def ended(self, actor: Actor) -> None:
        """Somebody has done all that they were to do."""
        if not actor.has_failed:
            self._tell_unseen(actor.name)

    def _tell_unseen(self, who: str) -> None:
        """Of what was put where the sweep had been, somebody has to book a look (P7)."""
        for id in self._out_of_sight.pop(who, ()):
            row = self.world.tables.executions.get(id)
            is_over = row is not None and row.is_final
            if not is_over and not self._is_looked_at(id):
                self._tell(f"{who} puts {id} where the sweep has been: nobody looks at it", id)

    def sent(self, outgoing: Sequence[Outgoing]) -> None:
        """Messages are sent, whatever becomes of them."""
        for one in outgoing:
            of = one.message.execution_id, one.message.attempt
            self._sent[of] = self._now()
            self._not_too_often(of)

    def _not_too_often(self, of: Try) -> None:
        """Each message of a try has its reason, and reasons are rare."""
        lately = self._sends[of]
        lately.append(self._now())
        while lately[0] < self._now() - _MINUTE:
            lately.popleft()
        if len(lately) > _SENDS_A_MINUTE:
            id, attempt = of
            says = f"attempt {attempt} of {id} is sent {len(lately)} times within a minute"
            self.tell("nobody is kept busy by nothing", says, id)

    def pointed(self, pointers: Sequence[Pointer | Watch]) -> None:
        """Pointers are made, or were there."""
        for one in pointers:
            match one:
                case Pointer(kind=PointerKind.RETRY):
                    self._due_again[one.execution_id, one.attempt] = one.position
                    self._pointed.setdefault(one.position, self._now())
                case Pointer(kind=PointerKind.CHECK):
                    booked = self._booked.get(one.execution_id, one.position)
                    self._booked[one.execution_id] = max(one.position, booked)
                case _:
                    pass

    def granted(self, who: str, answer: object) -> None:
        """Somebody asked for a partition's work."""
        if isinstance(answer, Grant):
            self._began[who] = self._now()
            self._progress.setdefault(answer.work, answer.progress)

    def advanced(self, actor: Actor, grant: Grant) -> None:
        """A watermark is written: what it passes is done."""
        who = actor.name
        before, after = self._progress[grant.work], grant.progress
        self._progress[grant.work] = after
        is_dispatch = grant.work.kind is Kind.DISPATCH
        if is_dispatch and after.backlog is not None:
            self._not_ahead(who, after.backlog)
        why_not = self._why_not_dispatched if is_dispatch else self._why_not_looked_at
        for row in self._passed(grant.work, before, after):
            if why := why_not(row, who, grant):
                self._tell(f"{who} passes {_name(row)}: {why}", _name(row))
        to_send = self._to_send.pop(who, ())
        # What it could not send is another's: of the page it did not pass, or the sweep's.
        for id in to_send if not actor.has_failed else ():
            row = self.world.tables.executions[id]
            if not self._is_sent(row) and not (is_dispatch and self._comes_to(row, grant)):
                self._tell(f"{who} puts {id} inside the line: it is not sent", id)

    def _not_ahead(self, who: str, backlog: Backlog) -> None:
        """What comes due once dispatch is back waits for no backlog."""
        if instant_of(backlog.until) > backlog.since + _JUST_DUE:
            says = f"{who} makes a backlog until {instant_of(backlog.until)} at {backlog.since}"
            self._tell(says, who)

    def settled(self, who: str, answer: object) -> None:
        """Somebody asked for what they had claimed to be written down."""
        if isinstance(answer, Execution):
            self._wrote[who][answer.id] = answer

    def put_at(self, id: ExecutionId) -> datetime:
        """When an execution was last made, to be dispatched."""
        return self._put[id]

    def refused(self, who: str, answer: object) -> None:
        """Somebody asked for an execution that they may not have."""
        if isinstance(answer, Refusal) and answer.found is not None:
            self._found[who][answer.found.id] = answer.found

    def outrun(self, who: str, found: Execution | None) -> None:
        """Somebody who had read a row before it ended finds it as it is now."""
        if found is not None and found.is_final:
            self._outrun.add((who, found.id))

    def done_with(self, actor: Actor, message: Message) -> None:
        """A worker deletes a message, or the dead-letter queue's function has seen to it."""
        row = self.world.tables.executions.get(message.execution_id)
        why = row and self._why_not_done_with(row, message.attempt, actor)
        if row and why:
            self._tell(f"{actor.name} is done with a message of {row.id}: {why}", row.id)

    def _passed(self, work: Work, before: Progress, after: Progress) -> Iterator[Row]:
        """The rows that are done now, and were not."""
        tables = self.world.tables
        layout = tables.layouts.of_generation(work.generation) if tables.layouts else None
        if layout is None:
            return
        spans = [(before.watermark, after.watermark)]
        if before.backlog is not None:
            spans.append((before.backlog.after, before.backlog.until))
        places = {
            position
            for start, end in spans
            for minute in minutes_between(start, end)
            for shard in layout.shards_of(work.partition)
            for position in tables.buckets.get((minute, shard), ())
            if start < position <= end
        }
        for position in sorted(places):
            if after.has(position) and not before.has(position):
                yield tables.at(position)

    def _why_not_dispatched(self, row: Row, who: str, _: Grant) -> str | None:
        """Why dispatch is not done with a row; None: it is, or never read it as it is."""
        began = self._began[who]
        if isinstance(row, Pointer):
            pointed = self._pointed.get(row.position, began)
            if row.kind is not PointerKind.RETRY or pointed >= began:
                return None
            sent = self._sent.get((row.execution_id, row.attempt))
            return None if sent and sent >= pointed else f"attempt {row.attempt} is not sent"
        if isinstance(row, Watch) or self._put.get(row.id, began) >= began:
            return None
        if not self._is_sent(row):
            return "it is neither sent nor ended"
        return None if self._goes_on(row) else "nothing follows it"

    def _is_sent(self, row: Execution) -> bool:
        """Whether a row has got its message, or needs none from whoever meets it."""
        is_waiting = row.state is State.SCHEDULED and not row.sent_directly
        return not is_waiting or (row.id, row.attempt) in self._sent

    def _comes_to(self, row: Execution, grant: Grant) -> bool:
        """Whether it is a row of this dispatcher's, who has yet to come to it."""
        position = body_of(row.id)
        return self._work_at(position) == grant.work and not grant.progress.has(position)

    def _work_at(self, position: Position) -> Work | None:
        """Whose dispatch a position is."""
        layouts, place = self.world.tables.layouts, decode(position)
        return layouts.at(place.at).work_on(place.shard, Kind.DISPATCH) if layouts else None

    def _is_dispatched(self, position: Position) -> bool:
        """Whether dispatch has passed a position."""
        work = self._work_at(position)
        progress = self._progress.get(work) if work else None
        return progress is not None and progress.has(position)

    def _is_swept(self, position: Position) -> bool:
        """Whether the sweep has passed a position."""
        work = self._work_at(position)
        progress = self._progress.get(replace(work, kind=Kind.SWEEP)) if work else None
        return progress is not None and progress.has(position)

    def _is_looked_at(self, id: ExecutionId) -> bool:
        """Whether the sweep has yet to come to a check of it."""
        booked = self._booked.get(id)
        return booked is not None and not self._is_swept(booked)

    def _is_armed(self, id: ExecutionId, attempt: int) -> bool:
        """Whether a message of a try was sent, or dispatch comes by to send it."""
        return (id, attempt) in self._sent or self._is_pointed_at(id, attempt)

    def _is_pointed_at(self, id: ExecutionId, attempt: int) -> bool:
        """Whether dispatch sends a message of a try where its pointer lies, or has."""
        pointer = self._due_again.get((id, attempt))
        if pointer is None:
            return False
        sent = self._sent.get((id, attempt))
        has_sent = sent is not None and sent >= self._pointed[pointer]
        return has_sent or not self._is_dispatched(pointer)

    def _goes_on(self, row: Execution) -> bool:
        """Whether the chain of its job does, or is over, or another's by now."""
        job, slot = self.world.tables.jobs.get(row.job_id), row.scheduled_for
        is_of_chain = row.trigger is Trigger.SCHEDULE and job is not None
        if not is_of_chain or job is None or job.status is not JobStatus.ACTIVE:
            return True
        if job.version != row.job_version or self._armed[job.id, job.version] > slot:
            return True
        return next_slot(self.world.tables.executions, job, max(slot, self._now())) is None

    def _why_not_looked_at(self, row: Row, who: str, grant: Grant) -> str | None:
        """Why the sweep is not done with a row; None: it is, or never read it as it is."""
        if isinstance(row, Watch) or (isinstance(row, Pointer) and row.kind is PointerKind.RETRY):
            return None
        position = row.position if isinstance(row, Pointer) else body_of(row.id)
        if not self._is_dispatched(position):
            return "dispatch has not come to it"
        id = row.execution_id if isinstance(row, Pointer) else row.id
        found, began = self.world.tables.executions.get(id), self._began[who]
        if found is None or found.is_final or self._put.get(id, began) >= began:
            return None
        booked = self._booked.get(id)
        if booked is None or grant.progress.has(booked):
            return f"it is {found.state}, and nobody looks at it again"
        lease_until = found.lease_until if found.state is State.RUNNING else None
        was_silent = lease_until is not None and lease_until + _SURELY_SILENT < began
        if not was_silent or self._written[id] >= began:
            return None
        sent = self._sent.get((id, found.attempt))
        return None if sent and sent >= began else f"{found.worker} is silent, and nobody is sent"

    def _why_not_done_with(self, row: Execution, attempt: int, actor: Actor) -> str | None:
        """Why a message may still be needed; None: it is not."""
        is_sent = any(one.message.execution_id == row.id for one in actor.sent)
        if is_sent or self._is_pointed_at(row.id, attempt):
            # Whoever comes by then does what is left.
            return None
        wrote = self._wrote[actor.name].get(row.id)
        known = wrote or self._found[actor.name].get(row.id)
        if row.is_final:
            # Whoever ended it after us wakes them.
            is_theirs = (actor.name, row.id) in self._outrun or (known and not known.is_final)
            return None if is_theirs else self._who_waits(row)
        match row.state:
            case State.BLOCKED if row.blocker is not None:
                blocker = self.world.tables.executions[row.blocker]
                return None if row.id in blocker.waiters else f"{blocker.id} does not know of it"
            case State.RETRYING if attempt < row.attempt and _is_as(row, known):
                is_armed = self._is_armed(row.id, row.attempt)
                return None if is_armed else f"attempt {row.attempt} is armed by nobody"
            case _ if attempt < row.attempt or wrote is not None:
                # Who has it by now has a message of their own.
                return None
            case _:
                return f"it is {row.state}, attempt {row.attempt}"

    def _who_waits(self, ended: Execution) -> str | None:
        """Whom nobody has woken who waits for a row; None: nobody."""
        for id in ended.waiters:
            row = self.world.tables.executions.get(id)
            if row is None or row.state is not State.BLOCKED or row.blocker != ended.id:
                continue
            sent = self._sent.get((id, row.attempt))
            if sent is None or sent < self._ended[ended.id]:
                return f"nobody wakes {id}"
        return None

    def _tell(self, says: str, about: str) -> None:
        self.tell("nothing is left behind", says, about)

    def _now(self) -> datetime:
        return self.world.now()


def _is_as(row: Execution, known: Execution | None) -> bool:
    """Whether nobody has had a row since somebody wrote or read it, if they did."""
    return known is None or (known.state, known.attempt) == (row.state, row.attempt)


def _name(row: Row) -> str:
    return row.id if isinstance(row, Execution) else row.position
