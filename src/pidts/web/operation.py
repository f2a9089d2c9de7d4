"""One operation of the REST interface. Its route and its OpenAPI description are made from the same object."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from pidts.web.refusals import Refusal

Handler = Callable[[Request], Awaitable[Response]]
Schema = dict[str, Any]

_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_MOST_TEXT: Final = 100_000


@dataclass(frozen=True, slots=True)
class Operation:
    """A method and path, with its parameters and answers."""

    method: str
    path: str
    name: str
    """The operationId."""
    summary: str
    handler: Handler
    answers: Mapping[int, str]
    """The HTTP statuses of success with their meanings. The statuses of errors are the same for all operations."""
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    takes_yaml: bool = False
    answer_type: str = "application/json"
    answer_schema: Schema = field(default_factory=lambda: {"type": "object"})


async def read_object(request: Request, schema: Schema) -> dict[str, Any]:
    """Returns the JSON object in a request's body, checked against the schema; empty if there is no body."""
    data = await request.body()
    if not data.strip():
        value: Any = {}
    else:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise Refusal("bad-request", 400, "the body is not JSON", "Send a JSON object") from None
    if not isinstance(value, dict):
        raise Refusal("bad-body", 422, "the body is not a JSON object", "Send a JSON object")
    properties: dict[str, Schema] = schema["properties"]
    for name in value.keys() - properties.keys():
        raise Refusal("bad-body", 422, f"the body has an unknown member {name!r}", f"Known: {', '.join(properties)}")
    for name, of_member in properties.items():
        if name in value:
            _check(name, value[name], of_member)
        elif name in schema.get("required", ()):
            raise Refusal("bad-body", 422, f"the body lacks {name!r}", f"Known: {', '.join(properties)}")
    return value


def _check(name: str, value: Any, schema: Schema) -> None:
    """Refuses a value that does not fit its schema: `type`, `enum`, `items` or `additionalProperties`."""
    kind = schema.get("type")
    if kind is None:
        return  # the operation itself checks the value
    known = {"string": str, "boolean": bool, "array": list, "object": dict, "integer": int}
    fits = isinstance(value, known[str(kind)]) and not (kind == "integer" and isinstance(value, bool))
    if fits and "enum" in schema:
        fits = value in schema["enum"]
    if not fits:
        wanted = " or ".join(map(repr, schema["enum"])) if "enum" in schema else f"of type {kind}"
        raise Refusal("bad-body", 422, f"{name!r} is not {wanted}")
    if isinstance(value, str):
        check_text(name, value)
    if isinstance(value, list):
        for one in value:
            _check(name, one, schema["items"])
    if isinstance(value, dict):
        for key, one in value.items():
            check_text(name, key)
            if one is not None:
                _check(name, one, schema["additionalProperties"])


def check_text(name: str, value: str) -> str:
    """Returns the text, or refuses a text that cannot be an argument of a program."""
    if _CONTROL.search(value) or len(value) > _MOST_TEXT:
        raise Refusal(
            "bad-text",
            422,
            f"{name!r} has a control character, or is too long",
            "Leave the character out, or shorten the text",
        )
    return value


def query_text(request: Request, name: str, schema: Schema) -> str:
    """Returns a parameter of the query as text, or the schema's default if the query does not have the parameter."""
    value = check_text(name, request.query_params.get(name, str(schema.get("default", ""))))
    if "enum" in schema and value not in schema["enum"]:
        raise Refusal("bad-query", 422, f"{name!r} is none of {', '.join(filter(None, schema['enum']))}")
    return value


def query_number(request: Request, name: str, schema: Schema) -> int:
    """Returns a parameter of the query as a whole number; refuses a number outside the schema's limits."""
    text = request.query_params.get(name, str(schema["default"]))
    if (
        not (text.isascii() and text.isdigit() and len(text) < 10)
        or not schema["minimum"] <= int(text) <= schema["maximum"]
    ):
        raise Refusal("bad-query", 422, f"{name!r} is not a number from {schema['minimum']} to {schema['maximum']}")
    return int(text)


def query_flag(request: Request, name: str, *, default: bool) -> bool:
    """Returns a parameter of the query; refuses any value but `true` and `false`."""
    text = request.query_params.get(name, "true" if default else "false")
    if text not in {"true", "false"}:
        raise Refusal("bad-query", 422, f"{name!r} is neither true nor false")
    return text == "true"
