"""Adds the column types to an expression; refuses the expression if its value would not be exact with these types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta, timezone
from functools import partial, reduce
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, ConfigError, Kind, calendar
from pidts.model.types import BLOBS
from pidts.rules.expressions import choose, compare, documents, letters, numbers, temporal, texts
from pidts.rules.expressions.tree import CLOCK, DAYS, ColumnRef, FunctionCall, Literal, Node, NotSupportedError
from pidts.rules.expressions.values import INTEGERS, Expr, Family, Rows, is_true, literal, truth

Columns = Callable[[ColumnRef], Column]


def typed(node: Node, columns: Columns, zone: str) -> Expr:
    """Returns a computable expression. `columns` finds a column by its name in the expression."""
    if isinstance(node, Literal):
        return replace(literal(node), local=_local(zone), is_truth=node.is_truth)
    if isinstance(node, ColumnRef):
        return _column(columns(node), zone)
    args = [typed(part, columns, zone) for part in node.args]
    function = _FUNCTIONS.get(node.name) or _clock(node.name, zone)
    if function is None:
        raise NotSupportedError(f"{node.name}()")
    make, least, most = function
    if not least <= len(args) <= most:
        raise NotSupportedError(f"{node.name} with {len(args)} arguments")
    return make(*args)


def is_known(call: FunctionCall) -> bool:
    """Whether this function or operator is supported."""
    return call.name in _FUNCTIONS or call.name in CLOCK


def _clock(name: str, zone: str) -> tuple[Callable[..., Expr], int, int] | None:
    if name not in CLOCK:
        return None
    local = _local("UTC" if name == "UTC_TIMESTAMP" else zone)
    if name in DAYS:
        return partial(temporal.today, local, name), 0, 0
    return partial(temporal.now, local, name), 0, 1


_DIGITS = {Kind.TINYINT: 3, Kind.SMALLINT: 5, Kind.MEDIUMINT: 8, Kind.INT: 10}
_BYTES = {Kind.BINARY, Kind.VARBINARY, *BLOBS}


def _column(column: Column, zone: str) -> Expr:
    kind = column.type
    name = column.name
    nature = f"the column {name} ({kind.kind.value})"
    plain = partial(Expr, column=column, nature=nature)

    def as_it_is(rows: Rows) -> Any:
        return rows[name]

    def cast(to: pa.DataType) -> Callable[[Rows], Any]:
        return lambda rows: rows[name].cast(to)

    if kind.is_integer or kind.kind in (Kind.YEAR, Kind.BIT):
        unsigned = kind.unsigned or kind.kind in (Kind.BIT, Kind.YEAR)
        family, to = (Family.UINT, pa.uint64()) if unsigned else (Family.INT, pa.int64())
        return plain(family, cast(to), _DIGITS.get(kind.kind, 20 if unsigned else 19))
    if kind.kind is Kind.DECIMAL:
        scale = kind.scale or 0
        return plain(Family.DECIMAL, as_it_is, (kind.precision or 10) - scale, scale)
    if kind.kind in (Kind.FLOAT, Kind.DOUBLE):
        return plain(Family.DOUBLE, cast(pa.float64()))
    if kind.is_text:
        return plain(Family.TEXT, as_it_is, charset=kind.charset, collation=kind.collation)
    if kind.kind in _BYTES:
        return plain(Family.BYTES, as_it_is)
    if kind.kind is Kind.DATE:
        return plain(
            Family.MOMENT, lambda rows: pc.multiply(rows[name].cast(pa.int32()).cast(pa.int64()), temporal.DAY)
        )
    if kind.kind is Kind.DATETIME:
        return plain(Family.MOMENT, cast(pa.int64()))
    if kind.kind is Kind.TIMESTAMP:
        local = _local(zone)
        return plain(Family.MOMENT, lambda rows: local(rows[name]))
    if kind.kind is Kind.TIME:
        return plain(Family.TIME, cast(pa.int64()))
    return plain(Family.OPAQUE, as_it_is)


def _local(zone: str) -> Callable[[pa.Array], pa.Array]:
    """Returns a function that converts TIMESTAMP columns to the time zone in which the server compares them."""
    fixed = _fixed_offset(zone)
    first = calendar.FIRST_REAL_MICROSECOND

    def local(values: pa.Array) -> pa.Array:
        instants = values.cast(pa.int64())
        real = pc.greater_equal(instants, first)
        if fixed is not None:
            shown = pc.add(instants, fixed)
        else:
            safe = pc.if_else(real, instants, pa.scalar(0, pa.int64())).cast(pa.timestamp("us", zone))
            shown = pc.local_timestamp(safe).cast(pa.int64())
        return pc.if_else(real, shown, instants)  # the zero date is not a point in time

    return local


def check_zone(zone: str) -> None:
    """Raises if there is no such time zone."""
    _fixed_offset(zone)


def _fixed_offset(zone: str) -> int | None:
    """Returns a zone's offset in microseconds; None for a named zone."""
    if zone.upper() == "UTC":
        return 0
    if zone[:1] in ("+", "-"):
        hours, _, minutes = zone[1:].partition(":")
        try:
            offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
            timezone(offset)
        except ValueError:
            raise ConfigError(
                "bad-expression",
                f"{zone!r} is not a time zone",
                todo="Write an offset such as +02:00, or a name such as Europe/Berlin",
            ) from None
        return (-1 if zone[0] == "-" else 1) * offset // timedelta(microseconds=1)
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        raise ConfigError(
            "bad-expression",
            f"the time zone {zone!r} is not known",
            todo="Write an offset such as +02:00, or a name such as Europe/Berlin",
        ) from None
    return None


