"""The HTTP API in front of the `api` function: who may call, how often, and what is logged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import jsii
from aws_cdk import RemovalPolicy, Stack
from aws_cdk import aws_apigateway as apigateway
from aws_cdk import aws_apigatewayv2 as apigatewayv2
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

# Neither query strings nor headers: cursors and tokens stay out of the log.
LOGGED: Mapping[str, str] = {
    "request_id": "$context.requestId",
    "at": "$context.requestTime",
    "ip": "$context.identity.sourceIp",
    "method": "$context.httpMethod",
    "path": "$context.path",
    "route": "$context.routeKey",
    "status": "$context.status",
    "latency_ms": "$context.responseLatency",
    "authorizer_error": "$context.authorizer.error",
    "integration_error": "$context.integrationErrorMessage",
}


# Whether it answers, and how it is asked: of nobody's jobs.
OPEN = ("/v1/health", "/v1/openapi.json", "/docs")
# A callback token in the body is the right to one try of one execution.
CALLED_BACK = tuple(
    f"/v1/executions/{{execution_id}}/{verb}" for verb in ("heartbeat", "complete", "fail")
)


@dataclass(frozen=True, kw_only=True)
class Authentication:
    """Whose tokens are believed, and which claim names the owner of jobs."""

    issuer: str
    """Serves `/.well-known/openid-configuration`; equal to the tokens' `iss`, to the slash."""
    audience: Sequence[str]
    """One of them must be the token's `aud`, or its `client_id` if it has no `aud`."""
    owner_claim: str = "sub"
    require_scopes: bool = True
    """Whether a token that names none of Lamplighter's scopes is refused. Without this it may do
    everything with its owner's own jobs; one that names any is held to them all the same."""
    scope_prefix: str = ""
    """What stands before a scope's name in a token: in Cognito, `<resource server>/`."""

    def __post_init__(self) -> None:
        if not self.issuer.startswith(("https://", "http://127.0.0.1")):
            raise ValueError(f"issuer {self.issuer!r}: not an https:// URL")
        if not self.audience or not all(self.audience):
            raise ValueError(f"audience {list(self.audience)!r}: at least one, none empty")


@dataclass(frozen=True, kw_only=True)
class Throttle:
    """Of the whole API, not of one caller."""

    requests_per_second: int = 200
    burst: int = 400
    callbacks_per_second: int = 50
    """Of each of the routes that a callback token opens, which anybody may try."""
    callbacks_burst: int = 100


class SchedulerApi(Construct):
    """Every path needs a token but those of `OPEN` and `CALLED_BACK`.

    No CORS: browsers have the console.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        function: lambda_.IFunction,
        authentication: Authentication,
        throttle: Throttle,
        log_retention: logs.RetentionDays,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.http_api = apigatewayv2.HttpApi(
            self,
            "Http",
            api_name=Stack.of(self).stack_name,  # what the console lists; not an identity
            description="Lamplighter",
            create_default_stage=False,
            default_authorizer=authorizers.HttpJwtAuthorizer(
                "Jwt", authentication.issuer, jwt_audience=list(authentication.audience)
            ),
        )
        stage = apigatewayv2.HttpStage(
            self,
            "Stage",
            http_api=self.http_api,
            stage_name="$default",
            auto_deploy=True,
            throttle=apigatewayv2.ThrottleSettings(
                rate_limit=throttle.requests_per_second, burst_limit=throttle.burst
            ),
            access_log_settings=_AccessLog(
                logs.LogGroup(
                    self,
                    "AccessLog",
                    retention=log_retention,
                    removal_policy=RemovalPolicy.DESTROY,
                    encryption_key=encryption_key,
                )
            ),
        )
        self.url = stage.url
        _throttle_callbacks(stage, throttle)
        integration = integrations.HttpLambdaIntegration("Function", function)
        for path in ("/v1/{proxy+}", "/{proxy+}"):
            self.http_api.add_routes(
                path=path, methods=[apigatewayv2.HttpMethod.ANY], integration=integration
            )
        self.open_routes = [
            route
            for method, path in (
                *((apigatewayv2.HttpMethod.GET, path) for path in OPEN),
                *((apigatewayv2.HttpMethod.POST, path) for path in CALLED_BACK),
            )
            for route in self.http_api.add_routes(
                path=path,
                methods=[method],
                integration=integration,
                authorizer=apigatewayv2.HttpNoneAuthorizer(),
            )
        ]


def _throttle_callbacks(stage: apigatewayv2.HttpStage, throttle: Throttle) -> None:
    """A bound of their own, so that who guesses at tokens keeps nobody from the other routes."""
    resource = cast("apigatewayv2.CfnStage", stage.node.default_child)
    resource.route_settings = {
        f"POST {path}": {
            "ThrottlingRateLimit": throttle.callbacks_per_second,
            "ThrottlingBurstLimit": throttle.callbacks_burst,
        }
        for path in CALLED_BACK
    }


@jsii.implements(apigatewayv2.IAccessLogSettings)
class _AccessLog:
    def __init__(self, group: logs.ILogGroup) -> None:
        self._destination = apigatewayv2.LogGroupLogDestination(group)

    @property
    def destination(self) -> apigatewayv2.IAccessLogDestination:
        return self._destination

    @property
    def format(self) -> apigateway.AccessLogFormat:
        return apigateway.AccessLogFormat.custom(
            "{" + ",".join(f'"{name}":"{value}"' for name, value in LOGGED.items()) + "}"
        )
