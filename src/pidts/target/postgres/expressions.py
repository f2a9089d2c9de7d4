"""Translates the source's expressions in CHECK constraints, generated columns and keys to PostgreSQL.

An expression is translated only if both servers compute the same value for every row. So these are not translated:

- comparisons of texts, since MySQL compares by collations and without trailing spaces;
- texts that may be longer than a packet, since they become NULL on the source;
- division, since its results have a different scale;
- sums and products that the source may refuse, because they are too large, or negative where a column is unsigned;
- FLOAT(m, d), since MySQL compares its digits;
- TIMESTAMP, since it is compared with a literal in the session's time zone;
- almost all functions.

Zero and partial dates are NULL on PostgreSQL, unless they are refused. A check accepts a row if its comparison has NULL
as the result. But a generated column would get a different value, and `IS NULL` would have a different result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum, auto
from functools import reduce

from pidts.model import Column, ColumnType, Kind, Table
from pidts.model.types import DATED, INTEGER_BITS, LOB_BYTES, TEXTS
from pidts.rules.expressions.parser import parse, words
from pidts.rules.expressions.tree import ColumnRef, FunctionCall, Literal, Node, NotSupportedError, columns_of
from pidts.schema.parse.lexer import Lexeme, NotUnderstoodError
from pidts.target.postgres.dialect import identifier, literal, type_name

_COMPARED = frozenset({"=", "<>", "<", "<=", ">", ">="})
_COUNTED = frozenset({"+", "-", "*"})
_LENGTHS = frozenset({"CHAR_LENGTH", "CHARACTER_LENGTH"})
_WHOLE = INTEGER_BITS.keys() | {Kind.DECIMAL}
_NUMBERS = _WHOLE | {Kind.FLOAT, Kind.DOUBLE}
_MOST_SIGNED, _MOST_UNSIGNED = 2**63 - 1, 2**64 - 1
"""The source computes whole numbers in 64 bits."""
_MOST_DECIMAL, _MOST_SCALE = 10**35 - 1, 18
"""The source computes decimal numbers exactly up to this value, with up to this many digits after the point: a product
has at most nine groups of nine digits.
"""
_TEXTS = frozenset({Kind.VARCHAR, *TEXTS})
_CHOICES = frozenset({"IF", "CASE", "COALESCE", "IFNULL"})
_PARTS = {"YEAR": "year", "QUARTER": "quarter", "MONTH": "month", "DAY": "day", "DAYOFMONTH": "day"}
_FOLDS = {"LOWER": "lower", "LCASE": "lower", "UPPER": "upper", "UCASE": "upper"}
_BYTES_A_CHARACTER = 4
_LONGEST_RESULT = 1 << 20
"""The lowest default of `max_allowed_packet` in bytes: if a function's result is longer, the source returns NULL."""
_LONGEST_KEY = 2_600
"""The largest number of bytes of texts in an index entry."""
_DAY = re.compile(r"(?!0000)\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])")
_MOMENT = re.compile(_DAY.pattern + r"(?: (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?)?")


class _Sort(Enum):
    """The kinds of values. Two values of the same kind can be compared."""

    NUMBER = auto()
    DAY = auto()
    MOMENT = auto()
    TEXT = auto()
    """A text constant in the expression. If it is compared with a date or time, it is read as a date or time."""


