"""docs/lifecycle.md from the transition table: `python -m tests.docs.lifecycle` writes it."""

import inspect
import re
from pathlib import Path

from lamplighter.core import lifecycle
from lamplighter.core.lifecycle import FINAL, TRANSITIONS, Event, State

PAGE = Path(__file__).parents[2] / "docs" / "lifecycle.md"


def text() -> str:
    """The whole page."""
    return f"""# The life of an execution

Written by `python -m tests.docs.lifecycle` from `core/lifecycle.py`, where it is data: the
conditions of every write and an exhaustive test come from the same table.

```mermaid
stateDiagram-v2
    [*] --> SCHEDULED
{_arrows()}
```

| state | |
|---|---|
{_rows(State)}

`QUEUED` is shown, not stored: SCHEDULED, and its message is out. So is `PARKED`: RETRYING, for no
worker has known its task in the version that it was made for.

| event | |
|---|---|
{_rows(Event)}

Other systems' names are accepted in filters: {_aliases()}.
"""


def _arrows() -> str:
    arrows = [
        f"    {state} --> {target}: {event}"
        for (state, event), target in sorted(TRANSITIONS.items())
    ]
    return "\n".join(arrows + [f"    {state} --> [*]" for state in sorted(FINAL)])


def _rows(members: type[State] | type[Event]) -> str:
    documented = _docstrings(members)
    return "\n".join(f"| `{one.value}` | {documented.get(one.name, '')} |" for one in members)


def _docstrings(members: type[State] | type[Event]) -> dict[str, str]:
    """What stands below each member in the source: Python keeps no docstring of a member."""
    source = inspect.getsource(members)
    found = re.findall(r'^    (\w+) = "\w+"\n    """(.+?)"""', source, re.DOTALL | re.MULTILINE)
    return {name: " ".join(said.split()) for name, said in found}


def _aliases() -> str:
    return ", ".join(f"`{alias}`" for alias in sorted(lifecycle.ALIASES))


if __name__ == "__main__":
    PAGE.write_text(text())
