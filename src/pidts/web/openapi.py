"""Makes the OpenAPI description of the REST interface from the operations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, get_args

from pidts.service.next_action import TaskStage
from pidts.web.operation import Operation

_STAGES = list(get_args(TaskStage))
_NUMBER = {"type": ["number", "null"]}
_PARAMETER = re.compile(r"\{(\w+)\}")

ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": ["object"],
            "required": ["code", "what", "where", "todo"],
            "properties": {
                "code": {"type": "string", "description": "A code of docs/reference/errors.md."},
                "what": {"type": "string"},
                "where": {"type": "object"},
                "todo": {"type": "string"},
            },
        }
    },
}
SUMMARY = {
    "type": "object",
    "required": ["name", "wanted", "stage", "since", "process", "restarts", "mode", "sources", "target", "error"],
    "properties": {
        "name": {"type": "string"},
        "wanted": {"enum": ["running", "paused", "stopped"]},
        "stage": {"enum": _STAGES},
        "since": {"type": "number", "description": "When the task entered this stage, in seconds since 1970."},
        "process": {"type": ["integer", "null"]},
        "restarts": {"type": "integer"},
        "next_start": _NUMBER,
        "mode": {"type": "string"},
        "sources": {"type": "array", "items": {"type": "string"}},
        "target": {"type": "string"},
        "lag_seconds": _NUMBER,
        "held_lag_seconds": {
            **_NUMBER,
            "description": "The age of the oldest change of a waiting table; null if no change waits with its table.",
        },
        "rate": {"type": "number", "description": "Rows per second, over the last few seconds."},
        "message": {"type": "string"},
        "copy": {"type": ["object", "null"]},
        "halted": {"type": "integer"},
        "locked_rows": {"type": "integer"},
        "needs_operator": {"type": "boolean"},
        "error": {"type": ["object", "null"]},
        "last_hour": {"type": "object", "description": "Lag and rate of the last hour, one number per interval."},
    },
}
DETAIL = {
    "allOf": [
        {"$ref": "#/components/schemas/Summary"},
        {
            "type": "object",
            "required": ["progress"],
            "properties": {
                "progress": {
                    "type": "object",
                    "description": "The progress as in pidts run --json, with rates; empty before the first report.",
                },
                "road": {"type": ["object", "null"]},
                "changes": {"type": "array", "description": "The last schema changes, the newest first."},
            },
        },
    ]
}
_ERRORS = {
    "400": "The task file or the request is wrong.",
    "401": "The token is missing or wrong.",
    "403": "The caller, the host name or the origin is not allowed.",
    "404": "There is no such task, run or path.",
    "409": "The state of the task or of its servers does not allow the request.",
    "413": "The body is too long.",
    "415": "The body has a content type that is not accepted.",
    "422": "A parameter, or a member of the body, has a value that is not allowed.",
    "429": "Too many changes or streams.",
    "503": "The servers of the task did not answer in time, or the service is ending.",
}


def openapi(operations: Sequence[Operation]) -> dict[str, Any]:
    """Returns the document that /openapi.json serves."""
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "PiDTS service",
            "version": version("pidts"),
            "description": "Tasks that a running `pidts serve` supervises.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR, "Summary": SUMMARY, "Detail": DETAIL},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(one: Operation) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(one.path)
    ] + [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in one.query.items()]
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": parameters,
        "responses": {
            **{
                str(status): {
                    "description": says,
                    "content": {one.answer_type: {"schema": one.answer_schema}},
                }
                for status, says in one.answers.items()
            },
            **{
                status: {
                    "description": says,
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
                for status, says in _ERRORS.items()
                if status not in map(str, one.answers)
            },
        },
    }
    if one.body is not None or one.takes_yaml:
        content: dict[str, Any] = {}
        if one.takes_yaml:
            content["application/yaml"] = {"schema": {"type": "string", "description": "A task file."}}
        if one.body is not None:
            content["application/json"] = {"schema": one.body}
        found["requestBody"] = {"required": one.takes_yaml, "content": content}
    return found
