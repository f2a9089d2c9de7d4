"""An expression whose columns have known types: the family of its values, and a function that computes the values.

Each family has one form in Arrow:

    TRUTH   bool          INT    int64      UINT   uint64    DECIMAL  decimal128/256 of `scale`    DOUBLE  float64
    TEXT    string        BYTES  binary     MOMENT int64: microseconds since 1970 as `pidts.model.calendar` counts them
    TIME    int64: microseconds             NULL   null      OPAQUE   a column that can only be tested for NULL
    JSON    string: a value of a document in the server's form

A constant is computed as a scalar: Arrow's functions accept arrays and scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Halted, Kind
from pidts.rules.expressions.tree import Literal, NotSupportedError


class Family(Enum):
    """A family of values that are compared and computed in the same way."""

    NULL = auto()
    TRUTH = auto()
    INT = auto()
    UINT = auto()
    DECIMAL = auto()
    DOUBLE = auto()
    TEXT = auto()
    BYTES = auto()
    MOMENT = auto()
    TIME = auto()
    OPAQUE = auto()
    JSON = auto()


INTEGERS = frozenset({Family.TRUTH, Family.INT, Family.UINT})
EXACT = INTEGERS | {Family.DECIMAL}
NUMBERS = EXACT | {Family.DOUBLE}

Rows = Mapping[str, pa.Array]
"""The values of the columns that an expression uses, by the columns' declared names."""

NOW = "\0now"
"""The name under which `Rows` has the times of the changes, in microseconds since 1970; no column has this name."""


def _utc(instants: pa.Array) -> pa.Array:
    return instants


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression that can be computed."""

    family: Family
    run: Callable[[Rows], Any]
    digits: int = 0
    """For an exact number: the most digits that it may have before the decimal point."""
    scale: int = 0
    charset: str | None = None
    collation: str | None = None
    """The collation of a text from a column or with a COLLATE; a text constant has none."""
    explicit: bool = False
    """Whether the collation comes from a COLLATE clause."""
    is_truth: bool = False
    """Whether a constant is written as TRUE or FALSE."""
    constant: Any = None
    """The value of a constant that is not NULL."""
    column: Column | None = None
    """The column, if the expression is only a column."""
    nature: str = ""
    """A description of the expression for error messages."""
    local: Callable[[pa.Array], pa.Array] = _utc
    """Converts points in time to the time zone in which the constant is read: for a TIMESTAMP literal with an offset.
    """

    @property
    def is_constant(self) -> bool:
        """Whether the expression is a constant other than NULL."""
        return self.constant is not None


def failed(what: str) -> Halted:
    """Returns the halt for a row for which the server itself would refuse the expression."""
    return Halted("expression-failed", what, todo="Correct the expression in the task file and start the task again")


def literal(node: Literal) -> Expr:
    """Returns a constant from the task file."""
    value = node.value
    if value is None:
        return Expr(Family.NULL, lambda _: pa.scalar(None, pa.bool_()), nature="NULL")
    if isinstance(value, str):
        return Expr(Family.TEXT, _always(pa.scalar(value)), constant=value, nature="a text")
    if isinstance(value, bytes):
        return Expr(Family.BYTES, _always(pa.scalar(value)), constant=value, nature="a hexadecimal constant")
    if isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            raise NotSupportedError("a number out of range")
        return Expr(Family.DOUBLE, _always(pa.scalar(value)), constant=value, nature="a number")
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return integer(value)
    return decimal(Decimal(value))


def integer(value: int) -> Expr:
    """Returns a constant of the server's type BIGINT."""
    signed = value < 2**63
    kind, family = (pa.int64(), Family.INT) if signed else (pa.uint64(), Family.UINT)
    return Expr(family, _always(pa.scalar(value, kind)), len(str(abs(value))), constant=value, nature="a number")


def decimal(value: Decimal) -> Expr:
    """Returns a constant with a decimal point."""
    _, figures, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    digits = max(len(figures) - scale, 1)
    if digits + scale > 65 or scale > 30:
        raise NotSupportedError(f"a number of {digits + scale} digits")
    kind = decimal_type(digits, scale)
    return Expr(Family.DECIMAL, _always(pa.scalar(value, kind)), digits, scale, constant=value, nature="a number")