def _logical(name: str, *exprs: Expr) -> Expr:
    function = {"AND": pc.and_kleene, "OR": pc.or_kleene, "XOR": pc.xor}[name]
    if name == "XOR" and not {expr.family for expr in exprs} <= INTEGERS | {Family.NULL}:
        raise NotSupportedError("XOR of anything but truth values and integers: older servers round other values")
    runs = [truth(expr) for expr in exprs]
    return Expr(Family.TRUTH, lambda rows: reduce(function, (run(rows) for run in runs)), nature="a truth value")


def _not(expr: Expr) -> Expr:
    run = truth(expr)
    return Expr(Family.TRUTH, lambda rows: pc.invert(run(rows)), nature="a truth value")


def _is_null(expr: Expr) -> Expr:
    return Expr(Family.TRUTH, lambda rows: pc.is_null(expr.run(rows)), nature="a truth value")


def _is(*, wanted: bool) -> Callable[[Expr], Expr]:
    def make(expr: Expr) -> Expr:
        run = truth(expr)
        change = (lambda rows: is_true(run(rows))) if wanted else (lambda rows: is_true(pc.invert(run(rows))))
        return Expr(Family.TRUTH, change, nature="a truth value")

    return make


def _between(value: Expr, low: Expr, high: Expr) -> Expr:
    """Returns BETWEEN as two comparisons.

    Servers compare all three values by one rule, so both comparisons must have the same rule.
    """
    _must_not_be_json("BETWEEN", value, low, high)
    if Family.NULL not in (low.family, high.family, value.family) and (
        compare.domain(value, low) != compare.domain(value, high)
    ):
        raise NotSupportedError(
            f"BETWEEN {low.nature} and {high.nature}: servers compare all three values by one rule, and PiDTS would "
            "compare them by two; write two comparisons"
        )
    _must_have_one_sign("BETWEEN", value, low, high)
    if any(expr.family is Family.UINT and not expr.is_constant and expr.column is None for expr in (value, low, high)):
        raise NotSupportedError(
            "BETWEEN with an unsigned result: older servers forget that it is unsigned; write two comparisons"
        )
    return _logical("AND", compare.comparison(">=", value, low), compare.comparison("<=", value, high))


def _in(value: Expr, *among: Expr) -> Expr:
    _must_not_be_json("IN", value, *among)
    _must_have_one_sign("IN", value, *among)
    if value.family is Family.TEXT and all(isinstance(one.constant, str) for one in among):
        return texts.among(value, *among)
    return _logical("OR", *(compare.comparison("=", value, one) for one in among))


def _must_not_be_json(name: str, *exprs: Expr) -> None:
    if any(expr.family is Family.JSON for expr in exprs):
        raise NotSupportedError(f"{name} with a JSON value: write comparisons, or use ->>")


