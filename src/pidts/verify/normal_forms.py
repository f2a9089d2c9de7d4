"""Normal forms of values that two servers store differently by design.

A *normal* is a function that maps the values of one kind of column, on both sides, to a common form before they are
compared. Without a normal, values are compared unchanged: floats without tolerance, NULL equal to NULL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Kind
from pidts.model.calendar import FIRST_REAL_DAY, FIRST_REAL_MICROSECOND

Normal: TypeAlias = Callable[[pa.ChunkedArray], pa.ChunkedArray]
Normals: TypeAlias = Mapping[Kind, Normal]


def without_padding(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Removes the padding of CHAR(n): MySQL removes trailing spaces on reading, PostgreSQL adds them."""
    return pc.ascii_rtrim(values, characters=" ")


def real_dates_only(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Turns zero and partial dates into NULL, for a target that cannot store them."""
    is_date = pa.types.is_date(values.type)
    number = values.cast(pa.int32()).cast(pa.int64()) if is_date else values.cast(pa.int64())
    real = pc.greater_equal(number, FIRST_REAL_DAY if is_date else FIRST_REAL_MICROSECOND)
    return pc.if_else(real, values, pa.scalar(None, values.type))


def parsed_json(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Returns JSON documents in one spelling: order of keys, spaces, escapes, `1.0` or `1`.

    A text that is no document, or that Python cannot parse, is returned unchanged, and differs from all documents.
    """
    texts = [None if text is None else _document(text) for text in values.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _document(text: str) -> str:
    try:
        return _canonical(json.loads(text, parse_int=Decimal, parse_float=Decimal, parse_constant=_refuse))
    except (ValueError, ArithmeticError, RecursionError):
        return text


def _refuse(constant: str) -> Any:
    raise ValueError(f"not JSON: {constant}")


def _canonical(value: Any) -> str:
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, list):
        return f"[{','.join(map(_canonical, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{json.dumps(name)}:{_canonical(value[name])}' for name in sorted(value))}}}"
    return json.dumps(value)


def _number(value: Decimal) -> str:
    """Normalises a number exactly. `Decimal.normalize` would round long numbers to the context's precision."""
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    return f"{'-' if sign else ''}{stripped}e{int(exponent) + len(text) - len(stripped)}" if stripped else "0"


EXACT: Normals = MappingProxyType({Kind.JSON: parsed_json})
"""The normal forms for targets that keep every value unchanged, except the spelling of JSON."""

ICEBERG: Normals = MappingProxyType(
    {
        Kind.DATE: real_dates_only,
        Kind.DATETIME: real_dates_only,
        Kind.TIMESTAMP: real_dates_only,
        Kind.JSON: parsed_json,
    }
)
"""The normal forms for Iceberg tables, in which zero and partial dates are NULL."""

POSTGRES: Normals = MappingProxyType(
    {
        Kind.CHAR: without_padding,
        Kind.DATE: real_dates_only,
        Kind.DATETIME: real_dates_only,
        Kind.TIMESTAMP: real_dates_only,
        Kind.JSON: parsed_json,
    }
)
"""The normal forms for PostgreSQL: for `char(n)`, `jsonb`, and zero and partial dates, which PostgreSQL has as NULL."""
