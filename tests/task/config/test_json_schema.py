"""The schemas for editors agree with the reader of task files: files that the reader accepts are valid, and keys that
it refuses are not.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pidts.cli.app import run_command
from pidts.task.config.json_schema import schemas, source_schema, task_schema
from pidts.task.config.task_file import load_directions

DOCS = Path(__file__).parents[3] / "docs" / "reference"
TASK = """
name: shop
task-mode: all
target-database: {type: postgresql, host: h, port: "${PORT}", user: u, password: 123, database: d}
mysql-instances:
  - {source-id: s, from: {host: h, user: u}, filter-rules: [f], syncer-config-name: g}
filters: {f: {schema-pattern: a, events: [insert], action: Ignore}}
syncers: {g: {worker-count: 4, compact: true}}
pidts: {chunk-rows: 2, spark: {conf: {spark.cores.max: 2}}}
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
    """`pidts schema` makes docs/reference/task-file.schema.json, and with --source the schema of source files."""
    assert json.loads((DOCS / name).read_text("utf-8")) == schemas()[name]


def test_the_command_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    for options, schema in (([], task_schema()), (["--source"], source_schema())):
        assert run_command(["schema", *options]) == 0
        assert json.loads(capsys.readouterr().out) == schema


def test_a_task_file_fits() -> None:
    assert list(misfits(task_schema(), yaml.safe_load(TASK))) == []
    source = {"source-id": "s", "from": {"host": "h", "user": "u"}, "enable-relay": False}
    assert list(misfits(source_schema(), source)) == []


OWNED = TASK.replace("chunk-rows: 2,", "zone: a, target-zone: b, conflict: owner, owners: OWNERS,")


@pytest.mark.parametrize(
    ("owners", "wrong"),
    [
        ("[{schema: shop, table: orders, where: id < 5, zone: a}, {schema: shop, zone: b}]", []),
        ("[{schema: shop, tabel: orders, zone: a}]", ["pidts.owners[].tabel"]),
        ("[{schema: shop, table: orders}]", ["pidts.owners[].zone"]),
    ],
)
def test_owners_of_rows_fit(owners: str, wrong: list[str]) -> None:
    several = "{servers: {a: {}, b: {}}}, conflict: owner, owners: OWNERS,"
    for text in (OWNED, TASK.replace("chunk-rows: 2,", f"zones: {several}")):
        assert "OWNERS" in text
        assert list(misfits(task_schema(), yaml.safe_load(text.replace("OWNERS", owners)))) == wrong


ZONES = """
name: shop
block-allow-list: {l: {do-dbs: [shop]}}
pidts:
  zones:
    servers:
      a: {host: h, user: u, password: p, session: {wait_timeout: 60}}
      b: {host: h, port: 3307, user: u, read-only: false, joins: a}
      c: {type: postgresql, host: h, user: u, database: d}
    feeds: {a: [b, c], b: [a]}
    rules: {block-allow-list: l}
"""


