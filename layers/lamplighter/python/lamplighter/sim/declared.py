"""A dispatcher does nothing but of a page that it has declared: else nobody would redo it alike.

Whoever finds the page after a crash decides as of the instant that was declared with it (P5).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lamplighter.core.buckets import ExecutionId, Position, body_of
from lamplighter.core.lease import Grant, Intent, Kind
from lamplighter.core.lifecycle import State
from lamplighter.core.model import Execution, Pointer, PointerKind, Watch
from lamplighter.ports import Outgoing


@dataclass(kw_only=True)
class Declared:
    """Remembers which page each visit has declared, and what it has armed since."""

    rows: Mapping[ExecutionId, Execution]
    tell: Callable[..., None]
    """Told of a broken promise: which, in words, and what it is about."""
    _page: dict[str, Intent | None] = field(default_factory=dict)
    _armed: dict[str, set[ExecutionId]] = field(default_factory=lambda: defaultdict(set))
    _due_again: dict[tuple[ExecutionId, int], set[Position]] = field(
        default_factory=lambda: defaultdict(set)
    )
    """Where the pointers of a try lie."""

    def granted(self, who: str, answer: object) -> None:
        """Somebody asked for a partition's work, or wrote down how far they are."""
        if isinstance(answer, Grant) and answer.work.kind is Kind.DISPATCH:
            self._page[who] = answer.intent
            self._armed[who].clear()

    def pointed(self, pointers: Sequence[Pointer | Watch]) -> None:
        """Pointers are made, or were there."""
        for one in pointers:
            if isinstance(one, Pointer) and one.kind is PointerKind.RETRY:
                self._due_again[one.execution_id, one.attempt].add(one.position)

    def put(self, who: str, rows: Sequence[Execution]) -> None:
        """Somebody makes rows, or finds them there."""
        if who not in self._page:
            return
        for row in rows:
            if row.predecessor is not None and not self._is_at(who, row.predecessor):
                says = f"{who} arms {row.id} behind {row.predecessor}, which is not in its page"
                self._tell(says, row.id)
            self._armed[who].add(row.id)

    def sent(self, who: str, outgoing: Sequence[Outgoing]) -> None:
        """Somebody sends messages."""
        if who not in self._page:
            return
        for one in outgoing:
            id, attempt = one.message.execution_id, one.message.attempt
            if self.rows[id].state is State.BLOCKED:
                # What it waited for was ended, and is in the page.
                continue
            again = self._due_again.get((id, attempt), ())
            if not self._is_at(who, id) and not any(self._is_in(who, place) for place in again):
                says = f"{who} sends attempt {attempt} of {id}, which is not in its page"
                self._tell(says, id)

    def _tell(self, says: str, id: ExecutionId) -> None:
        self.tell("a page is declared before it is done", says, id)

    def _is_at(self, who: str, id: ExecutionId) -> bool:
        return id in self._armed[who] or self._is_in(who, body_of(id))

    def _is_in(self, who: str, position: Position) -> bool:
        page = self._page[who]
        return page is not None and page.after < position <= page.until
