"""Writes JSON documents so that MySQL keeps all digits of their numbers.

MySQL reads each number of a JSON text as a DOUBLE, unless it is a whole number of 64 bits. But a document of MySQL may
contain a DECIMAL, which has up to 65 digits. If the DOUBLE would be another number, the document is written as
`JSON_SET(text, path, number)`: there, a number without an exponent is a DECIMAL. All other documents are written as
their text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Kind
from pidts.target.text import combined

_BYTES = pa.large_binary()
_MAY_LOSE_DIGITS = "[0-9.]{17}"
"""A number of at most 15 digits does not change as a DOUBLE, and a whole number of 16 digits fits into 64 bits."""
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"-?[0-9]+")
_SHORT = 16
"""A number of at most this many characters is never changed."""
_DIGITS, _SCALE = 65, 30
"""The largest numbers of digits of a DECIMAL: all, and after the point."""

Quote: TypeAlias = Callable[[bytes], bytes]
"""Returns a text as a literal."""


def reads_documents(column: Column, found: Column | None) -> bool:
    """Whether the target (`found`) reads the column's values as the texts of JSON documents."""
    is_text = column.type.kind is Kind.JSON or column.type.is_text
    return is_text and not column.type.is_bytes and found is not None and found.type.kind is Kind.JSON


def losing_digits(values: pa.ChunkedArray | pa.Array) -> pa.BooleanArray | None:
    """Returns a mask of the documents whose text MySQL would read with other numbers; None if there are none."""
    texts = combined(values)
    suspects = pc.fill_null(pc.match_substring_regex(texts, _MAY_LOSE_DIGITS), pa.scalar(value=False))
    if not pc.any(suspects).as_py():
        return None
    found = [_may_lose_digits(text) and bool(_decimals(text)) for text in texts.filter(suspects).to_pylist()]
    return pc.replace_with_mask(suspects, suspects, pa.array(found)) if any(found) else None


def _may_lose_digits(text: str) -> bool:
    """Whether a text has a number that MySQL would change, perhaps inside a string: a faster test than `_decimals`."""
    try:
        return any(_decimal(digits) is not None for digits in _NUMBER.findall(text) if len(digits) > _SHORT)
    except ValueError:  # an integer of thousands of digits
        return True


def with_decimals(literals: pa.Array, values: pa.ChunkedArray | pa.Array, quote: Quote) -> pa.Array:
    """Returns the literals of documents. If MySQL would change a number of a text, its literal is an expression."""
    mask = losing_digits(values)
    if mask is None:
        return literals
    pairs = zip(literals.filter(mask).to_pylist(), combined(values).filter(mask).to_pylist(), strict=True)
    return pc.replace_with_mask(literals, mask, pa.array([_expression(*pair, quote) for pair in pairs], _BYTES))


def _expression(literal: bytes, text: str, quote: Quote) -> bytes:
    pairs = (b",%s,%s" % (quote(path.encode()), format(number, "f").encode()) for path, number in _decimals(text))
    return b"JSON_SET(%s%s)" % (literal, b"".join(pairs))


def _decimals(text: str) -> list[tuple[str, Decimal]]:
    """Returns the numbers of a document that MySQL would change, with their paths; none if the text is not JSON."""
    try:
        found = list(_places(json.loads(text, parse_int=_decimal, parse_float=_decimal), "$"))
        "".join(path for path, _ in found).encode()
    except (ValueError, RecursionError):
        return []
    return found


def _decimal(digits: str) -> Decimal | None:
    """Returns a number that MySQL would change, and that a DECIMAL can hold; None for all other numbers."""
    if len(digits) <= _SHORT or repr(float(digits)) == digits or "e" in digits or "E" in digits:
        return None
    if _WHOLE.fullmatch(digits) and -(2**63) <= int(digits) < 2**64:
        return None
    number = Decimal(digits)
    whole, _, fraction = digits.lstrip("-").partition(".")
    is_held = len(whole.lstrip("0")) + len(fraction) <= _DIGITS and len(fraction) <= _SCALE
    return number if is_held and number != Decimal(repr(float(digits))) else None


def _places(value: Any, path: str) -> Iterator[tuple[str, Decimal]]:
    match value:
        case Decimal():
            yield path, value
        case dict():
            for name, each in value.items():
                yield from _places(each, f"{path}.{json.dumps(name, ensure_ascii=False)}")
        case list():
            for number, each in enumerate(value):
                yield from _places(each, f"{path}[{number}]")
