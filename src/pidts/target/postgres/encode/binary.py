"""Converts values to the format of COPY BINARY, a whole column at a time; `block` makes rows from them.

The format allows no casts: the bytes of a field are a value of exactly the column's type. If this module cannot write
such a value (`wire` returns None), the rows are written by INSERT.
"""

from __future__ import annotations

import binascii
import socket
import struct
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Kind
from pidts.target.postgres.encode.arrays import Element, buffer_numbers, numbers
from pidts.target.postgres.encode.columns import Form, text
from pidts.target.text import combined, text_of

Fixed: TypeAlias = np.ndarray[Any, Any]
Wire: TypeAlias = "Fixed | pa.Array"
"""A numpy array if all values have the same length (any value stands for NULL); otherwise large binary values."""

_BYTES = pa.large_binary()
_SIZES = {"smallint": ">i2", "integer": ">i4", "bigint": ">i8"}
_TEXTS = frozenset({"text", "character varying", "bpchar", "json"})
_NEGATIVE = 0x4000
_TEXT_OID, _FLOAT_OID = 25, 700
_FAMILY = {Kind.INET4: (socket.AF_INET, 2, 4), Kind.INET6: (socket.AF_INET6, 3, 16)}


def wire(form: Form, data: pa.Array) -> Wire | None:
    """Returns the values of a column in the form of the target's type; None if this module cannot write them."""
    kind, base = form.column.type.kind, form.target.base
    if form.element.layout is not None and form.element.sql == base:
        return _native(form.element, data)
    if base in _SIZES:
        return _integers(data, _SIZES[base])
    if base == "numeric" and (form.column.type.is_integer or kind is Kind.DECIMAL):
        return _numeric(data)
    if base == "bytea" and form.column.type.is_bytes:
        return data.cast(_BYTES)
    if kind is Kind.BIT:
        return _bits(form, data)
    if base in _TEXTS:
        return text(form.column, form.target, data).cast(_BYTES)
    if base == "jsonb" and kind is Kind.JSON:
        return pc.binary_join_element_wise(pa.scalar(b"\x01", _BYTES), data.cast(_BYTES), pa.scalar(b"", _BYTES))
    if base == "uuid" and kind is Kind.UUID:
        return _uuids(data)
    if base == "inet" and kind in _FAMILY:
        return _addresses(data, kind)
    if base == "text[]" and kind is Kind.SET:
        return _each_value(data, _labels)
    return _each_value(data, _vector) if base == "real[]" and kind is Kind.VECTOR else None


def _native(element: Element, data: pa.Array) -> Fixed:
    found = numbers(data, element)
    made = np.zeros(len(data), element.layout)
    if element is Element.INTERVAL:
        made["micros"] = found
    else:
        made[:] = found
    return made


def _integers(data: pa.Array, layout: str) -> Fixed | None:
    """Returns the integers in this layout; None if one is out of range: then the server reports the error."""
    if not pa.types.is_integer(data.type):
        return None
    span, limits = pc.min_max(data).as_py(), np.iinfo(np.dtype(layout))
    if span["min"] is not None and not limits.min <= span["min"] <= span["max"] <= limits.max:
        return None
    return buffer_numbers(data).astype(layout)


