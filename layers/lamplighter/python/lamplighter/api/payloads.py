"""`POST /v1/payloads`: a place to upload one payload to."""

from typing import Annotated, Final, Literal

from pydantic import Field

from lamplighter.api import documents, render
from lamplighter.api.bodies import Body, read
from lamplighter.core.limits import PAYLOAD_REF_MAX_BYTES
from lamplighter.core.model import Owner
from lamplighter.ports import Ports
from lamplighter.services import payloads

_JSON: Final = "application/json"


class PayloadBody(Body):
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
