"""Masks the secrets in the text of a task file, and puts them back into an edited text that still has the masks."""

from __future__ import annotations

import re
from collections import Counter
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
"""Keys that end with `file` have the path of a file as their value, which is no secret."""
_FROM_ENVIRONMENT: Final = re.compile(r"\$\{\w+\}")
_IN_URL: Final = re.compile(r"(?<=://)[^/@\s'\"]*:[^/@\s'\"]*(?=@)")
_COMMENT: Final = re.compile(r"#.*")

_NAMES: Final = ("source-id", "name", "id")
"""The keys that name an item of a list. The first of these keys that an item has identifies the item."""
_COMMAND: Final = ("alerts", "command")
"""The key of a command. Any word of the command may be a secret."""

Place = tuple[Hashable, ...]


def masked(text: str) -> str:
    """Returns the text with `***` in place of each password, token or similar value; `${NAME}` stays.

    The text itself is edited, so order, comments and layout stay. A comment that mentions a secret is removed, since it
    may contain the secret.
    """
    found = sorted(_secrets(text).values(), key=lambda node: -node.start_mark.index)
    for node in {(node.start_mark.index, node.end_mark.index): node for node in found}.values():
        start, end = node.start_mark.index, node.end_mark.index
        line_end = "\n" if text[start:end].endswith("\n") else ""  # the value is a block, which ends with its line
        text = f'{text[:start]}"{MASK}"{line_end}{text[end:]}'
    text = _IN_URL.sub(MASK, text)
    return "\n".join(_without_comment(line) for line in text.split("\n"))


def unmasked(text: str, earlier: str) -> str:
    """Returns the text with each `***` replaced by the secret that the earlier file has there."""
    new, old = _secrets(text, mask=True), _secrets(earlier)
    if f"://{MASK}@" in text:
        raise _unknown()
    for place, node in sorted(new.items(), key=lambda item: -item[1].start_mark.index):
        if node.value != MASK:
            continue
        before = old.get(place)
        if before is None:
            raise _unknown(node.start_mark.line + 1)
        secret = earlier[before.start_mark.index : before.end_mark.index].removesuffix("\n")
        text = text[: node.start_mark.index] + secret + text[node.end_mark.index :]
    return text


def _unknown(line: int = 0) -> ConfigError:
    at = f" in line {line}" if line else ""
    return ConfigError(
        "masked-secret",
        f"the file has {MASK}{at} for a secret that the earlier file does not have there",
        todo="Write the secret, or better ${NAME} or password-file",
    )


def _without_comment(line: str) -> str:
    """Removes a comment that mentions a secret. A `#` within quotes also counts as a comment's beginning."""
    comment = _COMMENT.search(line)
    if comment and _SECRET.search(comment.group()) and not _NO_SECRET.search(comment.group().rstrip()):
        return f"{line[: comment.start()]}# {MASK}"
    return line


def _secrets(text: str, *, mask: bool = False) -> dict[Place, yaml.ScalarNode]:
    """Returns the scalars that are secrets, by their places in the file (the keys and list items that lead to them).

    Raises if the text is not YAML. The error shows nothing of the text.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise ConfigError("bad-yaml", "the task file is not YAML", todo="See: pidts check TASK") from None
    return {
        place: node
        for place, node in _scalars(root, (), set())
        if (mask and node.value == MASK) or _is_secret(place, node)
    }


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

    This part is the item's name, since a secret must not pass from one item to another when the list changes. An item
    without a name is identified by its number and all its values that are no secrets. An item that is a single word is
    identified by its number and the length of the list.
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
