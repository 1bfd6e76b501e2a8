"""Tasks that do to their process what they like; only an isolated call survives them."""

import ctypes
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, JsonValue

from lamplighter import Context, Permanent, RateLimited, WritesRefused, task
from lamplighter.tasks.registry import Task

LONG_S = 60.0
SECRET_OF_A_VALIDATOR = "quoted by its validator"


def ready() -> None:
    print("ready", flush=True)


class Inner(BaseModel):
    number: int


def rogue(
    name: str, *, memory_mb: int | None = None
) -> Callable[[Callable[[Any, Context], object]], Task[Any, object]]:
    return task(name, isolation="process", memory_mb=memory_mb)


@rogue("tell")
def tell(payload: JsonValue, ctx: Context) -> object:
    """All that its context says."""
    return {
        "payload": payload,
        "execution_id": ctx.execution_id,
        "job_id": ctx.job_id,
        "owner": ctx.owner,
        "attempt": ctx.attempt,
        "scheduled_for": ctx.scheduled_for,
        "run_at": ctx.run_at,
        "deadline": ctx.deadline,
        "idempotency_key": ctx.idempotency_key,
        "stopped": ctx.stopped,
        "pid": os.getpid(),
        "stdin": sys.stdin.read(),
        "modules": [name for name in ("httpcore", "boto3") if name in sys.modules],
    }


@rogue("keep")
def keep(payload: Literal["first", "again", "complete", "refused"], ctx: Context) -> object:
    """What its context keeps for it, from one try to the next."""
    before = ctx.state
    ctx.checkpoint({"came to": payload, "ä": [1, None]})
    paid = ctx.once("pay", lambda: {"paid in": payload})
    told = [before, ctx.state, paid]
    own = {"TableName": "own", "Item": {"pk": {"S": "k"}, "raw": {"B": b"\x00\xff"}}}
    if payload == "complete":
        ctx.complete_with([{"Put": own}], result=told)
    if payload == "refused":
        try:
            ctx.complete_with([{"Put": own}])
        except WritesRefused as error:
            return [[one.index, one.code] for one in error.refusals]
    return told


@rogue("defer")
def defer(payload: None, ctx: Context) -> object:
    """What it is told to end it with goes to somebody else: here, to its output."""
    deferral = ctx.defer(heartbeat=timedelta(minutes=2))
    print(json.dumps([deferral.execution_id, deferral.token]), flush=True)
    return deferral


@rogue("send")
def send(payload: str, ctx: Context) -> None:
    """What is to be completed, as it stands."""
    ctx.calls.ask("complete", payload)


@task("double")
def double(payload: int, ctx: Context) -> int:
    """Not isolated, unless it is after a crash."""
    return 2 * payload


@task("where")
def where(payload: None, ctx: Context) -> int:
    return os.getpid()


@rogue("fail")
def fail(payload: dict[str, str], ctx: Context) -> object:
    match payload["by"]:
        case "permanent":
            raise Permanent("no such customer")
        case "rate limit":
            raise RateLimited("busy", retry_after=30)
        case "oserror":
            raise FileNotFoundError(2, "not here")
        case "exit":
            sys.exit(3)
        case "inner":
            return Inner.model_validate({"number": payload["secret"]})
        case "quote":
            raise ValueError(f"refused: {payload}, {os.environ['ROGUE_PASSWORD']}")
        case "unprintable":
            raise OSError("\ud800 in a name")
        case _:
            return object()


def _refused(value: str) -> str:
    raise ValueError(f"{SECRET_OF_A_VALIDATOR} {value}")


@rogue("strict")
def strict(payload: Annotated[str, AfterValidator(_refused)], ctx: Context) -> None: ...


@rogue("polite")
def polite(payload: None, ctx: Context) -> str:
    ready()
    ctx.wait(LONG_S)
    ctx.raise_if_stopped()
    return "never stopped"


@rogue("saw")
def saw(payload: None, ctx: Context) -> object:
    """Finish although it is asked to stop."""
    ready()
    ctx.wait(LONG_S)
    return {"cancelled": ctx.cancelled, "why": ctx.signal.why}


@rogue("deaf")
def deaf(payload: None, ctx: Context) -> None:
    """Take no notice, and block every signal that can be blocked."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    ready()
    time.sleep(LONG_S)


@rogue("terminable")
def terminable(payload: str, ctx: Context) -> None:
    """Take no notice of its context; SIGTERM gives it the time to leave a word."""

    def last_words(*_: object) -> None:
        Path(payload).write_text("terminated", encoding="utf-8")
        os._exit(0)

    signal.signal(signal.SIGTERM, last_words)
    ready()
    time.sleep(LONG_S)


@rogue("spin")
def spin(payload: None, ctx: Context) -> None:
    """Keep the interpreter's lock in native code: no other thread of it runs again."""
    ready()
    while True:
        ctypes.PyDLL(None).sleep(int(LONG_S))


