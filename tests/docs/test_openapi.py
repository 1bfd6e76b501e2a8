"""The OpenAPI description is the code's, and whole."""

import json
from collections.abc import Iterator

from lamplighter.api import openapi
from lamplighter.api.operations import OPERATIONS
from lamplighter.memory import MemoryWorld
from tests.docs.openapi import PAGE
from tests.support.api import caller, event


def test_the_committed_description_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == openapi.text()


def test_it_is_served_to_anyone() -> None:
    answer = caller(MemoryWorld()).send(event("GET", "/v1/openapi.json"))

    assert answer.status == 200
    assert answer.json == json.loads(openapi.text())


def test_every_reference_in_it_leads_somewhere() -> None:
    document = openapi.document()

    for reference in references(document):
        found: object = document
        for part in reference.removeprefix("#/").split("/"):
            assert isinstance(found, dict)
            found = found[part]


def test_every_operation_is_in_it_with_the_scope_that_it_asks_for() -> None:
    paths = openapi.document()["paths"]

    for operation in OPERATIONS:
        if operation.id == "docs":
            continue
        described = paths[f"/v1{operation.path}"][operation.method.lower()]
        assert described["operationId"] == operation.id
        assert described["security"] == ([{"token": [operation.needs]}] if operation.needs else [])


def references(value: object) -> Iterator[str]:
    match value:
        case {"$ref": str(reference)}:
            yield reference
        case dict():
            for one in value.values():
                yield from references(one)
        case list():
            for one in value:
                yield from references(one)
        case _:
            return
