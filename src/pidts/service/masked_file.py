"""Masks the secrets in the text of a task file, and puts them back into an edited text that has the masks."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Final

import yaml

from pidts.model import ConfigError

MASK: Final = "***"
_SECRET: Final = re.compile(
    r"passw|secret|token|credential|webhook|(access|account|api)[.-]?key|private", re.IGNORECASE
)
_NO_SECRET: Final = re.compile(r"file$", re.IGNORECASE)
"""A key or a comment that ends with `file` is about a path, which is no secret, so it is not masked."""
_FROM_ENVIRONMENT: Final = re.compile(r"\$\{\w+\}")
_IN_URL: Final = re.compile(r"(?<=://)[^/@\s'\"]*:[^/@\s'\"]*(?=@)")
_COMMENT: Final = re.compile(r"#.*")
_ANCHOR_AND_TAG: Final = re.compile(r"(?:[&!]\S*\s+)+")

_NAMES: Final = ("source-id", "name", "id")
"""The keys that may name an item of a list. The first one that an item has is the item's name."""
_COMMAND: Final = ("alerts", "command")
"""The key of a command. Any word of the command may be a secret."""

Place = tuple[Hashable, ...]


def masked(text: str) -> str:
    """Returns the text with `***` in place of each password, token or similar value; `${NAME}` stays.

    The text itself is edited, so order, comments and layout stay. `***` also replaces a comment that mentions a
    password, a token or the like, since it may contain the value.
    """
    for start, end in sorted({_value_range(text, node) for _, node in _secrets(text)}, reverse=True):
        line_end = "\n" if text[start:end].endswith("\n") else ""  # a YAML block includes the end of its last line
        text = f'{text[:start]}"{MASK}"{line_end}{text[end:]}'
    text = _IN_URL.sub(MASK, text)
    return "\n".join(_without_comment(line) for line in text.split("\n"))


def unmasked(text: str, earlier: str) -> str:
    """Returns the text with secrets in place of `***`: those that `earlier`, the old text, has for the same keys.

    The secrets are written as in `earlier` if the result has the expected values. Otherwise they are written in quotes.
    """
    if f"://{MASK}@" in text:
        raise _unknown()
    old, before = dict(_secrets(earlier)), _scalars_of(text)
    earlier_nodes: dict[tuple[int, int], list[yaml.ScalarNode | None]] = defaultdict(list)
    for place, node in before:
        if node.value == MASK:
            earlier_nodes[_value_range(text, node)].append(old.get(place))
    secrets: list[tuple[int, int, yaml.ScalarNode]] = []
    for (start, end), nodes in sorted(earlier_nodes.items(), reverse=True):
        first = nodes[0]
        if first is None or any(node is None or node.value != first.value for node in nodes):
            raise _unknown(text.count("\n", 0, start) + 1)
        secrets.append((start, end, first))
    expected = [(place, old[place].value if node.value == MASK else node.value) for place, node in before]
    as_written = text
    for start, end, node in secrets:
        as_written = as_written[:start] + _as_written(earlier, node) + as_written[end:]
    if _values_of(as_written) == expected:
        return as_written
    for start, end, node in secrets:
        text = text[:start] + _in_quotes(node) + text[end:]
    return text


def _value_range(text: str, node: yaml.ScalarNode) -> tuple[int, int]:
    """Returns where the value of a node begins and ends in the text, without the node's anchor and tag."""
    start, end = node.start_mark.index, node.end_mark.index
    before = _ANCHOR_AND_TAG.match(text, start, end)
    return (before.end() if before else start), end


def _as_written(text: str, node: yaml.ScalarNode) -> str:
    start, end = _value_range(text, node)
    return text[start:end].removesuffix("\n")


def _in_quotes(node: yaml.ScalarNode) -> str:
    """Returns the value of a node in double quotes. This form is valid at any place in a file."""
    return str(yaml.safe_dump(node.value, default_style='"', width=math.inf, allow_unicode=True)).rstrip("\n")


def _unknown(line: int = 0) -> ConfigError:
    what = f"line {line} of the file has" if line else "the file has"
    return ConfigError(
        "masked-secret",
        f"{what} {MASK} in place of a secret, but the earlier file has no secret at this place",
        todo="Write the secret, or better ${NAME} or password-file",
    )


def _without_comment(line: str) -> str:
    """Returns the line with `# ***` for a comment that mentions a secret, even for a `#` within quotes."""
    comment = _COMMENT.search(line)
    if comment and _SECRET.search(comment.group()) and not _NO_SECRET.search(comment.group().rstrip()):
        return f"{line[: comment.start()]}# {MASK}"
    return line


def _secrets(text: str) -> list[tuple[Place, yaml.ScalarNode]]:
    """Returns the scalars that are secrets, with their places: the keys and list items that lead to them.

    A scalar with aliases has several places. If the scalar is a secret at one place, all its places are returned.
    """
    scalars = _scalars_of(text)
    secrets = {id(node) for place, node in scalars if _is_secret(place, node)}
    return [(place, node) for place, node in scalars if id(node) in secrets]


def _values_of(text: str) -> list[tuple[Place, str]] | None:
    try:
        return [(place, node.value) for place, node in _scalars_of(text)]
    except ConfigError:
        return None


def _scalars_of(text: str) -> list[tuple[Place, yaml.ScalarNode]]:
    """Returns all scalars with their places. Raises if the text is not YAML. The error quotes nothing from the text."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise ConfigError("bad-yaml", "the task file is not YAML", todo="Run: pidts check TASK") from None
    return list(_scalars(root, (), set()))


def _is_secret(place: Place, node: yaml.ScalarNode) -> bool:
    names = [part for part in place if isinstance(part, str)]
    is_named = _COMMAND in pairwise(names) or any(
        _SECRET.search(name) and not _NO_SECRET.search(name) for name in names
    )
    return is_named and bool(node.value) and not _FROM_ENVIRONMENT.fullmatch(node.value)


def _scalars(node: yaml.Node | None, place: Place, seen: set[int]) -> Iterator[tuple[Place, yaml.ScalarNode]]:
    """Yields each scalar with its place. A list or mapping with aliases is entered only once, at its first place."""
    if isinstance(node, yaml.ScalarNode):
        yield place, node
        return
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _scalars(value, (*place, str(key.value)), seen)
    elif isinstance(node, yaml.SequenceNode):
        for item, value in zip(_items(node.value), node.value, strict=True):
            yield from _scalars(value, (*place, item), seen)


def _items(nodes: Sequence[yaml.Node]) -> Iterator[Hashable]:
    """Yields, for each item of a list, the part of its place that identifies the item.

    When the list changes, a secret must not pass from one item to another. So an item is identified by:

    - its name, if it has one;
    - otherwise its number, the length of the list, and all its values that are not secrets;
    - its number and the length of the list, if it is not a mapping.
    """
    known: Counter[Hashable] = Counter()
    for number, node in enumerate(nodes):
        if not isinstance(node, yaml.MappingNode):
            yield number, len(nodes)
            continue
        values = {str(key.value): value.value for key, value in node.value if isinstance(value, yaml.ScalarNode)}
        name = next(((name, values[name]) for name in _NAMES if name in values), None)
        if name is not None:
            known[name] += 1
            yield *name, known[name]
            continue
        plain = tuple(
            (place, scalar.value)
            for place, scalar in _scalars(node, (), set())
            if scalar.value != MASK and not _is_secret(place, scalar)
        )
        yield number, len(nodes), plain
