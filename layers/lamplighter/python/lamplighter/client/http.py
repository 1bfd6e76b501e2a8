"""The HTTP API as Python calls: documents in, documents out.

Proxies and credentials of the surroundings are not used: what is called is what was said.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import httpx

from lamplighter.client import accounts, payloads

Document = Mapping[str, Any]
"""A JSON object, with the fields that the API's description names."""

UNCHANGED: Final = object()
"""In place of a payload, where null is one: that of the execution that is replayed."""

_TIMEOUT_S: Final = 30.0
_PAGE: Final = 100


class ClientError(Exception):
    """A call that came to nothing; the message is one line for whoever made it."""


class NotReached(ClientError):
    """No answer: whether the call took effect is unknown."""


class Refused(ClientError):
    """The API answered that it will not do this, and why."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A job that was created."""

    job: Document
    is_replayed: bool
    """It had been created before, under the same idempotency key: nothing is new."""


class Client:
    """One owner's view of a scheduler."""

    def __init__(
        self, url: str, token: str, *, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._url = url.rstrip("/")
        self._http = httpx.Client(
            headers={"authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_S,
            transport=transport,
            trust_env=False,
        )

    def create(
        self, body: Document, *, key: str | None = None, forecast: bool | None = None
    ) -> Accepted:
        """Create a job; with a key it can be asked for again without making two.

        A payload over 64 KiB is uploaded first, and the job refers to it. `forecast` says
        whether the answer's `warnings` tell of a late start; without it, a recurring job's do.
        Raises Refused, and NotReached, after which only a key makes it safe to ask again.
        """
        body = self._offloaded(body)
        query = _forecasting(forecast)
        answer = self._send("POST", "/v1/jobs", query=query, body=body, headers=_keyed(key))
        return Accepted(job=answer.json(), is_replayed="idempotent-replayed" in answer.headers)

    def create_many(
        self, bodies: Sequence[Document], *, forecast: bool | None = None
    ) -> Sequence[Document]:
        """Create up to 100 jobs, each with a key of its own in its body, or none.

        The answers, in the same order, have each the `status` and the `body` that `create`
        would have met; large payloads are uploaded as there.
        """
        jobs = [self._offloaded(body) for body in bodies]
        answers: Sequence[Document] = self._send(
            "POST", "/v1/jobs/batch", query=_forecasting(forecast), body={"jobs": jobs}
        ).json()["answers"]
        return answers

    def upload(self, content: bytes) -> Document:
        """Keep a payload, JSON in UTF-8, in the stack's bucket: the `payload_ref` of jobs to be.

        Raises Refused and NotReached; to do it again makes another one, which costs its bytes.
        """
        said = payloads.described(content)
        granted = self._send("POST", "/v1/payloads", body=said).json()
        url = granted["upload"]["url"]
        try:
            answer = payloads.put(self._http, granted["upload"], content)
        except httpx.TransportError as error:
            host = httpx.URL(url).host
            raise NotReached(f"no answer from {host}: {_told(error)}") from error
        # It is there already: an answer to an earlier try was lost.
        is_there = answer.status_code == httpx.codes.PRECONDITION_FAILED
        if not (answer.is_success or is_there):
            detail = f"the upload: {answer.status_code} {answer.reason_phrase}"
            raise Refused(answer.status_code, detail)
        version = answer.headers.get("x-amz-version-id") if answer.is_success else None
        return {"key": granted["key"], **({"version_id": version} if version else {}), **said}

    def preview(self, schedule: Document) -> Document:
        """When a schedule would be due: `occurrences`, `explanation` and `tzdb_version`.

        It has exactly one of `cron`, `rate` and `at`, and whatever else the API takes.
        """
        document: Document = self._send("POST", "/v1/schedules/preview", body=schedule).json()
        return document

    def jobs(self, *, task: str | None = None) -> Iterator[Document]:
        """All jobs, newest first, a page at a time; those of one task."""
        return self._all("/v1/jobs", {"task": task} if task else {})

    def job(self, id: str) -> Document:
        """A job with its latest executions."""
        return self._document(f"/v1/jobs/{id}")

    def find(self, id: str) -> Document | None:
        """A recurring job that may be paused, but not deleted; None if there is none."""
        try:
            job = self.job(id)
        except Refused as error:
            if error.status == httpx.codes.NOT_FOUND:
                return None
            raise
        return None if job["status"] == "DELETED" else job

    def update(
        self,
        id: str,
        patch: Document,
        *,
        version: int | None = None,
        forecast: bool | None = None,
    ) -> Document:
        """Have a job go on otherwise: a merge patch of its body; the answer is the job.

        None takes a field back to its default; a large payload is uploaded, as by `create`.
        With the `version` that the job was read at, a change that somebody made since makes
        this Refused (412), and nothing is changed. `forecast` is as for `create`.
        """
        body = self._offloaded(patch, payloads.too_large_in_patch)
        answer = self._send(
            "PATCH",
            f"/v1/jobs/{id}",
            query=_forecasting(forecast),
            body=body,
            headers=_matching(version),
        )
        document: Document = answer.json()
        return document

    def pause(self, id: str, *, version: int | None = None) -> Document:
        """Have a recurring job start nothing by its schedule any more; the answer is the job.

        `version` is as for `update`; to do it again changes nothing.
        """
        return self._revised(f"/v1/jobs/{id}/pause", version)

    def resume(self, id: str, *, version: int | None = None) -> Document:
        """Have a paused job go on with its first slot after now, as `pause`."""
        return self._revised(f"/v1/jobs/{id}/resume", version)

    def delete(self, id: str, *, request: bool = False) -> None:
        """Delete a job: it makes no more executions.

        A one-off that runs is Refused, unless `request`: then its handler is asked to stop.
        """
        self._send("DELETE", f"/v1/jobs/{id}", query={"mode": "request"} if request else None)

    def trigger(self, id: str, *, payload: object = UNCHANGED, key: str | None = None) -> Document:
        """The execution of a recurring job that runs now; with a payload in the place of its own.

        As `create`: only with a key is it safe to ask again after NotReached.
        """
        body = {} if payload is UNCHANGED else {"payload": payload}
        path = f"/v1/jobs/{id}/trigger"
        document: Document = self._send("POST", path, body=body, headers=_keyed(key)).json()
        return document

    def backfill(self, id: str, wanted: Document, *, key: str | None = None) -> Document:
        """Have a recurring job's slots of the past run: what is run, and what is left out.

        `wanted` has `from` and `to`, and whatever else the API takes. Asked again with the
        same key, no slot runs twice and what a lost call left out is made.
        """
        path = f"/v1/jobs/{id}/backfill"
        document: Document = self._send("POST", path, body=wanted, headers=_keyed(key)).json()
        return document

    def ledger(self, id: str, *, start: str | None = None, end: str | None = None) -> Document:
        """What became of each slot of a recurring job in a range, all of its parts together.

        `start` and `end` are RFC 3339; the last day, unless given.
        """
        query = {name: text for name, text in (("from", start), ("to", end)) if text}
        return accounts.together([*self._parts(f"/v1/jobs/{id}/ledger", query)])

    def forecast(
        self,
        *,
        start: str | None = None,
        end: str | None = None,
        per_second: float | None = None,
    ) -> Document:
        """The load that is planned for a range to come, and how late it makes what is due.

        `start` and `end` are RFC 3339; the next hour, unless given. `per_second` is the
        capacity of all lanes as one; without it each goes by the stack's. Of parts the busiest
        seconds are added up, as if they were the same one.
        """
        said = {"from": start, "to": end, "per_second": per_second and f"{per_second:.3f}"}
        query = {name: text for name, text in said.items() if text}
        parts = [*self._parts("/v1/forecast", query)]
        return accounts.planned(parts, per_second=per_second)

    def progress(self) -> Document:
        """How far dispatch has come, of everybody's jobs, and how a backlog drains."""
        return self._document("/v1/progress")

    def limits(self) -> Sequence[Document]:
        """How many executions may run at once, by lane, owner and task, and how many do."""
        items: Sequence[Document] = self._document("/v1/limits")["items"]
        return items

    def set_limit(self, kind: str, name: str, limit: int) -> Document:
        """Let so many executions of a `queue`, an `owner` or a `task` run at once; 0: none.

        Changes what holds for everybody's jobs: the token's scopes must name `ops:limits`.
        """
        body = {"kind": kind, "name": name, "limit": limit}
        document: Document = self._send("PUT", "/v1/limits", body=body).json()
        return document

    def remove_limit(self, kind: str, name: str) -> None:
        """Let any number of them run at once again."""
        self._send("DELETE", "/v1/limits", query={"kind": kind, "name": name})

    def recovery(self) -> Iterator[Document]:
        """The jobs of which something would run if dispatch came back now, and what."""
        return self._all("/v1/recovery", {})

    def executions(
        self, *, status: str | None = None, job: str | None = None
    ) -> Iterator[Document]:
        """All executions, newest first, a page at a time; of one job, or with one status."""
        path = f"/v1/jobs/{job}/executions" if job else "/v1/executions"
        return self._all(path, {"status": status} if status else {})

    def execution(self, id: str) -> Document:
        """An execution with its attempts."""
        return self._document(f"/v1/executions/{id}")

    def cancel(self, id: str) -> Document:
        """The execution, CANCELLED, or RUNNING and asked to stop."""
        document: Document = self._send("POST", f"/v1/executions/{id}/cancel").json()
        return document

    def replay(self, id: str, *, payload: object = UNCHANGED, key: str | None = None) -> Document:
        """The new execution of one that has ended; with a payload in the place of its own.

        As `create`: only with a key is it safe to ask again after NotReached.
        """
        body = {} if payload is UNCHANGED else {"payload": payload}
        path = f"/v1/executions/{id}/replay"
        document: Document = self._send("POST", path, body=body, headers=_keyed(key)).json()
        return document

    def cancel_all(self, wanted: Document, *, dry_run: bool = False) -> Iterator[Document]:
        """Cancel all that a filter lets through, a page at a time: what came of each."""
        return self._each("/v1/executions/cancel", {"filter": wanted, "dry_run": dry_run})

    def replay_all(
        self, wanted: Document, *, key: str | None = None, dry_run: bool = False
    ) -> Iterator[Document]:
        """As `cancel_all`, replay; under one key none is ever replayed twice."""
        body = {"filter": wanted, "dry_run": dry_run}
        return self._each("/v1/executions/replay", body, headers=_keyed(key))

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _offloaded(
        self,
        body: Document,
        too_large: Callable[[Document], bytes | None] = payloads.too_large,
    ) -> Document:
        """The body, with a payload that it cannot hold uploaded and named instead."""
        try:
            content = too_large(body)
        except ValueError as error:
            raise Refused(0, f"payload: {error}") from error
        if content is None:
            return body
        rest = {name: value for name, value in body.items() if name != "payload"}
        return {**rest, "payload_ref": self.upload(content)}

    def _revised(self, path: str, version: int | None) -> Document:
        document: Document = self._send("POST", path, headers=_matching(version)).json()
        return document

    def _all(self, path: str, query: Mapping[str, str]) -> Iterator[Document]:
        for page in self._parts(path, {"limit": str(_PAGE), **query}):
            yield from page["items"]

    def _parts(self, path: str, query: Mapping[str, str]) -> Iterator[Document]:
        cursor: str | None = None
        while True:
            page = self._document(path, {**query, **({"cursor": cursor} if cursor else {})})
            yield page
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _each(
        self, path: str, body: Document, headers: Mapping[str, str] | None = None
    ) -> Iterator[Document]:
        cursor: str | None = None
        while True:
            paging = {"cursor": cursor} if cursor else {}
            page = self._send("POST", path, body={**body, **paging}, headers=headers).json()
            yield from page["answers"]
            cursor = page["next_cursor"]
            if cursor is None:
                return

    def _document(self, path: str, query: Mapping[str, str] | None = None) -> Document:
        document: Document = self._send("GET", path, query=query).json()
        return document

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Document | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        try:
            answer = self._http.request(
                method, f"{self._url}{path}", params=query, json=body, headers=headers
            )
        except httpx.TransportError as error:
            raise NotReached(f"no answer from {self._url}: {_told(error)}") from error
        except httpx.InvalidURL as error:
            raise Refused(0, f"{self._url} is no URL: {error}") from error
        if answer.is_success:
            return answer
        raise Refused(answer.status_code, _reason(answer))


def _told(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__


def _matching(version: int | None) -> Mapping[str, str]:
    return {} if version is None else {"if-match": f'"{version}"'}


def _forecasting(wanted: bool | None) -> dict[str, str] | None:
    return None if wanted is None else {"forecast": str(wanted).lower()}


def _keyed(key: str | None) -> Mapping[str, str]:
    return {"idempotency-key": key} if key else {}


def _reason(answer: httpx.Response) -> str:
    """What a problem document says, or whatever else stands between us and the API."""
    try:
        document = answer.json()
    except ValueError:
        document = None
    said = document if isinstance(document, dict) else {}
    detail = said.get("detail") or said.get("message") or answer.reason_phrase
    return f"{answer.status_code} {detail}"
