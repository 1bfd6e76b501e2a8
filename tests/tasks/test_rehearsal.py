"""What users' tests of their tasks are given."""

from typing import Any

import pytest

from lamplighter import Context, WritesRefused
from lamplighter.core.errors import WriteRefusal
from lamplighter.testing import Rehearsal

PUT: dict[str, Any] = {"Put": {"TableName": "own", "Item": {"pk": {"S": "k"}}}}


def counting(ctx: Context) -> list[object]:
    begun_at = ctx.state
    ctx.checkpoint((begun_at or 0) + 1)
    return [ctx.attempt, begun_at, ctx.once("pay", lambda: ctx.attempt)]


def test_each_context_is_the_next_try_of_one_execution() -> None:
    rehearsal = Rehearsal()

    told = [counting(rehearsal.context()) for _ in range(3)]

    assert told == [[1, None, 1], [2, 1, 1], [3, 2, 1]]
    assert not rehearsal.is_complete


def test_what_a_task_completes_is_there_to_look_at() -> None:
    rehearsal = Rehearsal(owner="ada")
    ctx = rehearsal.context()

    ctx.complete_with([PUT], result={"paid": 1})

    assert (ctx.owner, rehearsal.committed) == ("ada", [PUT])
    assert (rehearsal.is_complete, rehearsal.result) == (True, '{"paid":1}')
    with pytest.raises(LookupError, match="complete"):
        rehearsal.context()


def test_a_refusal_can_be_rehearsed() -> None:
    rehearsal = Rehearsal()
    ctx = rehearsal.context()
    rehearsal.refuse(WriteRefusal(index=0, code="ConditionalCheckFailed"))
    with pytest.raises(WritesRefused, match="item 0: ConditionalCheckFailed"):
        ctx.complete_with([PUT])

    rehearsal.refuse()
    ctx.complete_with([PUT])

    assert rehearsal.committed == [PUT]
