"""Ending a deferred try from where its work is done: with its callback token, and nothing else."""

from typing import Any, Final

import httpx

from lamplighter.client.http import Document, NotReached, Refused

_TIMEOUT_S: Final = 30.0


class Callback:
    """One try of one execution. Each call may be made again: the first end counts.

    Each raises NotReached, after which asking again is safe, and Refused: with status 404 for a
    token of no try, 409 once it has ended otherwise, or was not heard of in time.
    """

    def __init__(
        self,
        url: str,
        execution_id: str,
        token: str,
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`url` is the API's; the other two are what the handler's `ctx.defer()` gave."""
        self._url = f"{url.rstrip('/')}/v1/executions/{execution_id}"
        self._token = token
        self._transport = transport

    def heartbeat(self) -> bool:
        """Say that it goes on; whether it should be ended, for its execution is cancelled."""
        return bool(self._post("heartbeat", {})["cancel_requested"])

    def complete(self, result: object = None) -> Document:
        """End it, with anything that is JSON; how the execution stands then."""
        return self._post("complete", {"result": result})

    def fail(
        self,
        message: str = "",
        *,
        error_type: str = "Failed",
        permanent: bool = False,
        retry_after_seconds: int | None = None,
    ) -> Document:
        """End it as a failure, which the job's retry policy follows unless it is permanent."""
        kind = "permanent" if permanent else "retryable"
        error: dict[str, Any] = {"type": error_type, "message": message, "kind": kind}
        if retry_after_seconds is not None:
            error["retry_after_seconds"] = retry_after_seconds
        return self._post("fail", {"error": error})

    def _post(self, verb: str, body: dict[str, object]) -> Document:
        with httpx.Client(timeout=_TIMEOUT_S, transport=self._transport, trust_env=False) as client:
            try:
                answer = client.post(f"{self._url}/{verb}", json={"token": self._token, **body})
            except httpx.TransportError as error:
                raise NotReached(f"{self._url}: {type(error).__name__}") from error
        if answer.is_success:
            document: Document = answer.json()
            return document
        raise Refused(answer.status_code, _detail(answer))


def _detail(answer: httpx.Response) -> str:
    try:
        said = answer.json()
    except ValueError:
        said = None
    detail = said.get("detail") if isinstance(said, dict) else None
    return str(detail) if detail else f"status {answer.status_code}"
