"""Telemetry that counts: what a test or a simulation asks what happened."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta

from lamplighter.core.buckets import ExecutionId, JobId
from lamplighter.core.clock_offset import Bounds
from lamplighter.core.errors import Damaged
from lamplighter.core.lease import Backlog, Ticker
from lamplighter.core.misfire import Gap
from lamplighter.core.model import Execution, Job
from lamplighter.core.permits import Key


@dataclass(kw_only=True)
class Counts:
    """`ports.Telemetry`: how often each thing happened, and every start's lateness."""

    events: Counter[str] = field(default_factory=Counter)
    lateness: list[timedelta] = field(default_factory=list)
    finishes: list[Execution] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def ticked(self, *, by: Ticker) -> None:
        self.events[f"ticked by {by}"] += 1

    def created(self, *, queue: str, directly: bool) -> None:
        self.events["created"] += 1

    def dispatched(self, *, partition: int, sent: int, pages: int, age: timedelta) -> None:
        self.events["dispatched"] += sent

    def draining(self, *, partition: int, backlog: Backlog) -> None:
        self.events["draining"] += 1

    def swept(self, *, partition: int, rows: int, age: timedelta) -> None:
        self.events["swept"] += rows

    def lost_lease(self, *, partition: int) -> None:
        self.events["lost_lease"] += 1

    def started(self, execution: Execution, *, lateness: timedelta) -> None:
        self.events["started"] += 1
        self.lateness.append(lateness)

    def finished(self, execution: Execution) -> None:
        self.events[f"finished {execution.state}"] += 1
        self.finishes.append(execution)

    def parked(self, execution: Execution, *, lasts: timedelta) -> None:
        self.events["parked"] += 1

    def told(self, execution: Execution) -> None:
        self.events["told"] += 1

    def not_told(self, execution: Execution, error: Exception) -> None:
        self.events["not_told"] += 1

    def claim_lost(self, id: ExecutionId, *, reason: str) -> None:
        self.events["claim_lost"] += 1

    def late_result_refused(self, id: ExecutionId) -> None:
        self.events["late_result_refused"] += 1

    def taken_over(self, execution: Execution) -> None:
        self.events["taken_over"] += 1

    def recovered(self, execution: Execution, *, reason: str) -> None:
        self.events["recovered"] += 1

    def promoted(self, execution: Execution, *, to: str) -> None:
        self.events["promoted"] += 1

    def no_permit(self, execution: Execution, *, of: Key) -> None:
        self.events[f"no_permit {of}"] += 1

    def undeliverable(self, id: ExecutionId, *, count: int) -> None:
        self.events["undeliverable"] += 1

    def forewarned(self, *, queue: str, lateness: timedelta) -> None:
        self.events["forewarned"] += 1

    def forewarning_failed(self, error: Exception) -> None:
        self.events[f"forewarning_failed {type(error).__name__}"] += 1

    def unreadable(self, *, queue: str, body: str) -> None:
        self.events["unreadable"] += 1

    def broke(self, id: str, error: Exception) -> None:
        self.events[f"broke {type(error).__name__}"] += 1

    def clock_refused(self, off: Bounds, *, messages: int) -> None:
        self.events["clock_refused"] += messages

    def gave_back(self, id: ExecutionId, *, time_left: timedelta) -> None:
        self.events["gave_back"] += 1

    def row_unreadable(self, damaged: Damaged) -> None:
        self.events["row_unreadable"] += 1
        self.events[f"row_unreadable {damaged.kind}"] += 1

    def definition_unreadable(self, id: JobId, *, reason: str) -> None:
        self.events["definition_unreadable"] += 1

    def passed_over(self, job: Job, gap: Gap) -> None:
        self.events["passed_over"] += gap.count
        self.gaps.append(gap)

    def missed(self, job: Job, count: int) -> None:
        self.events["missed"] += count

    def said(self, execution: Execution, line: str) -> None:
        self.events["said"] += 1
        self.lines.append(line)

    def hung(self, execution: Execution) -> None:
        self.events["hung"] += 1
