"""Named targets: what a name may be, whose it is, and what an answer means for the try."""

from datetime import timedelta

import pytest

from lamplighter.core import limits
from lamplighter.core.errors import Rejected
from lamplighter.core.model import Payload, PayloadRef, Spec
from lamplighter.core.named import (
    NO_TARGETS,
    Directory,
    Entry,
    Invocation,
    NamedTarget,
    TargetKind,
    TurnedDown,
    Unanswered,
    failure_of,
    kind_of,
)
from lamplighter.core.retry import Failure, GiveUp, Kind, RetryPolicy
from tests.support.rows import T

BILLING = NamedTarget(kind=TargetKind.LAMBDA, name="billing-function")
DIRECTORY = Directory.of(
    Entry(name="billing-function", kind=TargetKind.LAMBDA, owners=frozenset({"acme"}), at="arn:1"),
    Entry(name="letters", kind=TargetKind.SQS, owners=frozenset({"acme", "globex"}), at="url:2"),
    Entry(name="news", kind=TargetKind.SNS, owners=frozenset({"*"}), at="arn:3"),
)


@pytest.mark.parametrize("name", ["billing", "a", "9", "A-b_C", "x" * 64])
def test_a_name_is_letters_digits_dashes_and_underscores(name: str) -> None:
    assert NamedTarget(kind=TargetKind.SQS, name=name).task_name == f"sqs:{name}"


@pytest.mark.parametrize(
    "name",
    ["", "-a", "_a", "a b", "a:b", "arn:aws:sqs:eu-central-1:123456789012:q", "x" * 65, "é", "a\n"],
    ids=ascii,
)
def test_no_arn_is_a_name(name: str) -> None:
    """S2-F1: a job names a target, never where it is."""
    with pytest.raises(Rejected, match=r"target\.name"):
        NamedTarget(kind=TargetKind.SQS, name=name)


@pytest.mark.parametrize(
    ("kind", "name", "owner"),
    [
        (TargetKind.LAMBDA, "billing-function", "globex"),
        (TargetKind.LAMBDA, "no-such-function", "globex"),
        (TargetKind.SQS, "billing-function", "acme"),
        (TargetKind.LAMBDA, "letters", "acme"),
    ],
    ids=["another owner's", "nobody's", "of another kind", "of another kind still"],
)
def test_what_an_owner_may_not_call_is_as_if_it_were_not_there(
    kind: TargetKind, name: str, owner: str
) -> None:
    target = NamedTarget(kind=kind, name=name)

    assert DIRECTORY.find(target, owner=owner) is None
    with pytest.raises(Rejected) as refused:
        DIRECTORY.check(target, owner=owner)
    assert (refused.value.field, refused.value.value) == ("target.name", name)


def test_a_refusal_names_only_what_is_ones_own() -> None:
    def refusal(name: str, owner: str) -> str:
        with pytest.raises(Rejected) as refused:
            DIRECTORY.check(NamedTarget(kind=TargetKind.LAMBDA, name=name), owner=owner)
        return refused.value.reason

    assert refusal("billing-function", "globex") == refusal("no-such-function", "globex")
    assert refusal("x", "globex").endswith("there are: letters, news")
    assert refusal("x", "acme").endswith("there are: billing-function, letters, news")
    with pytest.raises(Rejected, match="there is none"):
        NO_TARGETS.check(BILLING, owner="acme")


def test_who_is_named_may_and_so_may_everybody_where_all_are() -> None:
    news = NamedTarget(kind=TargetKind.SNS, name="news")

    found = DIRECTORY.find(BILLING, owner="acme")

    assert found is not None
    assert found.at == "arn:1"
    for owner in ("acme", "somebody"):
        DIRECTORY.check(news, owner=owner)


