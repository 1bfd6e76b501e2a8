"""Creating jobs, one or many of a request: what each is answered, wherever that is written."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from http import HTTPStatus
from typing import Annotated, cast

from pydantic import Field

from lamplighter.api import documents, loads, problems, shapes, strict_json
from lamplighter.api.bodies import Body
from lamplighter.api.problems import Problem, Refusal
from lamplighter.api.render import Document
from lamplighter.api.shapes import Asked
from lamplighter.core.buckets import JobId
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import BATCH_MAX_JOBS, BATCH_PATIENCE
from lamplighter.core.model import Owner
from lamplighter.core.named import NO_TARGETS, Directory
from lamplighter.core.targets import NOBODY, HttpRules
from lamplighter.ports import Ports
from lamplighter.services.forewarning import Forewarning
from lamplighter.services.submit import Created, IdempotencyKey, submit


class BatchBody(Body):
    """Up to 100 jobs, each in any shape and with an idempotency key of its own, or none."""

    jobs: Annotated[list[shapes.AnyJobBody], Field(min_length=1, max_length=BATCH_MAX_JOBS)]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer, before it becomes HTTP."""

    status: HTTPStatus
    document: Document
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Creation:
    """Makes jobs for one owner."""

    ports: Ports
    owner: Owner
    lanes: Collection[str]
    traceparent: str | None
    report: Callable[[Exception], None]
    """Is told of what is not the caller's doing."""
    http: HttpRules = NOBODY
    targets: Directory = NO_TARGETS
    forecast: bool | None = None
    """Whether to tell of a late start; None: only of recurring jobs', whose creates are rare."""
    forewarning: Forewarning
    tasks: Collection[str] = ()
    """Those that the operator says workers know; none: they say nothing of it."""

    def one(self, value: object, *, key: str | None) -> Reply:
        """Make the job that a body asks for; raises what Api answers with a problem.

        `key` is the header's: it wins over one in the body, which must not be another.
        """
        asked = shapes.asked(
            value,
            owner=self.owner,
            lanes=self.lanes,
            now=self.ports.clock.now(),
            traceparent=self.traceparent,
            http=self.http,
            targets=self.targets,
            min_interval=self.ports.quotas.of(self.owner).min_interval,
        )
        if key and asked.key and key != asked.key:
            raise Refusal(_two_keys())
        key = key or asked.key
        told = self._telling(asked)
        keyed = _idempotency_key(key, asked, told) if key else None
        answer = submit(self.ports, asked.new, keyed)
        if isinstance(answer, Created):
            document, marks = told(answer), {}
        else:
            document, marks = json.loads(answer.answer), {"Idempotent-Replayed": "true"}
        # A replay is answered as the first time: with what the job was when it was made.
        headers = {"Location": f"/v1/jobs/{answer.job_id}", "ETag": problems.etag(1), **marks}
        return Reply(status=HTTPStatus.CREATED, document=document, headers=headers)

    def _telling(self, asked: Asked) -> Callable[[Created], Document]:
        """The answer with its warnings: with a key it is kept, and given again, as it was.

        So it is made but once, with a key before the write, without one after it.
        """
        answers: dict[JobId, Document] = {}

        def tell(made: Created) -> Document:
            if made.job_id not in answers:
                answers[made.job_id] = {**asked.answer(made), **self._warnings(made)}
            return answers[made.job_id]

        return tell

    def _warnings(self, made: Created) -> Document:
        told = [*self._late(made), *self._unknown(made)]
        return {"warnings": told} if told else {}

    def _late(self, made: Created) -> Iterator[documents.Forewarning]:
        is_wanted = made.job is not None if self.forecast is None else self.forecast
        if is_wanted and (crowd := self.forewarning.of(made.first)) is not None:
            yield loads.forewarning(crowd)

    def _unknown(self, made: Created) -> Iterator[documents.UnknownTask]:
        spec = made.job.spec if made.job else made.first.spec
        if spec is None or spec.target is not None or not self.tasks or spec.task in self.tasks:
            return
        meant = get_close_matches(spec.task, sorted(self.tasks), n=1)
        hint = f"; did you mean {meant[0]}?" if meant else ""
        detail = f"No worker is said to know this task: it waits, PARKED, until one does{hint}"
        yield {"code": "task-is-unknown", "detail": detail, "task": spec.task}

    def many(self, values: Sequence[object]) -> documents.Batch:
        """Make each job by itself: whatever is wrong with one, the others go on."""
        until = self.ports.clock.monotonic() + BATCH_PATIENCE.total_seconds()
        return {"answers": [_told(self._one_of_many(value, until)) for value in values]}

    def _one_of_many(self, value: object, until: float) -> Reply:
        if self.ports.clock.monotonic() > until:
            return _replied(_not_begun())
        try:
            return self.one(value, key=None)
        except Exception as error:  # noqa: BLE001 -- what one job meets is not its neighbours'
            return _replied(problems.told(error, self.report))


def jobs_of(value: object) -> Sequence[object]:
    """The jobs of a batch's body; raises Rejected."""
    if not isinstance(value, dict):
        raise Rejected(field="body", value=value, reason="not a JSON object")
    for name in value.keys() - {"jobs"}:
        raise Rejected(field=name, value=value[name], reason="unknown field; there is jobs")
    jobs = value.get("jobs")
    if not isinstance(jobs, list):
        raise Rejected(field="jobs", value=jobs, reason="required: a list of jobs")
    if not 1 <= len(jobs) <= BATCH_MAX_JOBS:
        reason = f"not 1–{BATCH_MAX_JOBS} jobs"
        raise Rejected(field="jobs", value=f"{len(jobs)} jobs", reason=reason)
    return jobs


def _idempotency_key(
    key: str, asked: Asked, told: Callable[[Created], Document]
) -> IdempotencyKey[Created]:
    return IdempotencyKey(
        key=key,
        fingerprint=asked.fingerprint,
        render=lambda made: strict_json.compact(told(made)),
    )


def _replied(problem: Problem) -> Reply:
    return Reply(status=problem.status, document=problem.document(), headers=problem.headers)


def _told(reply: Reply) -> documents.Answer:
    # Which of the documents it is, its status and the caller's own body tell.
    return {
        "status": int(reply.status),
        "headers": dict(reply.headers),
        "body": cast("documents.Created", reply.document),
    }


def _two_keys() -> Problem:
    return Problem(
        status=HTTPStatus.UNPROCESSABLE_ENTITY,
        type="urn:lamplighter:problem:idempotency-key-mismatch",
        title="Two idempotency keys",
        detail="The header Idempotency-Key and the body name different keys",
    )


def _not_begun() -> Problem:
    return Problem(
        status=HTTPStatus.SERVICE_UNAVAILABLE,
        detail="No time was left for this one; nothing was written. Try again.",
        headers={"Retry-After": "1"},
    )
