"""What a token may do: each route asks for one scope, and takes no other."""

import pytest

from lamplighter.api.access import Access, Scope
from lamplighter.api.operations import OPERATIONS, Operation
from lamplighter.memory import MemoryWorld
from tests.support.api import JSON, Answer, Caller, caller, event

NEEDED = {
    "create_job": "jobs:write",
    "create_jobs": "jobs:write",
    "delete_job": "jobs:write",
    "patch_job": "jobs:write",
    "pause_job": "jobs:write",
    "resume_job": "jobs:write",
    "trigger_job": "jobs:write",
    "backfill_job": "jobs:write",
    "list_jobs": "jobs:read",
    "show_job": "jobs:read",
    "list_job_executions": "jobs:read",
    "list_job_runs": "jobs:read",
    "show_ledger": "jobs:read",
    "show_forecast": "jobs:read",
    "show_progress": "jobs:read",
    "show_recovery": "jobs:read",
    "list_limits": "ops:limits",
    "set_limit": "ops:limits",
    "remove_limit": "ops:limits",
    "list_executions": "jobs:read",
    "show_execution": "jobs:read",
    "cancel_execution": "jobs:write",
    "cancel_executions": "jobs:write",
    "replay_execution": "ops:replay",
    "replay_executions": "ops:replay",
    "create_payload": "jobs:write",
    "preview_schedule": "jobs:read",
    "heartbeat_try": None,
    "complete_try": None,
    "fail_try": None,
    "health": None,
    "openapi": None,
    "docs": None,
}
GUARDED = [operation for operation in OPERATIONS if operation.needs]
STRICT = Access(owner_claim="sub", requires_scopes=True)
LENIENT = Access(owner_claim="sub", requires_scopes=False)


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld()


def asked(world: MemoryWorld, operation: Operation, access: Access, **claims: object) -> Answer:
    """What the owner `acme` is answered with these claims beside the name."""
    path = operation.path.replace("{job_id}", "job_" + "0" * 26)
    return caller(world, access=access).send(
        event(
            operation.method,
            "/v1" + path.replace("{execution_id}", "ex_" + "0" * 26),
            body="{}" if operation.body else None,
            headers={"content-type": JSON},
            claims={"sub": "acme", **claims},
        )
    )


def test_the_scope_of_each_route_is_this_one() -> None:
    assert {operation.id: operation.needs for operation in OPERATIONS} == NEEDED


@pytest.mark.parametrize("operation", GUARDED, ids=lambda operation: operation.id)
class TestEachRoute:
    def test_lets_in_who_has_its_scope_or_is_an_admin(
        self, world: MemoryWorld, operation: Operation
    ) -> None:
        for scope in (operation.needs, "admin", f"openid {operation.needs} email"):
            assert asked(world, operation, STRICT, scope=scope).status in {200, 400, 404}

    def test_refuses_who_has_all_others(self, world: MemoryWorld, operation: Operation) -> None:
        others = " ".join({*Scope} - {operation.needs, Scope.ADMIN})

        for access in (STRICT, LENIENT):
            answer = asked(world, operation, access, scope=others)
            assert answer.status == 403
            assert answer.json["type"] == "urn:lamplighter:problem:insufficient-scope"
            assert f'scope="{operation.needs}"' in answer.headers["www-authenticate"]

    @pytest.mark.parametrize("scope", [None, "", "openid", "Jobs:Read jobs:*", 5, ["x"]], ids=repr)
    def test_lets_in_who_has_none_only_where_none_is_required(
        self, world: MemoryWorld, operation: Operation, scope: object
    ) -> None:
        claims = {} if scope is None else {"scope": scope}

        assert asked(world, operation, STRICT, **claims).status == 403
        answer = asked(world, operation, LENIENT, **claims)
        if operation.needs is Scope.OPS_LIMITS:
            # It concerns all owners: no deployment lets in just anybody.
            assert answer.status == 403
        else:
            assert answer.status in {200, 400, 404}

    @pytest.mark.parametrize("shape", ["{}", "[openid {}]", "openid,{}"])
    def test_reads_a_list_as_api_gateway_hands_it_over(
        self, world: MemoryWorld, operation: Operation, shape: str
    ) -> None:
        claim = shape.format(operation.needs)

        assert asked(world, operation, STRICT, scp=claim).status in {200, 400, 404}
        assert asked(world, operation, STRICT, scp=[operation.needs]).status in {200, 400, 404}

    def test_with_a_prefix_takes_only_names_that_have_it(
        self, world: MemoryWorld, operation: Operation
    ) -> None:
        cognito = Access(owner_claim="sub", requires_scopes=True, scope_prefix="jobs/")

        assert asked(world, operation, cognito, scope=f"jobs/{operation.needs}").status != 403
        for foreign in (operation.needs, f"other/{operation.needs}", "admin"):
            answer = asked(world, operation, cognito, scope=foreign)
            assert answer.status == 403
            assert f"jobs/{operation.needs}" in answer.json["detail"]


def test_what_an_admin_alone_may_do_needs_the_scope_everywhere() -> None:
    with pytest.raises(Exception, match="admin"):
        LENIENT.owner({"sub": "acme"}, needs=Scope.ADMIN)

    assert LENIENT.owner({"sub": "acme", "scope": "admin"}, needs=Scope.ADMIN) == "acme"


def test_a_refused_create_writes_nothing(world: MemoryWorld) -> None:
    reader: Caller = caller(world, access=LENIENT)
    answer = reader.send(
        event(
            "POST",
            "/v1/jobs",
            body='{"task": "echo"}',
            claims={"sub": "acme", "scope": "jobs:read"},
        )
    )

    assert answer.status == 403
    assert not world.tables.executions
