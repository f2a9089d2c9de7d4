"""Every error that ends a command or halts a table says what the reader can do."""

from __future__ import annotations

import ast
from pathlib import Path

from pidts.model import (
    ConfigError,
    DecodeError,
    Fenced,
    Halted,
    PidtsError,
    PrecheckFailed,
    ServerDown,
    Transient,
)

PACKAGE = Path(__file__).parents[2] / "src" / "pidts"
KINDS = {
    kind.__name__: kind
    for kind in (PidtsError, ConfigError, DecodeError, Fenced, Halted, PrecheckFailed, ServerDown, Transient)
}


def silent(source: str) -> list[int]:
    """Returns the lines that make an error without advice, if the error's class has no advice either."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    named = [node for node in calls if isinstance(node.func, ast.Name) and node.func.id in KINDS and node.args]
    return [
        node.lineno
        for node in named
        if isinstance(node.func, ast.Name)
        and not KINDS[node.func.id].usual_todo
        and not {one.arg for one in node.keywords} & {"todo", None}
    ]


def test_every_error_has_advice() -> None:
    found = {str(path.relative_to(PACKAGE)): silent(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_an_error_without_advice_is_found() -> None:
    assert silent('raise Halted("a", "b")\nraise Halted("a", "b", todo="c")\nraise Transient("a", "b")\n') == [1]
