"""Arithmetic as on the servers: integers of 64 bits that must not overflow, exact decimals, doubles.

Division (`/`) of exact numbers is refused: servers differ in how many digits the result has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.rules.expressions.tree import NotSupportedError
from pidts.rules.expressions.values import INTEGERS, NUMBERS, Expr, Family, Rows, as_double, as_integer, failed

_CHECKED = {"+": "add_checked", "-": "subtract_checked", "*": "multiply_checked"}
_BITS = {"&": pc.bit_wise_and, "|": pc.bit_wise_or, "^": pc.bit_wise_xor}
_SIZES = {Family.INT: (pa.int64(), 19), Family.UINT: (pa.uint64(), 20)}


def arithmetic(sign: str, left: Expr, right: Expr) -> Expr:
    """Returns `left + right` and similar operations."""
    one, other = _number(sign, left), _number(sign, right)
    if Family.NULL in (one.family, other.family):
        return Expr(Family.NULL, lambda _: pa.scalar(None, pa.bool_()), nature="NULL")
    if Family.DOUBLE in (one.family, other.family):
        return _doubles(sign, one, other)
    if sign == "/":
        raise NotSupportedError("a division of exact numbers with /: servers round the result in different ways")
    if sign in ("DIV", "MOD"):
        return _divided(sign, one, other)
    if Family.DECIMAL in (one.family, other.family):
        return _decimals(sign, one, other)
    return _integers(sign, one, other)


def _number(sign: str, expr: Expr) -> Expr:
    if expr.family not in NUMBERS | {Family.NULL}:
        raise NotSupportedError(f"{expr.nature} with {sign}")
    return as_integer(expr)


def _doubles(sign: str, left: Expr, right: Expr) -> Expr:
    if sign in ("DIV", "MOD"):
        raise NotSupportedError(f"{sign} of a DOUBLE")
    one, other = as_double(left), as_double(right)
    name = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}[sign]

    def run(rows: Rows) -> Any:
        second = other(rows)
        if sign == "/":
            second = pc.if_else(pc.equal(second, 0.0), pa.scalar(None, pa.float64()), second)
        result = pc.call_function(name, [one(rows), second])
        if _any(pc.invert(pc.is_finite(result))):
            raise failed(f"a DOUBLE value is out of range in {left.nature} {sign} {right.nature}")
        return result

    return Expr(Family.DOUBLE, run, nature=f"a result of {sign}")


def _any(mask: Any) -> bool:
    return bool(mask.as_py() if isinstance(mask, pa.Scalar) else pc.any(mask).as_py())


def _integers(sign: str, one: Expr, other: Expr) -> Expr:
    family = Family.UINT if Family.UINT in (one.family, other.family) else Family.INT
    kind, digits = _SIZES[family]
    name = _CHECKED[sign]
    if one.family is other.family:
        return Expr(family, _guarded(lambda rows: pc.call_function(name, [one.run(rows), other.run(rows)])), digits)
    wide = pa.decimal256(20, 0)

    def run(rows: Rows) -> Any:
        exact = pc.call_function(name.removesuffix("_checked"), [one.run(rows).cast(wide), other.run(rows).cast(wide)])
        return exact.cast(kind)

    return Expr(family, _guarded(run), digits, nature=f"a result of {sign}")


def _guarded(run: Callable[[Rows], Any]) -> Callable[[Rows], Any]:
    def guarded(rows: Rows) -> Any:
        try:
            return run(rows)
        except pa.ArrowInvalid as error:
            raise failed("a BIGINT value is out of range in an expression of the task") from error

    return guarded


def _decimals(sign: str, one: Expr, other: Expr) -> Expr:
    if sign == "*":
        digits, scale = one.digits + other.digits, one.scale + other.scale
    else:
        digits, scale = max(one.digits, other.digits) + 1, max(one.scale, other.scale)
    if digits + scale > 65 or scale > 30:
        raise NotSupportedError(f"a result of {sign} with up to {digits} digits before and {scale} after the point")
    name = _CHECKED[sign].removesuffix("_checked")
    kinds = [
        pa.decimal256(min((20 if expr.family in INTEGERS else expr.digits) + expr.scale, 76), expr.scale)
        for expr in (one, other)
    ]

    def run(rows: Rows) -> Any:
        sides = [expr.run(rows).cast(kind) for expr, kind in zip((one, other), kinds, strict=True)]
        return pc.call_function(name, sides).cast(pa.decimal256(digits + scale, scale))

    return Expr(Family.DECIMAL, run, digits, scale, nature=f"a result of {sign}")


def _divided(sign: str, one: Expr, other: Expr) -> Expr:
    """Returns DIV or MOD of integers, NULL for a division by zero. The remainder has the dividend's sign."""
    if Family.DECIMAL in (one.family, other.family):
        raise NotSupportedError(f"{sign} of a DECIMAL")
    if one.family is not other.family:
        if other.is_constant and other.constant >= 0:
            other = _constant(other, one.family)
        else:
            raise NotSupportedError(f"{sign} of a signed and an unsigned number")
    kind, digits = _SIZES[one.family]
    none, nought = pa.scalar(None, kind), pa.scalar(0, kind)

    def run(rows: Rows) -> Any:
        first, second = one.run(rows), other.run(rows)
        second = pc.if_else(pc.equal(second, nought), none, second)
        if sign == "DIV":
            return pc.divide_checked(first, second)
        if one.family is Family.INT:  # -2^63 DIV -1 is too large, but the remainder is 0
            second = pc.if_else(pc.equal(second, pa.scalar(-1, kind)), pa.scalar(1, kind), second)
        return pc.subtract(first, pc.multiply(pc.divide(first, second), second))

    return Expr(one.family, _guarded(run), digits, nature=f"a result of {sign}")


