"""The schemas for editors are those of the reader: what it takes fits them, what it does not know does not."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pidts.cli.app import run_command
from pidts.task.config_schema import schemas, source_schema, task_schema

DOCS = Path(__file__).parents[2] / "docs"
TASK = """
name: shop
task-mode: all
target-database: {type: postgresql, host: h, port: "${PORT}", user: u, password: 123, database: d}
mysql-instances:
  - {source-id: s, from: {host: h, user: u}, filter-rules: [f], syncer-config-name: g}
filters: {f: {schema-pattern: a, events: [insert], action: Ignore}}
syncers: {g: {worker-count: 4, compact: true}}
pidts: {zone: 2, spark: {conf: {spark.cores.max: 2}}}
"""
KINDS: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "array": list,
}


@pytest.mark.parametrize("name", ["task-file.schema.json", "source-file.schema.json"])
def test_the_files_in_the_documentation_are_in_step(name: str) -> None:
    """`pidts schema > docs/task-file.schema.json`, and with --source the other."""
    assert json.loads((DOCS / name).read_text("utf-8")) == schemas()[name]


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    for options, schema in (([], task_schema()), (["--source"], source_schema())):
        assert run_command(["schema", *options]) == 0
        assert json.loads(capsys.readouterr().out) == schema


def test_a_task_file_fits() -> None:
    assert list(misfits(task_schema(), yaml.safe_load(TASK))) == []
    source = {"source-id": "s", "from": {"host": "h", "user": "u"}, "enable-relay": False}
    assert list(misfits(source_schema(), source)) == []


@pytest.mark.parametrize(
    ("old", "new", "misfit"),
    [
        ("name: shop", "", "name"),
        ("name: shop", "nmae: shop", "nmae"),
        ("task-mode: all", "task-mode: dump", "task-mode"),
        ("user: u, password", "password", "target-database.user"),
        ("worker-count: 4", "worker-count: 0", "syncers.g.worker-count"),
        ("worker-count: 4", "worker-cuont: 4", "syncers.g.worker-cuont"),
        ("compact: true", "compact: 1", "syncers.g.compact"),
        ("[insert]", "insert", "filters.f.events"),
        ("zone: 2", "zone: x", "pidts.zone"),
        ("task-mode: all", "task-mode: all\nremove-meta: true", "remove-meta"),
        ("action: Ignore", "", "filters.f.action"),
    ],
)
def test_a_mistake_does_not_fit(old: str, new: str, misfit: str) -> None:
    assert old in TASK
    assert misfit in set(misfits(task_schema(), yaml.safe_load(TASK.replace(old, new, 1))))


def misfits(schema: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """Where a value does not fit: as much of JSON Schema as is used."""
    if "anyOf" in schema:
        return [] if any(not misfits(one, value, path) for one in schema["anyOf"]) else [path]
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", list(KINDS))
    if not any(isinstance(value, KINDS[kind]) and (kind == "boolean" or value not in (True, False)) for kind in kinds):
        return [path]
    if "enum" in schema and not any(value == one and type(value) is type(one) for one in schema["enum"]):
        return [path]
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return [path]
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return [path]
    found = []
    if isinstance(value, list):
        found += [each for one in value for each in misfits(schema.get("items", {}), one, f"{path}[]")]
    if isinstance(value, dict):
        before = f"{path}." if path else ""
        found += [f"{before}{key}" for key in schema.get("required", ()) if key not in value]
        for key, one in value.items():
            below = schema.get("properties", {}).get(key, schema.get("additionalProperties", {}))
            found += misfits(below, one, f"{before}{key}") if isinstance(below, dict) else [f"{before}{key}"]
    return found


def test_the_page_on_task_files_names_every_key() -> None:
    page = (DOCS / "task-file.md").read_text("utf-8")
    rules = {"routes", "filters", "expression-filter", "column-mappings", "block-allow-list", "black-white-list"}
    elsewhere = {"pidts", "security"}
    assert {key for schema in schemas().values() for key in keys(schema, rules | elsewhere)} <= set(
        re.findall(r"`([\w-]+):?`", page)
    )


def keys(schema: dict[str, Any], without: set[str]) -> set[str]:
    found = set()
    for name, one in schema.get("properties", {}).items():
        found.add(name)
        more = one.get("additionalProperties")
        for below in (one, one.get("items", {}), more if isinstance(more, dict) else {}):
            found |= keys(below, without) if name not in without else set()
    return found - {"mysql-instances", "target-database"}
