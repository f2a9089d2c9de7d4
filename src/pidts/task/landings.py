"""By which rules a task's rows have landed, kept on the target: a change of them while it is stopped is found out.

The counterexample: with another route, new changes of a table would go to another table of the target, and those of
rows that were copied before would find nothing there. With another column mapping, a row would be there twice, under
the old key and the new one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from pidts.apply import TargetSession
from pidts.model import ConfigError, Table, TableName, Where
from pidts.rules import ColumnMapping, Extract, Landing, RouteRule, Routes, Rules, mapping_of
from pidts.task.config import TaskConfig

_RULES = TableName("", "")
"""The note that is about no table."""


def moved(before: Rules, after: Rules, tables: Iterable[Table]) -> str:
    """Why rows of these tables, which are on the target, are not where and what new rules say; empty where they are."""
    for table in tables:
        old, new = before.routes.landing(table.name), after.routes.landing(table.name)
        if (old.name, old.extracted) != (new.name, new.extracted):
            was, becomes = _landing(old), _landing(new)
            return f"{table.name} has rows on the target by another route: {was}, and would have to land in {becomes}"
        if mapping_of(before.mappings, table.name) != mapping_of(after.mappings, table.name):
            return f"{table.name} has rows on the target with values of another column mapping"
    return ""


def demand_unmoved(config: TaskConfig, target: TargetSession) -> None:
    """Raise where rows would land elsewhere than those that are there."""
    task, source_id = config.name, config.source.source_id
    text = target.noted(task, source_id, _RULES)
    known = target.load_structures(task, source_id)
    kept = [table for name, table in known.items() if config.allow(name)]
    refused = moved(_rules(text), config.rules, kept) if text else ""
    if refused:
        raise ConfigError(
            "rules-moved",
            refused,
            where=Where(source=source_id, file=str(config.path)),
            todo="Take the change back, or give the task another name: a new task copies its tables again",
        )


def remember(config: TaskConfig, target: TargetSession) -> None:
    """From now on rows land by these rules."""
    target.begin()
    target.note(config.name, config.source.source_id, _RULES, _text(config.rules))
    target.commit()


def _text(rules: Rules) -> str:
    routes = rules.routes
    about = {
        "routes": [asdict(rule) for rule in routes.rules],
        "source-id": routes.source_id,
        "case-sensitive": routes.case_sensitive,
        "mappings": [asdict(mapping) for mapping in rules.mappings],
    }
    return json.dumps(about, ensure_ascii=False)


def _rules(text: str) -> Rules:
    about = json.loads(text)
    routes = Routes(tuple(map(_route, about["routes"])), about["source-id"], about["case-sensitive"])
    mappings = (ColumnMapping(**{**one, "arguments": tuple(one["arguments"])}) for one in about["mappings"])
    return Rules(mappings=tuple(mappings), routes=routes)


def _route(about: dict[str, Any]) -> RouteRule:
    extracts = {key: value and Extract(**value) for key, value in about.items() if key.startswith("extract_")}
    return RouteRule(**{**about, **extracts})


def _landing(landing: Landing) -> str:
    extracted = ", ".join(f"{column} = {value!r}" for column, value in landing.extracted)
    return f"{landing.name} with {extracted}" if extracted else str(landing.name)
