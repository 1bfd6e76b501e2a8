"""The first process of an isolated call: forks the one that works, and leaves nothing of it.

Run by its path in a fresh interpreter, `python -P guard.py SETTING`, with a socket to its
worker as standard input. What it reads there: `T` asks the working process to terminate; the
end of it, which is also what the worker's death looks like, kills that one and all that it
started, in whatever group or session they hide. Then it says how it ended, and goes.

It imports little, has one thread and runs no code of the user's: whatever that does, to its
interpreter or to its signals, does not reach here.
"""

import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NoReturn

LEASH: Final = 0
TERMINATE: Final = b"T"
# How often the memory is looked at.
_LOOK_EVERY_S: Final = 0.1
_REAP_EVERY_S: Final = 0.005
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# What it may map beyond what it may hold: stacks of threads, and what is not touched.
_MAPPED_BEYOND_BYTES: Final = 64 * 1024 * 1024
_NO_STATUS: Final = -1


def main() -> NoReturn:
    setting = json.loads(sys.argv[1])
    # Orphans of the working process come here, where they are found and ended.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    woken = _wakes_at(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    if os.getppid() != setting["worker"]:
        os._exit(1)
    me = os.getpid()
    working = os.fork()
    if working == 0:
        os.close(woken)
        _work(setting, me)
    with suppress(OSError):
        os.setpgid(working, working)
    _let_go(setting["channel"])
    _tell({"pid": working})
    _tell(_watch(working, woken, setting["memory_bytes"]))
    os._exit(0)


def _work(setting: "dict[str, object]", guard: int) -> NoReturn:
    """Become the process that works; never returns to what forked it."""
    try:
        os.setpgid(0, 0)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        os.close(signal.set_wakeup_fd(-1))
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), LEASH)
        _bound(int(str(setting["memory_bytes"])))
        sys.path[:] = setting["path"]  # type: ignore[call-overload]  # JSON of the worker's
        sys.argv[:] = [""]
        from lamplighter.tasks.child import work  # noqa: PLC0415 -- on the path only now

        work(int(str(setting["channel"])))
    except BaseException:  # noqa: BLE001 -- it must not go on as a second guard
        sys.excepthook(*sys.exc_info())
    os._exit(1)


def _bound(memory_bytes: int) -> None:
    """What it allocates at once must not reach the machine's end before anybody looks."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = memory_bytes + max(_MAPPED_BEYOND_BYTES, memory_bytes // 4)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Where memory runs out all the same, the system ends this one, not the worker.
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123 -- pathlib costs an import
        file.write("1000")


def _watch(working: int, woken: int, memory_bytes: int) -> "dict[str, object]":
    """Follow it to its end, and end all that it started; returns how it ended."""
    status, peak, too_much = None, 0, False
    while status is None and not too_much:
        ready, _, _ = select.select([LEASH, woken], [], [], _LOOK_EVERY_S)
        if woken in ready and signal.SIGTERM in os.read(woken, 4096):
            break
        if LEASH in ready:
            if os.read(LEASH, 1) != TERMINATE:
                break
            _signal_group(working, signal.SIGTERM)
        status = _reap(working)
        held = sum(map(_held_bytes, [*_descendants(os.getpid())]))
        peak, too_much = max(peak, held), status is None and held > memory_bytes
    ended = _end_all(working)
    status = status if status is not None else ended
    return {"status": status, "too_much": too_much, "peak_bytes": peak}


def _end_all(working: int) -> int:
    """Kill whatever there is below this process until there is nothing; its own status, if new."""
    status = _NO_STATUS
    while True:
        _signal_group(working, signal.SIGKILL)
        for pid in [*_descendants(os.getpid())]:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, found = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == working:
            status = found
        elif pid == 0:
            time.sleep(_REAP_EVERY_S)


def _reap(working: int) -> int | None:
    """Bury whoever has ended; the working process's status once it is among them."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == working:
                return status
            if pid == 0:
                return None
    return _NO_STATUS


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 -- pathlib costs an import
            found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    except OSError:
        # Ended meanwhile, or a kernel without these lists.
        return _by_parent(pid)
    return found


def _by_parent(pid: int) -> list[int]:
    """Its children, by looking at everybody's parent; none where there is no /proc."""
    try:
        everybody = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 -- as above
    except OSError:
        return []
    return [one for one in everybody if _parent(one) == pid]


def _parent(pid: int) -> int:
    try:
        # The name before it is in parentheses, and may hold anything.
        return int(_read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return _NO_STATUS


def _held_bytes(pid: int) -> int:
    """What a process has of memory of its own, without files that it has mapped."""
    try:
        _, resident, shared, *_ = _read(f"/proc/{pid}/statm").split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE_BYTES


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123 -- as above
        return file.read()


def _wakes_at(*numbers: signal.Signals) -> int:
    """A pipe that is ready to be read once one of these signals has come."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return woken


def _let_go(channel: int) -> None:
    """Keep no end of what the working process holds: its own end has to be seen."""
    os.close(channel)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _tell(said: "dict[str, object]") -> None:
    # A worker that is dead has nobody who reads it.
    with suppress(OSError):
        os.write(LEASH, json.dumps(said).encode() + b"\n")


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _prctl(option: int, value: int) -> None:
    # Linux alone has it. Elsewhere its group is what is found of a call.
    with suppress(ImportError, AttributeError, OSError):
        import ctypes  # noqa: PLC0415 -- an interpreter may have been built without it

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
