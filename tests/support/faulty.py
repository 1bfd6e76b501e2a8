"""A client of AWS whose next calls go wrong as told; all others reach the real one."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError

Call = Callable[..., Mapping[str, Any]]
Fault = Callable[[Call, Mapping[str, Any]], Mapping[str, Any]]
"""Given the real call and its parameters, answers or raises in its place."""


class Faulty:
    """Wraps a client: `client.next("put_item", lost(error))`.

    `asked` has the parameters of each call, by operation.
    """

    def __init__(self, client: Any) -> None:  # noqa: ANN401 -- a botocore client
        self._client = client
        self._faults: dict[str, deque[Fault]] = defaultdict(deque)
        self._always: dict[str, Fault] = {}
        self.asked: dict[str, list[Mapping[str, Any]]] = defaultdict(list)

    def next(self, operation: str, *faults: Fault) -> None:
        """Each fault happens to one call, in this order."""
        self._faults[operation].extend(faults)

    def always(self, fault: Fault, *operations: str) -> None:
        """The fault happens to every call of these operations."""
        self._always.update(dict.fromkeys(operations, fault))

    @property
    def calls(self) -> Counter[str]:
        return Counter({operation: len(asked) for operation, asked in self.asked.items()})

    def __getattr__(self, operation: str) -> Any:  # noqa: ANN401 -- as the client's
        real = getattr(self._client, operation)

        def call(**parameters: Any) -> Mapping[str, Any]:  # noqa: ANN401 -- as the client's
            self.asked[operation].append(parameters)
            faults = self._faults[operation]
            fault = faults.popleft() if faults else self._always.get(operation)
            answer: Mapping[str, Any] = fault(real, parameters) if fault else real(**parameters)
            return answer

        return call if callable(real) and operation != "meta" else real


def never(error: Exception) -> Fault:
    """The request does not arrive."""

    def fault(_call: Call, _parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        raise error

    return fault


def lost(error: Exception) -> Fault:
    """The request takes effect; its answer does not arrive."""

    def fault(call: Call, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        call(**parameters)
        raise error

    return fault


def repeated(call: Call, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request takes effect, its answer is lost, and botocore sends it again by itself."""
    call(**parameters)
    return call(**parameters)


def answers(answer: Mapping[str, Any]) -> Fault:
    """The service says this, and does nothing."""
    return lambda _call, _parameters: answer


def refusal(code: str, *, status: int = 400, **more: Any) -> ClientError:  # noqa: ANN401 -- of any error
    """An error as botocore makes it of an answer."""
    response: Any = {
        "Error": {"Code": code, "Message": "of the test's making"},
        "ResponseMetadata": {"HTTPStatusCode": status},
        **more,
    }
    return ClientError(response, "Operation")