@rogue("exit")
def leave(payload: int, ctx: Context) -> None:
    os._exit(payload)


@rogue("die")
def die(payload: int, ctx: Context) -> None:
    print("about to die")
    os.kill(os.getpid(), payload)
    time.sleep(LONG_S)


@rogue("segfault")
def segfault(payload: None, ctx: Context) -> None:
    ctypes.string_at(0)


@rogue("hoard", memory_mb=128)
def hoard(payload: int, ctx: Context) -> None:
    """Hold more and more, so many bytes at a time."""
    held = []
    while True:
        held.append(b"x" * payload)
        time.sleep(0.001)


@rogue("hoard_elsewhere", memory_mb=128)
def hoard_elsewhere(payload: None, ctx: Context) -> None:
    """The same in three processes of its own, each within the limit."""
    for _ in range(3):
        if os.fork() == 0:
            kept = b"x" * (80 * 2**20)
            time.sleep(LONG_S)
            os._exit(len(kept) == 0)
    time.sleep(LONG_S)


@rogue("hoard_by_default")
def hoard_by_default(payload: None, ctx: Context) -> int:
    return len(b"x" * (200 * 2**20))


@rogue("write")
def write(payload: dict[str, str], ctx: Context) -> str:
    print(payload["out"])
    sys.stderr.write(payload["err"])
    return "done"


@rogue("flood")
def flood(payload: None, ctx: Context) -> str:
    """Write as much as ten megabytes, some of it no text."""
    for _ in range(160):
        os.write(1, b"\xff" * 1023 + b"\n" + b"y" * 63 * 1024)
    return "done"


@rogue("flood_without_end")
def flood_without_end(payload: None, ctx: Context) -> None:
    ready()
    while True:
        os.write(2, b"z" * 65_536)


def _channel() -> socket.socket:
    """The one to the worker: the only socket there is."""
    for number in range(3, 64):
        with suppress(OSError):
            return socket.socket(fileno=os.dup(number))
    raise AssertionError("no channel")


@rogue("garble")
def garble(payload: Literal["noise", "length", "result"], ctx: Context) -> None:
    """Say to the worker what is none of the protocol's."""
    with _channel() as channel:
        match payload:
            case "noise":
                channel.sendall((9).to_bytes(4) + b"not JSON!")
            case "length":
                channel.sendall(b"\xff" * 1000)
            case "result":
                said = b'{"succeeded": {"result": "{not JSON"}}'
                channel.sendall(len(said).to_bytes(4) + said)
        time.sleep(LONG_S)


@rogue("close")
def close(payload: None, ctx: Context) -> None:
    with _channel() as channel:
        channel.shutdown(socket.SHUT_RDWR)
    time.sleep(LONG_S)


@rogue("close_and_return")
def close_and_return(payload: None, ctx: Context) -> None:
    os.closerange(3, 1024)


@rogue("stop_the_guard")
def stop_the_guard(payload: int, ctx: Context) -> None:
    os.kill(os.getppid(), payload)
    ready()
    time.sleep(LONG_S)


@rogue("breed")
def breed(payload: str, ctx: Context) -> str:
    """Leave processes behind: in its group, in a session of its own, and one that is nobody's."""
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    pids = [subprocess.Popen(sleeper).pid, subprocess.Popen(sleeper, start_new_session=True).pid]
    read, write_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write_end, str(os.getpid()).encode())
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            time.sleep(LONG_S)
        os._exit(0)
    pids.append(int(os.read(read, 16)))
    Path(payload).write_text(" ".join(map(str, [os.getpid(), os.getppid(), *pids])))
    threading.Thread(target=time.sleep, args=(LONG_S,)).start()
    return "bred"


@rogue("breed_and_spin")
def breed_and_spin(payload: str, ctx: Context) -> None:
    breed(payload, ctx)
    spin(None, ctx)


@rogue("ask")
def ask(payload: dict[str, str], ctx: Context) -> list[str]:
    return [
        ctx.calls.ask(name, "x" * 1_200_000 if argument == "large" else argument)
        for name, argument in payload.items()
    ]


@rogue("ask_side_by_side")
def ask_side_by_side(payload: int, ctx: Context) -> list[str]:
    answers: dict[int, str] = {}

    def one(number: int) -> None:
        answers[number] = ctx.calls.ask("echo", str(number))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(payload)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[number] for number in range(payload)]


@rogue("semaphore")
def semaphore(payload: None, ctx: Context) -> None:
    multiprocessing.get_context("spawn").Lock()
