"""What a handler is told about its call, and how it learns that it has to stop."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic as _monotonic
from typing import Any

from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.deferral import Terms
from lamplighter.core.errors import LostClaim, Retryable, WriteRefusal, WritesRefused
from lamplighter.core.limits import (
    CHECKPOINT_MAX_BYTES,
    DEFAULT_HARD_LIMIT,
    DEFAULT_HEARTBEAT,
    LEDGER_RESULT_MAX_BYTES,
    RESULT_MAX_BYTES,
)
from lamplighter.core.model import Owner
from lamplighter.core.stopping import Stop
from lamplighter.core.writes import OwnWrite
from lamplighter.tasks import asked
from lamplighter.tasks.calls import ContextCalls, NoCalls


class Stopped(BaseException):
    """The handler gave up because it was asked to.

    No Exception, so that a handler's own `except Exception` lets it pass.
    """


@dataclass(frozen=True, kw_only=True)
class Deferral:
    """A try that goes on without its handler: tell whoever ends it this token, and nobody else."""

    execution_id: ExecutionId
    token: str = field(repr=False)
    """The callback token: `cbt_` and 128 random bits as hex; of this try alone."""
    terms: Terms


class StopSignal:
    """`heartbeat.Handling`: carries the request to stop from the heartbeat to the handler."""

    def __init__(self, monotonic: Callable[[], float] = _monotonic) -> None:
        self._monotonic = monotonic
        self._event = threading.Event()
        self._asked_at: dict[Stop, float] = {}
        self.why: Stop | None = None
        """The first reason; None while the handler may go on."""

    def stop(self, why: Stop) -> None:
        """Ask the handler to stop; the first reason stays, later ones are kept beside it."""
        self._asked_at.setdefault(why, self._monotonic())
        self.why = self.why or why
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Return after so many seconds, or with True as soon as the handler is to stop."""
        return self._event.wait(seconds)

    def asked_at(self, why: Stop) -> float | None:
        """When (monotonic) this reason was first given; None: not yet."""
        return self._asked_at.get(why)


@dataclass(kw_only=True)
class Progress:
    """What a context knows of its checkpoints."""

    text: str | None = None
    """Of the last one, as JSON; None: nobody has looked for it yet."""
    number: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, kw_only=True)
