"""Payloads: the one that a body has or names, and `POST /v1/payloads`, a place to upload one to."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from lamplighter.api import bodies, documents, render
from lamplighter.api.problems import Faults
from lamplighter.api.reading import faults_of, read
from lamplighter.api.requests import is_plain
from lamplighter.api.strict_json import compact
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import PAYLOAD_REF_MAX_BYTES, PAYLOAD_REF_VERSION_MAX_CHARS
from lamplighter.core.model import Owner, Payload, check_sha256, check_size
from lamplighter.ports import Ports
from lamplighter.services import payloads
from lamplighter.services.payloads import Named

_JSON: Final = "application/json"


class PayloadBody(bodies.Body):
    """What is going to be uploaded: JSON in UTF-8."""

    size: Annotated[int, Field(description=f"1–{PAYLOAD_REF_MAX_BYTES} bytes.")]
    sha256: Annotated[str, Field(description="Of these bytes, in lower-case hex.")]
    content_type: Literal["application/json"] = _JSON


def granted(ports: Ports, owner: Owner, value: object) -> documents.PayloadGrant:
    """The place that a body asks for; raises Rejected or Faults."""
    body = read(PayloadBody, value)
    found = payloads.grant(
        ports, owner, size=body.size, digest=body.sha256, content_type=body.content_type
    )
    return render.granted(found)


def payload_of(body: bodies.PayloadBody) -> Payload | Named | None:
    """What stands in the place of another payload; raises Rejected or Faults."""
    if (named := named_payload(body)) is not None:
        return named
    said = body.said("payload")
    return Payload.of(compact(said["payload"])) if said else None


def named_payload(body: bodies.JobBody | bodies.PayloadBody) -> Named | None:
    """The payload that a body has by reference, not looked for yet; raises Rejected or Faults."""
    said = body.said("payload", "payload_ref")
    if "payload_ref" not in said:
        return None
    ref = body.payload_ref
    if "payload" in said:
        raise Rejected(field="payload_ref", value=ref.key, reason="not beside a payload")
    given = ref.said("version_id", "sha256", "size")
    checks: Mapping[str, Callable[[Any], None]] = {
        "version_id": _check_version,
        "sha256": lambda digest: check_sha256("payload_ref.sha256", digest),
        "size": lambda size: check_size("payload_ref.size", size),
    }
    faults = [fault for name in given for fault in faults_of(partial(checks[name], given[name]))]
    if faults:
        raise Faults(faults)
    return Named(key=ref.key, **given)


def _check_version(id: str) -> None:
    if not is_plain(id, PAYLOAD_REF_VERSION_MAX_CHARS):
        reason = f"not 1–{PAYLOAD_REF_VERSION_MAX_CHARS} printable characters"
        raise Rejected(field="payload_ref.version_id", value=id, reason=reason)


def inline_payload(body: bodies.JobBody) -> Payload:
    """The payload that stands in a job's body itself; an empty object, where none does."""
    return Payload.of(compact(body.payload))
