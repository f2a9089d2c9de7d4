"""Compares text as servers do: by the weights of its characters, with or without trailing spaces.

A collation is either computed exactly or refused. Collations that compare code points (`_bin`) need no table. For all
others, the weights were read from the servers (WEIGHT_STRING), see `pidts.rules.expressions.weights`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pidts.rules.expressions.tree import NotSupportedError
from pidts.rules.expressions.values import is_true
from pidts.rules.expressions.weights import Weights, has_weights, load

_EQUALITY = {"equal", "not_equal"}
_IN_CODE_POINT_ORDER = frozenset({"utf8mb3", "utf8mb4", "ascii"})


@dataclass(frozen=True, slots=True)
class Collation:
    """A server's collation: the rule by which the server compares texts."""

    name: str
    pads: bool
    """Whether texts are equal if they differ only in trailing spaces."""
    weights: Weights | None
    """The weights; None: the code points of characters are compared."""
    ordered: bool = True
    """False if only equality is known, but not which of two texts is less."""

    def compare(self, operation: str, left: Any, right: Any) -> Any:
        """Returns the result of one of Arrow's comparisons (`equal`, `less`, ...) over two columns of text."""
        if operation not in _EQUALITY and not self.ordered:
            raise NotSupportedError(f"the order of texts in the collation {self.name}")
        if operation in _EQUALITY:
            return pc.call_function(operation, [self._equal_keys(left), self._equal_keys(right)])
        keys = self._keys(left), self._keys(right)
        return pc.call_function(operation, list(_equally_long(*keys, self._space) if self.pads else keys))

    def among(self, values: Any, wanted: pa.StringArray) -> Any:
        """Returns, for each text, whether it equals one of `wanted`, as with SQL's IN; NULL for a NULL."""
        found = pc.is_in(self._equal_keys(values), value_set=self._equal_keys(wanted))
        return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.bool_()))

    def folded(self, values: Any) -> Any:
        """Replaces each character by the first character that is equal to it. LIKE compares the resulting texts."""
        return values if self.weights is None else _each(values, self.weights.folded)

    @property
    def _space(self) -> bytes:
        return b" " if self.weights is None else self.weights.space

    def _equal_keys(self, values: Any) -> Any:
        """Returns keys that are the same for equal texts."""
        keys = self._keys(values)
        return _without_end(keys, self._space) if self.pads else keys

    def _keys(self, values: Any) -> Any:
        return values.cast(pa.binary()) if self.weights is None else _each(values, self.weights.keys)


def _each(values: Any, change: Any) -> Any:
    return change(pa.array([values.as_py()], pa.string()))[0] if isinstance(values, pa.Scalar) else change(values)


def _without_end(keys: Any, space: bytes) -> Any:
    """Removes the weights of trailing spaces."""
    if len(space) == 1:
        return _each_binary(keys, lambda found: pc.ascii_rtrim(found.cast(pa.string()), characters=" "))
    return _each_binary(keys, lambda found: _units_stripped(found, space))


def _each_binary(keys: Any, change: Any) -> Any:
    return change(pa.array([keys.as_py()], pa.binary()))[0] if isinstance(keys, pa.Scalar) else change(keys)


def _units_stripped(keys: pa.BinaryArray, space: bytes) -> pa.BinaryArray:
    """Removes spaces from the ends of keys, one at a time. This is fast enough, since few keys end in many spaces."""
    while True:
        size = pc.binary_length(keys)
        ends = pc.equal(pc.binary_slice(keys, -len(space)), pa.scalar(space))
        ends = pc.and_(is_true(ends), is_true(pc.greater_equal(size, len(space))))
        if not pc.any(ends).as_py():
            return keys
        keys = pc.if_else(ends, pc.binary_slice(keys, 0, -len(space)), keys)


def _equally_long(left: Any, right: Any, space: bytes) -> tuple[Any, Any]:
    """Returns both columns of keys, the shorter key of each pair padded with spaces: `a` and a tab is less than `a`."""
    sizes = pc.binary_length(left), pc.binary_length(right)
    longest = pc.max_element_wise(*sizes, skip_nulls=False)
    return tuple(
        pc.binary_join_element_wise(
            keys, pc.binary_repeat(pa.scalar(space), pc.divide(pc.subtract(longest, size), len(space))), b""
        )
        for keys, size in zip((left, right), sizes, strict=True)
    )


@lru_cache(maxsize=256)
def collation(name: str) -> Collation:
    """Returns the collation that the server calls by this name."""
    name = re.sub(r"^utf8_", "utf8mb3_", name.lower())
    charset, _, rule = name.partition("_")
    pads = not ("nopad" in rule or rule.startswith("0900"))
    if rule in ("bin", "nopad_bin", "0900_bin"):
        return Collation(name, pads, None, ordered=charset in _IN_CODE_POINT_ORDER)
    if not has_weights(name):
        raise NotSupportedError(f"the collation {name}")
    return Collation(name, pads, load(name))


def fits(text: str, charset: str) -> bool:
    """Whether a charset can represent a constant. If not, the server compares the column in another charset."""
    if charset in ("utf8", "utf8mb3"):
        return max(text, default="") <= "\uffff"
    if charset in ("ascii", "latin1", "gbk"):
        return _encodes(text, {"latin1": "cp1252"}.get(charset, charset))
    return charset in ("utf8mb4", "utf16", "utf32", "gb18030") or text.isascii()


def _encodes(text: str, codec: str) -> bool:
    try:
        text.encode(codec)
    except UnicodeEncodeError:
        return False
    return True
