"""On how many examples a property is tried: on some in the suite, on many more by `make prove`."""

import os
from typing import Final

TIMES: Final = int(os.environ.get("LAMPLIGHTER_EXAMPLES", "1"))
"""How many times as many as in the suite."""
ALWAYS_THE_SAME: Final = TIMES == 1
"""For `derandomize`, of what is tried on the same examples in the suite and on fresh ones else."""


def examples(number: int) -> int:
    """What a test's number stands for in this run: in the suite, which has to be quick, a fifth."""
    return max(1, number * TIMES // 5)
