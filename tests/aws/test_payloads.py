"""S3 that is slow, silent or forbids: what the adapter makes of it, and what it asks for."""

import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    ReadTimeoutError,
    ResponseStreamingError,
)
from botocore.response import StreamingBody
from moto import mock_aws

from lamplighter.aws.failures import CallRefused
from lamplighter.aws.payloads import S3_CONFIG, S3Payloads
from lamplighter.aws.wiring import CLIENT_CONFIG
from lamplighter.core.errors import Unavailable
from lamplighter.core.model import PayloadRef
from lamplighter.memory import VirtualClock
from lamplighter.ports import Stored
from tests.support.buckets import create_bucket, delete_bucket
from tests.support.faulty import Faulty, answers, never, refusal
from tests.support.rows import T

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONTENT = b"0123456789"
SOON = timedelta(seconds=15)
URL = "https://s3.us-east-1.amazonaws.com"


@dataclass(kw_only=True)
class Bench:
    """The adapter, and the client underneath."""

    s3: Faulty
    client: "S3Client"
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(T))
    connected: int = 0

    @property
    def payloads(self) -> S3Payloads:
        return S3Payloads(self._connect, bucket="bench-payloads", clock=self.clock)

    def _connect(self) -> "S3Client":
        self.connected += 1
        return cast("S3Client", self.s3)

    def put(self) -> PayloadRef:
        made = self.client.put_object(Bucket="bench-payloads", Key="k", Body=CONTENT)
        return PayloadRef(
            key="k",
            version_id=made["VersionId"],
            sha256=sha256(CONTENT).hexdigest(),
            size=len(CONTENT),
        )


@pytest.fixture(scope="module")
def client() -> "Iterator[S3Client]":
    with mock_aws():
        session = boto3.Session(region_name="us-east-1")
        yield session.client("s3", config=CLIENT_CONFIG.merge(S3_CONFIG))


@pytest.fixture
def bench(client: "S3Client") -> Iterator[Bench]:
    create_bucket(client, "bench-payloads")
    yield Bench(s3=Faulty(client), client=client)
    delete_bucket(client, "bench-payloads")


NO_ANSWER = [
    refusal("SlowDown", status=503),
    refusal("InternalError", status=500),
    EndpointConnectionError(endpoint_url=URL),
    ReadTimeoutError(endpoint_url=URL),
]


@pytest.mark.parametrize("error", NO_ANSWER, ids=str)
def test_no_answer_is_unavailable(bench: Bench, error: Exception) -> None:
    ref = bench.put()
    bench.s3.next("get_object", never(error))
    bench.s3.next("head_object", never(error))

    with pytest.raises(Unavailable):
        bench.payloads.fetch(ref, within=SOON)
    with pytest.raises(Unavailable):
        bench.payloads.look("k", None)


def test_a_worker_that_may_not_read_waits_until_it_may(bench: Bench) -> None:
    """A job is not to be given up for a policy that somebody will put right."""
    ref = bench.put()
    bench.s3.next("get_object", never(refusal("AccessDenied", status=403)))

    with pytest.raises(Unavailable, match="AccessDenied"):
        bench.payloads.fetch(ref, within=SOON)

    assert bench.payloads.fetch(ref, within=SOON) == CONTENT


def test_an_api_that_may_not_look_is_a_bug_and_not_a_missing_payload(bench: Bench) -> None:
    bench.s3.next("head_object", never(refusal("403", status=403)))

    with pytest.raises(CallRefused):
        bench.payloads.look("k", None)


def test_a_version_that_s3_would_not_have_made_is_not_there(bench: Bench) -> None:
    """It answers 400 to its HEAD, which without a version means something else."""
    bench.s3.next("head_object", never(refusal("400", status=400)))
    assert bench.payloads.look("k", "nonsense") is None

    bench.s3.next("head_object", never(refusal("400", status=400)))
    with pytest.raises(CallRefused):
        bench.payloads.look("k", None)


@pytest.mark.parametrize("code", ["404", "405", "NoSuchKey", "NoSuchVersion"])
def test_what_is_missing_is_missing_by_any_of_its_names(bench: Bench, code: str) -> None:
    missing = refusal(code, status=404)
    bench.s3.next("head_object", never(missing))
    bench.s3.next("get_object", never(missing))

    assert bench.payloads.look("k", "v") is None
    assert bench.payloads.fetch(bench.put(), within=SOON) is None


