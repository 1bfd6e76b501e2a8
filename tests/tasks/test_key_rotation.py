"""Keys of webhooks are rotated while requests go out, and no receiver refuses one."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from lamplighter.aws.signing import FRESH_S, SecretKeys
from lamplighter.core.webhooks import signed
from lamplighter.memory import MemoryWorld

PAGE = Path(__file__).parents[2] / "docs" / "targets.md"
OLD, NEW = f"whsec_{'b2xk' * 8}", f"whsec_{'bmV3' * 8}"
BODY = b'{"n":1}'
MINUTE = timedelta(minutes=1)
FRESH = timedelta(seconds=FRESH_S)

Receiver = Callable[..., bool]


@dataclass
class Secret:
    """One secret of Secrets Manager, which an operator edits."""

    text: str

    def get_secret_value(self, *, SecretId: str) -> Mapping[str, Any]:  # noqa: N803 -- AWS's
        return {"ARN": SecretId, "SecretString": self.text}


@dataclass(kw_only=True)
class Stand:
    """Workers that began at different times, and a receiver that knows some of the keys."""

    world: MemoryWorld
    is_ours: Receiver
    secret: Secret = field(default_factory=lambda: Secret(OLD))
    knows: tuple[str, ...] = (OLD,)
    workers: list[SecretKeys] = field(default_factory=list)
    delivered: int = 0
    refused: int = 0

    def start_worker(self) -> None:
        self.workers.append(
            SecretKeys(
                lambda: self.secret,
                arn="arn:x",
                clock=self.world.clock,
                telemetry=self.world.counts,
            )
        )

    def deliver_for(self, span: timedelta) -> None:
        """A request of each worker in every minute."""
        until = self.world.now() + span
        while self.world.now() < until:
            for worker in self.workers:
                now = self.world.now()
                headers = signed(worker(), id="ex_1", timestamp=now, body=BODY)
                taken = any(
                    self.is_ours(headers, BODY, key, now=now.timestamp()) for key in self.knows
                )
                self.delivered += taken
                self.refused += not taken
            self.world.pass_time(MINUTE)


@pytest.fixture(scope="module")
def is_ours() -> Receiver:
    """The receiver that the page shows."""
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    shown: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), shown)
    found: Receiver = shown["is_ours"]
    return found


@pytest.fixture
def stand(is_ours: Receiver) -> Stand:
    made = Stand(world=MemoryWorld(), is_ours=is_ours)
    for _ in range(3):
        made.start_worker()
        made.deliver_for(2 * MINUTE)
    assert made.refused == 0
    return made


def test_rotated_as_the_page_says_nothing_is_refused(stand: Stand) -> None:
    """Both keys, five minutes, the receiver, the new key alone: with caches of every age."""
    stand.secret.text = f"{NEW} {OLD}"
    stand.deliver_for(FRESH)
    stand.knows = (NEW,)
    stand.deliver_for(FRESH)
    stand.secret.text = NEW
    stand.start_worker()
    stand.deliver_for(2 * FRESH)

    assert stand.refused == 0
    assert stand.delivered > 60


def test_a_receiver_that_takes_both_may_change_whenever_it_likes(stand: Stand) -> None:
    stand.knows = (OLD, NEW)
    stand.secret.text = f"{NEW} {OLD}"
    stand.deliver_for(2 * MINUTE)
    stand.secret.text = NEW
    stand.deliver_for(2 * FRESH)

    assert stand.refused == 0


def test_a_rotation_in_one_step_is_refused_somewhere(stand: Stand) -> None:
    """So the two above say something: a receiver and a worker's cache never change together."""
    stand.secret.text, stand.knows = NEW, (NEW,)
    stand.deliver_for(FRESH)

    assert stand.refused > 0


def test_the_page_says_how_long_to_wait() -> None:
    said = PAGE.read_text(encoding="utf-8").split("### Rotating the key")[1].split("\n### ")[0]

    assert "five minutes" in said
    assert timedelta(minutes=5) == FRESH
