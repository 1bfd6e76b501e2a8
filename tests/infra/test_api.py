from tests.infra.templates import Assembly

ROUTE = "AWS::ApiGatewayV2::Route"


def test_every_route_asks_for_a_token_but_those_that_tell_of_nobodys_jobs(
    assembly: Assembly,
) -> None:
    routes = assembly.scheduler.properties(ROUTE).values()

    authorization = {route["RouteKey"]: route["AuthorizationType"] for route in routes}

    assert authorization == {
        "ANY /v1/{proxy+}": "JWT",
        "ANY /{proxy+}": "JWT",
        "POST /v1/executions/{execution_id}/heartbeat": "NONE",
        "POST /v1/executions/{execution_id}/complete": "NONE",
        "POST /v1/executions/{execution_id}/fail": "NONE",
        "GET /v1/health": "NONE",
        "GET /v1/openapi.json": "NONE",
        "GET /docs": "NONE",
    }


def test_who_guesses_at_callback_tokens_is_throttled_apart_from_everybody_else(
    assembly: Assembly,
) -> None:
    (stage,) = assembly.scheduler.properties("AWS::ApiGatewayV2::Stage").values()

    assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] == 200
    assert stage["RouteSettings"] == {
        f"POST /v1/executions/{{execution_id}}/{verb}": {
            "ThrottlingRateLimit": 50,
            "ThrottlingBurstLimit": 100,
        }
        for verb in ("heartbeat", "complete", "fail")
    }


def test_a_deployment_asks_tokens_for_scopes_unless_it_says_otherwise(
    assembly: Assembly, production: Assembly
) -> None:
    asked = assembly.environment("ApiHandler/Function")
    not_asked = production.environment("ApiHandler/Function")

    assert asked["LAMPLIGHTER_REQUIRE_SCOPES"] == "true"
    assert not_asked["LAMPLIGHTER_REQUIRE_SCOPES"] == "false"
    assert not_asked["LAMPLIGHTER_SCOPE_PREFIX"] == "jobs/"


def test_tokens_are_believed_of_the_chosen_issuer_for_the_chosen_audience(
    production: Assembly,
) -> None:
    (authorizer,) = production.scheduler.properties("AWS::ApiGatewayV2::Authorizer").values()

    assert authorizer["JwtConfiguration"] == {
        "Issuer": "https://login.example.com/",
        "Audience": ["lamplighter"],
    }
    assert authorizer["IdentitySource"] == ["$request.header.Authorization"]


def test_the_api_is_throttled_logged_and_allows_no_other_origin(assembly: Assembly) -> None:
    (stage,) = assembly.scheduler.properties("AWS::ApiGatewayV2::Stage").values()
    (api,) = assembly.scheduler.properties("AWS::ApiGatewayV2::Api").values()

    assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] == 200
    assert assembly.named(stage["AccessLogSettings"]["DestinationArn"]) == "Api/AccessLog"
    assert "CorsConfiguration" not in api


def test_the_access_log_holds_neither_tokens_nor_query_strings(assembly: Assembly) -> None:
    (stage,) = assembly.scheduler.properties("AWS::ApiGatewayV2::Stage").values()

    logged = stage["AccessLogSettings"]["Format"]

    assert "$context.status" in logged
    assert not any(word in logged for word in ("header", "querystring", "claims"))


def test_the_function_answers_before_the_api_gives_up(assembly: Assembly) -> None:
    function = assembly.scheduler.properties("AWS::Lambda::Function")["ApiHandler/Function"]

    assert function["Timeout"] < 30
