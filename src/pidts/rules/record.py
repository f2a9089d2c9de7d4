"""Writes routes and column mappings as text; the target keeps it beside the structures of the rows they wrote."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pidts.rules.column_mapping import ColumnMapping
from pidts.rules.routes import Extract, RouteRule, Routes
from pidts.rules.stage import Rules


def to_text(rules: Rules) -> str:
    """Routes and column mappings; what is left out of the log is no matter of rows that are there."""
    routes = rules.routes
    about = {
        "routes": [asdict(rule) for rule in routes.rules],
        "source-id": routes.source_id,
        "case-sensitive": routes.case_sensitive,
        "mappings": [asdict(mapping) for mapping in rules.mappings],
    }
    return json.dumps(about, ensure_ascii=False)


def from_text(text: str) -> Rules:
    """Returns the inverse of `to_text`."""
    about = json.loads(text)
    routes = Routes(tuple(map(_route, about["routes"])), about["source-id"], about["case-sensitive"])
    mappings = (ColumnMapping(**{**one, "arguments": tuple(one["arguments"])}) for one in about["mappings"])
    return Rules(mappings=tuple(mappings), routes=routes)


def _route(about: dict[str, Any]) -> RouteRule:
    extracts = {key: value and Extract(**value) for key, value in about.items() if key.startswith("extract_")}
    return RouteRule(**{**about, **extracts})
