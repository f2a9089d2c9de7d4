"""CHECK constraints of a source in PostgreSQL's words, where both servers say the same of every row.

What is left out is what the servers see differently: text, which MySQL compares by collations and without spaces at
its end; division, which has other scales; TIMESTAMP, which a literal meets in the session's zone; and all functions but
the count of a text's characters. Such a constraint is listed with its own text, for a person to write anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from itertools import pairwise

from pidts.model import Kind, Table
from pidts.rules.expressions.parser import parse, words
from pidts.rules.expressions.tree import Call, ColumnRef, Literal, Node, NotSupportedError, columns_of
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError
from pidts.target.postgres.dialect import identifier, literal

_COMPARED = frozenset({"=", "<>", "<", "<=", ">", ">="})
_COUNTED = frozenset({"+", "-", "*"})
_LENGTHS = frozenset({"CHAR_LENGTH", "CHARACTER_LENGTH"})
_WHOLE = frozenset({Kind.TINYINT, Kind.SMALLINT, Kind.MEDIUMINT, Kind.INT, Kind.BIGINT, Kind.DECIMAL})
_NUMBERS = _WHOLE | {Kind.FLOAT, Kind.DOUBLE}
_TEXTS = frozenset({Kind.VARCHAR, Kind.TINYTEXT, Kind.TEXT, Kind.MEDIUMTEXT, Kind.LONGTEXT})
_DAY = re.compile(r"(?!0000)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")
_MOMENT = re.compile(_DAY.pattern + r"(?: (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?)?")


class _Sort(Enum):
    """What a value can be compared with."""

    NUMBER = auto()
    DAY = auto()
    MOMENT = auto()
    TEXT = auto()
    """A text that is written in the expression: a day or a moment, if it is compared with one."""


@dataclass(frozen=True, slots=True)
class _Value:
    sort: _Sort
    sql: str
    whole: bool = False
    """Whether it is a number that is exact on both servers."""


def expression(table: Table, clause: str) -> str | None:
    """Returns the source's expression in PostgreSQL's words; None where the servers may differ about a row."""
    try:
        return _truth(table, parse(_without_charsets(clause)))
    except (NotSupportedError, NotUnderstoodError):
        return None


def _without_charsets(clause: str) -> str:
    """Returns the clause without the charset that MySQL writes before each text."""
    tokens = list(words(clause))
    parts, at = [], 0
    for token, then in pairwise(tokens):
        if token.lexeme is Lexeme.WORD and token.text.startswith("_") and then.lexeme is Lexeme.TEXT:
            parts.append(clause[at : token.at])
            at = then.at
    return "".join([*parts, clause[at:]])


def _truth(table: Table, node: Node) -> str:
    if not isinstance(node, Call):
        raise NotSupportedError("a number as a condition")
    if node.name in {"AND", "OR"}:
        return f"({f' {node.name} '.join(_truth(table, part) for part in node.args)})"
    if node.name == "NOT":
        return f"(NOT {_truth(table, node.args[0])})"
    if node.name == "IS NULL" and isinstance(column := node.args[0], ColumnRef):
        return f"({identifier(_name(table, column))} IS NULL)"
    if node.name not in {*_COMPARED, "<=>", "IN", "BETWEEN"}:
        raise NotSupportedError(node.name)
    first, *others = _alike([_value(table, part) for part in node.args])
    match node.name:
        case "IN":
            return f"({first} IN ({', '.join(others)}))"
        case "BETWEEN":
            return f"({first} BETWEEN {others[0]} AND {others[1]})"
        case "<=>":
            return f"({first} IS NOT DISTINCT FROM {others[0]})"
        case sign:
            return f"({first} {sign} {others[0]})"


def _alike(values: list[_Value]) -> list[str]:
    """Returns the SQL of values that can be compared with each other."""
    sorts = {value.sort for value in values} - {_Sort.TEXT}
    if len(sorts) != 1:
        raise NotSupportedError("values of several types")
    (sort,) = sorts
    return [value.sql if value.sort is sort else _dated(value.sql, sort) for value in values]


def _dated(text: str, sort: _Sort) -> str:
    if sort is _Sort.DAY and _DAY.fullmatch(text):
        return f"{literal(text)}::date"
    if sort is _Sort.MOMENT and _MOMENT.fullmatch(text):
        return f"{literal(text)}::timestamp"
    raise NotSupportedError("a text")


def _value(table: Table, node: Node) -> _Value:
    if isinstance(node, ColumnRef):
        return _column(table, node)
    if isinstance(node, Literal):
        if isinstance(node.value, str):
            return _Value(_Sort.TEXT, node.value)
        if isinstance(node.value, (int, Decimal)):
            number = str(node.value) if isinstance(node.value, int) else f"{node.value:f}"
            return _Value(_Sort.NUMBER, f"({number})" if node.value < 0 else number, whole=True)
        raise NotSupportedError("a constant")
    if node.name == "DATE LITERAL" and isinstance(day := node.args[0], Literal):
        return _Value(_Sort.DAY, _dated(str(day.value), _Sort.DAY))
    if node.name in _LENGTHS and len(node.args) == 1 and isinstance(column := node.args[0], ColumnRef):
        name = _name(table, column)
        if table.column(name).type.kind in _TEXTS:
            return _Value(_Sort.NUMBER, f"char_length({identifier(name)})", whole=True)
    if node.name in _COUNTED:
        values = [_value(table, part) for part in node.args]
        # The source refuses a row where such a difference would be negative.
        unsigned = node.name == "-" and any(table.column(_name(table, one)).type.unsigned for one in columns_of(node))
        if not unsigned and all(value.whole for value in values):
            numbers = [f"{value.sql}::numeric" for value in values]
            return _Value(_Sort.NUMBER, f"({f' {node.name} '.join(numbers)})", whole=True)
    raise NotSupportedError(node.name)


def _column(table: Table, node: ColumnRef) -> _Value:
    name = _name(table, node)
    kind = table.column(name).type.kind
    if kind in _NUMBERS:
        return _Value(_Sort.NUMBER, identifier(name), whole=kind in _WHOLE)
    if kind is Kind.DATE:
        return _Value(_Sort.DAY, identifier(name))
    if kind is Kind.DATETIME:
        return _Value(_Sort.MOMENT, identifier(name))
    raise NotSupportedError(kind.value)


def _name(table: Table, node: ColumnRef) -> str:
    found = [column.name for column in table.columns if column.name.lower() == node.name.lower()]
    if node.qualifier or len(found) != 1:
        raise NotSupportedError(node.name)
    return found[0]