@pytest.mark.parametrize(
    "text",
    [
        *("[]", "5", "{", '{"a": 5}', '{"a": {"kind": "sqs"}}', '{"a b": {"kind": "sqs"}}'),
        *('{"a": {"kind": "ftp", "owners": ["x"]}}', '{"a": {"kind": "sqs", "owners": []}}'),
        *('{"a": {"kind": "sqs", "owners": "x"}}', '{"a": {"kind": "sqs", "owners": [" "]}}'),
        '{"a": {"kind": "sqs", "owners": ["x"], "arn": "y"}}',
        '{"a": {"kind": "sqs", "owners": ["x"], "at": 5}}',
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"'|JSON|Expecting"):
        Directory.from_json(text)


CODES = {
    # Permissions, names, and whatever nobody has heard of.
    "AccessDeniedException": (403, Kind.PERMANENT),
    "AccessDenied": (403, Kind.PERMANENT),
    "AuthorizationError": (403, Kind.PERMANENT),
    "KMSAccessDeniedException": (502, Kind.PERMANENT),
    "KmsAccessDenied": (400, Kind.PERMANENT),
    "ResourceNotFoundException": (404, Kind.PERMANENT),
    "QueueDoesNotExist": (400, Kind.PERMANENT),
    "NonExistentQueue": (400, Kind.PERMANENT),
    "NotFound": (404, Kind.PERMANENT),
    "StateMachineDoesNotExist": (400, Kind.PERMANENT),
    "InvalidParameterValueException": (400, Kind.PERMANENT),
    "InvalidMessageContents": (400, Kind.PERMANENT),
    "InvalidExecutionInput": (400, Kind.PERMANENT),
    "ValidationException": (400, Kind.PERMANENT),
    "RequestTooLargeException": (413, Kind.PERMANENT),
    "MalformedDetail": (400, Kind.PERMANENT),
    "NotAuthorizedForSourceException": (400, Kind.PERMANENT),
    "SomethingNew": (400, Kind.PERMANENT),
    # Too much at once.
    "TooManyRequestsException": (429, Kind.RATE_LIMITED),
    "EC2ThrottledException": (502, Kind.RATE_LIMITED),
    "RequestThrottled": (400, Kind.RATE_LIMITED),
    "KmsThrottled": (400, Kind.RATE_LIMITED),
    "Throttled": (429, Kind.RATE_LIMITED),
    "ThrottlingException": (400, Kind.RATE_LIMITED),
    "ExecutionLimitExceeded": (400, Kind.RATE_LIMITED),
    "SomethingElse": (429, Kind.RATE_LIMITED),
    # A service that has a bad moment, or is not ready yet.
    "ServiceException": (500, Kind.RETRYABLE),
    "InternalFailure": (200, Kind.RETRYABLE),
    "InternalException": (400, Kind.RETRYABLE),
    "ServiceUnavailable": (503, Kind.RETRYABLE),
    "ENINotReadyException": (502, Kind.RETRYABLE),
    "SnapStartNotReadyException": (409, Kind.RETRYABLE),
    "SnapStartTimeoutException": (408, Kind.RETRYABLE),
    "ResourceConflictException": (409, Kind.RETRYABLE),
    "EFSIOException": (410, Kind.RETRYABLE),
    "ServiceQuotaExceededException": (402, Kind.RETRYABLE),
    "ExpiredTokenException": (403, Kind.RETRYABLE),
}


@pytest.mark.parametrize("code", CODES)
def test_what_a_refusal_means(code: str) -> None:
    """S0-R1."""
    status, kind = CODES[code]

    assert kind_of(TurnedDown(code=code, status=status)) is kind


def test_a_permission_that_is_missing_ends_the_execution() -> None:
    failure = failure_of(BILLING, TurnedDown(code="AccessDeniedException", status=403))

    decided = RetryPolicy().decide(attempt=1, failure=failure, now=T, jitter=1.0)

    assert decided == GiveUp(exhausted=False, reason="AccessDeniedException is permanent")


def test_a_throttle_waits_for_as_long_as_it_asks() -> None:
    """S0-R4."""
    turned = TurnedDown(
        code="TooManyRequestsException", status=429, retry_after=timedelta(seconds=90)
    )

    assert failure_of(BILLING, turned) == Failure(
        kind=Kind.RATE_LIMITED,
        type="TooManyRequestsException",
        message="lambda:billing-function refused: TooManyRequestsException",
        retry_after=timedelta(seconds=90),
    )


def test_no_answer_is_another_try_and_leaves_open_what_happened() -> None:
    failure = failure_of(BILLING, Unanswered(reason="ReadTimeoutError"))

    assert (failure.kind, failure.type) == (Kind.RETRYABLE, "NoAnswer")
    assert "whether it was called is unknown" in failure.message


MOST = {
    (TargetKind.LAMBDA, Invocation.REQUEST): 6_000_000,
    (TargetKind.LAMBDA, Invocation.EVENT): 1_000_000,
    (TargetKind.SQS, Invocation.REQUEST): 1_048_576 - 2048,
    (TargetKind.SNS, Invocation.REQUEST): 262_144 - 2048,
    (TargetKind.EVENTBRIDGE, Invocation.REQUEST): 1_000_000 - 2048,
    (TargetKind.STEPFUNCTIONS, Invocation.REQUEST): 262_144,
}


@pytest.mark.parametrize(("kind", "invocation"), MOST, ids=str)
def test_a_payload_by_reference_is_no_larger_than_its_service_takes(
    kind: TargetKind, invocation: Invocation
) -> None:
    target, most = (
        NamedTarget(kind=kind, name="x", invocation=invocation),
        MOST[kind, invocation],
    )

    def spec(size: int) -> Spec:
        ref = PayloadRef(key="o/k", version_id="v", sha256="0" * 64, size=size)
        return Spec(task=target.task_name, target=target, payload=Payload.referring(ref))

    largest = min(most, limits.PAYLOAD_REF_MAX_BYTES)
    assert spec(largest).payload.bytes == largest
    with pytest.raises(Rejected, match=f"payload: larger than the {most} bytes") as refused:
        target.check_payload(most + 1)
    assert refused.value.value == f"{most + 1} bytes"
    if most < limits.PAYLOAD_REF_MAX_BYTES:
        with pytest.raises(Rejected):
            spec(most + 1)


def test_a_spec_has_the_name_of_its_target() -> None:
    with pytest.raises(ValueError, match="its target's name"):
        Spec(task="billing", target=BILLING, payload=Payload.of("{}"))
    with pytest.raises(ValueError, match="an invocation of a sqs"):
        NamedTarget(kind=TargetKind.SQS, name="x", invocation=Invocation.EVENT)
