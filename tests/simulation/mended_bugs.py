"""Deliberate bugs that lose nothing for good: what they leave behind, the sweep finds and mends.

All that an owner would see is some minutes of lateness, now and then. So the simulator has to see
them where they happen (`sim/behind.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from lamplighter.core.buckets import (
    Minute,
    Position,
    before,
    instant_of,
    minutes_between,
    start_of,
    through,
)
from lamplighter.core.claim import Drop, Keep, Rearm, Refusal, Watch, refused
from lamplighter.core.lease import Progress
from lamplighter.core.lifecycle import State
from lamplighter.core.limits import BACKLOG_AFTER, PAGE_ROWS
from lamplighter.core.misfire import Send
from lamplighter.core.model import Execution, Message
from lamplighter.ports import Page, Ports, Received
from lamplighter.services import claim, dispatch, settling, sweep, timers
from lamplighter.sim import simulation

Planted = AbstractContextManager[Any]


def forget_the_page_of_a_predecessor() -> Planted:
    """A page that was left half done counts as done."""

    def redo(self: Any) -> None:
        if self.grant.intent is not None:
            self._advance(self._past(self.grant.intent, 0), None)

    return patch.object(dispatch._Visit, "redo", redo)


def pass_a_backlog() -> Planted:
    """What was not dispatched in an outage is passed, and no backlog is made of it."""

    def leave_behind(self: Any) -> None:
        now = self._now()
        until = self._within(through(now))
        is_behind = now - instant_of(self.grant.watermark) >= BACKLOG_AFTER
        if is_behind and until > self.grant.watermark:
            self._advance(Progress(watermark=until), None)

    return patch.object(dispatch._Visit, "leave_behind", leave_behind)


def end_a_backlog_after_a_page() -> Planted:
    """A backlog is over once a page of it was done."""
    real = dispatch._Visit._past

    def past(self: Any, intent: Any, sent: int) -> Progress:
        progress = real(self, intent, sent)
        left = progress.backlog
        return replace(progress, backlog=left and replace(left, after=left.until))

    return patch.object(dispatch._Visit, "_past", past)


def read_one_page_of_a_minute() -> Planted:
    """Of a minute with more rows than a page, the rest is passed."""

    def pages(
        ports: Ports, shards: range, after: Position, until: Position, *, limit: int | None = None
    ) -> Iterator[Page]:
        for minute in minutes_between(after, until):
            end = min(until, before(start_of(Minute(minute + 1))))
            if after < end:
                page = ports.executions.due(
                    minute, shards, after=after, until=end, limit=limit or PAGE_ROWS
                )
                yield replace(page, reached=end)
                after = end

    return patch.object(dispatch, "pages", pages)


def leave_out_a_shard() -> Planted:
    """A partition of several shards reads all but the last."""

    def shards(self: Any) -> range:
        mine: range = self.layout.shards_of(self.grant.work.partition)
        return range(mine.start, max(mine.start + 1, mine.stop - 1))

    return patch.object(dispatch._Visit, "_shards", property(shards))


def send_no_far_retry() -> Planted:
    """Dispatch looks at rows, and not at the pointers of tries again."""
    real = dispatch._do

    def do(ports: Ports, grant: Any, intent: Any, rows: Any, **how: Any) -> int:
        return real(ports, grant, intent, [one for one in rows if _is_row(one)], **how)

    return patch.object(dispatch, "_do", do)


def send_ten_of_a_page() -> Planted:
    """What is over ten messages is not sent."""
    real = timers.send
    return patch.object(timers, "send", lambda ports, messages: real(ports, messages[:10]))


def end_nothing_that_is_passed_over() -> Planted:
    """What dispatch decides not to run stays as it is."""

    def carry_out(_: Ports, decisions: Any) -> Iterator[Execution]:
        return (row for row, decision in decisions if isinstance(decision, Send))

    return patch.object(dispatch, "_carry_out", carry_out)


def put_and_not_look() -> Planted:
    """A dispatcher that armed a row inside the line does not ask whether it is past it (P1)."""
    return patch.object(dispatch._Ahead, "is_passed", lambda *_: False)


def delete_when_a_take_over_is_lost() -> Planted:
    """Whoever comes second to a take-over takes its message for a duplicate."""
    real = claim._take_over

    def take_over(ports: Ports, received: Received, *how: Any, **more: Any) -> Any:
        came = real(ports, received, *how, **more)
        is_lost = isinstance(came, settling.Put) and not came.deleted
        return settling.delete(ports, received) if is_lost else came

    return patch.object(claim, "_take_over", take_over)


def _dropping(is_dropped: Callable[[Refusal], bool]) -> Planted:
    def meant(message: Message, row: Execution | None, now: datetime) -> Refusal:
        meaning = refused(message, row, now)
        return Drop(reason="of no use") if is_dropped(meaning) else meaning

    return patch.object(claim, "refused", meant)


def delete_what_is_not_due() -> Planted:
    """A message that comes before its try is due is deleted."""
    return _dropping(lambda meaning: isinstance(meaning, Keep) and meaning.reason == "not due yet")


def delete_what_is_deferred() -> Planted:
    """The message of a deferred try is deleted, and none sent for the end of its lease."""
    return _dropping(lambda meaning: isinstance(meaning, Watch))


def delete_what_is_stale() -> Planted:
    """The message of an earlier try is deleted, whatever the row waits for (P11)."""
    return _dropping(lambda meaning: isinstance(meaning, Rearm))


def drop_dead_letters() -> Planted:
    """Whatever the dead-letter queue receives is of no use."""
    return patch.object(simulation, "undeliverable", lambda *_: None)


def wake_nobody_at_a_claim() -> Planted:
    """A message of what has ended is deleted, and those that wait for it are left alone (P14)."""
    return patch.object(claim, "endings", SimpleNamespace(finish=lambda *_: None))


def point_and_not_look() -> Planted:
    """A try again has its pointer, be it where dispatch has been (P1)."""

    def arm_retry(ports: Ports, row: Execution) -> None:
        ports.executions.point([timers._retry_pointer(row)])

    return patch.object(timers, "arm_retry", arm_retry)


def look_and_not_point() -> Planted:
    """A try again is sent where it is inside the line, and else left alone."""

    def arm_retry(ports: Ports, row: Execution) -> None:
        if timers.inside(replace(row, run_at=row.due_at), ports.clock.now()):
            timers.send(ports, [timers.outgoing(row)])

    return patch.object(timers, "arm_retry", arm_retry)


def arm_one_chain_of_a_page() -> Planted:
    """Of several rows only the first has its successor armed."""
    real = timers.arm_chains

    def arm_chains(ports: Ports, links: Sequence[timers.Link], **how: Any) -> Any:
        return real(ports, links[:1], **how)

    return patch.object(timers, "arm_chains", arm_chains)


def arm_no_lease() -> Planted:
    """Nothing comes at the end of a deferred try's lease."""
    return patch.object(timers, "arm_lease", lambda *_: None)


