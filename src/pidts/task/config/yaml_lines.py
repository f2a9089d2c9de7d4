"""Reads YAML so that every value has its line, and a duplicate key is an error.

`yaml.safe_load` returns plain values only, and of two equal keys it silently keeps the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import yaml
import yaml.reader

from pidts.model import ConfigError, Where


@dataclass(frozen=True, slots=True)
class Item:
    """A value in a YAML file, and its line."""

    value: object
    """A plain value, a `dict[str, Item]` or a `list[Item]`."""
    line: int
    text: str = ""
    """The text of a single value as it is written: `007`, not the number 7."""


def read_yaml(text: str, file: Path) -> Item:
    """Returns the document's root; an empty document is an empty mapping."""
    where = Where(file=str(file))
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        # The error's own text does not say which character the user has to remove.
        what = f"the character U+{error.character:04X} is not allowed in a file"
        raise ConfigError(
            "bad-yaml",
            what,
            where=replace(where, line=text.count("\n", 0, error.position) + 1),
            todo="Remove the character",
        ) from None
    try:
        root = loader.get_single_node()
        return _Reader(loader, file).item(root) if root is not None else Item({}, 1)
    except RecursionError:
        raise ConfigError(
            "bad-yaml",
            "values are nested too deeply",
            where=where,
            todo="A task file has a few levels: look for a bracket that is not closed",
        ) from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise ConfigError(
            "bad-yaml",
            f"this is not YAML: {error.problem}",
            where=replace(where, line=line),
            todo="Look at this line and the line before it: often a quote, a bracket or an indent is wrong",
        ) from None
    finally:
        loader.dispose()


class _Reader:
    """Turns YAML nodes into items. A node is read only once, even if several aliases refer to it."""

    def __init__(self, loader: yaml.SafeLoader, file: Path) -> None:
        self._loader = loader
        self._file = file
        self._read: dict[int, Item | None] = {}

    def item(self, node: yaml.Node) -> Item:
        if id(node) in self._read:
            known = self._read[id(node)]
            if known is None:
                raise self._error(
                    node, "bad-yaml", "this value contains itself", "Write the value out instead of its alias (*NAME)"
                )
            return known
        self._read[id(node)] = None
        item = Item(self._value(node), self._line(node), node.value if isinstance(node, yaml.ScalarNode) else "")
        self._read[id(node)] = item
        return item

    def _value(self, node: yaml.Node) -> object:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node)
        if isinstance(node, yaml.SequenceNode):
            return [self.item(child) for child in node.value]
        try:
            return self._loader.construct_object(node)
        except (
            ValueError,
            TypeError,
            AttributeError,
            KeyError,
        ) as error:  # a date such as 2024-13-45
            raise self._error(
                node, "bad-yaml", f"this value is not understood: {error}", "Put it in quotes, if it is a text"
            ) from None

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Item]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(key, "bad-yaml", "a key must be a single word", "Put it in quotes, if it is a text")
            if key.value in seen:
                raise self._error(
                    key,
                    "duplicate-key",
                    f"{key.value!r} was already given in line {seen[key.value]}",
                    "Remove one of the two lines",
                )
            seen[key.value] = self._line(key)
        # Keys from `<<` come first, so the mapping's own keys overwrite them.
        self._loader.flatten_mapping(node)
        return {key.value: self.item(value) for key, value in node.value}

    def _error(self, node: yaml.Node, code: str, what: str, todo: str) -> ConfigError:
        return ConfigError(code, what, where=Where(file=str(self._file), line=self._line(node)), todo=todo)

    @staticmethod
    def _line(node: yaml.Node) -> int:
        return int(node.start_mark.line) + 1