def _always(value: pa.Scalar) -> Callable[[Rows], pa.Scalar]:
    return lambda _: value


def decimal_type(digits: int, scale: int) -> pa.DataType:
    """Returns the type for this many digits before and after the point."""
    precision = max(digits + scale, 1)
    if precision > 76:
        raise NotSupportedError(f"numbers of {precision} digits")
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def truth(expr: Expr) -> Callable[[Rows], Any]:
    """Returns the expression's truth value as in WHERE: TRUE, FALSE or NULL."""
    run, family = expr.run, expr.family
    if family in (Family.TRUTH, Family.NULL):
        return run
    if family in (Family.INT, Family.UINT, Family.DECIMAL, Family.DOUBLE):
        return lambda rows: pc.not_equal(
            value := run(rows), pa.scalar(0 if family is not Family.DECIMAL else Decimal(0), value.type)
        )
    if family is Family.TEXT:  # some servers treat the text 0.5 as TRUE, others as FALSE
        raise NotSupportedError(f"{expr.nature} as a condition of its own: compare it with something")
    raise NotSupportedError(f"{expr.nature} as a condition of its own")


def as_integer(expr: Expr) -> Expr:
    """Returns a truth value as 0 or 1; other values are unchanged."""
    if expr.family is not Family.TRUTH:
        return expr
    return Expr(Family.INT, lambda rows: expr.run(rows).cast(pa.int64()), 1, nature=expr.nature)


def common_decimal(*exprs: Expr) -> pa.DataType:
    """Returns a decimal type for all these exact numbers. It can store all values of their integer types."""
    digits = max(20 if expr.family in INTEGERS else expr.digits for expr in exprs)
    return decimal_type(digits, max(expr.scale for expr in exprs))


def as_decimal(expr: Expr, kind: pa.DataType) -> Callable[[Rows], Any]:
    """Returns a function that computes an exact number in the type `kind`, which can store all its digits."""
    run = as_integer(expr).run
    return lambda rows: run(rows).cast(kind)


def as_double(expr: Expr) -> Callable[[Rows], Any]:
    """Returns a function that computes a value as a double, as servers do to compare values of different families."""
    run = as_integer(expr).run
    if expr.family is Family.DOUBLE:
        return run
    if expr.family is Family.DECIMAL:  # via text, since dividing by a power of ten would round twice
        return lambda rows: run(rows).cast(pa.string()).cast(pa.float64())
    if expr.family in INTEGERS:
        return lambda rows: run(rows).cast(pa.float64(), safe=False)
    if expr.column is not None and expr.column.type.kind in (Kind.ENUM, Kind.SET):
        raise NotSupportedError(f"the number of a label of {expr.column.name}: compare it with the label")
    if expr.family is Family.TEXT:
        return lambda rows: text_to_double(run(rows))
    raise NotSupportedError(f"{expr.nature} as a number")


_NUMBER_IN_FRONT = r"^[ \t\n\v\f\r]*(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
_LARGEST = 1.7976931348623157e308


def text_to_double(values: Any) -> Any:
    """Returns the number at the beginning of a text; 0 if the text begins with no number."""
    if isinstance(values, pa.Scalar):
        return text_to_double(pa.array([values.as_py()], pa.string()))[0]
    found = pc.struct_field(pc.extract_regex(values, _NUMBER_IN_FRONT), [0])
    found = pc.ascii_ltrim(found, characters="+")
    numbers = pc.if_else(pc.and_(values.is_valid(), found.is_null()), "0", found).cast(pa.float64())
    return pc.min_element_wise(pc.max_element_wise(numbers, -_LARGEST, skip_nulls=False), _LARGEST, skip_nulls=False)


def is_true(values: Any) -> Any:
    """Returns TRUE for true, FALSE for false and NULL."""
    return pc.fill_null(values, fill_value=False)


def clean_number(text: str) -> Decimal | None:
    """Returns the number in a text constant; None if the text has anything else in it."""
    body = text.strip(" ")
    digits = body.lstrip("+-")
    if len(body) - len(digits) > 1 or not digits.replace(".", "", 1).isdecimal() or not body.isascii():
        return None
    return Decimal(body)
