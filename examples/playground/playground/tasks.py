"""What `make run` can run: `echo`, `sleep`, `flaky`, `pages`, `crash`, `crash_alone`, `http_get`.

A task is a function with a name, a version and a payload whose type is its annotation. Workers
find it because their configuration names this module; importing it registers what it holds.
"""

import os
import signal
import time
from typing import Annotated, Final, Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, HttpUrl, JsonValue

from lamplighter import Context, Permanent, RateLimited, Retryable, task

# Enough of a page to recognise it, far from what a result may hold.
BODY_MAX_BYTES: Final = 4096


class Strict(BaseModel):
    """A misspelt field is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")


class SleepPayload(Strict):
    seconds: Annotated[float, Field(ge=0, le=840)]


class FlakyPayload(Strict):
    failures: Annotated[int, Field(ge=0, le=100)] = 2
    """How many attempts fail before one succeeds."""


class PagesPayload(Strict):
    pages: Annotated[int, Field(ge=1, le=100)] = 3
    fails_after: Annotated[int, Field(ge=0, le=100)] | None = None
    """Pages after which its first attempt fails."""


class CrashPayload(Strict):
    by: Literal["exit", "kill"] = "exit"
    after_seconds: Annotated[float, Field(ge=0, le=60)] = 0


class HttpGetPayload(Strict):
    url: HttpUrl
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 10


@task("echo", version=1)
def echo(payload: JsonValue, ctx: Context) -> object:  # noqa: ARG001 -- every task takes both
    """Give the payload back."""
    return payload


@task("sleep", version=1)
def sleep(payload: SleepPayload, ctx: Context) -> object:
    """Take a while, unless asked to stop."""
    ctx.wait(payload.seconds)
    ctx.raise_if_stopped()
    return {"slept_seconds": payload.seconds}


@task("flaky", version=1)
def flaky(payload: FlakyPayload, ctx: Context) -> object:
    """Fail a few times, then succeed."""
    if ctx.attempt <= payload.failures:
        raise Retryable(f"attempt {ctx.attempt} fails, as the first {payload.failures} do")
    return {"succeeded_at_attempt": ctx.attempt}


@task("pages", version=1)
def pages(payload: PagesPayload, ctx: Context) -> object:
    """Go through pages from where the attempt before got to, and have one receipt for them all."""
    begun_at = ctx.state or 0
    for page in range(begun_at, payload.pages):
        if ctx.attempt == 1 and page == payload.fails_after:
            raise Retryable(f"the first attempt fails after {page} pages")
        ctx.checkpoint(page + 1)
        ctx.raise_if_stopped()
    receipt = ctx.once("receipt", lambda: f"by attempt {ctx.attempt}")
    return {"begun_at": begun_at, "receipt": receipt}


@task("crash", version=1)
def crash(payload: CrashPayload, ctx: Context) -> object:
    """Take the process down in mid-job, each time, as a bug in a native library would."""
    ctx.wait(payload.after_seconds)
    if payload.by == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(1)


@task("crash_alone", version=1, isolation="process", memory_mb=128)
def crash_alone(payload: CrashPayload, ctx: Context) -> object:
    """The same in a process of its own: its worker lives, and the error says what happened."""
    return crash(payload, ctx)


@task("http_get", version=1)
def http_get(payload: HttpGetPayload, ctx: Context) -> object:  # noqa: ARG001 -- as above
    """Fetch the beginning of a page within a time.

    A server's trouble is worth another try and a mistake of ours is not; a server that says
    when to come back is taken at its word.
    """
    try:
        return _fetch(str(payload.url), timeout_s=payload.timeout_seconds)
    except httpx.UnsupportedProtocol as error:
        raise Permanent(str(error)) from error
    except httpx.TransportError as error:
        raise Retryable(f"{payload.url}: {type(error).__name__}") from error


def _fetch(url: str, *, timeout_s: float) -> object:
    deadline = time.monotonic() + timeout_s
    with httpx.stream("GET", url, timeout=timeout_s) as response:
        _refuse_failure(response)
        body = bytearray()
        for chunk in response.iter_bytes(BODY_MAX_BYTES):
            body += chunk
            if len(body) > BODY_MAX_BYTES:
                break
            if time.monotonic() > deadline:  # httpx bounds each read, not all of them
                raise Retryable(f"{url}: took longer than {timeout_s:g} s")
    return {
        "status": response.status_code,
        "body": bytes(body[:BODY_MAX_BYTES]).decode(errors="replace"),
        "truncated": len(body) > BODY_MAX_BYTES,
    }


def _refuse_failure(response: httpx.Response) -> None:
    told = f"{response.url}: {response.status_code}"
    later = response.headers.get("retry-after", "")
    if response.status_code in {429, 503} and later.isdecimal():
        raise RateLimited(told, retry_after=float(later))
    if response.status_code == httpx.codes.TOO_MANY_REQUESTS or response.is_server_error:
        raise Retryable(told)
    if response.is_client_error:
        raise Permanent(told)
