"""How far partition work was done, once its tables are as they were at an earlier instant."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from lamplighter.core.buckets import before
from lamplighter.core.lease import Backlog, Intent, Layout, Progress
from lamplighter.core.restoring import dispatched, swept

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
END = before(NOON)


def page(after: float, until: float) -> Intent:
    return Intent(
        after=before(NOON + after * MINUTE), until=before(NOON + until * MINUTE), decided_at=NOON
    )


def left(after: float, until: float) -> Backlog:
    start = before(NOON + after * MINUTE)
    return Backlog.between(start, before(NOON + until * MINUTE), now=NOON, settled=start)


class TestDispatch:
    def test_goes_back_to_the_instant_and_forgets_the_page_beyond(self) -> None:
        found = dispatched(
            Progress(watermark=before(NOON + 4 * MINUTE)), page(4, 5), restored_to=NOON
        )

        assert found == (Progress(watermark=END), None)

    def test_that_had_not_come_so_far_stays_where_it_was_with_its_page(self) -> None:
        progress, intent = Progress(watermark=before(NOON - MINUTE)), page(-1, 2)

        assert dispatched(progress, intent, restored_to=NOON) == (progress, intent)

    def test_keeps_the_backlog_that_it_had_and_that_alone(self) -> None:
        """What it had left behind by then was never dispatched."""
        progress = Progress(watermark=before(NOON + 4 * MINUTE), backlog=left(-60, 3))

        back, intent = dispatched(progress, page(-60, -59), restored_to=NOON)

        assert back == Progress(watermark=END, backlog=replace(left(-60, 3), until=END))
        assert intent == page(-60, -59)

    def test_has_no_backlog_of_what_is_beyond_or_was_drained(self) -> None:
        ahead = Progress(watermark=before(NOON + 4 * MINUTE), backlog=left(1, 3))
        drained = replace(ahead, backlog=replace(left(-60, -30), after=before(NOON - 30 * MINUTE)))

        assert dispatched(ahead, None, restored_to=NOON) == (Progress(watermark=END), None)
        assert dispatched(drained, None, restored_to=NOON) == (Progress(watermark=END), None)

    def test_is_as_it_is_when_it_is_taken_back_again(self) -> None:
        progress = Progress(watermark=before(NOON + 4 * MINUTE), backlog=left(-60, 3))

        once, intent = dispatched(progress, page(-60, -59), restored_to=NOON)

        assert dispatched(once, intent, restored_to=NOON) == (once, intent)


class TestSweep:
    LAYOUT = Layout(shards=4, partitions=1, effective_from=NOON - 30 * MINUTE)

    def test_of_the_oldest_layout_goes_back_beyond_its_beginning(self) -> None:
        """Those before it are forgotten, and it is no narrower (P7)."""
        found = swept(
            Progress(watermark=END), self.LAYOUT, back_to=NOON - 60 * MINUTE, is_oldest=True
        )

        assert found.watermark == before(NOON - 60 * MINUTE)

    def test_of_a_later_one_goes_back_to_its_beginning(self) -> None:
        found = swept(
            Progress(watermark=END), self.LAYOUT, back_to=NOON - 60 * MINUTE, is_oldest=False
        )

        assert found.watermark == before(NOON - 30 * MINUTE)

    def test_that_lagged_stays_behind(self) -> None:
        lagging = Progress(watermark=before(NOON - 600 * MINUTE))

        assert swept(lagging, self.LAYOUT, back_to=NOON, is_oldest=True) == lagging

    def test_that_looked_ahead_of_its_walk_goes_back_to_the_walk(self) -> None:
        """P7: the look has left things to it."""
        walked = before(NOON - 600 * MINUTE)
        looking = Progress(watermark=END, backlog=replace(left(-600, 0), until=END))

        found = swept(looking, self.LAYOUT, back_to=NOON, is_oldest=True)

        assert found == Progress(watermark=walked)
