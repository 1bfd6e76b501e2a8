"""From the body of `POST /v1/jobs` to a NewJob, or to every fault in it."""

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Final

from lamplighter.api.bodies import CATCH_UP, WHEN, JobBody
from lamplighter.api.payloads import inline_payload, named_payload
from lamplighter.api.policies import (
    catch_up_of,
    deadline_of,
    misfire_of,
    on_deadline,
    overlap_of,
    retry_of,
)
from lamplighter.api.problems import Faults
from lamplighter.api.reading import faults_of, names_at_fault, read_most
from lamplighter.api.targets import what_of
from lamplighter.api.timing import TimingReader, timing_of_a_new_job
from lamplighter.core.errors import Rejected
from lamplighter.core.limits import MIN_INTERVAL
from lamplighter.core.model import Owner, Spec, check_name, check_task_version
from lamplighter.core.named import NO_TARGETS, Directory
from lamplighter.core.targets import NOBODY, HttpRules
from lamplighter.services.submit import NewJob

_OF_TIMING: Final = (*WHEN, "timezone", "dialect")
"""Without one of these, nothing is known of when a job is due."""


def new_job(
    value: object,
    *,
    owner: Owner,
    lanes: Collection[str],
    now: datetime,
    traceparent: str | None = None,
    http: HttpRules = NOBODY,
    targets: Directory = NO_TARGETS,
    timing: TimingReader | None = None,
    min_interval: timedelta = MIN_INTERVAL,
    without: Collection[str] = (),
) -> NewJob:
    """The job that a body asks for; raises Faults, with all that is wrong in it.

    `timing` reads when it is due in the place of what a create goes by. `without` names what the
    caller's body has and this one lacks, because it could not be read.
    """
    body, unread = read_most(JobBody, value)
    left_out = {*without, *names_at_fault(JobBody, unread)}
    timing_of = timing or partial(timing_of_a_new_job, min_interval=min_interval)
    parts: tuple[tuple[Collection[str], Callable[[], object]], ...] = (
        (("task", "target"), lambda: what_of(body, owner=owner, http=http, targets=targets)),
        (("task", "target", "task_version"), lambda: _version(body)),
        (("payload",), lambda: inline_payload(body)),
        (("payload", "payload_ref"), lambda: named_payload(body)),
        (("queue",), lambda: _lane(body, lanes)),
        (("retry_policy",), lambda: retry_of(body)),
        (_OF_TIMING, lambda: timing_of(body, now)),
        (("misfire_policy", "catch_up_policy"), lambda: misfire_of(body)),
        ((*WHEN, *CATCH_UP), lambda: catch_up_of(body)),
        (("on_deadline",), lambda: on_deadline(body.on_deadline)),
        ((*WHEN, "overlap_policy"), lambda: overlap_of(body)),
        (("name",), lambda: _name(body)),
    )
    # What depends on a field that could not be read cannot be told right from wrong.
    told = (faults_of(part) for needs, part in parts if left_out.isdisjoint(needs))
    faults = [*unread, *chain.from_iterable(told)]
    if faults:
        raise Faults(faults)
    due = timing_of(body, now)
    what = what_of(body, owner=owner, http=http, targets=targets)
    return NewJob(
        owner=owner,
        spec=Spec(
            task=what.task,
            target=what.target,
            task_version=_version(body),
            payload=inline_payload(body),
            queue=_lane(body, lanes),
            retry=retry_of(body),
            retry_is_default=not body.retry_policy.model_fields_set,
            timeout=timedelta(seconds=body.timeout_seconds),
            deadline=deadline_of(body),
            on_deadline=on_deadline(body.on_deadline),
        ),
        named=named_payload(body),
        run_at=due.run_at,
        schedule=due.schedule,
        misfire=misfire_of(body),
        catch_up=catch_up_of(body),
        overlap=overlap_of(body),
        name=_name(body),
        traceparent=traceparent,
    )


def _version(body: JobBody) -> int | None:
    if not body.said("task_version"):
        return None
    if body.said("target") and body.target.kind != "task":
        reason = f"only of a task, not of a {body.target.kind} target"
        raise Rejected(field="task_version", value=body.task_version, reason=reason)
    check_task_version(body.task_version)
    return body.task_version


def _lane(body: JobBody, lanes: Collection[str]) -> str:
    if body.queue not in lanes:
        known = ", ".join(sorted(lanes))
        raise Rejected(field="queue", value=body.queue, reason=f"no such queue; there are {known}")
    return body.queue


def _name(body: JobBody) -> str | None:
    if "name" not in body.model_fields_set:
        return None
    check_name("name", body.name)
    return body.name