@dataclass(frozen=True, slots=True)
class _Number:
    """The range of a whole or decimal number."""

    most: int
    """The largest distance of a value from zero."""
    scale: int = 0
    decimal: bool = False
    """Whether the source computes the number as DECIMAL, not in 64 bits."""
    unsigned: bool = False
    negative: bool = False
    """Whether the number may be negative."""

    def meet(self, sign: str, other: _Number) -> _Number:
        """Returns the range of a result. Raises if it is not certain that the source computes it exactly."""
        unsigned = self.unsigned or other.unsigned
        negative = self.negative or other.negative or sign == "-"
        scale = self.scale + other.scale if sign == "*" else max(self.scale, other.scale)
        decimal = self.decimal or other.decimal
        most = self.most * other.most if sign == "*" else self.most + other.most
        limit = _MOST_DECIMAL if decimal else _MOST_UNSIGNED if unsigned else _MOST_SIGNED
        # For MySQL, a decimal result is unsigned if all columns and constants of its expression are unsigned.
        is_below = sign == "-" and decimal and not (self.negative or other.negative)
        if (unsigned and negative and not decimal) or is_below or most > limit or scale > _MOST_SCALE:
            raise NotSupportedError("a number that the source may refuse")
        return _Number(most, scale, decimal, unsigned, negative)

    def wider(self, other: _Number) -> _Number:
        """Returns the range of a value that is one of the two numbers."""
        unsigned, negative = self.unsigned or other.unsigned, self.negative or other.negative
        decimal, scale = self.decimal or other.decimal, max(self.scale, other.scale)
        most = max(self.most, other.most)
        limit = _MOST_DECIMAL if decimal else _MOST_SIGNED + 1 if negative else _MOST_UNSIGNED
        if most > limit or scale > _MOST_SCALE or (unsigned and negative and not decimal and most > _MOST_SIGNED):
            raise NotSupportedError("numbers of several types")
        return _Number(most, scale, decimal, unsigned, negative)


@dataclass(frozen=True, slots=True)
class _Value:
    sort: _Sort
    sql: str
    number: _Number | None = None
    """The range of the value if it is a number that both servers compute exactly; otherwise None."""


def condition(table: Table, clause: str) -> str | None:
    """Returns a check's expression for PostgreSQL; None if the servers may differ for a row."""
    try:
        return _truth(table, _parsed(clause))
    except (NotSupportedError, NotUnderstoodError):
        return None


def computed(table: Table, column: Column) -> str | None:
    """Returns the expression by which PostgreSQL computes a generated column as the source does; None if there is none.

    PostgreSQL cannot compute a column from another generated column. Columns of the identity stay plain columns. NOT
    NULL columns also stay plain: without strict mode the source stores 0 or '' if the expression is NULL.
    """
    if not (column.generated and column.computed and column.nullable) or column.name in table.identity:
        return None
    try:
        node = _parsed(column.computed.rpartition(" ")[0])
        return _stored(table, node, column.type)
    except (NotSupportedError, NotUnderstoodError):
        return None


def read_columns(table: Table, column: Column) -> frozenset[str]:
    """Returns the names of the columns that a generated column is computed from."""
    node = _parsed(column.computed.rpartition(" ")[0])
    return frozenset(_name(table, one) for one in columns_of(node))


def key_parts(table: Table, parts: Sequence[str], *, unique: bool) -> tuple[str, ...] | None:
    """Returns the parts of a key over expressions for PostgreSQL; None if PostgreSQL cannot create the key.

    A unique key refuses rows, so both servers must treat the same values as equal. Any other key only finds rows, but
    it must accept every row.
    """
    try:
        written = [_key_part(table, _parsed(part), unique=unique) for part in parts]
    except (NotSupportedError, NotUnderstoodError):
        return None
    return tuple(sql for sql, _ in written) if sum(size for _, size in written) <= _LONGEST_KEY else None


def _key_part(table: Table, node: Node, *, unique: bool) -> tuple[str, int]:
    """Returns the SQL of one part of a key, and the largest number of bytes of its text."""
    if not unique and isinstance(node, FunctionCall) and node.name in _FOLDS and len(node.args) == 1:
        sql, most = _letters(table, node.args[0], None)
        return f"{_FOLDS[node.name]}({sql})", most * _BYTES_A_CHARACTER
    if not unique and isinstance(node, ColumnRef) and table.column(_name(table, node)).type.kind in _TEXTS:
        return identifier(_name(table, node)), _letters(table, node, None)[1] * _BYTES_A_CHARACTER
    value = _value(table, node)
    if value.sort is _Sort.TEXT or (unique and not (_is_certain(table, node) and _is_exact(value))):
        raise NotSupportedError("a value that the servers may compare differently")
    return identifier(_name(table, node)) if isinstance(node, ColumnRef) else f"({value.sql})", 0


