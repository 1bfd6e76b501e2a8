"""Every history of the small worlds, within a bound: `python -m tests.simulation.small_model`.

Without options as far as the tests go, and it is written into docs/simulator.md; with --far one
fault of any kind strikes anywhere, which takes long.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from lamplighter.sim.explore import Bound, Broken, Found, Strike
from lamplighter.sim.small import WALKS, Walk, explored

PAGE: Final = Path(__file__).parents[2] / "docs" / "simulator.md"
_BEGIN: Final = "<!-- small: begin -->"
_END: Final = "<!-- small: end -->"

CALM: Final = Bound(strikes=0, of=frozenset(), switches=0)
CRASH: Final = Bound(strikes=1, of=frozenset({Strike.CRASH}), switches=0)
CHEAP: Final = frozenset({"line", "key", "fire-once", "redo"})
"""Walks of which the tests play every crash as well: of at most some 1,500 states with it."""
FAR: Final = (
    Bound(strikes=0, of=frozenset(), switches=2),
    CRASH,
    Bound(strikes=1, of=frozenset(Strike) - {Strike.CRASH}, switches=0),
)


@dataclass(frozen=True, kw_only=True)
class Went:
    """What came of one walk within one bound."""

    walk: str
    bound: Bound
    states: int
    ends: int
    schedules: int
    cpu_s: float
    broken: Sequence[Broken]
    is_whole: bool


def near() -> Iterator[tuple[str, Bound]]:
    """What the tests play."""
    for walk in WALKS:
        yield walk.name, CALM
        if walk.name in CHEAP:
            yield walk.name, CRASH


def far() -> Iterator[tuple[str, Bound]]:
    """What `make prove` plays."""
    for bound in FAR:
        yield from ((walk.name, bound) for walk in WALKS)


def walk_of(name: str) -> Walk:
    """The walk of that name."""
    return next(walk for walk in WALKS if walk.name == name)


def went(name: str, bound: Bound) -> Went:
    """All histories of a walk within a bound."""
    began = time.process_time()
    found: Found = explored(walk_of(name), bound)
    return Went(
        walk=name,
        bound=bound,
        states=found.states,
        ends=found.ends,
        schedules=found.schedules,
        cpu_s=time.process_time() - began,
        broken=found.broken,
        is_whole=found.is_whole,
    )


def table(results: Iterable[Went]) -> str:
    """The page's table of walks."""
    lines = [
        "| walk | what happens | bound | states | histories to an end | different ends | CPU s |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| `{one.walk}` | {walk_of(one.walk).says} | {one.bound} | {one.states:,} "
        f"| {one.schedules:,} | {one.ends:,} | {one.cpu_s:.1f} |"
        for one in results
    ]
    return "\n".join(lines)


def _written(text: str) -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    after = rest.partition(_END)[2]
    PAGE.write_text(f"{before}{_BEGIN}\n{text}\n{_END}{after}", encoding="utf-8")


def main() -> int:
    """Play the walks; 1 if a promise is broken, with the schedule that breaks it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--far", action="store_true", help="as far as `make prove` goes")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("walks", nargs="*", help="only these")
    asked = parser.parse_args()
    wanted = [
        one for one in (far() if asked.far else near()) if not asked.walks or one[0] in asked.walks
    ]
    results: list[Went] = []
    # Each from nothing: no greenlet survives a fork.
    with ProcessPoolExecutor(asked.processes, mp_context=get_context("spawn")) as pool:
        for one in pool.map(went, *zip(*wanted, strict=True)):
            print(
                f"{one.walk:<16} {one.states:>9,} states {one.schedules:>8,} histories "
                f"{one.ends:>7,} ends {one.cpu_s:>7.1f} s   {one.bound}",
                flush=True,
            )
            for broken in one.broken:
                print(f"  {broken.says}", *(f"    {step}" for step in broken.steps), sep="\n")
            results.append(one)
    print(f"{sum(one.states for one in results):,} states")
    if not asked.walks and not asked.far:
        _written(table(results))
    return int(any(one.broken or not one.is_whole for one in results))


if __name__ == "__main__":
    sys.exit(main())
