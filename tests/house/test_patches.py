"""Tests replace names of the product only where it offers no other way; the number of these calls never grows."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 287
"""The number of calls. When a test gets on without one, lower this number."""


def patches(text: str) -> int:
    """Counts the calls of `setattr` of a `MonkeyPatch`, under whatever name a test has it."""
    return sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr"
        for node in ast.walk(ast.parse(text))
    )


def test_calls_are_counted_under_any_name() -> None:
    assert (
        patches("monkeypatch.setattr(a, 'b', 1)\nwith monkeypatch.context() as patch:\n    patch.setattr(a.b, 1)") == 2
    )
    assert patches("setattr(a, 'b', 1)\n'monkeypatch.setattr(a, 1)'\n") == 0


def test_the_number_of_replaced_names_only_falls() -> None:
    found = {path: patches(path.read_text()) for path in (ROOT / "tests").rglob("*.py")}
    total = sum(found.values())
    largest = sorted(found.items(), key=lambda item: -item[1])[:5]
    shown = ", ".join(f"{path.relative_to(ROOT)} {count}" for path, count in largest)
    assert total <= MOST, f"give the product a parameter instead of replacing its names. Most have: {shown}"
    assert MOST - total < 10, f"lower MOST to {total}, so that the number does not rise again"
