"""What each lane can start in a second: derived from what it may run at once, or chosen."""

import json

import pytest

from infra.components.capacity import Capacity, capacities
from infra.components.queues import DEFAULT_LANES, Lane, Pollers
from infra.components.starts import starts_per_second, to_json
from lamplighter.core.forecast import Capacity as Told
from lamplighter.core.limits import FORECAST_PER_SECOND
from tests.infra.templates import Assembly


@pytest.mark.parametrize(
    ("lane", "capacity", "starts"),
    [
        pytest.param(Lane(name="a"), Capacity(), FORECAST_PER_SECOND, id="on demand"),
        pytest.param(Lane(name="a", queues=3), Capacity(), 300, id="three queues"),
        pytest.param(Lane(name="a"), Capacity(max_concurrency=2), 40, id="two batches at once"),
        pytest.param(
            Lane(name="a", queues=4), Capacity(max_concurrency=2), 160, id="of each of four queues"
        ),
        pytest.param(
            Lane(name="a", queues=4), Capacity(reserved_concurrency=6), 120, id="reserved, of all"
        ),
        pytest.param(
            Lane(name="a", pollers=Pollers(minimum=50, maximum=200)), Capacity(), 10_000, id="ready"
        ),
        pytest.param(
            Lane(name="a", pollers=Pollers(minimum=50, maximum=200)),
            Capacity(reserved_concurrency=100),
            2000,
            id="ready, but not allowed to",
        ),
    ],
)
def test_a_lane_starts_what_it_may_run_at_once_ten_a_batch_twice_a_second(
    lane: Lane, capacity: Capacity, starts: float
) -> None:
    assert starts_per_second(lane, capacity) == starts


def test_what_an_operator_chose_goes_before_what_is_derived() -> None:
    lanes = {lane.name: lane for lane in DEFAULT_LANES}
    shared = capacities(DEFAULT_LANES, 26)

    told = Told.from_json(to_json(lanes, shared, {"bulk": 7.5}))

    # Sixteen batches may be reserved; a spike from idle finds five.
    assert told.lanes == {"default": 100.0, "critical": 100.0, "bulk": 7.5}


@pytest.mark.parametrize(
    ("chosen", "named"),
    [
        ({"fast": 5}, "no lane 'fast'; there are default, critical, bulk"),
        ({"bulk": 0}, "of lane 'bulk': 0 is not over 0"),
        ({"bulk": 1e7}, "of lane 'bulk': 10000000.0 is not over 0, up to 1000000"),
        ({"bulk": "5"}, "of lane 'bulk': '5' is not a number"),
    ],
)
def test_what_cannot_be_is_refused_with_lane_and_value(
    chosen: dict[str, float], named: str
) -> None:
    lanes = {lane.name: lane for lane in DEFAULT_LANES}

    with pytest.raises(ValueError, match=named):
        to_json(lanes, capacities(DEFAULT_LANES, None), chosen)


def test_the_api_is_told_of_every_lane(assembly: Assembly) -> None:
    told = assembly.environment("ApiHandler/Function")["LAMPLIGHTER_CAPACITY"]

    assert json.loads(told).keys() == {lane.name for lane in DEFAULT_LANES}
