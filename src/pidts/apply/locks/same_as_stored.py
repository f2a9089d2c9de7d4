"""Compares images of the log with stored rows of the target: values that the target stores alike count as equal.

Values are compared by their bytes. Values with different bytes are compared once more, as the target would store them:
CHAR loses trailing spaces, BINARY is padded, YEAR(2) has two digits, and the server has its own spelling of JSON and
addresses. A server without zero dates has NULL instead. Digits that a narrower column would cut off do not occur here:
such a table does not fit (`pidts.target.fit`).
"""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.apply.rows.version_column import only_real
from pidts.model import Column, Kind, Table, image_column
from pidts.model.types import DATED
from pidts.reduce.key_numbers import Mask, chunkless, to_mask

_ADDRESSES = frozenset({Kind.INET4, Kind.INET6})
_SHORT_YEAR = 2
_LEAST_INTEGER, _GREATEST_INTEGER = -(2**63), 2**64 - 1

Spelling = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class RowStorage:
    """How the target stores the rows of a table."""

    table: Table | None
    """The target's table; None if it does not exist."""
    unreal_dates: bool = True
    """Whether the target stores zero and partial dates."""

    def column(self, name: str) -> Column | None:
        """Returns the target's column of this name; None if there is none."""
        columns = self.table.columns if self.table else ()
        return next((column for column in columns if column.name.lower() == name.lower()), None)


def equal_columns(
    table: Table, images: pa.StructArray, rows: pa.Table, known: Mask | None, stored: Callable[[], RowStorage]
) -> Mask:
    """Returns, for each image and column, whether the row with the image's index has the same value.

    A column counts as the same if the image lacks it (`known`) or the target computes it. `stored` is called only if
    bytes differ.
    """
    same = np.ones((len(images), len(table.columns)), np.bool_)
    for place, column in enumerate(table.columns):
        image, found = image_column(images, place), chunkless(rows, [column.name])[0]
        if image.equals(found):
            continue
        both_null = pc.and_(image.is_null(), found.is_null())
        equal = to_mask(pc.or_(both_null, pc.fill_null(pc.equal(image, found), fill_value=False)))
        if known is not None:
            equal |= ~known[:, place]
        if not equal.all():
            rest = np.nonzero(~equal)[0]
            equal[rest] = _same_in_form(column, image.take(pa.array(rest)), found.take(pa.array(rest)), stored())
        same[:, place] = equal
    return same


def _same_in_form(column: Column, image: pa.Array, found: pa.Array, stored: RowStorage) -> Mask:
    there = stored.column(column.name) or column
    if there.generated:
        return np.ones(len(image), np.bool_)
    if column.type.kind in DATED:
        if stored.unreal_dates:
            return np.zeros(len(image), np.bool_)
        real = only_real(image)
        return to_mask(pc.and_(real.is_null(), found.is_null()))
    spelling = _spelling(column, there)
    if spelling is None:
        return np.zeros(len(image), np.bool_)
    pairs = zip(image.to_pylist(), found.to_pylist(), strict=True)
    return np.array([_same(spelling, one, other) for one, other in pairs], np.bool_)


def _same(spelling: Spelling, one: Any, other: Any) -> bool:
    if one is None or other is None:
        return False
    return bool(spelling(one) == spelling(other))


def _spelling(column: Column, there: Column) -> Spelling | None:
    """Returns a function that maps values that the column stores alike to one value; None if it stores none alike."""
    kinds = {column.type.kind, there.type.kind}
    if Kind.JSON in kinds:
        return _document
    if column.type.is_integer and there.type.kind is Kind.BIT:
        return bool  # PostgreSQL's boolean
    if kinds & _ADDRESSES:
        return _address
    if Kind.UUID in kinds:
        return lambda value: str(value).lower()
    if there.type.kind is Kind.YEAR and there.type.length == _SHORT_YEAR:
        return lambda value: value % 100
    if there.type.kind is Kind.CHAR:
        return lambda value: value.rstrip(" ") if isinstance(value, str) else value
    if there.type.kind is Kind.BINARY:
        return lambda value: value.rstrip(b"\0") if isinstance(value, bytes) else value
    return None


def _address(text: Any) -> Any:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return text


def _document(text: Any) -> Any:
    try:
        return _tree(json.loads(text, parse_int=_Number, parse_float=_Number))
    except (ValueError, ArithmeticError, RecursionError):
        return text


class _Number:
    """A number in a JSON document: an integer if servers have integers of its size, else a floating point number.

    Some servers keep the digits of a floating point number, others keep the number itself. So two floating point
    numbers are equal if they are the same number, whatever their digits. All other numbers are equal only if their
    digits are the same:

        the source has      the target has
        4.1e16              41000000000000000       equal: the digits, in another spelling
        1e400               1e401                   differ, although both are infinite
        4.1e16              41000000000000001       differ, although as floating point numbers they are equal
    """

    __slots__ = ("digits", "is_whole")

    def __init__(self, text: str) -> None:
        self.digits = Decimal(text)
        self.is_whole = text.lstrip("-").isdigit() and _LEAST_INTEGER <= self.digits <= _GREATEST_INTEGER

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Number):
            return NotImplemented
        if self.digits == other.digits:
            return True
        if self.is_whole or other.is_whole:
            return False
        number = float(self.digits)
        return math.isfinite(number) and number == float(other.digits)

    __hash__ = None  # type: ignore[assignment]


def _tree(value: Any) -> Any:
    """Returns the value in a form in which `true` differs from 1, as in JSON. For Python, they are equal."""
    if isinstance(value, dict):
        return {name: _tree(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_tree(each) for each in value]
    return ("bool", value) if isinstance(value, bool) else value
