"""The HTTP API as Python calls: documents in, documents out.

Proxies and credentials of the surroundings are not used: what is called is what was said.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import httpx

Document = Mapping[str, Any]
"""A JSON object, with the fields that the API's description names."""

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

    def create(self, body: Document, *, key: str | None = None) -> Accepted:
        """Create a job; with a key it can be asked for again without making two.

        Raises Refused, and NotReached, after which only a key makes it safe to ask again.
        """
        headers = {"idempotency-key": key} if key else {}
        answer = self._send("POST", "/v1/jobs", body=body, headers=headers)
        return Accepted(job=answer.json(), is_replayed="idempotent-replayed" in answer.headers)

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

    def delete(self, id: str, *, request: bool = False) -> None:
        """Delete a job: it makes no more executions.

        A one-off that runs is Refused, unless `request`: then its handler is asked to stop.
        """
        self._send("DELETE", f"/v1/jobs/{id}", query={"mode": "request"} if request else None)

    def executions(
        self, *, status: str | None = None, job: str | None = None
    ) -> Iterator[Document]:
        """All executions, newest first, a page at a time; of one job, or with one status."""
        path = f"/v1/jobs/{job}/executions" if job else "/v1/executions"
        return self._all(path, {"status": status} if status else {})

    def execution(self, id: str) -> Document:
        """An execution with its attempts."""
        return self._document(f"/v1/executions/{id}")

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

    def _all(self, path: str, query: Mapping[str, str]) -> Iterator[Document]:
        cursor: str | None = None
        while True:
            paging = {"limit": str(_PAGE)} | ({"cursor": cursor} if cursor else {})
            page = self._document(path, {**query, **paging})
            yield from page["items"]
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
            reason = str(error) or type(error).__name__
            raise NotReached(f"no answer from {self._url}: {reason}") from error
        except httpx.InvalidURL as error:
            raise Refused(0, f"{self._url} is no URL: {error}") from error
        if answer.is_success:
            return answer
        raise Refused(answer.status_code, _reason(answer))


def _reason(answer: httpx.Response) -> str:
    """What a problem document says, or whatever else stands between us and the API."""
    try:
        document = answer.json()
    except ValueError:
        document = None
    said = document if isinstance(document, dict) else {}
    detail = said.get("detail") or said.get("message") or answer.reason_phrase
    return f"{answer.status_code} {detail}"
