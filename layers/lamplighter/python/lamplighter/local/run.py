"""The whole product on this machine, an emulator in the place of AWS.

The template and the handlers are those that would be deployed. Everything is fresh each time,
and gone when it ends.
"""

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from socket import socket
from types import FrameType
from typing import Final

from rich.console import Console

from lamplighter.local import emulator, synth
from lamplighter.local.deploy import Cloud, Deployed, deploy
from lamplighter.local.emulator import Emulator
from lamplighter.local.errors import CannotRun
from lamplighter.local.feed import Feed
from lamplighter.local.gateway import Gateway, Target
from lamplighter.local.home import Home
from lamplighter.local.issuer import AUDIENCE, Issuer, mint
from lamplighter.local.server import listen, port_of, serving
from lamplighter.local.warm import warm

DEFAULT_PORT: Final = 8080
DEFAULT_OWNER: Final = "me"
LOOK_EVERY_S: Final = 0.2


def main(
    *,
    port: int = DEFAULT_PORT,
    owner: str = DEFAULT_OWNER,
    shell_owners: Sequence[str] = (),
    home: Home | None = None,
    chosen: Mapping[str, str] | None = None,
) -> int:
    """Run until Ctrl-C, SIGTERM or SIGHUP; returns the exit code.

    `chosen` goes before what `cdk.json` and a local run choose.

    When it returns every child has ended and every port is free, also if the start failed
    half-way. If it is killed instead, the children end within seconds.
    """
    terminal = Console(highlight=False, soft_wrap=True, markup=False)
    _forget_aws_configuration()
    try:
        with _ended_by_signals():
            home = home or Home.of()
            with home.alone():
                _run(
                    home,
                    terminal,
                    port=port,
                    owner=owner,
                    shell_owners=shell_owners,
                    chosen=chosen or {},
                )
    except CannotRun as error:
        terminal.print(f"cannot run: {error}", style="red")
        return 1
    except KeyboardInterrupt:
        terminal.print("ended")
    return 0


def _run(
    home: Home,
    terminal: Console,
    *,
    port: int,
    owner: str,
    shell_owners: Sequence[str],
    chosen: Mapping[str, str],
) -> None:
    with ExitStack() as until_the_end:
        # The port first: whether it is free is known before anything takes long.
        gateway = Gateway(port=port)
        until_the_end.enter_context(serving(gateway.app(), listen(port)))
        issuer, listening = _issuer(home)
        until_the_end.enter_context(serving(issuer.app(), listening))

        with _step(terminal, "synthesize the app") as said:
            changed = synth.synthesize(home, {**context(issuer, shell_owners), **chosen})
            said.append("" if changed else "unchanged")
        with _step(terminal, "start the emulator"):
            aws = until_the_end.enter_context(emulator.running(home, Feed(terminal).hear))
            aws.wait_until_healthy()
            home.announce_emulator(aws.url)
        cloud = Cloud(aws.url)
        with _step(terminal, "deploy its stacks") as said:
            deployed = deploy(home, cloud)
            said.append(f"{deployed.resources} resources")
        with _step(terminal, "warm up its functions") as said:
            target = _target(aws, deployed)
            said.append(f"{warm(cloud, target)} processes")

        gateway.open(target)
        terminal.print("jobs are kept for as long as this runs; Ctrl-C ends it", style="dim")
        terminal.print(f"ready: http://127.0.0.1:{port}", style="bold")
        terminal.print(f"token: {mint(owner=owner, home=home)}")
        _wait(aws)


def _issuer(home: Home) -> tuple[Issuer, socket]:
    """At the port of the last run if that is free: then the template is the same, too."""
    try:
        listening = listen(Issuer.last_port(home) or 0)
    except CannotRun:
        listening = listen(0)
    return Issuer.announce(home, port=port_of(listening)), listening


def context(issuer: Issuer, shell_owners: Sequence[str]) -> dict[str, str]:
    """What a run chooses; all else is as `cdk.json` says, who may use the shell too."""
    chosen = {
        "stage": "local",
        "architecture": "host",
        "issuer": issuer.url,
        "audience": AUDIENCE,
        # Servers of this machine, too: what a deployment says of targets is for a deployment.
        "http_owners": "*",
        "http_allow": "http,loopback",
        "http_signing_secret": "",
    }
    return chosen | ({"shell_owners": ",".join(shell_owners)} if shell_owners else {})


def _target(aws: Emulator, deployed: Deployed) -> Target:
    """The stack's own ApiUrl names a host of AWS."""
    return Target(url=aws.url, host=f"{deployed.outputs['ApiId']}.execute-api.localhost:{aws.port}")


def _wait(aws: Emulator) -> None:
    while not aws.ended:
        time.sleep(LOOK_EVERY_S)
    raise CannotRun("the emulator ended by itself; its log is in .lamplighter/emulator.log")


@contextmanager
def _step(terminal: Console, what: str) -> Iterator[list[str]]:
    """One line: what is done, what came of it, how long it took."""
    begun = time.monotonic()
    said: list[str] = []
    terminal.print(f"{what} …", end=" ")
    try:
        yield said
    except BaseException:
        terminal.print()
        raise
    terminal.print(*filter(None, said), f"{time.monotonic() - begun:.1f} s")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """The first signal raises KeyboardInterrupt, later ones do not disturb the clean-up.

    Also where a shell that starts us in the background has Ctrl-C ignored. `nohup` stays.
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _forget_aws_configuration() -> None:
    """Nothing here may read a user's profile, let alone reach a real account."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        os.environ[name] = os.devnull