def _must_have_one_sign(name: str, *exprs: Expr) -> None:
    if len({sign for expr in exprs if (sign := _sign(expr)) is not None}) > 1:
        raise NotSupportedError(f"{name} over signed and unsigned numbers: servers forget which are unsigned")


def _sign(expr: Expr) -> Family | None:
    """Returns INT or UINT for an integer; None for a constant that fits both families, and for any other value."""
    if expr.is_constant and expr.family is Family.INT and expr.constant >= 0:
        return None
    return expr.family if expr.family in (Family.INT, Family.UINT) else None


def _temporal_literal(family: Family) -> Callable[[Expr], Expr]:
    return lambda text: temporal.constant(family, text.constant)


_MANY = 10_000
_FUNCTIONS: dict[str, tuple[Callable[..., Expr], int, int]] = {
    **{sign: (partial(compare.comparison, sign), 2, 2) for sign in compare.OPERATIONS},
    **{name: (partial(_logical, name), 2, _MANY) for name in ("AND", "OR", "XOR")},
    **{sign: (partial(numbers.arithmetic, sign), 2, 2) for sign in ("+", "-", "*", "/", "DIV", "MOD")},
    **{sign: (partial(numbers.bits, sign), 2, 2) for sign in ("&", "|", "^", "<<", ">>")},
    **{name: (partial(temporal.part, name), 1, 1) for name in temporal.PARTS},
    **{name: (partial(texts.trimmed, name), 1, 1) for name in ("TRIM", "LTRIM", "RTRIM")},
    "COALESCE": (partial(choose.coalesce, "COALESCE"), 1, _MANY),
    **{name: (partial(choose.coalesce, name), 2, 2) for name in ("IFNULL", "NVL")},
    **{name: (partial(choose.extreme, name), 2, _MANY) for name in ("GREATEST", "LEAST")},
    **{name: (partial(numbers.whole, name), 1, 1) for name in ("FLOOR", "CEIL", "CEILING")},
    **dict.fromkeys(("SUBSTRING", "SUBSTR", "MID"), (texts.substring_of, 2, 3)),
    **dict.fromkeys(("CHAR_LENGTH", "CHARACTER_LENGTH"), (texts.char_length, 1, 1)),
    **{name: (partial(letters.in_case, name), 1, 1) for name in ("LOWER", "LCASE", "UPPER", "UCASE")},
    **dict.fromkeys(("LENGTH", "OCTET_LENGTH"), (texts.length, 1, 1)),
    "~": (numbers.inverted_bits, 1, 1),
    "NEGATE": (numbers.negated, 1, 1),
    "ABS": (numbers.absolute, 1, 1),
    "NOT": (_not, 1, 1),
    **dict.fromkeys(("IS NULL", "ISNULL"), (_is_null, 1, 1)),
    "IS TRUE": (_is(wanted=True), 1, 1),
    "IS FALSE": (_is(wanted=False), 1, 1),
    "BETWEEN": (_between, 3, 3),
    "IN": (_in, 2, _MANY),
    "LIKE": (texts.like, 3, 3),
    "CASE": (choose.case, 2, _MANY),
    "IF": (choose.case, 3, 3),
    "NULLIF": (choose.nullif, 2, 2),
    "DATE": (temporal.date_of, 1, 1),
    "DATE_ADD": (partial(temporal.shifted, 1), 3, 3),
    "DATE_SUB": (partial(temporal.shifted, -1), 3, 3),
    "DATE LITERAL": (_temporal_literal(Family.MOMENT), 1, 1),
    "TIMESTAMP LITERAL": (temporal.timestamp_literal, 1, 1),
    "TIME LITERAL": (_temporal_literal(Family.TIME), 1, 1),
    "BINARY": (texts.as_bytes, 1, 1),
    "JSON_EXTRACT": (documents.extracted, 2, 2),
    "JSON_UNQUOTE": (documents.unquoted, 1, 1),
    "COLLATE": (lambda expr, name: texts.collated(expr, name.constant), 2, 2),
    "CONCAT": (texts.concat, 1, _MANY),
    "LEFT": (texts.left, 2, 2),
    "RIGHT": (texts.right, 2, 2),
    "REPLACE": (texts.replaced, 3, 3),
}
