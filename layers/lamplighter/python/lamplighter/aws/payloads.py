"""`ports.Payloads` on the stack's own S3 bucket."""

import base64
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from botocore.config import Config
from botocore.exceptions import ClientError

from lamplighter.aws.failures import code_of, translated
from lamplighter.core.errors import Unavailable
from lamplighter.core.model import PayloadRef
from lamplighter.ports import Clock, Stored, Upload

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef, HeadObjectOutputTypeDef

S3_CONFIG: Final = Config(
    signature_version="s3v4",
    # So that an upload goes to the bucket's own region: the address that all share sends a new
    # bucket's callers on to another host, for which they have no signature.
    s3={"addressing_style": "virtual"},
    # The digest that we ask for is the only one that matters, and we check it.
    request_checksum_calculation="when_required",
    response_checksum_validation="when_required",
)
"""What S3 needs beside what all clients have."""

_CHUNK_BYTES: Final = 256 * 1024
_SHA256_BYTES: Final = 32
# The latest may have been deleted; a version may be that deletion. A version's id that S3 would
# not have made is a bad request, and its answer to HEAD says no more.
_NOT_THERE: Final = frozenset({"404", "405", "NoSuchKey", "NoSuchVersion", "MethodNotAllowed"})
_NO_SUCH_VERSION: Final = frozenset({"400", "InvalidArgument"})
_FORBIDDEN: Final = frozenset({"403", "AccessDenied"})


class S3Payloads:
    """Objects by key and version. The client is made when it is first needed: few jobs do."""

    def __init__(self, connect: Callable[[], "S3Client"], *, bucket: str, clock: Clock) -> None:
        self._connect = connect
        self._connecting = threading.Lock()
        self._client: S3Client | None = None
        self._bucket = bucket
        self._clock = clock

    def offer(
        self, key: str, *, size: int, sha256: str, content_type: str, open_for: timedelta
    ) -> Upload:
        checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
        url = self._s3().generate_presigned_url(
            "put_object",
            Params={
                "Bucket": self._bucket,
                "Key": key,
                "ContentLength": size,
                "ContentType": content_type,
                "ChecksumSHA256": checksum,
                "IfNoneMatch": "*",
            },
            ExpiresIn=int(open_for.total_seconds()),
        )
        headers = {
            "Content-Length": str(size),
            "Content-Type": content_type,
            "If-None-Match": "*",
            "x-amz-checksum-sha256": checksum,
        }
        return Upload(method="PUT", url=url, headers=headers)

    def look(self, key: str, version_id: str | None) -> Stored | None:
        missing = _NOT_THERE if version_id is None else _NOT_THERE | _NO_SUCH_VERSION
        try:
            with translated("head_object"):
                found = self._head(key, version_id, missing)
        except _Missing:
            return None
        return Stored(
            version_id=found["VersionId"],
            size=found["ContentLength"],
            sha256=_digest(found.get("ChecksumSHA256")),
        )

    def fetch(self, ref: PayloadRef, *, within: timedelta) -> bytes | None:
        until = self._clock.monotonic() + within.total_seconds()
        try:
            with translated("get_object"):
                return self._read(self._get(ref), most=ref.size + 1, until=until)
        except _Missing:
            return None

    def _head(
        self, key: str, version_id: str | None, missing: frozenset[str]
    ) -> "HeadObjectOutputTypeDef":
        client = self._s3()
        try:
            if version_id is None:
                return client.head_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
            return client.head_object(
                Bucket=self._bucket, Key=key, VersionId=version_id, ChecksumMode="ENABLED"
            )
        except ClientError as error:
            if code_of(error) in missing:
                raise _Missing from error
            raise

    def _get(self, ref: PayloadRef) -> "GetObjectOutputTypeDef":
        try:
            return self._s3().get_object(Bucket=self._bucket, Key=ref.key, VersionId=ref.version_id)
        except ClientError as error:
            if code_of(error) in _NOT_THERE:
                raise _Missing from error
            if code_of(error) in _FORBIDDEN:
                # What is not there is told from it. So this is the operator's to put right, and
                # no reason to give a job up.
                raise Unavailable(f"get_object: {code_of(error)}") from error
            raise

    def _read(self, answer: "GetObjectOutputTypeDef", *, most: int, until: float) -> bytes:
        content = bytearray()
        with closing(answer["Body"]) as body:
            while chunk := body.read(min(_CHUNK_BYTES, most - len(content))):
                content += chunk
                if len(content) == most:
                    break
                if self._clock.monotonic() > until:
                    raise Unavailable("get_object: too slow")
        return bytes(content)

    def _s3(self) -> "S3Client":
        with self._connecting:
            self._client = self._client or self._connect()
            return self._client


class _Missing(Exception):
    """There is no such object, or no such version of it."""


def _digest(checksum: str | None) -> str | None:
    """In hex. None for that of an upload in parts, which is not of its bytes: `…=-3`."""
    if checksum is None or "-" in checksum:
        return None
    digest = base64.b64decode(checksum, validate=True)
    return digest.hex() if len(digest) == _SHA256_BYTES else None