def sweep_past_tries_again() -> Planted:
    """What is RETRYING is left alone, and no other look is booked."""
    real = sweep._look_at

    def look_at(ports: Ports, row: Execution, *how: Any, **more: Any) -> None:
        if row.state is not State.RETRYING:
            real(ports, row, *how, **more)

    return patch.object(sweep, "_look_at", look_at)


def sweep_rows_only() -> Planted:
    """Nobody looks at what a check was booked for."""
    return patch.object(sweep, "_execution_of", lambda _, row: row if _is_row(row) else None)


def sweep_before_dispatch() -> Planted:
    """The sweep goes as far as time allows, and does not ask how far dispatch has come (P6)."""
    real = sweep._Visit.__post_init__

    def begin(self: Any) -> None:
        real(self)
        self.dispatched = Progress(watermark=self.oldest)

    return patch.object(sweep._Visit, "__post_init__", begin)


def pass_what_there_was_no_time_for() -> Planted:
    """Where the sweep has no more time, it goes on behind what it meant to look at."""
    real = sweep._Visit._walk

    def walk(self: Any, after: Any, until: Any, look: Any, at: Any, is_in_time: Any) -> bool:
        is_done = real(self, after, until, look, at, is_in_time)
        if not is_done:
            self._stand_at(at(until))
        return is_done

    return patch.object(sweep._Visit, "_walk", walk)


def arm_out_of_sight() -> Planted:
    """A dispatcher whose lease may be over books no check of what it arms (P7)."""
    return patch.object(dispatch._Ahead, "may_be_swept", lambda *_: False)


def _is_row(one: object) -> bool:
    return isinstance(one, Execution)


MENDED: Mapping[str, tuple[str, Callable[[], Planted]]] = {
    "redo": ("a half done page counts as done", forget_the_page_of_a_predecessor),
    "backlog": ("no backlog is made of what an outage left", pass_a_backlog),
    "drain": ("a backlog is over after a page", end_a_backlog_after_a_page),
    "page": ("of a minute one page is read", read_one_page_of_a_minute),
    "shard": ("a partition leaves out its last shard", leave_out_a_shard),
    "far-retry": ("dispatch sends no try again", send_no_far_retry),
    "ten": ("ten messages of a page are sent", send_ten_of_a_page),
    "passed-over": ("what is passed over is not ended", end_nothing_that_is_passed_over),
    "put": ("a dispatcher does not ask whether it is past what it put", put_and_not_look),
    "lost-take-over": (
        "whoever comes second to a take-over deletes the message",
        delete_when_a_take_over_is_lost,
    ),
    "not-due": ("a message that comes too soon is deleted", delete_what_is_not_due),
    "deferred": ("the message of a deferred try is deleted", delete_what_is_deferred),
    "stale": ("a stale message is deleted", delete_what_is_stale),
    "dead-letter": ("what the dead-letter queue receives is dropped", drop_dead_letters),
    "wake": ("a message of what has ended wakes nobody", wake_nobody_at_a_claim),
    "point": ("a try again has its pointer, wherever dispatch is", point_and_not_look),
    "look": ("a try again beyond the line has no pointer", look_and_not_point),
    "chains": ("of a page one chain is armed", arm_one_chain_of_a_page),
    "lease": ("nothing comes at the end of a deferred try's lease", arm_no_lease),
    "retrying": ("the sweep passes what is to be tried again", sweep_past_tries_again),
    "checks": ("the sweep passes the checks that it booked", sweep_rows_only),
    "no-time": ("the sweep passes what it had no time for", pass_what_there_was_no_time_for),
    "ahead": ("the sweep goes where dispatch has not been", sweep_before_dispatch),
}
"""By its id: what it is, and what plants it."""