def _numeric(data: pa.Array) -> Fixed:
    """Returns digits of base 10,000. There may be leading and trailing zeros, which the server removes."""
    decimal = pa.types.is_decimal(data.type)
    precision, scale = (data.type.precision, data.type.scale) if decimal else (20, 0)
    behind = -(-scale // 4)
    before = max(-(-(precision - scale) // 4), 0)
    shift = 10 ** (4 * behind - scale)
    if not decimal:
        plain = buffer_numbers(data)
        negative = plain < 0
        digits = _digits(_magnitude(plain, negative), before)
    elif isinstance(data.type, pa.Decimal128Type) and precision + 4 * behind - scale <= 18:
        plain = np.frombuffer(data.buffers()[1], "<i8")[2 * data.offset :: 2][: len(data)]
        negative = plain < 0
        digits = _digits(_magnitude(plain, negative) * np.uint64(shift), before + behind)
    else:
        digits, negative = _long_digits(data, 4 * (before + behind), "0" * (4 * behind - scale))
    layout = [
        ("count", ">i2"),
        ("weight", ">i2"),
        ("sign", ">u2"),
        ("scale", ">i2"),
        ("digits", ">i2", (before + behind,)),
    ]
    made = np.empty(len(data), layout)
    made["count"], made["weight"], made["scale"] = before + behind, before - 1, scale
    made["sign"] = np.where(negative, _NEGATIVE, 0)
    made["digits"] = digits
    return made


def _magnitude(plain: Fixed, negative: Fixed) -> Fixed:
    """Returns the numbers without signs, even for the lowest number, which has no positive counterpart in 64 bits."""
    wide = plain.astype(np.uint64)
    return np.where(negative, np.uint64(0) - wide, wide)


def _digits(plain: Fixed, count: int) -> Fixed:
    made = np.empty((len(plain), count), np.int16)
    for place in range(count - 1, -1, -1):
        plain, made[:, place] = np.divmod(plain, np.uint64(10_000))
    return made


def _long_digits(data: pa.Array, width: int, zeros: str) -> tuple[Fixed, Fixed]:
    kind = pa.decimal128 if isinstance(data.type, pa.Decimal128Type) else pa.decimal256
    whole = pa.Array.from_buffers(kind(data.type.precision, 0), len(data), data.buffers(), data.null_count, data.offset)
    text_type = pa.large_string()
    shown = pc.fill_null(whole.cast(text_type), "0")
    negative = np.asarray(pc.starts_with(shown, "-"))
    padded = pc.binary_join_element_wise(
        pc.ascii_ltrim(shown, "-"), pa.scalar(zeros, text_type), pa.scalar("", text_type)
    )
    padded = pc.ascii_lpad(padded, width, "0")
    characters = np.frombuffer(text_of(padded.cast(_BYTES)), np.uint8).reshape(len(data), width // 4, 4)
    return ((characters - 48) @ np.array([1000, 100, 10, 1], np.int16)), negative


def _bits(form: Form, data: pa.Array) -> Fixed | None:
    """Returns a boolean for one bit, or several bits from the left; None if the target has a different bit count."""
    plain, count = buffer_numbers(data), form.column.type.length or 1
    if form.target.base == "boolean":
        return (plain != 0).astype(np.uint8) if count == 1 else None
    if form.target.type != f"bit({count})":
        return None
    size = -(-count // 8)
    made = np.empty(len(data), [("count", ">i4"), ("bits", "u1", (size,))])
    made["count"] = count
    shifted = (plain << np.uint64(8 * size - count)).astype(">u8")
    made["bits"] = shifted.view(np.uint8).reshape(len(data), 8)[:, 8 - size :]
    return made


def _uuids(data: pa.Array) -> Fixed | None:
    digits = pc.fill_null(pc.replace_substring(data, pattern="-", replacement=""), "0" * 32).cast(_BYTES)
    if not pc.all(pc.equal(pc.binary_length(digits), 32)).as_py():
        return None
    return np.frombuffer(binascii.unhexlify(text_of(digits)), "V16")


def _addresses(data: pa.Array, kind: Kind) -> Fixed:
    family, number, size = _FAMILY[kind]
    parts = [("" if each is None else each).partition("/") for each in data.to_pylist()]
    packed = b"".join(socket.inet_pton(family, address) if address else bytes(size) for address, _, _ in parts)
    made = np.empty(len(data), [("head", "u1", (4,)), ("address", f"V{size}")])
    made["head"] = (number, 8 * size, 0, size)
    made["head"][:, 1] = [int(mask or 8 * size) for _, _, mask in parts]
    made["address"] = np.frombuffer(packed, f"V{size}")
    return made


def _each_value(data: pa.Array, write: Any) -> pa.Array:
    """Encodes each distinct value once, for columns with few distinct values."""
    encoded = data.dictionary_encode()
    written = pa.array([None if each is None else write(each) for each in encoded.dictionary.to_pylist()], _BYTES)
    return combined(written.take(encoded.indices))


def _labels(value: str) -> bytes:
    labels = [label.encode() for label in value.split(",")] if value else []
    return _array_head(len(labels), _TEXT_OID) + b"".join(struct.pack(">i", len(each)) + each for each in labels)


def _vector(value: bytes) -> bytes:
    made = np.empty(len(value) // 4, [("size", ">i4"), ("value", ">f4")])
    made["size"], made["value"] = 4, np.frombuffer(value, "<f4")
    return _array_head(len(made), _FLOAT_OID) + made.tobytes()


def _array_head(count: int, oid: int) -> bytes:
    return struct.pack(">iiiii", 1, 0, oid, count, 1) if count else struct.pack(">iii", 0, 0, oid)