def test_a_file_of_several_zones_fits(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(f"task-mode: all{ZONES}", "utf-8")
    assert [str(one) for one in load_directions(path, {})] == ["a-b", "a-c", "b-a"]
    assert list(misfits(task_schema(), yaml.safe_load(path.read_text("utf-8")))) == []


@pytest.mark.parametrize(
    ("old", "new", "misfit"),
    [
        ("servers:", "server:", "zones.server"),
        ("read-only: false", "read-only: 1", "zones.servers.b.read-only"),
        ("port: 3307", "prot: 3307", "zones.servers.b.prot"),
        ("type: postgresql", "type: oracle", "zones.servers.c.type"),
        ("feeds: {a: [b, c], b: [a]}", "feeds: cube", "zones.feeds"),
        ("feeds: {a: [b, c], b: [a]}", "feeds: {a: b}", "zones.feeds"),
        ("rules: {block-allow-list: l}", "rules: {from: {host: h}}", "zones.rules.from"),
    ],
)
def test_a_mistake_in_zones_does_not_fit(old: str, new: str, misfit: str) -> None:
    assert old in ZONES
    assert misfits(task_schema(), yaml.safe_load(f"task-mode: all{ZONES.replace(old, new)}")) == [f"pidts.{misfit}"]


@pytest.mark.parametrize(
    ("old", "new", "misfit"),
    [
        ("name: shop", "", "name"),
        ("name: shop", "nmae: shop", "nmae"),
        ("task-mode: all", "task-mode: dump", "task-mode"),
        ("user: u, password", "password", "target-database"),
        ("worker-count: 4", "worker-count: 0", "syncers.g.worker-count"),
        ("worker-count: 4", "worker-cuont: 4", "syncers.g.worker-cuont"),
        ("compact: true", "compact: 1", "syncers.g.compact"),
        ("[insert]", "insert", "filters.f.events"),
        ("chunk-rows: 2", "chunk-rows: x", "pidts.chunk-rows"),
        ("chunk-rows: 2", "zone: [2]", "pidts.zone"),
        ("task-mode: all", "task-mode: all\nremove-meta: true", "remove-meta"),
        ("action: Ignore", "", "filters.f.action"),
    ],
)
def test_a_mistake_does_not_fit(old: str, new: str, misfit: str) -> None:
    assert old in TASK
    assert misfit in set(misfits(task_schema(), yaml.safe_load(TASK.replace(old, new, 1))))


def misfits(schema: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """Returns the places at which a value is not valid. Understands only what these schemas use of JSON Schema."""
    if "anyOf" in schema and all(misfits(one, value, path) for one in schema["anyOf"]):
        return [path]
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


ROW = re.compile(r"^\| ((?:`[\w.-]+`(?:, )?)+) \|", re.MULTILINE)
UNITS = r"\.(mydumper|loader|syncer|validator)\."
IN_AN_INSTANCE = r"mysql-instances\.(from|standbys|failover-after|enable-gtid|server-id|case-sensitive|filters)\b"
OF_TARGET = r"pidts\.zones\.servers\.NAME\.(?!read-only\b|joins\b|type\b|database\b)"
IN_RULES = r"pidts\.zones\.rules\."
LOGIN = r"(?:target-database(?:\.publish-to)?|SOURCE\.from|SOURCE\.standbys)\.(host|port|user|password|password-file|security)\b"


def test_the_page_on_task_files_has_a_row_for_every_key_and_no_other() -> None:
    page = (DOCS / "task-file.md").read_text("utf-8").partition("## Every key")[2].partition("\n### ")[0]
    shown = [key for cell in ROW.findall(page) for key in re.findall(r"`([^`]+)`", cell)]
    known = {*map(shown_as, paths(task_schema())), *(shown_as(f"SOURCE.{key}") for key in paths(source_schema()))}
    assert sorted(shown) == sorted(known - {None})


def paths(schema: dict[str, Any], before: str = "") -> set[str]:
    """Returns each key with the keys above it. A name that the user chooses is written as NAME."""
    found = set()
    for name, one in schema.get("properties", {}).items():
        found.add(before + name)
        more = one.get("additionalProperties")
        found |= paths(one, f"{before}{name}.") | paths(one.get("items", {}), f"{before}{name}.")
        found |= paths(more if isinstance(more, dict) else {}, f"{before}{name}.NAME.")
    return found


def shown_as(path: str) -> str | None:
    """Returns the key as the page's table names it; None if other rows describe it.

    Keys that occur in several places of a file have one row, and the page lists these places.
    """
    if re.search(UNITS, path) or re.match(r"black-white-list\.", path):
        return None
    path = re.sub(IN_RULES, "mysql-instances.", re.sub(OF_TARGET, "target-database.", path))
    path = re.sub(IN_AN_INSTANCE, r"SOURCE.\1", path)
    path = re.sub(r"SOURCE\.filters\.", "filters.NAME.", path)
    return re.sub(LOGIN, r"SERVER.\1", path)
