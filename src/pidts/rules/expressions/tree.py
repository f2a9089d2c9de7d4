"""The tree of a parsed expression, before the columns' types are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

BARE_CLOCK = frozenset({"CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "UTC_TIMESTAMP", "CURRENT_DATE"})
"""Functions for the time of a change that need no parentheses."""
CLOCK = BARE_CLOCK | {"NOW", "CURDATE"}
"""All functions that return the time of a change, or its date."""
DAYS = frozenset({"CURDATE", "CURRENT_DATE"})
"""The functions for the time of a change that return a date."""


class NotSupportedError(Exception):
    """Raised for SQL whose value cannot be computed exactly as the server computes it."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: an int, a Decimal (`1.5`), a float (`1e3`), a text, bytes (`x'4D'`), or NULL. TRUE is 1, FALSE 0."""

    value: int | Decimal | float | str | bytes | None
    is_truth: bool = False
    """Whether the constant is written as TRUE or FALSE: in JSON, TRUE and FALSE are no numbers."""


@dataclass(frozen=True, slots=True)
class ColumnRef:
    """A column, with its name as written."""

    name: str
    qualifier: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function or an operator: its name in upper case, and its arguments."""

    name: str
    args: tuple[Node, ...]


Node = Literal | ColumnRef | FunctionCall


def columns_of(node: Node) -> Iterator[ColumnRef]:
    """Yields all columns in the expression, in order."""
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
