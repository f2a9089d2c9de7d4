"""Converts rules to texts, which the target stores together with the structures."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from pidts.rules.allow_list import AllowList
from pidts.rules.column_mapping import ColumnMapping
from pidts.rules.routes import Extract, RouteRule, Routes
from pidts.rules.stage import Rules


def to_text(rules: Rules) -> str:
    """Returns routes and column mappings as text. Filters are left out: they do not apply to existing rows."""
    routes = rules.routes
    about = {
        "routes": [asdict(rule) for rule in routes.rules],
        "source-id": routes.source_id,
        "case-sensitive": routes.case_sensitive,
        "mappings": [asdict(mapping) for mapping in rules.mappings],
    }
    return json.dumps(about, ensure_ascii=False)


def from_text(text: str) -> Rules:
    """Returns the rules from a text that `to_text` has made."""
    about = json.loads(text)
    routes = Routes(tuple(map(_route, about["routes"])), about["source-id"], about["case-sensitive"])
    mappings = (ColumnMapping(**{**one, "arguments": tuple(one["arguments"])}) for one in about["mappings"])
    return Rules(mappings=tuple(mappings), routes=routes)


def allow_list_to_text(allow: AllowList) -> str:
    """Returns a block-allow-list as text."""
    about = {field.name: getattr(allow, field.name) for field in fields(AllowList) if field.init}
    return json.dumps(about, ensure_ascii=False)


def allow_list_from_text(text: str) -> AllowList:
    """Returns the list from a text that `allow_list_to_text` has made."""
    return AllowList(**{name: _hashable(value) for name, value in json.loads(text).items()})


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _route(about: dict[str, Any]) -> RouteRule:
    extracts = {key: value and Extract(**value) for key, value in about.items() if key.startswith("extract_")}
    return RouteRule(**{**about, **extracts})
