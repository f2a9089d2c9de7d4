"""Makes the JSON Schema of task files and of DM's source files, for editors, from the keys that their reader uses.

The reader reads a file that has every section, so the reader asks for every key that it knows. The schema is made from
these calls. So reader and schema always agree, and there is no separate list of keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pidts.task.config.section import Document, KeyUse, OtherKey, Section
from pidts.task.config.task_file import read_parts
from pidts.task.config.yaml_lines import read_yaml
from pidts.task.config.zones_file import NOT_HERE, NOT_IN_RULES, read_directions

Schema = dict[str, Any]

_ZONES_ABOUT = "Zones, their servers, and which zone feeds which, in place of mysql-instances and target-database"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_VARIABLE = {"type": "string", "pattern": r"^\$\{\w+\}$"}
_NOTHING: list[object] = [None, "", [], {}]

_TASK = """\
name: all
task-mode: all
target-database: {type: %s, %s}
mysql-instances:
  - source-id: s
    %s
    meta: {}
    route-rules: [r]
    filter-rules: [f]
    expression-filters: [e]
    column-mapping-rules: [m]
    block-allow-list: b
    mydumper-config-name: d
    loader-config-name: l
    syncer-config-name: s
    validator-config-name: v
    mydumper: {}
    loader: {}
    syncer: {}
    validator: {}
routes:
  r:
    schema-pattern: a
    table-pattern: a
    extract-table: {table-regexp: a, target-column: a}
    extract-schema: {schema-regexp: a, target-column: b}
    extract-source: {source-regexp: a, target-column: c}
filters: {f: {schema-pattern: a, action: Do}}
expression-filter: {e: {schema: a, table: a, insert-value-expr: "a > 1"}}
column-mappings: {m: {schema-pattern: a, target-column: a, expression: add prefix, arguments: [a]}}
%s: {b: {do-tables: [{db-name: a, tbl-name: a}], ignore-tables: [{db-name: b, tbl-name: b}]}}
mydumpers: {d: {}}
loaders: {l: {}}
syncers: {s: {}}
validators: {v: {}}
pidts: {spark: {conf: {}}, alerts: {}, relay-from: {}}
"""
_OWNED = """\
name: all
task-mode: all
target-database: {type: mysql, host: h, user: u}
mysql-instances: [{source-id: s, from: {host: h, user: u}}]
pidts:
  zone: a
  target-zone: b
  conflict: owner
  owners: [{schema: a, table: a, where: "a > 1", zone: a}]
