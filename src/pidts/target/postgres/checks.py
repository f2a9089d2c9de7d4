"""CHECK constraints of a source in PostgreSQL's words, where both servers say the same of every row.

What is left out is what the servers see differently: text, which MySQL compares by collations and without spaces at
its end; division, which has other scales; sums and products that the source may refuse, since they are below zero and
of an unsigned column, or too large; FLOAT(m, d), which MySQL compares by its digits; TIMESTAMP, which a literal meets
in the session's zone; and all functions but the count of a text's characters. Such a constraint is listed with its own
text, for a person to write anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from functools import reduce
from itertools import pairwise

from pidts.model import ColumnType, Kind, Table
from pidts.rules.expressions.parser import parse, words
from pidts.rules.expressions.tree import Call, ColumnRef, Literal, Node, NotSupportedError
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError
from pidts.target.postgres.dialect import identifier, literal

_COMPARED = frozenset({"=", "<>", "<", "<=", ">", ">="})
_COUNTED = frozenset({"+", "-", "*"})
_LENGTHS = frozenset({"CHAR_LENGTH", "CHARACTER_LENGTH"})
_BITS = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.MEDIUMINT: 24, Kind.INT: 32, Kind.BIGINT: 64}
_WHOLE = _BITS.keys() | {Kind.DECIMAL}
_NUMBERS = _WHOLE | {Kind.FLOAT, Kind.DOUBLE}
_MOST_SIGNED, _MOST_UNSIGNED = 2**63 - 1, 2**64 - 1
"""The source counts whole numbers in 64 bits."""
_MOST_DECIMAL, _MOST_SCALE = 10**35 - 1, 18
"""The source multiplies such decimal numbers without rounding: it has nine words of nine digits for a product."""
_TEXTS = frozenset({Kind.VARCHAR, Kind.TINYTEXT, Kind.TEXT, Kind.MEDIUMTEXT, Kind.LONGTEXT})
_DAY = re.compile(r"(?!0000)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")
_MOMENT = re.compile(_DAY.pattern + r"(?: (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?)?")


class _Sort(Enum):
    """The kinds of values; those of one kind can be compared."""

    NUMBER = auto()
    DAY = auto()
    MOMENT = auto()
    TEXT = auto()
    """A text that is written in the expression: a day or a moment, if it is compared with one."""


@dataclass(frozen=True, slots=True)
class _Number:
    """The range of a whole or decimal number."""

    most: int
    """No value is farther from zero."""
    scale: int = 0
    decimal: bool = False
    """Whether the source counts it as DECIMAL, not in 64 bits."""
    unsigned: bool = False
    negative: bool = False
    """Whether it may be below zero."""

    def meet(self, sign: str, other: _Number) -> _Number:
        """Returns the range of a sum, a difference or a product, if the source counts all of it exactly."""
        unsigned = self.unsigned or other.unsigned
        negative = self.negative or other.negative or sign == "-"
        scale = self.scale + other.scale if sign == "*" else max(self.scale, other.scale)
        decimal = self.decimal or other.decimal
        most = self.most * other.most if sign == "*" else self.most + other.most
        limit = _MOST_DECIMAL if decimal else _MOST_UNSIGNED if unsigned else _MOST_SIGNED
        if (unsigned and negative) or most > limit or scale > _MOST_SCALE:
            raise NotSupportedError("a number that the source may refuse")
        return _Number(most, scale, decimal, unsigned, negative)


@dataclass(frozen=True, slots=True)
class _Value:
    sort: _Sort
    sql: str
    number: _Number | None = None
    """Set for a number that is exact on both servers."""


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
            return _Value(_Sort.NUMBER, f"({number})" if node.value < 0 else number, _constant(node.value))
        raise NotSupportedError("a constant")
    if node.name == "DATE LITERAL" and isinstance(day := node.args[0], Literal):
        return _Value(_Sort.DAY, _dated(str(day.value), _Sort.DAY))
    if node.name in _LENGTHS and len(node.args) == 1 and isinstance(column := node.args[0], ColumnRef):
        name = _name(table, column)
        if table.column(name).type.kind in _TEXTS:
            return _Value(_Sort.NUMBER, f"char_length({identifier(name)})", _Number(2**32))
    if node.name in _COUNTED:
        values = [_value(table, part) for part in node.args]
        numbers = [value.number for value in values if value.number is not None]
        if len(numbers) == len(values):
            met = reduce(lambda one, other: one.meet(node.name, other), numbers)
            return _Value(_Sort.NUMBER, f"({f' {node.name} '.join(f'{value.sql}::numeric' for value in values)})", met)
    raise NotSupportedError(node.name)


def _column(table: Table, node: ColumnRef) -> _Value:
    name = _name(table, node)
    declared = table.column(name).type
    kind = declared.kind
    if kind in _WHOLE:
        return _Value(_Sort.NUMBER, identifier(name), _range(declared))
    if kind in _NUMBERS and declared.scale is None:
        # PostgreSQL compares real with a list of constants as real, MySQL all as double.
        widened = "::double precision" if kind is Kind.FLOAT else ""
        return _Value(_Sort.NUMBER, identifier(name) + widened)
    if kind is Kind.DATE:
        return _Value(_Sort.DAY, identifier(name))
    if kind is Kind.DATETIME:
        return _Value(_Sort.MOMENT, identifier(name))
    raise NotSupportedError(kind.value)


def _range(declared: ColumnType) -> _Number:
    """Returns the range of a column of whole or decimal numbers."""
    unsigned = declared.unsigned
    if bits := _BITS.get(declared.kind):
        return _Number(2**bits - 1 if unsigned else 2 ** (bits - 1), unsigned=unsigned, negative=not unsigned)
    scale = declared.scale or 0
    digits = (10 if declared.precision is None else declared.precision) - scale
    return _Number(10**digits, scale, decimal=True, unsigned=unsigned, negative=not unsigned)


def _constant(value: int | Decimal) -> _Number:
    """Returns the range of a constant, which the source counts unsigned where it has no room otherwise."""
    if isinstance(value, int) and value <= _MOST_UNSIGNED:
        return _Number(abs(value), unsigned=value > _MOST_SIGNED, negative=value < 0)
    scale = max(-int(Decimal(value).as_tuple().exponent), 0)
    return _Number(abs(int(value)) + 1, scale, decimal=True, negative=value < 0)


def _name(table: Table, node: ColumnRef) -> str:
    found = [column.name for column in table.columns if column.name.lower() == node.name.lower()]
    if node.qualifier or len(found) != 1:
        raise NotSupportedError(node.name)
    return found[0]
