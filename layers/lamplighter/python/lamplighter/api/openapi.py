"""The OpenAPI 3.1 description, from the table of operations and the models that they name."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from lamplighter.api import documents
from lamplighter.api.access import Scope
from lamplighter.api.operations import EXECUTION_ID, HTML, JOB_ID, OPERATIONS, Operation, Parameter
from lamplighter.api.problems import CONTENT_TYPE
from lamplighter.version import VERSION

_REFERENCE: Final = "#/components/schemas/{model}"
_IDS: Final = MappingProxyType({one.name: one for one in (JOB_ID, EXECUTION_ID)})
_RESPONSE: Final = "#/components/responses/{}"
# Python's own words for some of them change from one version to the next.
_MEANS: Final = MappingProxyType(
    {
        HTTPStatus.BAD_REQUEST: "Wrong in a field, a query or a cursor; nothing was written",
        HTTPStatus.UNAUTHORIZED: "No token that the API believes",
        HTTPStatus.FORBIDDEN: "A token that names no owner, or no scope that is good for this",
        HTTPStatus.NOT_FOUND: "Nothing there, or nothing of yours",
        HTTPStatus.CONFLICT: "The state is against it, or others are changing the same thing",
        HTTPStatus.PRECONDITION_FAILED: "The job is not at the version that If-Match names",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "A body that is too large",
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "A body that does not say it is JSON",
        HTTPStatus.UNPROCESSABLE_ENTITY: "The idempotency key came with another body",
        HTTPStatus.TOO_MANY_REQUESTS: "More than its owner may have or ask for (a problem, with "
        "Retry-After), or more requests than the whole API takes",
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "Headers that are too large",
        HTTPStatus.INTERNAL_SERVER_ERROR: "A fault of ours, which was logged",
        HTTPStatus.SERVICE_UNAVAILABLE: "A service did not answer: try again, with the same key",
    }
)
_BY_THE_GATEWAY: Final = {"type": "object", "properties": {"message": {"type": "string"}}}
_DESCRIPTION: Final = (
    "Jobs in, executions out. A token's owner sees and touches their own jobs only; what belongs "
    "to somebody else is a 404. Every path is served without `/v1` too."
)
_SCOPES: Final = "A JSON Web Token. Scopes, where they are required: {}."

Document = dict[str, Any]


class _Schemas(GenerateJsonSchema):
    """Without titles that repeat a field's name, and defaults that only mean "not given"."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 -- pydantic's
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if described.get("default") in ("", 0, []):
            described.pop("default")
        return described


@cache
def document() -> Document:
    """The description; the same for every deployment of a release."""
    schemas, components = TypeAdapter.json_schemas(
        [(key, "validation", TypeAdapter(described)) for key, described in _types()],
        ref_template=_REFERENCE,
        schema_generator=_Schemas,
    )
    named = {key: schema for (key, _), schema in schemas.items()}
    paths: dict[str, Document] = {}
    for operation in _described():
        methods = paths.setdefault(f"/v1{operation.path}", {})
        methods[operation.method.lower()] = _operation(operation, named)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Lamplighter", "version": VERSION, "description": _DESCRIPTION},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": _security()},
            "responses": _refusals(named["problem"]),
            "schemas": dict(sorted(components["$defs"].items())),
        },
    }


def text() -> str:
    """The description as it is committed."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def _described() -> Iterator[Operation]:
    """All but pages for people."""
    return (operation for operation in OPERATIONS if operation.media_type != HTML)


def _types() -> Iterator[tuple[str, Any]]:
    yield "problem", documents.Problem
    for operation in _described():
        if operation.body is not None:
            yield f"{operation.id}.body", operation.body
        if operation.answer is not None:
            yield f"{operation.id}.answer", operation.answer
        for status, answer in operation.others.items():
            yield f"{operation.id}.{status}", answer


def _operation(operation: Operation, schemas: Mapping[str, Document]) -> Document:
    parameters = [
        *(_parameter(_IDS[name]) for name in re.findall(r"{(\w+)}", operation.path)),
        *map(_parameter, (*operation.query, *operation.headers)),
    ]
    return {
        "operationId": operation.id,
        "summary": operation.summary,
        "tags": [operation.path.split("/")[1].removesuffix(".json")],
        **({"parameters": parameters} if parameters else {}),
        **({} if operation.body is None else {"requestBody": _body(operation, schemas)}),
        "responses": dict(sorted(_responses(operation, schemas).items())),
        "security": [{"token": [operation.needs]}] if operation.needs else [],
    }


def _parameter(parameter: Parameter) -> Document:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.place == "path",
        "schema": dict(parameter.schema),
        "description": parameter.description,
    }


def _body(operation: Operation, schemas: Mapping[str, Document]) -> Document:
    schema = schemas[f"{operation.id}.body"]
    content = {"application/json": {"schema": schema}}
    return {"required": operation.needs_body, "content": content}


def _responses(operation: Operation, schemas: Mapping[str, Document]) -> Mapping[str, Document]:
    refusals = {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        *operation.refusals,
    }
    stopped = {HTTPStatus.TOO_MANY_REQUESTS}
    if operation.needs:
        refusals |= {HTTPStatus.FORBIDDEN, HTTPStatus.SERVICE_UNAVAILABLE}
        stopped |= {HTTPStatus.UNAUTHORIZED}
    others = {
        _code(status): _answer(operation, schemas[f"{operation.id}.{status}"])
        for status in operation.others
    }
    return {
        **{
            _code(status): {"$ref": _RESPONSE.format(_code(status))}
            for status in refusals | stopped
        },
        **others,
        _code(operation.success): _answer(operation, schemas.get(f"{operation.id}.answer")),
    }


def _answer(operation: Operation, schema: Document | None) -> Document:
    content = {"content": {operation.media_type: {"schema": schema}}} if schema else {}
    headers = {
        one.name: {"description": one.description, "schema": dict(one.schema)}
        for one in operation.answer_headers
    }
    told = {"headers": headers} if headers else {}
    return {"description": operation.summary, **told, **content}


def _refusals(problem: Document) -> Document:
    """The answers that operations have in common."""
    ours = {CONTENT_TYPE: {"schema": problem}}
    by_gateway = {"application/json": {"schema": _BY_THE_GATEWAY}}
    content = {HTTPStatus.TOO_MANY_REQUESTS: ours | by_gateway, HTTPStatus.UNAUTHORIZED: by_gateway}
    return {
        _code(status): {"description": means, "content": content.get(status, ours)}
        for status, means in _MEANS.items()
    }


def _code(status: HTTPStatus) -> str:
    return str(int(status))


def _security() -> Document:
    scopes = ", ".join(f"`{scope}`" for scope in Scope)
    return {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": _SCOPES.format(scopes),
    }
