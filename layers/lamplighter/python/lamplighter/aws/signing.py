"""The keys that HTTP targets' requests are signed with, from one secret of Secrets Manager."""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from lamplighter.aws.failures import CallRefused, translated
from lamplighter.core.errors import Unavailable
from lamplighter.core.webhooks import SigningKey, parse_keys
from lamplighter.ports import Clock, Telemetry

# A key that is added or taken away is known to every worker after that long.
FRESH_S: Final = 300.0
AGAIN_AFTER_S: Final = 30.0


class Secrets(Protocol):
    """The one call of Secrets Manager's client."""

    def get_secret_value(self, *, SecretId: str) -> Mapping[str, Any]: ...  # noqa: N803 -- AWS's


class SecretKeys:
    """`tasks.http.Keys`: read when a request is first signed, and again every five minutes.

    Keys that cannot be read anew are used on. Raises Unavailable while there never were any: a
    request that should be signed is not sent without. The reason goes to the operator alone.
    """

    def __init__(
        self, connect: Callable[[], Secrets], *, arn: str, clock: Clock, telemetry: Telemetry
    ) -> None:
        self._connect = connect
        self._arn = arn
        self._clock = clock
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._keys: Sequence[SigningKey] = ()
        self._fresh_until = float("-inf")

    def __call__(self) -> Sequence[SigningKey]:
        with self._lock:
            now = self._clock.monotonic()
            if now >= self._fresh_until:
                is_read = self._read()
                self._fresh_until = now + (FRESH_S if is_read else AGAIN_AFTER_S)
            if not self._keys:
                raise Unavailable("the keys to sign with cannot be read")
            return self._keys

    def _read(self) -> bool:
        try:
            with translated("secretsmanager.GetSecretValue"):
                answer = self._connect().get_secret_value(SecretId=self._arn)
            # A secret kept as bytes has no text.
            self._keys = parse_keys(answer.get("SecretString", ""))
        except (CallRefused, Unavailable, ValueError) as error:
            self._telemetry.broke("signing secret", error)
            return False
        return True
