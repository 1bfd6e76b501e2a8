"""`/docs`: Swagger UI in one page that asks nobody else for anything."""

import base64
import gzip
import json
import re
from hashlib import sha256

import pytest
from aws_lambda_powertools.utilities.typing import LambdaContext

from lamplighter.api import swagger
from lamplighter.memory import MemoryWorld
from tests.support.api import Caller, caller, event


@pytest.fixture
def anyone() -> Caller:
    return caller(MemoryWorld())


def test_the_page_is_whole_and_starts_with_our_description(anyone: Caller) -> None:
    answer = anyone.send(event("GET", "/docs"))

    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = base64.b64decode(answer.text).decode()
    assert "`${root}/v1/openapi.json`" in page
    assert "SwaggerUIBundle" in page
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=[\"'](?!data:)", page)


def test_a_browser_gets_it_compressed(anyone: Caller) -> None:
    plain = anyone.send(event("GET", "/docs"))
    packed = anyone.send(event("GET", "/docs", headers={"accept-encoding": "br, gzip"}))

    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    body = base64.b64decode(packed.text)
    assert gzip.decompress(body) == base64.b64decode(plain.text)
    assert len(body) < 600_000


def test_only_its_own_two_scripts_may_run_in_it(anyone: Caller) -> None:
    answer = anyone.send(event("GET", "/docs"))

    page = base64.b64decode(answer.text).decode()
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = {base64.b64encode(sha256(script.encode()).digest()).decode() for script in scripts}
    policy = answer.headers["content-security-policy"]
    assert len(scripts) == 2
    assert {*re.findall(r"'sha256-([^']+)'", policy)} == digests
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy


def test_it_is_small_enough_for_lambda_to_answer(anyone: Caller) -> None:
    answer = anyone.api.handle(event("GET", "/docs"), LambdaContext())

    assert answer["isBase64Encoded"]
    assert len(json.dumps(answer)) < 6_000_000


def test_a_deployment_without_it_says_where_the_description_is(
    anyone: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swagger, "page", lambda: None)

    answer = anyone.send(event("GET", "/docs"))

    assert answer.status == 404
    assert "/v1/openapi.json" in answer.json["detail"]
