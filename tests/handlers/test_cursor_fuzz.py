"""Cursors that no list wrote: each is a 400 that names the field, or a page of one's own."""

import base64
from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lamplighter.api import cursors
from lamplighter.core.errors import Rejected
from lamplighter.memory import MemoryWorld, VirtualClock
from tests.support.api import Caller, caller
from tests.support.bounded import bounded
from tests.support.examples import examples
from tests.support.rows import T

LISTS = ("executions", "jobs", "jobs/{job}/executions", "jobs/{job}/ledger", "recovery")
_ANY = st.text(max_size=210) | st.text("AZaz09-_=+/ ", max_size=210)
_EDITS = st.tuples(st.sampled_from(["drop", "put", "swap"]), st.integers(0, 199), st.characters())


@cache
def listed() -> tuple[Caller, str, dict[str, str]]:
    """Somebody's API with a few jobs, somebody else's beside them, and a cursor of each list."""
    world = MemoryWorld(clock=VirtualClock(T))
    acme = caller(world)
    for one in (acme, acme.calling_as("eve")) * 2:
        one.create()
        one.create(rate="1 minute")
    job = acme.create(rate="1 minute")["job_id"]
    written = {
        path: acme.get(f"/v1/{path.format(job=job)}", limit="1").json.get("next_cursor")
        for path in LISTS
    }
    return acme, job, {path: cursor for path, cursor in written.items() if cursor}


def asked(path: str, cursor: str) -> None:
    """No cursor is worse than a 400, and none shows what is another's."""
    acme, job, _ = listed()

    with bounded():
        answer = acme.get(f"/v1/{path.format(job=job)}", cursor=cursor)

    if answer.status == 400:
        assert answer.fields == {"cursor"}
        return
    assert answer.status == 200
    owners = {one.get("owner", "acme") for one in answer.json.get("items", [])}
    assert owners <= {"acme"}


@settings(max_examples=examples(60))
@given(st.sampled_from(LISTS), _ANY)
def test_any_text_in_the_place_of_a_cursor(path: str, cursor: str) -> None:
    assume(cursor)
    asked(path, cursor)


@settings(max_examples=examples(60))
@given(st.sampled_from(["executions", "jobs", "jobs/{job}/executions"]), _EDITS)
def test_a_cursor_with_a_letter_of_another(path: str, edit: tuple[str, int, str]) -> None:
    _, _, written = listed()
    good, (how, at, letter) = written[path], edit
    at %= len(good)
    changed = {
        "drop": good[:at] + good[at + 1 :],
        "put": good[:at] + letter + good[at:],
        "swap": good[:at] + letter + good[at + 1 :],
    }[how]

    asked(path, changed)


@settings(max_examples=examples(60))
@given(
    st.sampled_from(["executions", "jobs", "recovery"]),
    st.sampled_from(["ex_", "job_", "one_", "", "ex_z"]),
    st.text("0123456789abcdefghjkmnpqrstvwxyz", max_size=30) | st.text(max_size=20),
)
def test_a_cursor_that_somebody_forged(path: str, prefix: str, body: str) -> None:
    """There is no secret in it: whoever reads the code can write one for any id."""
    forged = cursors.write(f"{prefix}{body}", ["acme", path, [], None, None, None, None])

    asked(path, forged)


@settings(max_examples=examples(100))
@given(st.text(max_size=60), st.text(max_size=60), st.binary(max_size=80))
def test_what_was_written_is_read_for_its_own_query_and_for_no_other(
    id: str, query: str, noise: bytes
) -> None:
    written = cursors.write(id, query)

    for cursor, of in [
        (written, f"{query}!"),
        (f"{written}=", query),
        (base64.urlsafe_b64encode(noise).decode(), query),
    ]:
        with pytest.raises(Rejected, match="cursor: "):
            cursors.read(cursor, of)
    if id.isascii() and len(written) <= 200:
        assert cursors.read(written, query) == id
