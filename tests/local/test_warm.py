"""What does not answer when it is first called is named, and no trace is shown."""

import socket
from collections.abc import Iterator

import pytest

from lamplighter.local import deploy, warm
from lamplighter.local.deploy import Cloud
from lamplighter.local.errors import CannotRun
from lamplighter.local.gateway import Target


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where connections are taken, and nothing is said."""
    monkeypatch.setattr(deploy, "PATIENCE_S", 0.2)
    monkeypatch.setattr(warm, "PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_function_that_does_not_answer_is_named(silent: str) -> None:
    with pytest.raises(CannotRun, match=r"^worker did not answer within .* \(ReadTimeoutError\)$"):
        warm._invoke(Cloud(silent), "worker")


def test_an_api_that_does_not_answer_is_named(silent: str) -> None:
    with pytest.raises(CannotRun, match=r"^the API did not answer within .* \(ReadTimeout\)$"):
        warm._ask_health(Target(url=silent, host="api"))
