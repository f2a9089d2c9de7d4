"""The tree of a parsed expression, before the columns' types are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

BARE_CLOCK = frozenset({"CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "UTC_TIMESTAMP", "CURRENT_DATE"})
"""Functions of the time of a change that need no brackets."""
CLOCK = BARE_CLOCK | {"NOW", "CURDATE"}
"""All functions of the time of a change."""
DAYS = frozenset({"CURDATE", "CURRENT_DATE"})
"""Those of them that give a date."""


class NotSupportedError(Exception):
    """SQL whose value we cannot give as the server gives it."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: an int, a Decimal (`1.5`), a float (`1e3`), a text, bytes (`x'4D'`), or NULL.

    TRUE and FALSE are 1 and 0.
    """

    value: int | Decimal | float | str | bytes | None
    is_truth: bool = False
    """Whether it is written as TRUE or FALSE: JSON tells these from numbers."""


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column by its name as written."""

    name: str
    qualifier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function or an operator, by its name in upper case, with what it is applied to."""

    name: str
    args: tuple[Node, ...]


Node = Literal | ColumnRef | FunctionCall


def columns_of(node: Node) -> Iterator[ColumnRef]:
    """Yields all columns that are named, in order."""
    if isinstance(node, ColumnRef):
        yield node
    elif isinstance(node, FunctionCall):
        for part in node.args:
            yield from columns_of(part)


def calls_of(node: Node) -> Iterator[FunctionCall]:
    """Yields all functions and operators."""
    if isinstance(node, FunctionCall):
        yield node
        for part in node.args:
            yield from calls_of(part)
