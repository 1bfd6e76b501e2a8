"""A payload that a body cannot hold is uploaded by the client itself."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from lamplighter.client import payloads
from lamplighter.client.http import Client, NotReached, Refused
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import PAYLOAD_MAX_BYTES, PAYLOAD_REF_MAX_BYTES
from lamplighter.core.outcome import Outcome, Succeeded
from lamplighter.memory import MemoryWorld
from lamplighter.services.execute import Claimed
from lamplighter.sim.system import System
from tests.support.api import caller, event

API = "http://api.test"
LARGE = {"rows": "größer " * 10_000}
SMALL = {"rows": "größer"}
Fault = Callable[[httpx.Request], httpx.Response]


@dataclass(kw_only=True)
class Network:
    """An API and a bucket, on ports in memory; `faults` meet the next uploads."""

    world: MemoryWorld
    requests: list[httpx.Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return self._api(request) if str(request.url).startswith(API) else self._bucket(request)

    @property
    def asked(self) -> list[str]:
        return [f"{request.method} {request.url.path}" for request in self.requests]

    @property
    def uploads(self) -> list[httpx.Request]:
        return [request for request in self.requests if request.method == "PUT"]

    def _api(self, request: httpx.Request) -> httpx.Response:
        answer = caller(self.world).send(
            event(
                request.method,
                request.url.path,
                query=request.url.query.decode(),
                body=request.content.decode() or None,
                headers=dict(request.headers),
                claims={"sub": request.headers["authorization"].removeprefix("Bearer ")},
            )
        )
        return httpx.Response(answer.status, headers=dict(answer.headers), text=answer.text)

    def _bucket(self, request: httpx.Request) -> httpx.Response:
        if self.faults:
            return self.faults.pop(0)(request)
        return self.take(request)

    def take(self, request: httpx.Request) -> httpx.Response:
        try:
            version_id = self.world.payloads.upload(
                str(request.url), dict(request.headers), request.content
            )
        except Rejected as refusal:
            return httpx.Response(int(str(refusal.value)))
        return httpx.Response(200, headers={"x-amz-version-id": version_id})


@pytest.fixture
def network() -> Network:
    return Network(world=MemoryWorld())


@pytest.fixture
def client(network: Network) -> Iterator[Client]:
    with Client(API, "acme", transport=httpx.MockTransport(network.answer)) as client:
        yield client


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payloads, "_BETWEEN_TRIES_S", 0)


def given(network: Network) -> list[str]:
    """The payloads that the handlers of what was created are given."""
    seen: list[str] = []

    def handler(claimed: Claimed) -> Outcome:
        seen.append(claimed.payload)
        return Succeeded(result="null")

    System(world=network.world, handler=handler).work()
    return seen


def test_a_large_payload_reaches_its_handler_as_it_was(client: Client, network: Network) -> None:
    made = client.create({"task": "echo", "payload": LARGE})

    assert network.asked[0] == "POST /v1/payloads"
    assert network.asked[2:] == ["POST /v1/jobs"]
    job = client.job(made.job["job_id"])
    assert job["payload_ref"]["size"] > PAYLOAD_MAX_BYTES
    (text,) = given(network)
    assert text == '{"rows":"' + "größer " * 10_000 + '"}'


def test_a_payload_that_fits_goes_with_the_job(client: Client, network: Network) -> None:
    # Escaped, as it travels, it is larger than what counts.
    fits = "ö" * (PAYLOAD_MAX_BYTES // 2 - 1)

    client.create({"task": "echo", "payload": fits})

    assert network.asked == ["POST /v1/jobs"]


def test_one_byte_more_does_not(client: Client, network: Network) -> None:
    client.create({"task": "echo", "payload": "ö" * (PAYLOAD_MAX_BYTES // 2 - 1) + "x"})

    assert network.asked[0] == "POST /v1/payloads"


def test_our_token_is_not_told_to_the_bucket(client: Client, network: Network) -> None:
    """S3 refuses a request with a token beside its signature; and it is nobody else's to see."""
    client.create({"task": "echo", "payload": LARGE})

    (upload,) = network.uploads
    assert urlsplit(str(upload.url)).hostname == "payloads.invalid"
    assert "authorization" not in upload.headers
    assert "acme" not in str(upload.headers)
    assert upload.headers["content-length"] == str(len(upload.content))


