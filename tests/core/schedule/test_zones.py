"""The pinned zone database: only it is read, and every change in it is found."""

import struct
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from zipfile import Path as ZipPath
from zipfile import ZipFile
from zoneinfo import ZoneInfo, reset_tzpath

import pytest

from lamplighter.core.errors import Rejected
from lamplighter.core.schedule import PINNED, TZDB_VERSION, Schedule, ZoneDatabase, parse
from tests.core.schedule import oracle

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BEFORE_1970 = datetime(1969, 1, 1, tzinfo=UTC)
END = datetime(2200, 1, 1, tzinfo=UTC)

NOT_ZONES = [
    *("", " ", "a" * 300, "../../etc/passwd", "/etc/passwd", "__init__.py", "Europe/Paris\0"),
    *("tzone://Microsoft/Custom", "America", "Europe/", "europe/paris", "GMT+5", "Z", "utc"),
    *("localtime", "posixrules", "right/UTC", "posix/UTC", "Factory", "Mars/Base", "zones"),
    *("tzdata.zi", "EST5EDT,M3.2.0,M11.1.0", None, 5, b"UTC", ["UTC"]),
]


@cache
def _recorded_changes(zone: str) -> tuple[datetime, ...]:
    """The changes of offset that the zone's file lists, read from its bytes (RFC 9636)."""
    data = resources.files("tzdata").joinpath("zoneinfo", *zone.split("/")).read_bytes()
    skipped = _block_length(data[20:44], time_size=4)
    counts = _counts(data[44 + skipped + 20 : 44 + skipped + 44])
    body = data[44 + skipped + 44 :]
    times = struct.unpack(f">{counts[3]}q", body[: counts[3] * 8])
    kinds = body[counts[3] * 8 : counts[3] * 9]
    offsets = [
        struct.unpack(">l", body[counts[3] * 9 + 6 * kind :][:4])[0] for kind in range(counts[4])
    ]
    return tuple(_real_changes(times, [offsets[kind] for kind in kinds], offsets[0]))


def _counts(header: bytes) -> tuple[int, ...]:
    return tuple(int(count) for count in struct.unpack(">6l", header))


def _block_length(header: bytes, time_size: int) -> int:
    isut, isstd, leap, times, types, chars = _counts(header)
    return times * (time_size + 1) + types * 6 + chars + leap * (time_size + 4) + isstd + isut


def _real_changes(times: tuple[int, ...], offsets: list[int], first: int) -> Iterator[datetime]:
    for time, offset in zip(times, offsets, strict=True):
        if offset != first and time > -(2**33):
            yield EPOCH + timedelta(seconds=time)
        first = offset


@pytest.mark.parametrize("initial", sorted({name[0] for name in PINNED.names}))
def test_every_recorded_change_is_found(initial: str) -> None:
    for name in sorted(name for name in PINNED.names if name.startswith(initial)):
        recorded = [at for at in _recorded_changes(name) if at > BEFORE_1970]
        horizon = max(recorded, default=EPOCH) + timedelta(seconds=1)

        found = [change.at for change in PINNED.zone(name).changes(BEFORE_1970, horizon)]

        assert found == recorded, name


def test_changes_lie_further_apart_than_the_search_strides() -> None:
    gaps = [
        (later - earlier, name)
        for name in PINNED.names
        for earlier, later in pairwise(_recorded_changes(name))
        if earlier > BEFORE_1970
    ]

    assert min(gaps)[0] > timedelta(days=6)


@pytest.mark.parametrize("name", ["Europe/Berlin", "Africa/Casablanca", "Asia/Gaza", "UTC"])
def test_spans_cover_a_window_in_both_directions(name: str) -> None:
    zone, rules = PINNED.zone(name), oracle.rules_of(name)
    start, end = datetime(2030, 1, 1, tzinfo=UTC), datetime(2033, 1, 1, tzinfo=UTC)

    up = list(zone.spans(start, end))
    down = list(zone.spans(start, end, descending=True))

    assert down == up[::-1]
    assert up[0].start <= start
    assert up[-1].end >= end
    for earlier, later in pairwise(up):
        assert earlier.end == later.start
        assert (earlier.offset, earlier.after) == (later.before, later.offset)
    for span in up:
        middle = span.start + (span.end - span.start) / 2
        assert middle.astimezone(rules).utcoffset() == span.offset


def test_it_is_the_release_that_the_package_names() -> None:
    assert PINNED.version == TZDB_VERSION
    assert f'IANA_VERSION = "{TZDB_VERSION}"' in (
        resources.files("tzdata").joinpath("__init__.py").read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("name", NOT_ZONES, ids=repr)
def test_what_is_no_zone_is_refused_by_its_field(name: object) -> None:
    with pytest.raises(Rejected) as refused:
        parse(cron="0 0 * * *", timezone=name)

    assert refused.value.field == "timezone"


def test_a_misspelt_zone_is_told_the_right_spelling() -> None:
    with pytest.raises(Rejected, match="Europe/Paris is"):
        parse(cron="0 0 * * *", timezone="europe/paris")


@pytest.fixture
def _machine_takes_berlin_for_tokyo(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "Europe").mkdir()
    tokyo = resources.files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes()
    (tmp_path / "Europe" / "Berlin").write_bytes(tokyo)
    reset_tzpath([str(tmp_path)])
    yield
    reset_tzpath()


@pytest.mark.usefixtures("_machine_takes_berlin_for_tokyo")
def test_the_zones_of_the_machine_are_not_read() -> None:
    winter = datetime(2026, 1, 1, tzinfo=UTC)
    assert winter.astimezone(ZoneInfo.no_cache("Europe/Berlin")).utcoffset() == timedelta(hours=9)

    fresh = ZoneDatabase(resources.files("tzdata"))

    assert fresh.zone("Europe/Berlin").offset_at(winter) == timedelta(hours=1)


def test_a_folder_that_is_no_tzdata_package_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("")

    with pytest.raises(ValueError, match="names no release"):
        _ = ZoneDatabase(tmp_path).version


def test_a_schedule_can_be_read_by_another_release_inside_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "tzdata-2099.26-py2.py3-none-any.whl"
    tokyo = resources.files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes()
    with ZipFile(wheel, "w") as archive:
        archive.writestr("tzdata/__init__.py", 'IANA_VERSION = "2099z"')
        archive.writestr("tzdata/zones", "Europe/Berlin\n")
        archive.writestr("tzdata/zoneinfo/Europe/Berlin", tokyo)
    here = parse(cron="0 9 * * *", timezone="Europe/Berlin")
    after = datetime(2026, 1, 1, tzinfo=UTC)

    there = Schedule.from_record(here.to_record(), zones=ZoneDatabase(ZipPath(wheel, "tzdata/")))

    assert here.next(after) == datetime(2026, 1, 1, 8, tzinfo=UTC)
    assert there.next(after) == datetime(2026, 1, 2, 0, tzinfo=UTC)
    assert there.to_record()["tzdb"] == "2099z"
