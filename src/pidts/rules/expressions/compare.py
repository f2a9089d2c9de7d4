"""Compares values by the servers' rules. The kinds of the two values decide which rule applies.

    exact numbers          as exact numbers
    a DOUBLE on one side   as doubles
    text and a number      as doubles; but `bigint_column = '12'` as integers
    text and text          by their collation
    dates and a constant   as datetimes
    JSON and a constant    as JSON values, see `documents`
    anything and NULL      NULL

If servers are known to differ in a comparison, or would only warn (`date_column = 'abc'`), the expression is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Kind
from pidts.rules.expressions import collations, documents, temporal
from pidts.rules.expressions.tree import NotSupportedError
from pidts.rules.expressions.values import (
    EXACT,
    INTEGERS,
    NUMBERS,
    Expr,
    Family,
    Rows,
    as_decimal,
    as_double,
    as_integer,
    clean_number,
    common_decimal,
    decimal,
    integer,
    is_true,
)

OPERATIONS = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "<=>": "equal",
}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_SAFE = 2**53
"""Up to this number, a double can represent every integer."""


def comparison(sign: str, left: Expr, right: Expr) -> Expr:
    """Returns `left sign right`."""
    if Family.OPAQUE in (left.family, right.family):
        opaque = left if left.family is Family.OPAQUE else right
        raise NotSupportedError(f"{opaque.nature} in a comparison: only IS NULL and IS NOT NULL can test it")
    if Family.NULL in (left.family, right.family):
        return _with_null(sign, left, right)
    run = _compared(sign, left, right)
    if sign != "<=>":
        return Expr(Family.TRUTH, run, nature="a comparison")

    def null_safe(rows: Rows) -> Any:
        both = pc.and_(pc.is_null(left.run(rows)), pc.is_null(right.run(rows)))
        return pc.or_(both, is_true(run(rows)))

    return Expr(Family.TRUTH, null_safe, nature="a comparison")


def _with_null(sign: str, left: Expr, right: Expr) -> Expr:
    both = left.family is right.family
    other = right if left.family is Family.NULL else left
    if sign != "<=>":

        def null(rows: Rows) -> Any:
            other.run(rows)  # servers also compute this operand, and may fail at it
            return pa.scalar(None, pa.bool_())

        return Expr(Family.NULL, null, nature="NULL")
    run: Callable[[Rows], Any] = (lambda _: pa.scalar(True)) if both else (lambda rows: pc.is_null(other.run(rows)))  # noqa: FBT003
    return Expr(Family.TRUTH, run, nature="a comparison")


def domain(left: Expr, right: Expr) -> str:
    """Returns the rule by which two values are compared."""
    families = {left.family, right.family}
    if Family.JSON in families:
        return "json"
    if families <= EXACT:
        return "exact"
    if families <= NUMBERS:
        return "double"
    if families <= NUMBERS | {Family.TEXT}:
        return "text" if families == {Family.TEXT} else "mixed"
    for family in (Family.MOMENT, Family.TIME):
        if family in families:
            return family.name
    return "bytes"


def _compared(sign: str, left: Expr, right: Expr) -> Callable[[Rows], Any]:
    operation, way = OPERATIONS[sign], domain(left, right)
    if way == "json":
        return documents.comparison(operation, left, right)
    if way == "exact":
        return exact(operation, left, right)
    if way == "double":
        return _doubles(operation, left, right)
    if way == "text":
        return texts(operation, left, right)
    if way == "mixed":
        return _text_and_number(sign, left, right)
    if way == "bytes":
        return _bytes(operation, left, right)
    return _temporal(operation, Family[way], left, right)


def exact(operation: str, left: Expr, right: Expr) -> Callable[[Rows], Any]:
    """Returns a function that compares integers and decimals by value, signed or unsigned, of any scale."""
    _no_short_year(left, right)
    one, other = as_integer(left), as_integer(right)
    if {one.family, other.family} == {Family.INT, Family.UINT}:
        one, other = unsigned(one), unsigned(other)
    if one.family is other.family and one.family is not Family.DECIMAL:
        return lambda rows: pc.call_function(operation, [one.run(rows), other.run(rows)])
    wide = common_decimal(one, other)
    first, second = as_decimal(one, wide), as_decimal(other, wide)
    return lambda rows: pc.call_function(operation, [first(rows), second(rows)])


def unsigned(expr: Expr) -> Expr:
    """Converts a constant to the type of the unsigned column with which it is compared."""
    if expr.family is Family.INT and expr.is_constant and expr.constant >= 0:
        value = pa.scalar(expr.constant, pa.uint64())
        return Expr(Family.UINT, lambda _: value, 20, constant=expr.constant, nature=expr.nature)
    return expr


def _no_short_year(left: Expr, right: Expr) -> None:
    """Refuses a short year: for servers, `year_column = 24` means 2024."""
    for one, other in ((left, right), (right, left)):
        if one.column is not None and one.column.type.kind is Kind.YEAR:
            is_year = other.column is not None and other.column.type.kind is Kind.YEAR
            value = other.constant
            if not is_year and not (isinstance(value, int) and (value == 0 or value > 99)):
                raise NotSupportedError("a YEAR column compared with anything but a year of four digits")


def _doubles(operation: str, left: Expr, right: Expr) -> Callable[[Rows], Any]:
    for expr in (left, right):
        if expr.column is not None and expr.column.type.scale is not None and expr.family is Family.DOUBLE:
            raise NotSupportedError(f"column {expr.column.name} is a FLOAT(M,D), which servers compare only roughly")
    one, other = as_double(left), as_double(right)
    return lambda rows: pc.call_function(operation, [one(rows), other(rows)])


def _text_and_number(sign: str, left: Expr, right: Expr) -> Callable[[Rows], Any]:
    if left.family is Family.TEXT:
        return _text_and_number(_MIRRORED.get(sign, sign), right, left)
    number, text = left, right
    if (
        number.column is not None
        and number.column.type.kind is Kind.YEAR
        and not (text.is_constant and len(text.constant) == 4)
    ):
        raise NotSupportedError("a YEAR column compared with anything but a year of four digits")
    operation = OPERATIONS[sign]
    if text.is_constant and not number.is_constant and number.family in EXACT:
        return exact(operation, number, _number_in_quotes(number, text.constant))
    if number.family in EXACT and number.is_constant and abs(number.constant) > _SAFE:
        raise NotSupportedError(f"{number.constant} compared with a text: servers would round it")
    return _doubles(operation, number, text)


def _number_in_quotes(number: Expr, text: str) -> Expr:
    """Converts a number in quotes. With at most 15 digits, it compares the same with every type of number."""
    value = clean_number(text)
    if value is None:
        raise NotSupportedError(f"{text!r} compared with {number.nature}: the text is not a number")
    figures = len(value.as_tuple().digits)
    if abs(value) > _SAFE or figures > 15 or (number.family is Family.DECIMAL and number.digits + number.scale > 15):
        raise NotSupportedError(f"{text!r} compared with {number.nature}: write the number without quotes")
    return integer(int(value)) if value == value.to_integral_value() else decimal(value)


def texts(operation: str, left: Expr, right: Expr) -> Callable[[Rows], Any]:
    """Returns a function that compares texts by their collation (`shared_collation`)."""
    order = collations.collation(shared_collation(left, right))
    if operation not in ("equal", "not_equal") and not order.ordered:
        raise NotSupportedError(f"the order of texts in the collation {order.name}")
    return lambda rows: order.compare(operation, left.run(rows), right.run(rows))


def shared_collation(*exprs: Expr) -> str:
    """Returns the collation in which servers compare or join these texts; raises if this is not certain."""
    found = {expr.collation for expr in exprs if expr.collation and expr.explicit}
    found = found or {expr.collation for expr in exprs if expr.collation}
    if len(found) != 1:
        names = ", ".join(sorted(found)) or "the connection's"
        raise NotSupportedError(
            f"it is not certain in which collation servers compare these texts ({names}): write COLLATE"
        )
    (name,) = found
    charsets = {expr.charset for expr in exprs if expr.charset}
    if len(charsets) > 1:
        raise NotSupportedError(f"texts of several charsets ({', '.join(sorted(charsets))})")
    charset = min(charsets, default="utf8mb4")
    for expr in exprs:
        if isinstance(expr.constant, str) and not collations.fits(expr.constant, charset):
            raise NotSupportedError(f"{expr.constant!r} together with a text of charset {charset}")
        if expr.charset is None and expr.constant is None and charset != "utf8mb4":  # the text is made from constants
            raise NotSupportedError(f"{expr.nature} together with a text of charset {charset}")
    return name


def _bytes(operation: str, left: Expr, right: Expr) -> Callable[[Rows], Any]:
    """Returns a function that compares bytes. A hexadecimal constant beside an integer counts as an integer."""
    for one, other in ((left, right), (right, left)):
        if one.family is Family.BYTES and isinstance(one.constant, bytes) and other.family in INTEGERS:
            value = int.from_bytes(one.constant, "big")
            if value > _SAFE:
                raise NotSupportedError("a hexadecimal constant of more than 53 bits")
            pair = (integer(value), other) if one is left else (other, integer(value))
            return exact(operation, *pair)
    sides = [_in_bytes(expr) for expr in (left, right)]
    return lambda rows: pc.call_function(operation, [side(rows) for side in sides])


def _in_bytes(expr: Expr) -> Callable[[Rows], Any]:
    if expr.family is Family.BYTES:
        return expr.run
    if isinstance(expr.constant, str) and expr.constant.isascii():
        value = pa.scalar(expr.constant.encode())
        return lambda _: value
    raise NotSupportedError(f"{expr.nature} compared with bytes")


def _temporal(operation: str, family: Family, left: Expr, right: Expr) -> Callable[[Rows], Any]:
    sides = []
    for expr in (left, right):
        if expr.family is family:
            sides.append(expr)
        elif isinstance(expr.constant, str):
            sides.append(temporal.constant(family, expr.constant))
        else:
            what = "a date" if family is Family.MOMENT else "a time"
            raise NotSupportedError(f"{expr.nature} compared with {what}")
    one, other = (side.run for side in sides)
    if family is Family.TIME:
        return lambda rows: pc.call_function(operation, [one(rows), other(rows)])

    if not (sides[0].is_constant or sides[1].is_constant):
        one, other = temporal.real_only(one), temporal.real_only(other)

    def compared(rows: Rows) -> Any:
        first, second = one(rows), other(rows)
        if not (temporal.all_real(first) and temporal.all_real(second)):
            first, second = temporal.in_order(first), temporal.in_order(second)
        return pc.call_function(operation, [first, second])

    return compared
