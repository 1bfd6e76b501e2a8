"""Tasks that last, fail, hang, grow, and hear nothing."""

import signal
import time
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lamplighter import Context, Retryable, task
from probes import second  # noqa: F401 -- its task is one of these
from probes.book import ALIVE_EVERY_S, page


class Witnessed(BaseModel):
    """A book to write into, how long to take, and how many attempts fail at the end of it."""

    model_config = ConfigDict(extra="forbid")

    book: str
    seconds: Annotated[float, Field(ge=0, le=600)] = 0
    failures: Annotated[int, Field(ge=0, le=100)] = 0
    number: int = 0
    """The client's own, to find it again."""


@task("witness", version=1)
def witness(payload: Witnessed, ctx: Context) -> object:
    """Take its time, say so all along, and stop when it is asked to."""
    with page(payload.book, ctx) as own:
        until = time.monotonic() + payload.seconds
        while (left := until - time.monotonic()) > 0:
            ctx.wait(min(ALIVE_EVERY_S, left))
            ctx.raise_if_stopped()
            own.write("alive")
        if ctx.attempt <= payload.failures:
            raise Retryable(f"attempt {ctx.attempt} fails, as the first {payload.failures} do")
    return {"try": own.id}


@task("held", version=1)
def held(payload: Witnessed, ctx: Context) -> object:
    """The same, under a limit of its own."""
    return witness(payload, ctx)


@task("hung", version=1)
def hung(payload: Witnessed, ctx: Context) -> object:
    """Go on, whatever it is asked: only the end of its process stops it."""
    with page(payload.book, ctx) as own:
        while True:
            time.sleep(ALIVE_EVERY_S)
            own.write("alive")


@task("deaf", version=1, isolation="process")
def deaf(payload: Witnessed, ctx: Context) -> object:
    """The same with every signal blocked that can be."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return hung(payload, ctx)


@task("hungry", version=1, isolation="process", memory_mb=96)
def hungry(payload: Witnessed, ctx: Context) -> object:
    """Take a MiB after the other, and never have enough."""
    with page(payload.book, ctx):
        taken = []
        while True:
            taken.append(bytearray(b"x") * 2**20)
            time.sleep(0.02)


@task("versioned", version=1)
def versioned(payload: object, ctx: Context) -> str:
    """Say which version it is."""
    return "the first"