def _is_exact(value: _Value) -> bool:
    return value.sort is not _Sort.NUMBER or value.number is not None


def _is_certain(table: Table, node: Node) -> bool:
    """Whether no column in the expression may contain zero or partial dates, which are NULL on PostgreSQL."""
    kinds = (table.column(_name(table, one)).type for one in columns_of(node))
    return all(kind.kind not in DATED or kind.refuses_unreal for kind in kinds)


def _stored(table: Table, node: Node, kind: ColumnType) -> str:
    """Returns the value as a column of this type stores it."""
    if any(table.column(_name(table, one)).generated for one in columns_of(node)):
        raise NotSupportedError("a generated column")
    # For a date that does not exist, DATE() returns that date on the source. On PostgreSQL the result is NULL, since
    # the column is NULL.
    is_day = isinstance(node, FunctionCall) and node.name == "DATE" and isinstance(node.args[0], ColumnRef)
    if not (is_day or _is_certain(table, node)):
        raise NotSupportedError("a date")
    if kind.kind in _TEXTS:
        return _letters_stored(table, node, kind)
    value = _value(table, node)
    if kind.kind is Kind.DATE and value.sort is _Sort.DAY:
        return value.sql
    if kind.kind in _WHOLE and value.number is not None and not (kind.kind is Kind.DECIMAL and kind.unsigned):
        return _number_stored(value.sql, value.number, kind)
    raise NotSupportedError(kind.kind)


def _number_stored(sql: str, number: _Number, kind: ColumnType) -> str:
    """Returns the number as the column stores it: rounded, and cut to the limit, as in MySQL without strict mode."""
    scale = kind.scale or 0
    if kind.chosen == "boolean":
        if number.most > 1 or number.negative or number.scale:
            raise NotSupportedError("a number as a truth")
        return f"{sql}::integer::boolean"
    if number.scale > scale:
        sql = f"round({sql}, {scale})"
    if bits := INTEGER_BITS.get(kind.kind):
        low, high = (0, 2**bits - 1) if kind.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        ends, room = (str(low), str(high)), high
    else:
        whole = (10 if kind.precision is None else kind.precision) - scale
        most = ("9" * whole or "0") + ("." + "9" * scale if scale else "")
        ends, room = (f"-{most}", most), 10**whole - 1
    if number.most >= room or (number.negative and kind.unsigned):
        low_end, high_end = (f"({end})::numeric" for end in ends)
        sql = f"CASE WHEN {sql} > {high_end} THEN {high_end} WHEN {sql} < {low_end} THEN {low_end} ELSE {sql} END"
    return f"({sql})::{type_name(kind)}"


def _letters_stored(table: Table, node: Node, kind: ColumnType) -> str:
    """Returns the text as the column stores it without strict mode: only the beginning of a text that is too long."""
    sql, most = _letters(table, node, kind.charset)
    if kind.length is None and most * _BYTES_A_CHARACTER > LOB_BYTES[kind.kind]:
        raise NotSupportedError("a text that the source may cut")
    if kind.length is not None and most > kind.length:
        sql = f"left({sql}, {kind.length})"
    return f"({sql})::{type_name(kind)}"


def _letters(table: Table, node: Node, charset: str | None) -> tuple[str, int]:
    """Returns the SQL of a text, and the text's largest number of characters. `charset` None accepts any charset."""
    if isinstance(node, Literal) and isinstance(node.value, str) and node.value.isascii() and "\0" not in node.value:
        return f"{literal(node.value)}::text", len(node.value)
    if isinstance(node, ColumnRef):
        name = _name(table, node)
        kind = table.column(name).type
        if kind.kind not in _TEXTS or charset not in (None, kind.charset):
            raise NotSupportedError("a text of another charset")
        return f"{identifier(name)}::text", kind.length or LOB_BYTES[kind.kind]
    if not isinstance(node, FunctionCall):
        raise NotSupportedError("a constant")
    sql, most = _letters_called(table, node, charset)
    if most * _BYTES_A_CHARACTER > _LONGEST_RESULT:
        raise NotSupportedError("a text that may be longer than a packet")
    return sql, most