class Context:
    """One call of a handler.

    A handler that runs for long looks at `stopped`, waits with `wait`, or calls
    `raise_if_stopped` where it can be left: it is asked to stop at its `deadline`, when its
    execution is cancelled, and when the worker can no longer hold it. One that goes on for
    five seconds past its deadline takes its process with it; an isolated one is killed.
    """

    execution_id: ExecutionId
    job_id: JobId
    owner: Owner
    attempt: int
    """From 1; a try whose worker died is made again under its number."""
    scheduled_for: datetime
    """The slot of the schedule; the same for every try."""
    run_at: datetime
    deadline: datetime
    """When the job's time-out ends this call: aware, UTC."""
    idempotency_key: str
    """For services that accept such a key: the same for every try of this execution, and for
    every replay of it with the same payload."""
    task_version: int | None = None
    """The version of the task that its job was made for, among those that this handler accepts;
    None: for none."""
    signal: StopSignal = field(default_factory=StopSignal, repr=False)
    calls: ContextCalls = field(default_factory=NoCalls, repr=False)
    """The worker that holds this execution, in this process or in another."""
    _progress: Progress = field(default_factory=Progress, repr=False, compare=False)

    @property
    def stopped(self) -> bool:
        """Whether the handler is asked to stop, for whatever reason."""
        return self.signal.why is not None

    @property
    def cancelled(self) -> bool:
        """Whether that is because its execution was cancelled."""
        return self.signal.why is Stop.CANCELLED

    def raise_if_stopped(self) -> None:
        """Raise Stopped if the handler is asked to stop."""
        if self.stopped:
            raise Stopped("the handler stopped when it was asked to")

    def wait(self, seconds: float) -> bool:
        """Sleep, but no longer than until the handler is asked to stop; True if it is."""
        return self.signal.wait(seconds)

    @property
    def state(self) -> Any:  # noqa: ANN401 -- a handler's own
        """The last checkpoint of this execution, an earlier try's or this one's, as JSON has it.

        None where there is none. Read from the table once, when it is first asked for.
        """
        with self._progress.lock:
            if self._progress.text is None:
                self._progress.text = self._ask(asked.STATE, asked.NOTHING)
            text = self._progress.text
        return json.loads(text)

    def checkpoint(self, state: object) -> None:
        """Keep how far this try has come, for the next one if this does not end it.

        `state` is anything that is JSON, up to 32 KiB, and takes the place of the last one.
        Raises Stopped, and keeps nothing, when another try has taken over. A new execution,
        a replay too, begins without it.
        """
        text = asked.json_of(state, what="checkpoint", most=CHECKPOINT_MAX_BYTES)
        with self._progress.lock:
            self._progress.number += 1
            saving = asked.Saving(number=self._progress.number, state=text)
            self._ask(asked.CHECKPOINT, asked.SAVING.dump_json(saving).decode())
            self._progress.text = text

    def once(self, key: str, do: Callable[[], object]) -> Any:  # noqa: ANN401 -- a handler's own
        """What `do` returned the first time that it did: by this try or an earlier one.

        First it is looked up; then `do` is called, and what it returns is kept as JSON, up to
        16 KiB. Kept is the first result only; but where a worker dies between, or two tries
        meet, `do` is called again: it is done at least once, and told as one. What `do` raises
        is not kept. `key` (1-255 printable characters) is the handler's own for this step, of
        this execution and its replays with the same payload.
        """
        asked.check_key(key)
        recalling = asked.RECALLING.dump_json(asked.Recalling(key=key)).decode()
        known = json.loads(self._ask(asked.RECALL, recalling))
        if known is None:
            self._leave_if_over()
            text = asked.json_of(do(), what=f"once({key!r})", most=LEDGER_RESULT_MAX_BYTES)
            recording = asked.RECORDING.dump_json(asked.Recording(key=key, result=text)).decode()
            known = json.loads(self._ask(asked.RECORD, recording))
        return json.loads(known)

    def complete_with(self, items: Sequence[OwnWrite], *, result: object = None) -> None:
        """Write to your own tables, and end this execution SUCCEEDED: both or neither, once.

        `items` are up to 99 writes as boto3's DynamoDB client takes them in
        `transact_write_items`. The handler's last act: what it returns, or raises, afterwards
        changes nothing. Raises WritesRefused when a condition of theirs does not hold: then
        nothing is written, and the execution goes on. Raises Stopped when another try has taken
        over; Unavailable when no answer came in a while: then leave, and the next try finds out.
        """
        self._leave_if_over()
        text = asked.json_of(result, what="complete_with's result", most=RESULT_MAX_BYTES)
        answer = json.loads(self._ask(asked.COMPLETE, asked.completing(items, result=text)))
        if refused := answer["refused"]:
            raise WritesRefused([WriteRefusal(**one) for one in refused])
        if later := answer["later"]:
            raise Retryable(later)

    def defer(
        self,
        *,
        heartbeat: timedelta = DEFAULT_HEARTBEAT,
        hard_limit: timedelta = DEFAULT_HARD_LIMIT,
    ) -> Deferral:
        """Let this try go on after the handler has returned: the handler returns what this returns.

        Whoever is given its `token` then says how it goes on, or ended, over the API, without
        any other credential. Silent for longer than `heartbeat` (30 s to 12 h), or not ended
        within `hard_limit` of its start (30 s to 7 days), the try has failed as at its time-out,
        and its token is worth nothing. Raises Rejected for what is out of range.
        """
        terms = Terms(heartbeat=heartbeat, hard_limit=hard_limit)
        token = json.loads(self._ask(asked.DEFER, asked.NOTHING))
        return Deferral(execution_id=self.execution_id, token=token, terms=terms)

    def _leave_if_over(self) -> None:
        """Raise Stopped where a result would be refused; a cancelled handler may still finish."""
        for why in (Stop.TIMEOUT, Stop.LOST_LEASE):
            if self.signal.asked_at(why) is not None:
                raise Stopped(f"the handler is to stop: {why}")

    def _ask(self, name: str, argument: str) -> str:
        try:
            return self.calls.ask(name, argument)
        except LostClaim as error:
            raise Stopped(str(error)) from error
