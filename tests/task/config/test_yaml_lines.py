"""Values that are read from YAML keep their lines, and nothing in the file is ignored without an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pidts.model import ConfigError
from pidts.task.config.yaml_lines import Item, read_yaml

FILE = Path("t.yaml")


def plain(item: Item) -> Any:
    if isinstance(item.value, dict):
        return {key: plain(child) for key, child in item.value.items()}
    return [plain(child) for child in item.value] if isinstance(item.value, list) else item.value


def test_every_value_knows_its_line() -> None:
    root = read_yaml("a: 1\n\nb:\n  c: [x,\n    y]\n", FILE)
    assert plain(root) == {"a": 1, "b": {"c": ["x", "y"]}}
    assert isinstance(root.value, dict)
    inner = root.value["b"].value["c"]
    assert (root.value["a"].line, inner.line, [item.line for item in inner.value]) == (1, 4, [4, 5])


def test_text_is_kept_as_written() -> None:
    root = read_yaml("a: 007\nb: yes\nc: 2024-01-01\nd: ~\n", FILE)
    assert isinstance(root.value, dict)
    assert [item.text for item in root.value.values()] == ["007", "yes", "2024-01-01", "~"]


def test_an_empty_document_is_an_empty_mapping() -> None:
    assert read_yaml("# nothing\n", FILE) == Item({}, 1)


def test_anchors_and_merges_work_and_own_keys_win() -> None:
    text = "base: &b {x: 1, y: 2}\nmine:\n  <<: *b\n  y: 3\nalso: *b\n"
    assert plain(read_yaml(text, FILE)) == {
        "base": {"x": 1, "y": 2},
        "mine": {"x": 1, "y": 3},
        "also": {"x": 1, "y": 2},
    }


@pytest.mark.parametrize(
    ("text", "code", "line", "said"),
    [
        ("a: 1\nb: 2\na: 3\n", "duplicate-key", 3, "already given in line 1"),
        ("a: {x: 1, x: 2}\n", "duplicate-key", 1, "'x'"),
        ("a: 1\n b: 2\n", "bad-yaml", 2, "mapping values"),
        ("a: [1\nb: 2\n", "bad-yaml", 2, "expected"),
        ("a: &x [*x]\n", "bad-yaml", 1, "contains itself"),
        ("? [a, b]\n: 1\n", "bad-yaml", 1, "single word"),
        ("a: !!python/object:os.system x\n", "bad-yaml", 1, "could not determine a constructor"),
        ("a: 2024-13-45\n", "bad-yaml", 1, "not understood"),
        ("a: 1\n---\nb: 2\n", "bad-yaml", 2, "another document"),
        ("a: 1\nb: \x00\n", "bad-yaml", 2, "U+0000"),
    ],
)
def test_mistakes_are_reported_with_their_line(text: str, code: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_yaml(text, FILE)
    error = caught.value
    assert (error.code, error.where.line, error.where.file) == (code, line, "t.yaml")
    assert said in error.what
