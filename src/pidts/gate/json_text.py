"""JSON in the form of a datacenter's records: no spaces between tokens, unescaped UTF-8, keys in a fixed order."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.gate.value_text import TEXT
from pidts.target.text import text_of

_SHORT = {0x08: "\\b", 0x09: "\\t", 0x0A: "\\n", 0x0C: "\\f", 0x0D: "\\r"}
_FIRST_PRINTED = 0x20
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_EMPTY = pa.scalar("", TEXT)


def json_of(value: object) -> str:
    """Returns a value as JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def quoted(texts: pa.Array) -> pa.Array:
    """Returns each text as a JSON string; a missing value stays missing."""
    return pc.binary_join_element_wise(pa.scalar('"', TEXT), _escaped(texts), pa.scalar('"', TEXT), _EMPTY)


def image(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> pa.Array:
    """Returns `[{"name":value},...]` for each row; the columns are JSON, a missing value is null."""
    if not names:
        return pa.array(["[]"] * count, TEXT)
    pieces: list[pa.Array | pa.Scalar] = []
    before = "["
    for name, column in zip(names, columns, strict=True):
        pieces += [pa.scalar(f"{before}{{{json_of(name)}:", TEXT), column]
        before = "},"
    pieces.append(pa.scalar("}]", TEXT))
    return pc.binary_join_element_wise(*pieces, _EMPTY, null_handling="replace", null_replacement="null")


def _escaped(texts: pa.Array) -> pa.Array:
    """Escapes characters that JSON does not allow in a string.

    First searches for the characters that need an escape: a search is far faster than a replacement that finds nothing.
    """
    texts = texts.cast(TEXT)
    data = np.frombuffer(text_of(texts), np.uint8)
    special = (data < _FIRST_PRINTED) | (data == _QUOTE) | (data == _BACKSLASH)
    if not special.any():
        return texts
    there = set(np.unique(data[special]).tolist())
    if _BACKSLASH in there:  # backslashes come first, since the other escapes contain backslashes
        texts = pc.replace_substring(texts, pattern="\\", replacement="\\\\")
    for byte in sorted(there - {_BACKSLASH}):
        written = '\\"' if byte == _QUOTE else _SHORT.get(byte, f"\\u{byte:04x}")
        texts = pc.replace_substring(texts, pattern=chr(byte), replacement=written)
    return texts