def _letters_called(table: Table, node: FunctionCall, charset: str | None) -> tuple[str, int]:
    if node.name == "CONCAT":
        parts = [_letters(table, part, charset) for part in node.args]
        return f"({' || '.join(sql for sql, _ in parts)})", sum(most for _, most in parts)
    if node.name == "LEFT" and len(node.args) == 2 and isinstance(count := node.args[1], Literal):
        sql, most = _letters(table, node.args[0], charset)
        if type(count.value) is int and count.value > 0:
            return f"left({sql}, {count.value})", min(most, count.value)
    if node.name in _CHOICES:
        longest = max(_letters(table, part, charset)[1] for part in _chosen(node))
        return _choice(table, node, lambda part: _letters(table, part, charset)[0]), longest
    raise NotSupportedError(node.name)


def _chosen(node: FunctionCall) -> list[Node]:
    """Returns the values among which IF, CASE, COALESCE or IFNULL chooses, without NULL constants."""
    parts: list[Node] = list(node.args)
    if node.name == "IF":
        parts = parts[1:]
    elif node.name == "CASE":
        parts = [*parts[1:-1:2], parts[-1]]
    values = [part for part in parts if not (isinstance(part, Literal) and part.value is None)]
    if not values:
        raise NotSupportedError("nothing but NULL")
    return values


def _choice(table: Table, node: FunctionCall, written: Callable[[Node], str]) -> str:
    def sql(part: Node) -> str:
        return "NULL" if isinstance(part, Literal) and part.value is None else written(part)

    if node.name in {"COALESCE", "IFNULL"}:
        return f"coalesce({', '.join(map(sql, node.args))})"
    parts, default = node.args[:-1], node.args[-1]
    whens = (f"WHEN {_truth(table, when)} THEN {sql(then)}" for when, then in zip(parts[::2], parts[1::2], strict=True))
    return f"(CASE {' '.join(whens)} ELSE {sql(default)} END)"


def _parsed(clause: str) -> Node:
    """Parses an expression as a catalog shows it.

    MySQL writes a charset before each text. MySQL and MariaDB write `CAST(column AS DATE)` for `DATE(column)`.
    """
    tokens = list(words(clause))
    parts, at = [], 0
    for place, token in enumerate(tokens[:-1]):
        then = tokens[place + 1]
        if token.lexeme is Lexeme.WORD and token.text.startswith("_") and then.lexeme is Lexeme.TEXT:
            parts.append(clause[at : token.at])
            at = then.at
        elif [one.word for one in tokens[place : place + 6]] == ["CAST", "(", "", "AS", "DATE", ")"]:
            parts += [clause[at : token.at], "DATE(", clause[tokens[place + 2].at : tokens[place + 3].at]]
            at = tokens[place + 5].at
    return parse("".join([*parts, clause[at:]]))


def _truth(table: Table, node: Node) -> str:
    if not isinstance(node, FunctionCall):
        raise NotSupportedError("a number as a condition")
    if node.name in {"AND", "OR"}:
        return f"({f' {node.name} '.join(_truth(table, part) for part in node.args)})"
    if node.name == "NOT":
        return f"(NOT {_truth(table, node.args[0])})"
    if node.name in {"IS NULL", "<=>"} and not _is_certain(table, node):
        raise NotSupportedError("a date that may be NULL here")
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
    """Returns the SQL of values that are comparable with each other."""
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
        values, numbers = _numbers(table, node.args)
        met = reduce(lambda one, other: one.meet(node.name, other), numbers)
        return _Value(_Sort.NUMBER, f"({f' {node.name} '.join(f'{sql}::numeric' for sql in values)})", met)
    return _called(table, node)


def _numbers(table: Table, nodes: Sequence[Node]) -> tuple[list[str], list[_Number]]:
    """Returns the SQL and the ranges of exact numbers."""
    values = [_value(table, node) for node in nodes]
    numbers = [value.number for value in values if value.number is not None]
    if len(numbers) != len(values):
        raise NotSupportedError("a number that is not exact")
    return [value.sql for value in values], numbers


