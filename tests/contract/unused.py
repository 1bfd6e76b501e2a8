"""Tables and queues that a test had, and that are as they were made: the next one has them.

To make and delete them all for each test takes longer than most tests do.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

_READS: Final = frozenset({"GetItem", "BatchGetItem", "TransactGetItems", "Query", "Scan"})
_ABOUT: Final = "before-parameter-build"


@dataclass(kw_only=True)
class Unused:
    """By kind, the names of those that nobody has written to."""

    _of: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    @contextmanager
    def some(
        self,
        kinds: Mapping[str, Callable[[str], str]],
        *,
        delete: Callable[[str], object],
        client: Any,  # noqa: ANN401 -- of any service
    ) -> Iterator[Mapping[str, str]]:
        """One of each kind, made where none is left; deleted afterwards if it was used.

        Of a client by which nothing else is done meanwhile.
        """
        names = {
            kind: self._of[kind].pop() if self._of[kind] else make(kind)
            for kind, make in kinds.items()
        }
        used: set[str] = set()

        def note(params: Mapping[str, Any], model: Any, **_: object) -> None:  # noqa: ANN401 -- botocore's
            if model.name not in _READS:
                used.update(_named_in(params))

        client.meta.events.register(_ABOUT, note)
        try:
            yield names
        finally:
            client.meta.events.unregister(_ABOUT, note)
            for kind, name in names.items():
                if name in used:
                    delete(name)
                else:
                    self._of[kind].append(name)


def _named_in(params: Mapping[str, Any]) -> Iterator[str]:
    """The tables and queues that a call is about."""
    for key in ("TableName", "QueueUrl"):
        if key in params:
            yield params[key]
    yield from params.get("RequestItems", ())
    for item in params.get("TransactItems", ()):
        yield from (one["TableName"] for one in item.values())