"""
"""A task between zones whose rows have owners. Such a task cannot have the sections of `_TASK` that change rows."""
_ZONES = "pidts: {zones: {servers: {a: {}, b: {joins: a}}, feeds: %s}}"
_SOURCE = """\
source-id: s
enable-gtid: true
from: {host: h, user: u, security: {}}
standbys: [{host: i, password: "", security: {}}]
filters: [{schema-pattern: a, action: Do}]
"""
_SERVER = "host: h, user: u, security: {}, session: {}"
_PUBLISHED = "warehouse: w, publish-to: %s"
_TO = "{host: h, user: u, database: d, security: {}}"
_INLINE = """from: {host: h, user: u, security: {}}
    enable-gtid: true
    standbys: [{host: i, password: "", security: {}}]
    filters: [{schema-pattern: a, action: Do}]"""


def task_schema() -> Schema:
    """Returns the schema of a task file, with the sources in it or in files beside it."""
    files = [
        _TASK % ("postgresql", f"database: d, {_SERVER}", _INLINE, "block-allow-list"),
        _TASK % ("mysql", _SERVER, "", "block-allow-list"),
        _TASK % ("iceberg", _PUBLISHED % _TO, "", "block-allow-list"),
        _TASK % ("iceberg", _PUBLISHED % "{type: hive, metastore: 'thrift://h:1'}", "", "block-allow-list"),
        _TASK % ("iceberg", _PUBLISHED % "{type: rest, uri: 'http://h'}", "", "block-allow-list"),
        _TASK % ("hive", "warehouse: w", "", "block-allow-list"),
        _OWNED,
        _TASK.replace("block-allow-list: b", "black-white-list: b") % ("mysql", _SERVER, "", "black-white-list"),
    ]
    schema = _document("A PiDTS task", [_read(text)[0] for text in files])
    schema["properties"]["pidts"]["properties"]["zones"] = _zones(schema["properties"])
    # A warehouse is a directory, every other target a server.
    schema["properties"]["target-database"]["anyOf"] = [{"required": ["host", "user"]}, {"required": ["warehouse"]}]
    schema["required"] = [key for key in schema["required"] if key not in NOT_HERE]
    return schema


def source_schema() -> Schema:
    """Returns the schema of a DM source file, which is beside a task file."""
    return _document("A source of a PiDTS task", [_read(_TASK % ("mysql", _SERVER, "", "block-allow-list"))[1]])


def _zones(task: Schema) -> Schema:
    """Returns the schema of `pidts.zones`.

    Each direction is read as a task. So a zone has the keys of a target and of a source's server, and the rules have
    the keys of an instance.
    """
    read = [_read_zones(feeds) for feeds in ("mesh", "{a: [b], b: [a]}")]
    zones = _mapping([section for sections in read for section in sections])
    target, instance = task["target-database"], task["mysql-instances"]["items"]
    server = zones["properties"]["servers"]["additionalProperties"]
    keys = server["properties"] | instance["properties"]["from"]["properties"] | target["properties"]
    server["properties"] = dict(sorted(keys.items()))
    rules = {key: one for key, one in instance["properties"].items() if key not in NOT_IN_RULES}
    zones["properties"]["rules"] = {"type": ["object", "null"], "properties": rules, "additionalProperties": False}
    zones["properties"]["feeds"] = {"anyOf": [_mapping(one)["properties"]["feeds"] for one in read]}
    return {**zones, "description": _ZONES_ABOUT}


def _read_zones(feeds: str) -> list[Section]:
    root = Section(read_yaml(_ZONES % feeds, Path()), Document(Path(), {}, []))
    read_directions(root)
    ours = [section.asked["zones"] for section in root.asked["pidts"].sections if "zones" in section.asked]
    return [zones for use in ours for zones in use.sections]


def _read(text: str) -> tuple[Section, ...]:
    with TemporaryDirectory() as directory:
        path = Path(directory, "task.yaml")
        path.write_text(text, "utf-8")
        Path(directory, "source.yaml").write_text(_SOURCE, "utf-8")
        return tuple(read_parts(path, {})[1])


def _document(title: str, roots: Iterable[Section]) -> Schema:
    return {"$schema": _DRAFT, "title": title, **_mapping(roots)}


def _mapping(sections: Iterable[Section]) -> Schema:
    """Returns the schema of sections with the same path."""
    sections = list(sections)
    if any(section.has_names for section in sections):
        uses = [use for section in sections for use in section.asked.values() if use.kind]
        return {"type": ["object", "null"], "additionalProperties": _value(uses) if uses else _SCALAR}
    asked: dict[str, list[KeyUse]] = {}
    others: dict[str, OtherKey] = {}
    for section in sections:
        others |= section.others
        for key, one in section.asked.items():
            asked.setdefault(key, []).append(one)
    properties = {key: _other(one) for key, one in others.items()} | {key: _value(ones) for key, ones in asked.items()}
    needed = sorted(key for key, ones in asked.items() if len(ones) == len(sections) and all(o.needed for o in ones))
    return {
        "type": "object" if needed else ["object", "null"],
        "properties": dict(sorted(properties.items())),
        "additionalProperties": False,
        **({"required": needed} if needed else {}),
    }


_SCALAR: Schema = {"type": ["string", "number", "boolean", "null"]}


def _value(ones: list[KeyUse]) -> Schema:
    asked = next((one for one in ones if one.kind), ones[0])
    below = [section for one in ones for section in one.sections]
    match asked.kind:
        case "integer":
            limits = {"minimum": asked.least, "maximum": asked.most}
            return {"anyOf": [{"type": ["integer", "null"], **limits}, _VARIABLE]}
        case "flag":
            return {"type": ["boolean", "null"]}
        case "choice":
            return {"anyOf": [{"enum": [*dict.fromkeys(word for one in ones for word in one.words), None]}, _VARIABLE]}
        case "texts":
            return {"type": ["array", "null"], "items": {"type": ["string", "number", "boolean"]}}
        case "sections":
            return {"type": ["array", "null"], "items": _mapping(below)}
        case "section":
            return _mapping(below)
        case _:
            return dict(_SCALAR)


def _other(key: OtherKey) -> Schema:
    """Describes a key of DM that PiDTS does not use, with its note, or with its allowed values and the refusal."""
    if key.refusal:
        return {"description": f"Refused: {key.refusal}", "enum": [*key.as_is, *_NOTHING]}
    return {"description": key.note}


def schemas() -> Mapping[str, Schema]:
    """Returns each schema under the name of its file."""
    return {"task-file.schema.json": task_schema(), "source-file.schema.json": source_schema()}
