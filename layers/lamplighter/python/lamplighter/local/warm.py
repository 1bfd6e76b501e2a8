"""First calls, so that the first jobs do not pay for them.

The emulator starts a process for each concurrent call of a function and keeps it. One costs
about a second of a core, and here they share the cores that in Lambda each would have of its
own. What is called is the deployed handler, with nothing to do.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import httpx
from botocore.exceptions import BotoCoreError

from lamplighter.local.deploy import PATIENCE_S, Cloud
from lamplighter.local.errors import CannotRun
from lamplighter.local.gateway import Target

EMPTY_BATCH: Final = json.dumps({"Records": []})
# The emulator runs up to five batches of a mapping at once: jobs of one second are spread over
# several processes, and so are the partitions that a tick hands out.
AT_ONCE: Final = {"default": 4, "scheduler": 3}
"""By lane, or by the function's folder; one for the others."""
_UNHEARD: Final = (
    f"did not answer within {PATIENCE_S} s: has this machine other work? Its log is in "
    ".lamplighter/emulator.log"
)


def warm(cloud: Cloud, target: Target) -> int:
    """Start processes for every function; returns how many.

    Raises CannotRun with the error of a function that cannot be loaded, or does not answer.
    """
    names = list(_names(cloud))
    # All at once: a call that came later would find an idle process.
    side_by_side = ThreadPoolExecutor(len(names) + 1)
    try:
        calls = [side_by_side.submit(_invoke, cloud, name) for name in names]
        calls.append(side_by_side.submit(_ask_health, target))
        for call in calls:
            call.result()
    finally:
        # Whoever is interrupted ends the emulator next, and with it the calls still open.
        side_by_side.shutdown(wait=False, cancel_futures=True)
    return len(calls)


def _names(cloud: Cloud) -> Iterator[str]:
    """Of the functions behind queues, each as often as it should have processes."""
    mappings = cloud.functions.list_event_source_mappings()["EventSourceMappings"]
    for name in sorted({mapping["FunctionArn"].rpartition(":")[2] for mapping in mappings}):
        function = cloud.functions.get_function_configuration(FunctionName=name)
        folder = function["Handler"].partition(".")[0]
        lane = function["Environment"]["Variables"].get("LAMPLIGHTER_LANE", folder)
        yield from [name] * AT_ONCE.get(lane, 1)


def _invoke(cloud: Cloud, name: str) -> None:
    try:
        answer = cloud.functions.invoke(FunctionName=name, Payload=EMPTY_BATCH)
    except BotoCoreError as error:
        raise CannotRun(f"{name} {_UNHEARD} ({type(error).__name__})") from error
    if "FunctionError" in answer:
        told = json.loads(answer["Payload"].read())
        raise CannotRun(f"{name}: {told.get('errorMessage', told)}")


def _ask_health(target: Target) -> None:
    """By the way that the gateway's requests take."""
    try:
        answer = httpx.get(
            f"{target.url}/v1/health",
            headers={"host": target.host},
            timeout=PATIENCE_S,
            trust_env=False,
        )
    except httpx.HTTPError as error:
        raise CannotRun(f"the API {_UNHEARD} ({type(error).__name__})") from error
    if answer.status_code != httpx.codes.OK:
        raise CannotRun(f"the API's health: {answer.status_code} {answer.text[:500]}")
