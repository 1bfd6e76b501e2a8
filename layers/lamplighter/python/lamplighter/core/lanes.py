"""What a deployment says about its lanes beside how much runs in them: fairness, and aging."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from lamplighter.core.limits import PROMOTE_AFTER_RANGE

_FAIR: Final = "fair"
_PROMOTES_TO: Final = "promotes_to"
_PROMOTE_AFTER: Final = "promote_after_seconds"
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, kw_only=True)
class LaneRules:
    """Of one lane. Raises ValueError, with name and value."""

    fair: bool = False
    """Whether an owner who crowds the lane is passed over while others wait."""
    promotes_to: str | None = None
    """The lane in which what has waited here for too long gets another message."""
    promote_after: timedelta | None = None
    """Past its time, in whole seconds; with `promotes_to`, and only then."""

    def __post_init__(self) -> None:
        if (self.promotes_to is None) != (self.promote_after is None):
            raise ValueError(f"{_PROMOTES_TO} and {_PROMOTE_AFTER}: both or neither")
        low, high = PROMOTE_AFTER_RANGE
        if self.promote_after is not None and not low <= self.promote_after <= high:
            raise ValueError(
                f"{_PROMOTE_AFTER}: {self.promote_after.total_seconds():g} is not in "
                f"{low.total_seconds():g}–{high.total_seconds():g}: only the sweep sees what waits"
            )


Rules = Mapping[str, LaneRules]
"""By lane; one that is not named has none."""


def rules_to_json(rules: Rules) -> str:
    """As `rules_from_json` reads them; empty when no lane has any."""
    said = {
        lane: {
            name: value
            for name, value in (
                (_FAIR, one.fair or None),
                (_PROMOTES_TO, one.promotes_to),
                (_PROMOTE_AFTER, one.promote_after and one.promote_after // _SECOND),
            )
            if value is not None
        }
        for lane, one in rules.items()
        if one != LaneRules()
    }
    return json.dumps(said, separators=(",", ":")) if said else ""


def rules_from_json(text: str) -> Rules:
    """Raises ValueError for what is none."""
    said = json.loads(text)
    if not isinstance(said, dict):
        raise ValueError(f"{said!r} is not a JSON object")  # noqa: TRY004 -- one kind of error
    return {lane: _rules(lane, values) for lane, values in said.items()}


def _rules(lane: str, values: object) -> LaneRules:
    if not isinstance(values, dict):
        raise ValueError(f"lane {lane}: {values!r} is not a JSON object")  # noqa: TRY004 -- as above
    if unknown := values.keys() - {_FAIR, _PROMOTES_TO, _PROMOTE_AFTER}:
        raise ValueError(f"lane {lane}: unknown {', '.join(sorted(unknown))}")
    fair, to = values.get(_FAIR, False), values.get(_PROMOTES_TO)
    after = values.get(_PROMOTE_AFTER)
    # JSON's true is an int to Python.
    is_whole = after is None or type(after) is int
    if not (isinstance(fair, bool) and isinstance(to, str | None) and is_whole):
        raise ValueError(
            f"lane {lane}: {values!r}: {_FAIR} is true or false, the rest a lane and whole seconds"
        )
    try:
        return LaneRules(
            fair=fair,
            promotes_to=to,
            promote_after=None if after is None else timedelta(seconds=after),
        )
    except ValueError as error:
        raise ValueError(f"lane {lane}: {error}") from error
