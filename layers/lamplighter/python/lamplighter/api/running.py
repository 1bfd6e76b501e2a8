"""Running a recurring job beside its schedule: now, or for slots of the past."""

from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import Field

from lamplighter.api import acting, documents
from lamplighter.api.bodies import Body, PayloadBody
from lamplighter.api.creating import Reply
from lamplighter.api.fingerprints import by_bytes, fingerprint
from lamplighter.api.payloads import payload_of
from lamplighter.api.problems import Faults
from lamplighter.api.reading import faults_of, read
from lamplighter.core.buckets import JobId
from lamplighter.core.limits import BACKFILL_MAX_SLOTS, BACKFILL_MAX_SPREAD, BACKFILL_SLOTS
from lamplighter.core.model import Owner
from lamplighter.core.schedule import format_instant, parse_instant
from lamplighter.ports import Ports
from lamplighter.services.backfill import Asked, Backfill, Key, backfill, planned
from lamplighter.services.trigger import trigger

_REPLAYED: Final = MappingProxyType({"Idempotent-Replayed": "true"})


class TriggerBody(PayloadBody):
    """What is to be otherwise in this run; nothing, unless given."""

    payload: Annotated[
        object, Field(description="Any JSON, at most 64 KiB, in place of the job's.")
    ] = None


class BackfillBody(Body):
    """Which slots of a job are to be run, and how they are spread over the time from now on."""

    from_: Annotated[str, Field(alias="from", description="RFC 3339: the first slot or earlier.")]
    to: Annotated[str, Field(description="RFC 3339, not after now: only slots before it.")]
    max: Annotated[
        int,
        Field(
            ge=1,
            le=BACKFILL_MAX_SLOTS,
            description="An interval with more slots than that is refused, never cut.",
        ),
    ] = BACKFILL_SLOTS
    spread_seconds: Annotated[
        int,
        Field(
            ge=0,
            le=int(BACKFILL_MAX_SPREAD.total_seconds()),
            description="The runs are spread evenly over so long; 0: all of them run at once.",
        ),
    ] = 0
    skip_existing: Annotated[
        bool,
        Field(description="Leave out slots that ran, run or will: all but what came to nothing."),
    ] = True
    dry_run: Annotated[bool, Field(description="Only tell what would be made.")] = False


@dataclass(frozen=True, kw_only=True)
class Running:
    """Runs the jobs of one owner."""

    ports: Ports
    owner: Owner
    traceparent: str | None

    def trigger(self, id: JobId, value: object, *, key: str | None) -> Reply:
        """Run the job now, 201; raises what Api answers with a problem."""
        body = read(TriggerBody, value)
        answer = trigger(
            self.ports,
            self.owner,
            id,
            payload=payload_of(body),
            traceparent=self.traceparent,
            key=acting.keyed(key, ["trigger_job", id, by_bytes(value)]),
        )
        return acting.made(answer)

    def backfill(self, id: JobId, value: object, *, key: str | None) -> Reply:
        """Have slots of the past run, 202, or tell which they are, 200; raises as `trigger`."""
        body = read(BackfillBody, value)
        asked = self._asked(body)
        if body.dry_run:
            found = planned(self.ports, self.owner, id, asked)
            return Reply(status=HTTPStatus.OK, document=_told(found, is_dry=True))
        keyed = Key(key=key, fingerprint=fingerprint(["backfill_job", id, value])) if key else None
        made = backfill(self.ports, self.owner, id, asked, key=keyed)
        return Reply(
            status=HTTPStatus.ACCEPTED,
            document=_told(made, is_dry=False),
            headers=_REPLAYED if made.is_replayed else {},
        )

    def _asked(self, body: BackfillBody) -> Asked:
        faults = [
            *faults_of(lambda: parse_instant("from", body.from_)),
            *faults_of(lambda: parse_instant("to", body.to)),
        ]
        if faults:
            raise Faults(faults)
        return Asked(
            start=parse_instant("from", body.from_),
            end=parse_instant("to", body.to),
            most=body.max,
            spread=timedelta(seconds=body.spread_seconds),
            skip_existing=body.skip_existing,
            traceparent=self.traceparent,
        )


def _told(found: Backfill, *, is_dry: bool) -> documents.Backfill:
    return {
        "job_id": found.job_id,
        "dry_run": is_dry,
        "runs": [
            {
                "scheduled_for": format_instant(row.scheduled_for),
                "run_at": format_instant(row.run_at),
                "execution_id": None if is_dry else row.id,
            }
            for row in found.rows
        ],
        "skipped": [
            {
                "scheduled_for": format_instant(left.slot),
                "execution_id": left.execution_id,
                "status": left.status,
            }
            for left in found.left
        ],
    }
