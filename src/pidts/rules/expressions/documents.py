"""Values in MySQL's JSON documents: JSON_EXTRACT, `->` and `->>` with a constant path, and their comparisons.

A JSON column has the text that the server writes for a document. The text shows most types: `2` is an integer, `2.0` a
double, `"2"` a text. But a date (`CAST(NOW() AS JSON)`) looks like a text with the same characters. If this matters for
a comparison, the comparison is refused when the expression is parsed.

MariaDB stores JSON as text and compares extracted values by other rules. So JSON_EXTRACT, `->` and `->>` are refused
if the source is MariaDB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.binlog.values.json import quoted
from pidts.model import Kind
from pidts.rules.expressions.tree import NotSupportedError
from pidts.rules.expressions.values import Expr, Family, Rows, failed

_LEG = re.compile(r'\.(?:([A-Za-z_$][\w$]*)|("(?:[^"\\]|\\.)*"))|\[(\d{1,9})\]', re.ASCII)
_NOT_A_TEXT = re.compile(
    r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d\.\d{6})?|-?\d{2,}:\d\d:\d\d\.\d{6}|base64:type\d+:.*", re.DOTALL
)
"""Matches the texts that the server shows, in quotes, for values of SQL types that JSON lacks."""

_LARGEST_DOUBLE = 1e15
"""Up to this number, the digits that a server writes for an integer in a double are exact."""
_SMALLEST_EXPONENT = -60
"""Servers round doubles with a lower exponent to zero when they compare them with decimals."""

Step = str | int


class _Number(str):
    """A number in a document, with the digits that the document has."""

    __slots__ = ()


def extracted(document: Expr, path: Expr) -> Expr:
    """Returns `JSON_EXTRACT(column, path)` or `column -> path`."""
    if document.column is None or document.column.type.kind is not Kind.JSON:
        raise NotSupportedError(f"JSON_EXTRACT of {document.nature}; it must read a column of MySQL's type JSON")
    if not isinstance(path.constant, str):
        raise NotSupportedError("JSON_EXTRACT with a path that is not a constant text")
    steps = _steps(path.constant)

    def run(rows: Rows) -> pa.Array:
        return pa.array([_value_at(text, steps) for text in document.run(rows).to_pylist()], pa.string())

    return Expr(Family.JSON, run, nature="JSON_EXTRACT()")


def unquoted(value: Expr) -> Expr:
    """Returns `JSON_UNQUOTE(JSON_EXTRACT(column, path))` or `column ->> path`: a text."""
    if value.family is not Family.JSON:
        raise NotSupportedError(f"JSON_UNQUOTE of {value.nature}; its argument must be JSON_EXTRACT()")

    def run(rows: Rows) -> pa.Array:
        return pa.array([_plain(text) for text in value.run(rows).to_pylist()], pa.string())

    return Expr(Family.TEXT, run, charset="utf8mb4", collation="utf8mb4_bin", nature="JSON_UNQUOTE()")


def comparison(operation: str, left: Expr, right: Expr) -> Callable[[Rows], Any]:
    """Returns a function that compares JSON values with a constant: a text never equals a number."""
    value, other = (left, right) if left.family is Family.JSON else (right, left)
    order = _order_of(operation, other)
    sign = 1 if value is left else -1

    def run(rows: Rows) -> Any:
        places = [None if text is None else sign * order(text) for text in value.run(rows).to_pylist()]
        return pc.call_function(operation, [pa.array(places, pa.int8()), pa.scalar(0, pa.int8())])

    return run


def _order_of(operation: str, other: Expr) -> Callable[[str], int]:
    """Returns a function that compares a JSON value with a constant: less (-1), equal (0) or greater (1)."""
    constant = other.constant
    if other.is_truth:
        raise NotSupportedError("TRUE or FALSE compared with JSON: servers differ; compare ->> with 'true'")
    if isinstance(constant, str) and not other.explicit:
        if operation not in ("equal", "not_equal"):
            raise NotSupportedError("the order of texts in JSON values: use ->>")
        if _NOT_A_TEXT.fullmatch(constant):
            raise NotSupportedError(
                f"{constant!r} compared with a JSON value: a document may have it as a text or as another type; use ->>"
            )
        wanted = quoted(constant)
        return lambda text: 0 if text == wanted else 1
    if other.family in (Family.INT, Family.UINT, Family.DECIMAL, Family.DOUBLE) and constant is not None:
        if isinstance(constant, float) and not _SMALLEST < abs(constant) < _LARGEST_DOUBLE and constant:
            raise NotSupportedError(
                f"{constant} compared with a JSON value: servers differ about a number of this size with an exponent"
            )
        return lambda text: _beside_number(text, constant)
    raise NotSupportedError(
        f"{other.nature} compared with a JSON value: only numbers, texts and NULL are possible, as constants"
    )


_SMALLEST = 10.0**-15


def _beside_number(text: str, constant: float | Decimal) -> int:
    """Returns -1, 0 or 1 if a JSON value is less than, equal to or greater than a number.

    JSON's NULL is less than any number. A text, a boolean, an array or an object is greater than any number.
    """
    if text == "null":
        return -1
    if text[0] not in "-0123456789":
        return 1
    wanted = Decimal(repr(constant)) if isinstance(constant, float) else Decimal(constant)
    number = Decimal(text)
    if "e" in text:
        if number.adjusted() < _SMALLEST_EXPONENT and isinstance(constant, Decimal):
            raise failed(f"servers lose digits of the JSON number {text} when they compare it with a decimal")
        if isinstance(constant, int):  # an integer is compared with the exact value of a double
            number = Decimal(float(text))
    return (number > wanted) - (number < wanted)


def _steps(path: str) -> tuple[Step, ...]:
    """Returns the steps of a path in a JSON document, such as `$.a."b c"[3]`.

    Wildcards, ranges and `last` are refused: they return several values, or some servers lack them.
    """
    found: list[Step] = []
    at = 1
    while path.startswith("$") and at < len(path):
        leg = _LEG.match(path, at)
        if leg is None:
            break
        name, in_quotes, place = leg.groups()
        found.append(int(place) if place else name or _name(path, in_quotes))
        at = leg.end()
    if not path.startswith("$") or at < len(path):
        raise NotSupportedError(f'the path {path!r} into a JSON value: write it as $.name."a name"[0]')
    return tuple(found)


def _name(path: str, in_quotes: str) -> str:
    try:
        return str(json.loads(in_quotes))
    except ValueError:
        raise NotSupportedError(
            f"the path {path!r} into a JSON value: a quoted name in it is not a valid JSON string"
        ) from None


def _value_at(text: str | None, steps: tuple[Step, ...]) -> str | None:
    """Returns the text of the value at a path; None if the document has no such value."""
    if text is None:
        return None
    value = _parsed(text)
    for step in steps:
        if isinstance(step, str):
            if not isinstance(value, dict) or step not in value:
                return None
            value = value[step]
        elif isinstance(value, list):
            if step >= len(value):
                return None
            value = value[step]
        elif step:  # a value that is not an array counts as an array with this one value
            return None
    return _rendered(value)


def _parsed(text: str) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number, strict=False)


def _rendered(value: Any) -> str:
    """Returns the text of a JSON value as the server writes it."""
    if isinstance(value, _Number):
        return str(value)
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(name)}: {_rendered(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_rendered, value)) + "]"
    return json.dumps(value)


def _plain(text: str | None) -> str | None:
    return json.loads(text, strict=False) if text is not None and text.startswith('"') else text
