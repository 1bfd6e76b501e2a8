"""Small worlds, of which every history within a bound is played, and not a sample."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from lamplighter.core.errors import Unavailable
from lamplighter.core.model import OverlapPolicy
from lamplighter.memory import MemoryWorld
from lamplighter.ports import Ports
from lamplighter.sim.explore import Bound, Explorer, Kind, Scene, Strike
from lamplighter.sim.places import Cast, Hands
from lamplighter.sim.small import START, WALKS, explored, scene
from lamplighter.sim.stills import a_world
from tests.simulation.mutations import MUTATIONS, Mutation, hunted
from tests.simulation.small_model import CALM, CHEAP, CRASH, PAGE, near, walk_of

NEAR = [*near()]
QUICK = [one for one in MUTATIONS if one.id in {"P3", "P5", "P6", "P20"}]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "bound"), NEAR, ids=[f"{name}, {b}" for name, b in NEAR])
def test_every_history_of_a_small_world_keeps_every_promise(name: str, bound: Bound) -> None:
    found = explored(walk_of(name), bound)

    assert [broken.says for broken in found.broken] == []
    assert found.is_whole
    assert found.ends >= 1


def test_the_page_names_every_walk() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert [walk.name for walk in WALKS if f"| `{walk.name}` | {walk.says} |" not in page] == []


def test_every_way_not_to_overlap_is_walked() -> None:
    names = {walk.name.upper().replace("-", "_") for walk in WALKS}

    assert {policy for policy in OverlapPolicy if policy is not OverlapPolicy.ALLOW} <= names


def test_every_rule_has_a_bug_that_is_hunted() -> None:
    rules = {f"P{number}" for number in range(1, 21)}

    assert {one.id.rstrip("b") for one in MUTATIONS} >= rules
    assert len(MUTATIONS) >= 30


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutation", QUICK, ids=[mutation.id for mutation in QUICK])
def test_a_bug_is_found_among_all_histories_of_a_small_world(mutation: Mutation) -> None:
    assert hunted(mutation) is not None


def test_a_further_bound_has_more_states() -> None:
    walk = walk_of("key")

    assert explored(walk, CALM).states < explored(walk, replace(CALM, switches=1)).states
    assert explored(walk, CALM).states < explored(walk, CRASH).states


def test_what_a_budget_ends_is_not_whole() -> None:
    assert not explored(walk_of("key"), CALM, budget=10).is_whole


def test_the_same_walk_has_the_same_states_each_time() -> None:
    walk = walk_of("create")

    first, second = explored(walk, CALM), explored(walk, CALM)

    assert (first.states, first.steps, first.ends) == (second.states, second.steps, second.ends)


# Two who each make three port calls, of which nobody else sees the order: what is counted by hand.


def _two(world: MemoryWorld, does: Sequence[str]) -> Sequence[Cast]:
    def reads(ports: Ports, hands: Hands) -> None:
        for _ in does:
            ports.executions.of_owner("nobody", before=None, limit=1)  # type: ignore[arg-type]

    return [Cast(name=name, kind=Kind.API, does=reads) for name in ("a", "b")]


def _explored(calls: int, bound: Bound) -> Explorer:
    world = a_world(START)
    acts = Scene(
        world=world,
        begins=_two(world, ["call"] * calls),
        comes=(),
        receives=lambda _: pytest.fail("nothing is sent"),
        until=START,
        frozen_for=[timedelta(seconds=40)],
    )
    explorer = Explorer(acts, bound, lambda _: iter(()))
    explorer.run()
    return explorer


def test_two_actors_of_three_calls_are_in_sixteen_states() -> None:
    found = _explored(3, Bound(strikes=0, of=frozenset())).found

    # Each has made none, one, two or three of its calls.
    assert found.states == 4 * 4
    assert found.ends == 1


def test_a_crash_is_enumerated_before_every_call() -> None:
    found = _explored(3, Bound(strikes=1, of=frozenset({Strike.CRASH}))).found

    # With nobody dead, and with one dead and the other anywhere: when both are gone it is one.
    assert found.states == 4 * 4 + 4 + 4 - 1


def test_without_switches_one_ends_before_the_other_goes_on() -> None:
    found = _explored(3, Bound(strikes=0, of=frozenset(), switches=0)).found

    assert found.states < 4 * 4
    assert found.ends == 1


def test_an_actor_that_breaks_is_told_with_its_schedule() -> None:
    world = a_world(START)

    def breaks(ports: Ports, hands: Hands) -> None:
        ports.executions.of_owner("nobody", before=None, limit=1)  # type: ignore[arg-type]
        raise ZeroDivisionError

    acts = Scene(
        world=world,
        begins=[Cast(name="a", kind=Kind.API, does=breaks)],
        comes=(),
        receives=lambda _: pytest.fail("nothing is sent"),
        until=START,
        frozen_for=[],
    )
    found = Explorer(acts, CALM, lambda _: iter(())).run()

    (broken,) = found.broken
    assert "nothing breaks: a: ZeroDivisionError()" in broken.says
    assert "executions.of_owner" in str(broken.steps[-1])
    assert not found.is_whole


def test_a_call_that_is_not_answered_has_taken_effect_or_not() -> None:
    told: list[bool] = []
    world = a_world(START)

    def asks(ports: Ports, hands: Hands) -> None:
        try:
            ports.queue.waiting("default")
        except Unavailable:
            told.append(True)

    acts = Scene(
        world=world,
        begins=[Cast(name="a", kind=Kind.API, does=asks)],
        comes=(),
        receives=lambda _: pytest.fail("nothing is sent"),
        until=START,
        frozen_for=[],
    )
    of = frozenset({Strike.UNAVAILABLE, Strike.FATE_UNKNOWN})
    Explorer(acts, Bound(strikes=1, of=of), lambda _: iter(())).run()

    assert len(told) == 2


def test_the_walks_of_which_every_crash_is_played_exist() -> None:
    assert {walk.name for walk in WALKS} >= CHEAP


def test_a_scene_begins_with_a_job_and_no_message_is_lost_in_making_it() -> None:
    begun = scene(walk_of("far-retry"))

    assert len(begun.world.queue) == 1
