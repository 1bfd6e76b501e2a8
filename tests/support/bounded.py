"""What a block of code may cost, however odd what it is given."""

import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

_MIB = 1024 * 1024


@contextmanager
def bounded(*, cpu_s: float = 10.0, mebibytes: float = 16.0) -> Iterator[None]:
    """Fail if it takes more of the processor, or more memory at once, of this thread alone.

    Far above what it does take: what this is for takes hours, or all there is.
    """
    tracemalloc.start()
    try:
        began = time.thread_time()
        yield
        took, (_, peak) = time.thread_time() - began, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert took < cpu_s
    assert peak < mebibytes * _MIB