def _called(table: Table, node: FunctionCall) -> _Value:
    first = node.args[0] if node.args else None
    if node.name == "NEGATE":
        (sql,), (number,) = _numbers(table, node.args)
        return _Value(_Sort.NUMBER, f"(- {sql}::numeric)", _Number(0).meet("-", number))
    if node.name in _CHOICES:
        numbers = _numbers(table, _chosen(node))[1]
        sql = _choice(table, node, lambda part: f"{_value(table, part).sql}::numeric")
        return _Value(_Sort.NUMBER, sql, reduce(_Number.wider, numbers))
    if node.name == "ROUND" and first is not None:
        digits = node.args[1] if len(node.args) == 2 else Literal(0)
        (sql,), (number,) = _numbers(table, [first])
        if isinstance(digits, Literal) and type(digits.value) is int and 0 <= digits.value <= _MOST_SCALE:
            if number.scale <= digits.value:
                return _Value(_Sort.NUMBER, sql, number)
            rounded = replace(number, most=number.most + 1, scale=digits.value)
            return _Value(_Sort.NUMBER, f"round({sql}, {digits.value})", rounded)
    if node.name in {"DATE", *_PARTS} and len(node.args) == 1 and isinstance(first, ColumnRef):
        name = _name(table, first)
        if table.column(name).type.kind in {Kind.DATE, Kind.DATETIME}:
            if node.name == "DATE":
                return _Value(_Sort.DAY, f"{identifier(name)}::date")
            part = f"extract({_PARTS[node.name]} FROM {identifier(name)})"
            return _Value(_Sort.NUMBER, f"{part}::integer", _Number(9999))
    raise NotSupportedError(node.name)


def _column(table: Table, node: ColumnRef) -> _Value:
    name = _name(table, node)
    declared = table.column(name).type
    kind = declared.kind
    if declared.chosen == "boolean":
        return _Value(_Sort.NUMBER, f"{identifier(name)}::integer", _Number(1))
    if kind is Kind.DECIMAL and declared.unsigned:  # MySQL refuses some subtractions of these numbers
        return _Value(_Sort.NUMBER, identifier(name))
    if kind in _WHOLE:
        return _Value(_Sort.NUMBER, identifier(name), _range(declared))
    if kind in _NUMBERS and declared.scale is None:
        # PostgreSQL compares a `real` with a list of constants as `real`; MySQL compares everything as `double`.
        widened = "::double precision" if kind is Kind.FLOAT else ""
        return _Value(_Sort.NUMBER, identifier(name) + widened)
    if kind is Kind.DATE:
        return _Value(_Sort.DAY, identifier(name))
    if kind is Kind.DATETIME:
        return _Value(_Sort.MOMENT, identifier(name))
    raise NotSupportedError(kind.value)


def _range(declared: ColumnType) -> _Number:
    """Returns the range of a column of whole or signed decimal numbers."""
    unsigned = declared.unsigned
    if bits := INTEGER_BITS.get(declared.kind):
        return _Number(2**bits - 1 if unsigned else 2 ** (bits - 1), unsigned=unsigned, negative=not unsigned)
    scale = declared.scale or 0
    digits = (10 if declared.precision is None else declared.precision) - scale
    return _Number(10**digits, scale, decimal=True, negative=True)


def _constant(value: int | Decimal) -> _Number:
    """Returns the range of a constant. The source treats it as unsigned if it is too large for a signed number."""
    if isinstance(value, int) and value <= _MOST_UNSIGNED:
        return _Number(abs(value), unsigned=value > _MOST_SIGNED, negative=value < 0)
    scale = max(-int(Decimal(value).as_tuple().exponent), 0)
    return _Number(abs(int(value)) + 1, scale, decimal=True, negative=value < 0)


def _name(table: Table, node: ColumnRef) -> str:
    found = [column.name for column in table.columns if column.name.lower() == node.name.lower()]
    if node.qualifier or len(found) != 1:
        raise NotSupportedError(node.name)
    return found[0]