class Trickle(io.BytesIO):
    """A body that takes a while for each piece."""

    def __init__(self, clock: VirtualClock, *, piece: timedelta) -> None:
        super().__init__(CONTENT)
        self._clock, self._piece = clock, piece

    def read(self, size: int | None = -1, /) -> bytes:
        self._clock.sleep(self._piece)
        return super().read(min(2, size or 2))


@pytest.mark.parametrize(("piece_s", "is_in_time"), [(1, True), (8, False)])
def test_bytes_that_do_not_come_in_time_are_given_up_for_now(
    bench: Bench, piece_s: int, is_in_time: bool
) -> None:
    """Each piece is in time for the socket; all of them would outlast the lease."""
    ref = bench.put()
    body = Trickle(bench.clock, piece=timedelta(seconds=piece_s))
    bench.s3.next("get_object", answers({"Body": StreamingBody(body, len(CONTENT))}))

    if is_in_time:
        assert bench.payloads.fetch(ref, within=SOON) == CONTENT
    else:
        with pytest.raises(Unavailable, match="too slow"):
            bench.payloads.fetch(ref, within=SOON)


class Broken(io.BytesIO):
    def read(self, size: int | None = -1, /) -> bytes:
        raise ResponseStreamingError(error="connection broken")


def test_a_connection_that_breaks_half_way_is_unavailable(bench: Bench) -> None:
    ref = bench.put()
    bench.s3.next("get_object", answers({"Body": StreamingBody(Broken(), 10)}))

    with pytest.raises(Unavailable):
        bench.payloads.fetch(ref, within=SOON)


@pytest.mark.parametrize(
    ("checksum", "digest"),
    [
        ("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=", sha256(b"").hexdigest()),
        # Of an upload in parts: of the parts' digests, not of the bytes.
        ("47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=-3", None),
        ("AAAA", None),
        (None, None),
    ],
)
def test_only_the_digest_of_the_whole_object_counts(
    bench: Bench, checksum: str | None, digest: str | None
) -> None:
    answer: dict[str, Any] = {"VersionId": "v", "ContentLength": 0}
    said = {"ChecksumSHA256": checksum} if checksum else {}
    bench.s3.next("head_object", answers({**answer, **said}))

    assert bench.payloads.look("k", None) == Stored(version_id="v", size=0, sha256=digest)


def test_the_client_is_made_once_and_not_before_it_is_needed(bench: Bench) -> None:
    payloads, ref = bench.payloads, bench.put()
    assert bench.connected == 0

    payloads.fetch(ref, within=SOON)
    payloads.look("k", None)

    assert bench.connected == 1


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east-1", "stack-payloads.s3.amazonaws.com"),
        ("eu-central-1", "stack-payloads.s3.eu-central-1.amazonaws.com"),
    ],
)
def test_an_upload_is_signed_for_these_bytes_once_and_goes_to_the_buckets_own_region(
    region: str, host: str
) -> None:
    session = boto3.Session(
        aws_access_key_id="a", aws_secret_access_key="b", aws_session_token="c", region_name=region
    )
    client = session.client("s3", config=CLIENT_CONFIG.merge(S3_CONFIG))
    payloads = S3Payloads(lambda: client, bucket="stack-payloads", clock=VirtualClock(T))

    upload = payloads.offer(
        "prefix/name",
        size=10,
        sha256=sha256(CONTENT).hexdigest(),
        content_type="application/json",
        open_for=timedelta(minutes=15),
    )

    url = urlsplit(upload.url)
    query = parse_qs(url.query)
    assert (upload.method, url.scheme, url.netloc) == ("PUT", "https", host)
    assert url.path == "/prefix/name"
    assert query["X-Amz-Expires"] == ["900"]
    assert set(query["X-Amz-SignedHeaders"][0].split(";")) == {
        "host",
        *(name.lower() for name in upload.headers),
    }
    assert upload.headers == {
        "Content-Length": "10",
        "Content-Type": "application/json",
        "If-None-Match": "*",
        "x-amz-checksum-sha256": "hNiYd/DUBB77a/kaFvAkjy/Vc+avBcGflr7bn4gveII=",
    }


def test_an_error_of_s3_keeps_its_name(bench: Bench) -> None:
    bench.s3.next("get_object", never(refusal("NoSuchBucket", status=404)))

    with pytest.raises(CallRefused, match="NoSuchBucket") as raised:
        bench.payloads.fetch(bench.put(), within=SOON)

    assert isinstance(raised.value.__cause__, ClientError)
