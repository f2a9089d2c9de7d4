"""Records what this version offers to other programs: `python -m tests.compatibility.surface FILE`."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from pidts.cli.app import app
from pidts.web.access import Policy
from pidts.web.app import operations
from pidts.web.openapi import openapi

from .json_keys import json_keys

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "pidts"
ERRORS = ROOT / "docs" / "reference" / "errors.md"
_ENTRY = re.compile(r"^\| `([^`]+)` \|.*\| ([^|]*) \|$", re.MULTILINE)
_LEVELS = ("debug", "info", "warning", "error")


def error_codes() -> dict[str, str]:
    """Returns each error code and each finding with its exit code.

    `tests/docs/test_errors.py` compares the page with the source code.
    """
    return {name: "".join(re.findall(r"\d", last)) for name, last in _ENTRY.findall(ERRORS.read_text("utf-8"))}


def commands() -> dict[str, list[str]]:
    """Returns each command with its options and arguments, hidden aliases included."""
    found: dict[str, list[str]] = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        names = [name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)]
        found[" ".join(words)] = sorted(names)
        for name, below in getattr(command, "commands", {}).items():
            walk(below, (*words, name))

    walk(get_command(app), ("pidts",))
    return found


def metrics() -> dict[str, list[str]]:
    """Returns each metric with its labels."""
    found = {}
    for call in _calls():
        match call:
            case ast.Call(
                func=ast.Name(id="_gauge" | "_counter"),
                args=[ast.Constant(value=str(name)), _, ast.Tuple(elts=labels), *_],
            ):
                found[name] = [ast.literal_eval(label) for label in labels]
    return found


def log_events() -> list[str]:
    """Returns the event of each log line above debug that names one."""
    found = set()
    for call in _calls():
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="_log"), attr=level), args=[ast.Constant(value=str(event)), *_]
            ) if level in _LEVELS[1:]:
                found.add(event)
    return sorted(found)


def rest() -> dict[str, list[str]]:
    """Returns each REST operation with its parameters, its bodies and its statuses, and each schema with its members."""
    document = openapi(operations(None, None, Policy("127.0.0.1")))  # type: ignore[arg-type]  # nothing is called
    found = {f"schema {name}": sorted(_members(one)) for name, one in document["components"]["schemas"].items()}
    for path, methods in document["paths"].items():
        for method, one in methods.items():
            parameters = {f"{each['in']} {each['name']}" for each in one["parameters"]}
            bodies = one.get("requestBody", {"content": {}})["content"]
            found[f"{method.upper()} {path}"] = sorted(
                parameters
                | {f"takes {kind}" for kind in bodies}
                | {f"member {member}" for body in bodies.values() for member in _members(body["schema"])}
                | {f"answers {status}" for status in one["responses"]}
            )
    return found


def _members(schema: dict[str, Any], before: str = "") -> set[str]:
    """Returns the names of all members that a schema describes, with the names above them."""
    found = set().union(*(_members(one, before) for one in schema.get("allOf", ())))
    for name, one in schema.get("properties", {}).items():
        found |= {f"{before}{name}"} | _members(one, f"{before}{name}.")
    return found


def surface() -> dict[str, Any]:
    """Returns the results of all functions above as one document."""
    return {
        "error codes": error_codes(),
        "commands": commands(),
        "metrics": metrics(),
        "log events": log_events(),
        "json documents": json_keys(),
        "rest": rest(),
    }


def _calls() -> Iterator[ast.Call]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                yield node


if __name__ == "__main__":
    assert isinstance(app, typer.Typer)
    Path(sys.argv[1]).write_text(json.dumps(surface(), indent=1, sort_keys=True) + "\n")