def test_the_same_key_makes_one_job_though_the_payload_goes_up_twice(
    client: Client, network: Network
) -> None:
    body = {"task": "echo", "payload": LARGE}

    first, again = client.create(body, key="k"), client.create(body, key="k")

    assert again.is_replayed
    assert again.job == first.job
    assert len(given(network)) == 1


@pytest.mark.parametrize("status", [500, 503])
def test_a_bucket_that_is_busy_is_asked_again(
    client: Client, network: Network, status: int
) -> None:
    network.faults += [lambda _: httpx.Response(status)] * 2

    client.create({"task": "echo", "payload": LARGE})

    assert len(network.uploads) == 3
    assert len(given(network)) == 1


def test_an_upload_whose_answer_was_lost_is_found(client: Client, network: Network) -> None:
    def lose(request: httpx.Request) -> httpx.Response:
        network.take(request)
        raise httpx.ReadTimeout("")

    network.faults.append(lose)

    client.create({"task": "echo", "payload": LARGE})

    assert len(network.uploads) == 2
    assert len(given(network)) == 1


def test_an_upload_that_nobody_answers_ends_it_before_there_is_a_job(
    client: Client, network: Network
) -> None:
    def silent(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    network.faults += [silent] * 3

    with pytest.raises(NotReached, match=r"no answer from payloads\.invalid: refused"):
        client.create({"task": "echo", "payload": LARGE})

    assert "POST /v1/jobs" not in network.asked


def test_an_upload_that_is_refused_says_so(client: Client, network: Network) -> None:
    network.faults.append(lambda _: httpx.Response(403))

    with pytest.raises(Refused, match="the upload: 403 Forbidden"):
        client.create({"task": "echo", "payload": LARGE})


def test_a_payload_that_is_too_large_for_the_bucket_too_is_refused_by_the_api(
    client: Client, network: Network
) -> None:
    with pytest.raises(Refused, match="size: not in 1"):
        client.create({"task": "echo", "payload": "x" * PAYLOAD_REF_MAX_BYTES})

    assert network.uploads == []


@pytest.mark.parametrize("odd", [float("nan"), "\ud800"])
def test_what_json_has_no_text_for_is_not_uploaded(
    client: Client, network: Network, odd: object
) -> None:
    with pytest.raises(Refused, match=r"^payload: "):
        client.create({"task": "echo", "payload": ["x" * PAYLOAD_MAX_BYTES, odd]})

    assert network.requests == []


def test_large_ones_of_a_batch_are_uploaded_one_by_one(client: Client, network: Network) -> None:
    bodies: list[dict[str, Any]] = [
        {"task": "echo", "payload": SMALL},
        {"task": "echo", "payload": LARGE},
        {"task": "echo"},
        {"task": "echo", "payload": [LARGE]},
    ]

    answers = client.create_many(bodies)

    assert [answer["status"] for answer in answers] == [201] * 4
    assert len(network.uploads) == 2
    assert sorted(len(text) for text in given(network)) == [2, 17, 70011, 70013]


def test_a_payload_may_be_uploaded_by_hand_and_shared_by_jobs(
    client: Client, network: Network
) -> None:
    ref = client.upload(b"[1,2]")

    for _ in range(2):
        client.create({"task": "echo", "payload_ref": ref})

    assert given(network) == ["[1,2]", "[1,2]"]


def test_a_large_payload_of_a_change_is_uploaded_too(client: Client, network: Network) -> None:
    made = client.create({"task": "echo", "payload": SMALL, "run_at": "2027-01-01T00:00:00Z"})

    client.update(made.job["job_id"], {"payload": LARGE}, version=1)
    client.update(made.job["job_id"], {"run_at": "2020-01-01T00:00:00Z"}, version=2)

    (text,) = given(network)
    assert len(network.uploads) == 1
    assert text == '{"rows":"' + "größer " * 10_000 + '"}'


def test_a_body_that_has_no_place_for_a_reference_goes_as_it_is(
    client: Client, network: Network
) -> None:
    with pytest.raises(Refused, match="larger than 65536 bytes"):
        client.create({"type": "echo", "payload": LARGE})

    assert network.uploads == []
