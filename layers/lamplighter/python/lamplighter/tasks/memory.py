"""How much memory this worker has, and with it how much an isolated call gets of it."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_MIB: Final = 2**20
# Of a container: cgroup version 2, and 1.
_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def isolated_bytes(environ: Mapping[str, str]) -> int:
    """For a task that does not say: half of what there is, so that its worker outlives it."""
    return worker_bytes(environ) // 2


def worker_bytes(environ: Mapping[str, str]) -> int:
    """The least of the function's memory, the container's and the machine's."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    if function := environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE"):
        limits.append(int(function) * _MIB)
    for path in _LIMITS:
        # Not there, or without a limit: `max`.
        with suppress(OSError, ValueError):
            limits.append(int(path.read_text(encoding="ascii")))
    return min(limits)
