"""Which layouts there are: a new one when the deployment says so, and none that is over."""

from datetime import datetime

from lamplighter.core.buckets import Minute, minute_of, start_of
from lamplighter.core.lease import Layout, Layouts
from lamplighter.core.limits import LAYOUT_AHEAD
from lamplighter.ports import Ports


def kept(ports: Ports) -> Layouts:
    """The layouts as they should be now.

    One change at a time: what a deployment asks for waits until the latest layout has begun.
    After a crash the next tick finds what is left to do; of two at once one changes them.
    """
    known = ports.layouts()
    wanted = _without_what_is_over(ports, _changed(ports, known))
    if wanted == known:
        return known
    return wanted if ports.control.revise_layouts(known, wanted) else ports.layouts(anew=True)


def _changed(ports: Ports, known: Layouts) -> Layouts:
    now, latest = ports.clock.now(), known.latest
    is_as_asked = (latest.shards, latest.partitions) == (ports.shards, ports.partitions)
    if is_as_asked or latest.effective_from > now:
        return known
    return known.changed(
        shards=ports.shards, partitions=ports.partitions, effective_from=begins_at(now)
    )


def begins_at(now: datetime) -> datetime:
    """The first minute in which a layout that is decided on now can be in force."""
    return start_of(Minute(minute_of(now + LAYOUT_AHEAD) + 1))


def _without_what_is_over(ports: Ports, known: Layouts) -> Layouts:
    """Without the oldest layout, once everything of it was dispatched and swept."""
    oldest = known.of[0]
    if oldest.ends_at is None or oldest.ends_at > ports.clock.now():
        return known
    return known.without_first() if _is_done(ports, oldest) else known


def _is_done(ports: Ports, layout: Layout) -> bool:
    works = [*layout.works()]
    known = ports.control.progress(works)
    return all(work in known and layout.is_over(known[work]) for work in works)
