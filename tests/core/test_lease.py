from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lamplighter.core.lease import Layout


@given(st.integers(1, 300), st.integers(1, 300))
def test_every_shard_belongs_to_exactly_one_partition(shards: int, partitions: int) -> None:
    assume(partitions <= shards)
    layout = Layout(
        shards=shards, partitions=partitions, effective_from=datetime(2026, 1, 1, tzinfo=UTC)
    )

    owned = [shard for partition in range(partitions) for shard in layout.shards_of(partition)]

    assert owned == [*range(shards)]
    for partition in range(partitions):
        assert {layout.partition_of(shard) for shard in layout.shards_of(partition)} == {partition}


@pytest.mark.parametrize(("shards", "partitions"), [(4, 5), (4, 0), (0, 0)])
def test_a_layout_with_an_empty_partition_cannot_be_made(shards: int, partitions: int) -> None:
    with pytest.raises(ValueError, match=f"{partitions} partitions of {shards} shards"):
        Layout(
            shards=shards, partitions=partitions, effective_from=datetime(2026, 1, 1, tzinfo=UTC)
        )
