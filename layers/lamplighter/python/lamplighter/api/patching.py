"""The body of `PATCH /v1/jobs/{job_id}`: a JSON merge patch (RFC 7396) of the job's own body.

What comes of it is read by the function that reads a new job's body, so that no job can be
patched into what could not be created. What runs, its payload and its schedule are read only
where the patch touches them: what today's rules would refuse of them stays as it is stored.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Final

from pydantic import Field, create_model

from lamplighter.api import documents, render
from lamplighter.api.bodies import SCHEDULE_FIELDS, WHEN, ZONE, Body, JobBody
from lamplighter.api.new_jobs import new_job
from lamplighter.api.problems import Faults
from lamplighter.api.reading import faults_of, names_of
from lamplighter.api.timing import (
    Timing,
    TimingReader,
    kind_of,
    parsed_schedule,
    timing_of_a_new_job,
)
from lamplighter.core.buckets import JobId, from_ms, to_ms
from lamplighter.core.errors import Rejected
from lamplighter.core.model import Execution, Job, Owner, Payload, Spec, Target
from lamplighter.core.named import NO_TARGETS, Directory, NamedTarget
from lamplighter.core.schedule import Schedule, check, format_instant
from lamplighter.core.status import Status
from lamplighter.core.targets import MASK, NOBODY, HttpRules, HttpTarget, is_secret
from lamplighter.ports import Ports
from lamplighter.services import payloads
from lamplighter.services.inspect import OneOff, Recurring, Seen
from lamplighter.services.submit import NewJob, defined

Json = Mapping[str, Any]

_WHAT: Final = ("task", "target")
_PAYLOAD: Final = ("payload", "payload_ref")
_SCHEDULE: Final = (*WHEN, *(name.rstrip("_") for name in SCHEDULE_FIELDS))
_ALTERNATIVES: Final = (WHEN, _WHAT, _PAYLOAD)
"""Of each of these one says it all: given one, the others go."""
_NOT_PATCHED: Final = MappingProxyType(
    {
        "status": "not patched: POST …/pause, POST …/resume and DELETE set it",
        "version": "not patched: If-Match names the version that is meant",
        "idempotency_key": "of a create only: If-Match makes a patch safe to repeat",
    }
)
_NOT_TOUCHED: Final = "not touched"  # stands for a task that is not read again
KEPT: Final = ("version", "status", "created_at", "effective_from", "tail", "is_counted")
"""What is a recurring job's own, and no part of what a body says."""


