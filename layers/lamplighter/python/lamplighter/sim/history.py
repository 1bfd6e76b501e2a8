"""What happened, in order: a digest of all of it, and the part that somebody has to read."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from functools import singledispatch

from lamplighter.core.lease import Grant
from lamplighter.core.model import Execution, Job, Message, Pointer, Watch
from lamplighter.memory import VirtualClock
from lamplighter.ports import KeyRecord, Outgoing, Page, Received, Refusal


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that somebody did, or that was done to them."""

    at: datetime
    who: str
    says: str

    def __str__(self) -> str:
        return f"{gist(self.at)}  {self.who:<34} {self.says}"

    def is_about(self, ids: Collection[str]) -> bool:
        """Whether one of these ids is in it."""
        return any(id in self.says or id in self.who for id in ids)


@dataclass(kw_only=True)
class History:
    """Events as they come; kept only where somebody wants to read them."""

    clock: VirtualClock
    is_kept: bool = False
    is_digested: bool = True
    events: list[Event] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)

    def note(self, who: str, says: str) -> None:
        """Add an event, at this instant."""
        self._count(who, says)
        if self.is_kept:
            self.events.append(Event(at=self.clock.now(), who=who, says=says))

    def called(
        self,
        who: str,
        what: str,
        given: Sequence[object],
        named: Mapping[str, object],
        came: object,
    ) -> None:
        """Add a port call that took effect, or was refused."""
        if not (self.is_kept or self.is_digested):
            # What it says is for nobody, and takes a tenth of a simulation's time to say.
            self.count += 1
            return
        answer = gist(came)
        self._count(who, what, answer)
        if self.is_kept:
            said = ", ".join([*map(gist, given), *(f"{key}={gist(named[key])}" for key in named)])
            says = f"{what}({said}) -> {answer}"
            self.events.append(Event(at=self.clock.now(), who=who, says=says))

    def _count(self, *said: str) -> None:
        # Who did what, when, and what came of it: where two differ, so does what follows.
        self.count += 1
        if self.is_digested:
            self._digest.update(f"{self.clock.now().isoformat()} {said}\n".encode())

    @property
    def digest(self) -> str:
        """The same for two histories only if they are the same, event by event.

        Of one that is not digested it says nothing.
        """
        return self._digest.hexdigest()

    def about(self, ids: Collection[str]) -> Iterator[Event]:
        """The events that have to do with these."""
        return (event for event in self.events if event.is_about(ids))


@singledispatch
def gist(value: object) -> str:
    """A value in a few words: the same text for the same value, in every process."""
    return str(value)


@gist.register(str)
def _text(value: str) -> str:
    return value


@gist.register(BaseException)
def _error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@gist.register(Mapping)
def _mapping(values: Mapping[object, object]) -> str:
    return _listed(sorted(map(gist, values.values())))


@gist.register(AbstractSet)
def _set(values: AbstractSet[object]) -> str:
    return _listed(sorted(map(gist, values)))


@gist.register(Sequence)
def _sequence(values: Sequence[object]) -> str:
    return _listed(map(gist, values))


def _listed(texts: Iterable[str]) -> str:
    return f"[{' | '.join(texts)}]"


@gist.register(datetime)
def _instant(instant: datetime) -> str:
    return instant.isoformat()[11:23]


@gist.register(Execution)
def _execution(row: Execution) -> str:
    token = f" {row.token[:6]}" if row.token else ""
    waits = f" for {row.blocker}" if row.blocker else ""
    return (
        f"{row.id} v{row.job_version} {row.state}{token} try {row.attempt} "
        f"due {_instant(row.due_at)}{waits}"
    )


@gist.register(Job)
def _job(job: Job) -> str:
    return f"{job.id} v{job.version} {job.status} {job.overlap}"


@gist.register(Pointer)
def _pointer(pointer: Pointer) -> str:
    return f"{pointer.kind} of {pointer.execution_id} at {_instant(pointer.at)}"


@gist.register(Watch)
def _watch(watch: Watch) -> str:
    rest = f" but for a rest to {_instant(watch.rest.until)}" if watch.rest else ""
    return f"watch of {watch.job_id} at {_instant(watch.at)}, told to {_instant(watch.since)}{rest}"


@gist.register(Outgoing)
def _outgoing(one: Outgoing) -> str:
    return _message(one.message)


@gist.register(Received)
def _received(one: Received) -> str:
    return f"{_message(one.message)} receipt {one.receipt}"


@gist.register(Message)
def _message(message: Message) -> str:
    return f"{message.execution_id} try {message.attempt} due {_instant(message.due_at)}"


@gist.register(Refusal)
def _refusal(refusal: Refusal) -> str:
    return f"refused, found {gist(refusal.found)}"


@gist.register(Page)
def _page(page: Page) -> str:
    return f"{gist(page.rows)} up to {page.reached}"


@gist.register(KeyRecord)
def _key(record: KeyRecord) -> str:
    return f"key {record.key} of {record.job_id}"


@gist.register(Grant)
def _grant(grant: Grant) -> str:
    return f"{grant.work.kind} {grant.work.partition} epoch {grant.epoch} at {grant.watermark}"
