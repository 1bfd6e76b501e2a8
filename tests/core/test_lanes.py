import json
from collections.abc import Callable
from datetime import timedelta

import pytest

from lamplighter.core.lanes import LaneRules, rules_from_json, rules_to_json

AGING = LaneRules(promotes_to="default", promote_after=timedelta(minutes=15))
FAIR = LaneRules(fair=True)


def test_rules_are_read_back_as_they_were_and_a_lane_without_any_is_left_out() -> None:
    said = rules_to_json({"bulk": AGING, "shared": FAIR, "default": LaneRules()})

    assert rules_from_json(said) == {"bulk": AGING, "shared": FAIR}
    assert json.loads(said)["bulk"] == {"promotes_to": "default", "promote_after_seconds": 900}


def test_nothing_is_told_of_lanes_that_have_no_rules() -> None:
    assert rules_to_json({"default": LaneRules()}) == ""
    assert rules_from_json("{}") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"\[\] is not a JSON object"),
        ('{"bulk": 1}', "lane bulk: 1 is not a JSON object"),
        ('{"bulk": {"colour": "red"}}', "lane bulk: unknown colour"),
        ('{"bulk": {"fair": 1}}', "fair is true or false"),
        ('{"bulk": {"promotes_to": 1, "promote_after_seconds": 900}}', "the rest a lane"),
        ('{"bulk": {"promotes_to": "x", "promote_after_seconds": true}}', "whole seconds"),
        ('{"bulk": {"promotes_to": "x"}}', "lane bulk: promotes_to and promote_after_seconds"),
    ],
)
def test_what_are_no_rules_is_refused_by_lane_and_value(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rules_from_json(text)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LaneRules(promote_after=timedelta(minutes=5)), "both or neither"),
        (
            lambda: LaneRules(promotes_to="default", promote_after=timedelta(seconds=149)),
            "promote_after_seconds: 149 is not in 150–86400: only the sweep sees what waits",
        ),
        (lambda: LaneRules(promotes_to="default", promote_after=timedelta(days=2)), "172800"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_by_value(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()
