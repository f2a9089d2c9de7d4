"""Expressions that choose between values: IF, CASE, IFNULL, COALESCE, NULLIF, and the type of the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Kind
from pidts.rules.expressions import temporal
from pidts.rules.expressions.compare import comparison, shared_collation, unsigned
from pidts.rules.expressions.tree import NotSupportedError
from pidts.rules.expressions.values import (
    EXACT,
    NUMBERS,
    Expr,
    Family,
    Rows,
    as_decimal,
    as_double,
    as_integer,
    common_decimal,
    is_true,
    truth,
)


def unified(name: str, exprs: Sequence[Expr]) -> tuple[Expr, list[Callable[[Rows], Any]]]:
    """Returns an expression of the values' common type, and functions that compute the values in this type."""
    known = [expr for expr in exprs if expr.family is not Family.NULL]
    if not known:
        raise NotSupportedError(f"{name} whose arguments are all NULL")
    families = {expr.family for expr in known}
    kind, example, runs = _type(name, known, families)
    given = iter(runs)
    none = pa.scalar(None, kind)
    return example, [next(given) if expr.family is not Family.NULL else (lambda _: none) for expr in exprs]


def _type(
    name: str, known: Sequence[Expr], families: set[Family]
) -> tuple[pa.DataType, Expr, list[Callable[[Rows], Any]]]:
    nature = f"{name}()"
    whole = [as_integer(expr) for expr in known]
    if {Family.INT, Family.UINT} <= {expr.family for expr in whole}:
        whole = [unsigned(expr) for expr in whole]
        if any(expr.family is Family.INT for expr in whole):
            raise NotSupportedError(f"{name} of signed and unsigned numbers: servers differ about its type")
    if any(expr.column is not None and expr.column.type.kind in (Kind.YEAR, Kind.BIT) for expr in known):
        raise NotSupportedError(f"{name} of a BIT or YEAR column")
    if families == {Family.TEXT}:
        collation = shared_collation(*known) if any(expr.collation for expr in known) else None
        charset = next((expr.charset for expr in known if expr.charset), None)
        explicit = any(expr.explicit for expr in known)
        example = Expr(Family.TEXT, _never, charset=charset, collation=collation, explicit=explicit, nature=nature)
        return pa.string(), example, [expr.run for expr in known]
    if families <= NUMBERS and Family.DOUBLE in families:
        return pa.float64(), Expr(Family.DOUBLE, _never, nature=nature), [as_double(expr) for expr in known]
    integers = {expr.family for expr in whole}
    if len(integers) == 1 and integers <= {Family.INT, Family.UINT}:
        (family,) = integers
        kind = pa.int64() if family is Family.INT else pa.uint64()
        digits = max(expr.digits for expr in whole)
        return kind, Expr(family, _never, digits, nature=nature), [expr.run for expr in whole]
    if families <= EXACT:
        kind = common_decimal(*whole)
        example = Expr(Family.DECIMAL, _never, kind.precision - kind.scale, kind.scale, nature=nature)
        return kind, example, [as_decimal(expr, kind) for expr in whole]
    for family in (Family.MOMENT, Family.TIME):
        if family in families and all(expr.family is family for expr in known):
            runs = [temporal.real_only(expr.run) if family is Family.MOMENT else expr.run for expr in known]
            return pa.int64(), Expr(family, _never, nature=nature), runs
    raise NotSupportedError(f"{name} of {' and '.join(sorted({expr.nature for expr in known}))}")


def _never(_: Rows) -> Any:
    raise AssertionError("an expression that only describes a type is never computed")


def _like(example: Expr, run: Callable[[Rows], Any]) -> Expr:
    return Expr(
        example.family,
        run,
        example.digits,
        example.scale,
        example.charset,
        example.collation,
        example.explicit,
        nature=example.nature,
    )


def case(*parts: Expr) -> Expr:
    """Returns `CASE WHEN c1 THEN v1 ... ELSE v END`. The parts are c1, v1, ..., v."""
    conditions = [truth(part) for part in parts[:-1:2]]
    values = [*parts[1::2], parts[-1]]
    if all(value.family is Family.NULL for value in values):
        return values[0]
    if {value.family for value in values} <= {Family.TRUTH, Family.NULL}:
        values = [as_integer(value) for value in values]
    example, runs = unified("CASE", values)

    def run(rows: Rows) -> Any:
        masks = [temporal.as_array(is_true(condition(rows)), rows) for condition in conditions]
        chosen = runs[-1](rows)
        for mask, value in zip(reversed(masks), reversed(runs[:-1]), strict=True):
            chosen = pc.if_else(mask, value(rows), chosen)
        return chosen

    return _like(example, run)


def coalesce(name: str, *exprs: Expr) -> Expr:
    """Returns `COALESCE(a, ...)` or `IFNULL(a, b)`."""
    if all(expr.family is Family.NULL for expr in exprs):
        return exprs[0]
    example, runs = unified(name, exprs)
    return _like(example, lambda rows: pc.coalesce(*(run(rows) for run in runs)))


def nullif(left: Expr, right: Expr) -> Expr:
    """Returns `NULLIF(a, b)`."""
    equal = comparison("=", left, right).run
    one = as_integer(left)
    if one.family is Family.NULL:
        return one
    example, (run,) = unified("NULLIF", [one])

    def unless_equal(rows: Rows) -> Any:
        values = temporal.as_array(run(rows), rows)
        same = temporal.as_array(is_true(equal(rows)), rows)
        return pc.if_else(same, pa.scalar(None, values.type), values)

    return _like(example, unless_equal)


def extreme(name: str, *exprs: Expr) -> Expr:
    """Returns `GREATEST(a, ...)` or `LEAST(a, ...)` of numbers; NULL if one of them is NULL."""
    if any(expr.family not in NUMBERS for expr in exprs):
        raise NotSupportedError(f"{name} of anything but numbers")
    if any(expr.family is Family.UINT and expr.digits > 19 for expr in exprs):
        raise NotSupportedError(f"{name} of a BIGINT UNSIGNED: older servers forget that it is unsigned")
    example, runs = unified(name, [as_integer(expr) for expr in exprs])
    pick = pc.max_element_wise if name == "GREATEST" else pc.min_element_wise
    return _like(example, lambda rows: pick(*(run(rows) for run in runs), skip_nulls=False))