@dataclass(frozen=True, kw_only=True)
class Patch:
    """A merge patch, as changes for the services to make; each raises Rejected or Faults."""

    ports: Ports
    value: object
    lanes: Collection[str]
    http: HttpRules = NOBODY
    targets: Directory = NO_TARGETS

    def of_job(self, job: Job) -> Job:
        """The job as the patch has it; a `cron` or `rate` that is another counts from now."""
        said = _said(render.job(Recurring(job=job, next_run_at=None)), job.spec)
        merged, faults = _still_recurring(self._merged(said, job.spec), job.schedule)
        is_due_as_before = all(merged.get(name) == said.get(name) for name in _SCHEDULE)
        now = from_ms(to_ms(self.ports.clock.now()))

        def timing(body: JobBody, _: datetime) -> Timing:
            schedule = job.schedule if is_due_as_before else self._rescheduled(job, body, now)
            return Timing(schedule=lambda *_: schedule)

        new = self._new_job(merged, job.owner, timing, faults)
        fresh = defined(self._with_spec(new, job.spec, home=job.id), id=job.id, now=now)
        own: dict[str, Any] = {name: getattr(job, name) for name in KEPT}
        return replace(fresh, **own)

    @property
    def moves(self) -> bool:
        """Whether it may have the job run at another time, or in another lane."""
        return self._touches(*_SCHEDULE, "queue")

    def of_one_off(self, row: Execution) -> NewJob:
        """The one-off as the patch has it, due when it was unless the patch says otherwise."""
        if row.spec is None:
            raise ValueError(f"{row.id} is a one-off and has no definition")
        document = render.job(OneOff(execution=Seen(row=row, status=Status(row.state))))
        said = {**_said(document, row.spec), "run_at": format_instant(row.scheduled_for)}
        new = self._new_job(self._merged(said, row.spec), row.owner, self._timing_of_one_off, ())
        return self._with_spec(new, row.spec, home=row.payload_home)

    def _merged(self, said: Json, stored: Spec) -> Json:
        """The body that says what the job does and the patch, without what is not read again."""
        patch = self._patch(stored.target)
        current = {name: value for name, value in said.items() if not _replaced(name, patch)}
        merged = _merge(current, patch, [])
        if not self._touches(*_WHAT):
            merged = {**_without(merged, *_WHAT), "task": _NOT_TOUCHED}
        return merged if self._touches_payload(stored.payload) else _without(merged, *_PAYLOAD)

    def _patch(self, target: Target | None) -> dict[str, Any]:
        patch = _without(self._object, *(fault.field for fault in self._not_patched()))
        if isinstance(target, HttpTarget) and isinstance(patch.get("target"), dict):
            patch["target"] = _unmasked(patch["target"], target)
        return patch

    @property
    def _object(self) -> Json:
        if not isinstance(self.value, dict):
            raise Rejected(field="body", value=self.value, reason="not a JSON object")
        return self.value

    def _touches(self, *names: str) -> bool:
        return not self._object.keys().isdisjoint(names)

    def _touches_payload(self, stored: Payload) -> bool:
        # That there is none by reference says nothing where there is none.
        names = _PAYLOAD if self._object.get("payload_ref") or stored.ref else ("payload",)
        return self._touches(*names)

    def _new_job(
        self, merged: Json, owner: Owner, timing: TimingReader, faults: Sequence[Rejected]
    ) -> NewJob:
        def read() -> NewJob:
            return new_job(
                merged,
                owner=owner,
                lanes=self.lanes,
                now=self.ports.clock.now(),
                http=self.http,
                targets=self.targets,
                timing=timing,
            )

        faults = [*self._not_patched(), *faults, *faults_of(read)]
        if faults:
            raise Faults(faults)
        return read()

    def _not_patched(self) -> list[Rejected]:
        """Fields of the answers that are none of a body's."""
        reasons = {**dict.fromkeys(_ONLY_SHOWN, "read only"), **_NOT_PATCHED}
        return [
            Rejected(field=name, value=value, reason=reasons[name])
            for name, value in self._object.items()
            if name in reasons
        ]

    def _timing_of_one_off(self, body: JobBody, now: datetime) -> Timing:
        kind = kind_of(body)
        if kind is None:
            reason = "a one-off has a time: to have it run now, say one that has passed"
            raise Rejected(field="run_at", value=None, reason=reason)
        if kind in {"cron", "rate"}:
            reason = "a one-off does not come to recur: create a job that does"
            raise Rejected(field=kind, value=getattr(body, kind), reason=reason)
        if not self._touches("run_at", "at"):
            reason = "only with run_at or at: of an earlier one the instant alone is kept"
            zone = {name: self._object[name] for name in ZONE if self._object.get(name) is not None}
            faults = [Rejected(field=name, value=zone[name], reason=reason) for name in zone]
            if faults:
                raise Faults(faults)
        return timing_of_a_new_job(body, now)

    def _rescheduled(self, job: Job, body: JobBody, now: datetime) -> Schedule:
        """The schedule that a merged body says; one of the same text goes on counting."""
        kind, old = kind_of(body) or "", job.schedule
        schedule = parsed_schedule(body, kind, seed=job.id, anchor=old.anchor)
        if schedule == old:
            return old
        if (schedule.kind, schedule.text) != (old.kind, old.text):
            schedule = replace(schedule, anchor=now)
        check(schedule, now=now, min_interval=self.ports.quotas.of(job.owner).min_interval)
        return schedule

    def _with_spec(self, new: NewJob, stored: Spec, *, home: JobId) -> NewJob:
        """The job with what the patch leaves alone as it is stored."""
        what = new.spec if self._touches(*_WHAT) else stored
        payload = self._payload(new, stored.payload, home)
        spec = replace(new.spec, task=what.task, target=what.target, payload=payload)
        return replace(new, spec=spec, named=None)

    def _payload(self, new: NewJob, stored: Payload, home: JobId) -> Payload:
        if not self._touches_payload(stored):
            return stored
        payload = new.spec.payload
        if new.named is not None:
            payload = payloads.find(self.ports, new.owner, new.named)
        return stored if self._is_same(payload, stored, home) else payload

    def _is_same(self, new: Payload, stored: Payload, home: JobId) -> bool:
        if new.ref is not None or stored.ref is not None:
            return new.ref == stored.ref
        if new.bytes != stored.bytes:
            return False
        if stored.text is not None:
            return new.text == stored.text
        return new.text == self.ports.executions.get_payload(home, stored.version)


def _said(document: render.Document, spec: Spec) -> Json:
    """The canonical body of a job, from its document, but for its payload."""
    names = {*names_of(JobBody, [])} - {*_WHAT, *_PAYLOAD}
    shown = {
        name: _whole(value)
        for name, value in document.items()
        if name in names and value is not None
    }
    if spec.retry_is_default:
        # Shown, but nobody said it: the task's own still goes before it.
        shown.pop("retry_policy", None)
    # The document masks what looks secret.
    what = {"task": spec.task} if spec.target is None else {"target": _target(spec.target)}
    return {**shown, **what}


