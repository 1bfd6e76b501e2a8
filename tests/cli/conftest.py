"""The command line on an API in this process, on ports in memory."""

from dataclasses import dataclass, field

import httpx
import pytest
from typer.testing import CliRunner, Result

from lamplighter.cli.main import app
from lamplighter.cli.surroundings import Surroundings
from lamplighter.memory import MemoryWorld
from tests.support.api import caller, event

URL = "http://api.test"


@dataclass(kw_only=True)
class Terminal:
    """Somebody who types; the token is the owner's name."""

    world: MemoryWorld
    scope: str = ""
    requests: list[str] = field(default_factory=list)

    def type(
        self, *args: str, owner: str = "acme", zone: str = "UTC", typed: bytes | None = None
    ) -> Result:
        """Run a command; `typed` is its standard input."""
        surroundings = Surroundings(
            transport=httpx.MockTransport(self._answer), now=self.world.clock.now
        )
        environment = {"LAMPLIGHTER_TOKEN": owner, "LAMPLIGHTER_URL": URL, "TZ": zone}
        return CliRunner().invoke(app, args, obj=surroundings, env=environment, input=typed)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(f"{request.method} {request.url.path}")
        if request.url.host != "api.test":
            version_id = self.world.payloads.upload(
                str(request.url), dict(request.headers), request.content
            )
            return httpx.Response(200, headers={"x-amz-version-id": version_id})
        owner = request.headers["authorization"].removeprefix("Bearer ")
        answer = caller(self.world).send(
            event(
                request.method,
                request.url.path,
                query=request.url.query.decode(),
                body=request.content.decode() or None,
                headers=dict(request.headers),
                claims={"sub": owner, "scope": self.scope},
            )
        )
        return httpx.Response(answer.status, headers=dict(answer.headers), text=answer.text)


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(shards=4, partitions=1)


@pytest.fixture
def terminal(world: MemoryWorld) -> Terminal:
    return Terminal(world=world)
