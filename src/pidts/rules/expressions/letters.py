"""LOWER and UPPER by the servers' own tables of letters, which depend on the collation and are older than Unicode's."""

from __future__ import annotations

import json
import zlib
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.rules.expressions.tree import NotSupportedError
from pidts.rules.expressions.values import Expr, Family, failed

_RULES = {
    "general_ci": "old",
    "general_nopad_ci": "old",
    "unicode_ci": "old",
    "unicode_nopad_ci": "old",
    "bin": "old",
    "nopad_bin": "old",
    "0900_ai_ci": "0900",
    "0900_bin": "0900",
    "uca1400_ai_ci": "uca1400",
    "uca1400_nopad_ai_ci": "uca1400",
}
POINTS = 0x110000
Numbers = np.ndarray[Any, Any]


def in_case(name: str, expr: Expr) -> Expr:
    """Returns `LOWER(a)` or `UPPER(a)`."""
    if expr.family is not Family.TEXT:
        raise NotSupportedError(f"{name} of {expr.nature}; its argument must be text")
    charset, _, rule = (expr.collation or "").lower().replace("utf8_", "utf8mb3_").partition("_")
    if charset not in ("utf8mb3", "utf8mb4", "ascii") or rule not in _RULES:
        raise NotSupportedError(f"{name} in the collation {expr.collation or 'of the connection'}")
    letters = _letters("lower" if name in ("LOWER", "LCASE") else "upper", _RULES[rule])

    def change(values: pa.StringArray) -> pa.StringArray:
        points, _ = code_points(values)
        if (letters[points] < 0).any():
            point = int(points[letters[points] < 0][0])
            raise failed(f"the server loses text when it computes {name} of the character U+{point:04X}")
        return replaced(values, letters)

    def run(rows: Any) -> Any:
        values = expr.run(rows)
        return change(pa.array([values.as_py()], pa.string()))[0] if isinstance(values, pa.Scalar) else change(values)

    return Expr(
        Family.TEXT,
        run,
        charset=expr.charset,
        collation=expr.collation,
        explicit=expr.explicit,
        nature=f"{name}()",
    )


@lru_cache
def _letters(case: str, rule: str) -> Numbers:
    """Returns, for each code point, the server's lower or upper case letter; negative if the server loses the text."""
    data = zlib.decompress((files("pidts.rules.expressions.weights") / "letters.weights").read_bytes())
    rule_letters = json.loads(data)[rule][case]
    letters = np.arange(POINTS)
    letters[[ord(sign) for sign in rule_letters["from"]]] = [ord(sign) for sign in rule_letters["to"]]
    letters[[ord(sign) for sign in rule_letters["lost"]]] = -1
    return letters


def code_points(values: pa.StringArray) -> tuple[Numbers, Numbers]:
    """Returns the code points of all texts one after the other, and each text's number of code points (NULL: 0)."""
    values = pc.fill_null(values, "")
    sizes = pc.utf8_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return np.empty(0, np.int64), sizes
    places = np.frombuffer(offsets, np.int32, len(values) + 1, 4 * values.offset)
    text = data.slice(int(places[0]), int(places[-1] - places[0])).to_pybytes()
    if text.isascii():
        return np.frombuffer(text, np.uint8).astype(np.int64), sizes
    return np.frombuffer(text.decode().encode("utf-32-le"), "<u4").astype(np.int64), sizes


def replaced(values: pa.StringArray, by: Numbers) -> pa.StringArray:
    """Replaces each character by the character that `by` has for its code point."""
    points, sizes = code_points(values)
    found = by[points]
    text = found.astype("<u4").tobytes().decode("utf-32-le").encode()
    ends = np.concatenate([[0], np.cumsum(_utf8_sizes(found))])
    offsets = np.concatenate([[0], ends[np.cumsum(sizes)]]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    result = pa.Array.from_buffers(pa.large_string(), len(values), buffers).cast(pa.string())
    return pc.if_else(values.is_valid(), result, pa.scalar(None, pa.string()))


def _utf8_sizes(points: Numbers) -> Numbers:
    return 1 + (points >= 0x80).astype(np.int64) + (points >= 0x800) + (points >= 0x10000)
