"""Rules P1–P20: each holds in the history that it is for, and that history needs it."""

import pytest

from tests.simulation.amend_rules import AMEND_RULES
from tests.simulation.cancel_rules import CANCEL_RULES
from tests.simulation.chain_rules import CHAIN_RULES
from tests.simulation.rules import RULES, Rule

by_rule = pytest.mark.parametrize(
    "rule",
    [*RULES, *CHAIN_RULES, *CANCEL_RULES, *AMEND_RULES],
    ids=lambda rule: f"{rule.id} {rule.says}",
)


@by_rule
def test_the_history_keeps_every_promise(rule: Rule) -> None:
    assert [*rule.history()] == []


@by_rule
def test_the_history_breaks_a_promise_without_the_rule(rule: Rule) -> None:
    with rule.without():
        broken = [*rule.history()]

    assert broken