def _whole(value: object) -> object:
    """A number without a fraction as an integer: bodies tell them apart."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _whole(member) for name, member in value.items()}
        case _:
            return value


def _target(target: Target) -> Json:
    if isinstance(target, NamedTarget):
        return dict(render.named_target(target))
    return {
        "kind": "http",
        "url": target.url,
        "method": target.method,
        "headers": dict(target.headers),
        **render.deferred_terms(target),
    }


def _unmasked(patch: Json, target: HttpTarget) -> Json:
    """A patch of a target, in which what is shown of a secret stands for the secret.

    Raises Rejected where it stands for none, and where a secret would go to another host.
    """
    url, headers = patch.get("url"), patch.get("headers")
    shown, real = target.shown_headers, dict(target.headers)
    unmasked = dict(patch)
    if isinstance(url, str):
        unmasked["url"] = url = target.unmasked_url(url)
    if isinstance(headers, dict):
        for name, value in headers.items():
            if value == MASK and shown.get(name) != MASK and is_secret(name):
                reason = f"{MASK} stands for a secret, and there is none: say it"
                raise Rejected(field=f"target.headers.{name}", value=value, reason=reason)
        unmasked["headers"] = {
            name: real[name] if name in real and value == shown[name] else value
            for name, value in headers.items()
        }
    if isinstance(url, str) and patch.get("kind") in {None, "http"}:
        _check_secrets_stay(target, url, headers if "headers" in patch else {})
    return unmasked


def _check_secrets_stay(target: HttpTarget, url: str, headers: object) -> None:
    """Raises Rejected for a patch that has another host told what was meant for this one."""
    try:
        is_elsewhere = HttpTarget(url=url).origin != target.origin
    except Rejected:
        return  # No URL at all: refused as such when it is read.
    if not is_elsewhere or not isinstance(headers, dict):
        return
    secret = [name for name, value in target.shown_headers.items() if value == MASK]
    kept = [name for name in secret if headers.get(name, MASK) == MASK]
    if kept:
        reason = (
            f"another scheme, host or port, to which the secret {', '.join(kept)} is not sent: "
            "say its value anew, or null"
        )
        raise Rejected(field="target.url", value=url.partition("?")[0], reason=reason)


def _replaced(name: str, patch: Json) -> bool:
    """Whether a patch says in another field what this one says."""
    if name == "misfire_policy" and "catch_up_policy" in patch:
        # Two names of one thing: null, by either, is its default.
        return True
    if name == "task_version" and patch.get("target") is not None:
        return True
    others = [other for group in _ALTERNATIVES if name in group for other in group]
    return any(patch.get(other) is not None for other in others if other != name)


def _merge(current: Json, patch: Json, path: list[str]) -> dict[str, Any]:
    """RFC 7396, but that a payload is taken as it is, and what is unknown stays to be refused."""
    known, merged = names_of(JobBody, path), dict(current)
    for name, value in patch.items():
        is_known = name in known or name in current
        if not path and name in _PAYLOAD and (value is not None or name == "payload"):
            merged[name] = value
        elif value is None and is_known:
            merged.pop(name, None)
        elif isinstance(value, dict) and is_known:
            inner = current.get(name)
            merged[name] = _merge(inner if isinstance(inner, dict) else {}, value, [*path, name])
        else:
            merged[name] = value
    return merged


def _without(body: Json, *names: str) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


def _still_recurring(merged: Json, old: Schedule) -> tuple[Json, list[Rejected]]:
    """The body, and what is wrong with it when it does not recur: read as if it did."""
    if not merged.keys().isdisjoint({"cron", "rate"}):
        return merged, []
    given = [name for name in ("run_at", "at") if name in merged] or [old.kind.value]
    reason = "a job that recurs has cron or rate; a one-off is another job"
    faults = [Rejected(field=name, value=merged.get(name), reason=reason) for name in given]
    return {**_without(merged, *given), old.kind: old.text}, faults


def _patch_model(model: type[Body], name: str) -> type[Body]:
    """The same fields, none of them required, and each of them null: for the description."""

    def optional(name: str) -> tuple[Any, Any]:
        field = model.model_fields[name]
        inner: Any = field.annotation
        if isinstance(inner, type) and issubclass(inner, Body) and name not in _PAYLOAD:
            inner = _patch_model(inner, inner.__name__.replace("Body", "Patch"))
        for constraint in field.metadata:
            inner = Annotated[inner, constraint]
        described = Field(default="", alias=field.alias, description=field.description)
        return inner | None, described

    fields: dict[str, Any] = {one: optional(one) for one in model.model_fields}
    fields.pop("idempotency_key", None)
    return create_model(name, __base__=Body, __doc__=_PATCH_DOC, **fields)


_PATCH_DOC: Final = "What is to be otherwise; null takes a field back to its default."
_ONLY_SHOWN: Final = {
    name
    for document in (documents.RecurringJobDetail, documents.OneOffJobDetail)
    for name in document.__annotations__
} - {*names_of(JobBody, [])}
JobPatch: Final = _patch_model(JobBody, "JobPatch")
"""A body of a PATCH as the description has it; it is read as what it is merged into."""