def _constant(expr: Expr, family: Family) -> Expr:
    kind, digits = _SIZES[family]
    if family is Family.INT and expr.constant >= 2**63:
        raise NotSupportedError(f"{expr.constant} together with a signed number")
    value = pa.scalar(expr.constant, kind)
    return Expr(family, lambda _: value, digits, constant=expr.constant, nature=expr.nature)


def negated(expr: Expr) -> Expr:
    """Returns `-a`."""
    inner = _number("-", expr)
    if inner.family is Family.UINT:
        wide = pa.decimal256(20, 0)
        return Expr(Family.INT, _guarded(lambda rows: pc.negate(inner.run(rows).cast(wide)).cast(pa.int64())), 19)
    if inner.family is Family.INT:
        return Expr(Family.INT, _guarded(lambda rows: pc.negate_checked(inner.run(rows))), 19, nature="a negative")
    if inner.family is Family.NULL:
        return inner
    return Expr(inner.family, lambda rows: pc.negate(inner.run(rows)), inner.digits, inner.scale, nature="a negative")


def absolute(expr: Expr) -> Expr:
    """Returns `ABS(a)`."""
    inner = _number("ABS", expr)
    if inner.family in (Family.UINT, Family.NULL):
        return inner
    return Expr(
        inner.family, _guarded(lambda rows: pc.abs_checked(inner.run(rows))), inner.digits, inner.scale, nature="ABS()"
    )


def bits(sign: str, left: Expr, right: Expr) -> Expr:
    """Returns `a & b` and similar operations, on unsigned integers of 64 bits."""
    one, other = _as_bits(sign, left), _as_bits(sign, right)
    if sign in _BITS:
        change = _BITS[sign]
        return Expr(Family.UINT, lambda rows: change(one(rows), other(rows)), 20, nature=f"a result of {sign}")
    if not (right.family in INTEGERS and right.is_constant and 0 <= right.constant < 2**31):
        raise NotSupportedError(f"{sign} by a value that is no constant: for large and negative values, servers differ")
    shift = pc.shift_left if sign == "<<" else pc.shift_right
    all_out, none = pa.scalar(64, pa.uint64()), pa.scalar(0, pa.uint64())

    def run(rows: Rows) -> Any:
        first, second = one(rows), other(rows)
        far = pc.greater_equal(second, all_out)
        shifted = shift(first, pc.if_else(far, none, second))
        return pc.if_else(far, pc.if_else(pc.is_null(first), pa.scalar(None, pa.uint64()), none), shifted)

    return Expr(Family.UINT, run, 20, nature=f"a result of {sign}")


def inverted_bits(expr: Expr) -> Expr:
    """Returns `~a`."""
    run = _as_bits("~", expr)
    return Expr(Family.UINT, lambda rows: pc.bit_wise_not(run(rows)), 20, nature="a result of ~")


def _as_bits(sign: str, expr: Expr) -> Callable[[Rows], Any]:
    if expr.family not in INTEGERS:
        raise NotSupportedError(f"{expr.nature} with {sign}: only whole numbers are possible")
    inner = as_integer(expr)
    if inner.family is Family.UINT:
        return inner.run
    return lambda rows: _unsigned(inner.run(rows))


def _unsigned(values: Any) -> Any:
    """Returns the same 64 bits as unsigned numbers."""
    if isinstance(values, pa.Scalar):
        return pa.scalar(values.as_py() % 2**64 if values.is_valid else None, pa.uint64())
    return values.view(pa.uint64())


def whole(name: str, expr: Expr) -> Expr:
    """Returns `FLOOR(a)` or `CEIL(a)` of an integer or a double."""
    inner = _number(name, expr)
    if inner.family in INTEGERS or inner.family is Family.NULL:
        return inner
    if inner.family is Family.DOUBLE:
        change = pc.floor if name == "FLOOR" else pc.ceil
        return Expr(Family.DOUBLE, lambda rows: change(inner.run(rows)), nature=f"{name}()")
    raise NotSupportedError(f"{name} of a DECIMAL")
