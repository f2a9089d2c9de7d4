"""The servers' weights of characters, one file per collation, as `WEIGHT_STRING` returns them.

A file is compressed by zlib. It begins with one byte for each code point: the number of its weights. Then follow the
weights of all code points, two bytes each. Some values of the first bytes are special:

- `UNKNOWN`: the collation's charset does not have the character.
- `ITSELF`: the character's only weight is the code point.
- The numbers in `IMPLICIT`: the character's two weights are computed from the code point (as for Chinese characters).

After the weights, a file may have contractions: sequences of characters whose weights are not the weights of the single
characters. `tests/rules/expressions/weigh.py` writes the files.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Halted
from pidts.rules.expressions.letters import POINTS, Numbers, code_points, replaced

UNKNOWN, ITSELF = 255, 254
IMPLICIT = {0xFB40: 253, 0xFB80: 252, 0xFBC0: 251}
"""For each kind of character with implicit weights: a number, and the byte that stands for this kind in the file.

The first weight is this number plus the upper bits of the code point (all but the lowest 15). Ideographs have the
lowest weights, ideographs in extensions higher weights, unassigned characters the highest.
"""

_EXPLICIT = 250
"""Up to this value, a byte is a number of weights. Larger bytes have a special meaning."""

_FILES = {
    "general_ci": "general_ci",
    "general_nopad_ci": "general_ci",
    "unicode_ci": "unicode_ci",
    "unicode_nopad_ci": "unicode_ci",
    "unicode_520_ci": "unicode_520_ci",
    "unicode_520_nopad_ci": "unicode_520_ci",
    "0900_ai_ci": "0900_ai_ci",
    "uca1400_ai_ci": "uca1400_ai_ci",
    "uca1400_nopad_ai_ci": "uca1400_ai_ci",
}
_CHARSETS = ("utf8mb3", "utf8mb4")
_OTHERS = {
    "gbk_chinese_ci": "gbk_chinese_ci",
    "gbk_chinese_nopad_ci": "gbk_chinese_ci",
    "latin1_swedish_ci": "latin1_swedish_ci",
    "latin1_swedish_nopad_ci": "latin1_swedish_ci",
    "ascii_general_ci": "general_ci",
    "ascii_general_nopad_ci": "general_ci",
}

_APART = {"unicode_ci": (0x10000, POINTS), "0900_ai_ci": (0xAC00, 0xD7A4), "gbk_chinese_ci": (0x80, POINTS)}
"""For some collations, a range of code points. LIKE distinguishes each of these code points from all other characters,
although `=` does not: servers compute the weights of these code points, and have no table of them.
"""


def has_weights(collation: str) -> bool:
    """Whether the weights of this collation are known; the name is the server's."""
    return _file(collation) is not None


def _file(collation: str) -> str | None:
    charset, _, rule = collation.partition("_")
    return _OTHERS.get(collation) or (_FILES.get(rule) if charset in _CHARSETS else None)


@lru_cache
def load(collation: str) -> Weights:
    """Reads the weights of a collation for which `has_weights` is true."""
    return _read(_file(collation) or "")


@lru_cache
def _read(name: str) -> Weights:
    data = zlib.decompress((files(__package__) / f"{name}.weights").read_bytes())
    codes = np.frombuffer(data, np.uint8, POINTS)
    counts = np.where(codes <= _EXPLICIT, codes, np.where(codes == ITSELF, 1, np.where(codes == UNKNOWN, 0, 2)))
    starts = np.concatenate([[0], np.cumsum(counts)])
    weights = np.empty(starts[-1], ">u2")
    explicit = np.repeat(codes <= _EXPLICIT, counts)
    size = int(explicit.sum())
    weights[explicit] = np.frombuffer(data, ">u2", size, POINTS)
    itself = np.flatnonzero(codes == ITSELF)
    weights[starts[itself]] = itself
    for base, code in IMPLICIT.items():
        implicit = np.flatnonzero(codes == code)
        weights[starts[implicit]] = base + (implicit >> 15)
        weights[starts[implicit] + 1] = implicit & 0x7FFF | 0x8000
    contractions = json.loads(data[POINTS + 2 * size :] or b"{}")
    sequences = {text: bytes.fromhex(key) for text, key in contractions.items()}
    return Weights(name, codes, counts, starts[:-1], weights, sequences)


@dataclass(frozen=True)
class Weights:
    """The weights of one collation."""

    name: str
    codes: Numbers
    counts: Numbers
    starts: Numbers
    weights: Numbers
    contractions: dict[str, bytes]

    def keys(self, values: pa.StringArray) -> pa.BinaryArray:
        """Returns bytes that compare as the collation compares the texts, apart from trailing spaces."""
        points, sizes = code_points(values)
        if (self.codes[points] == UNKNOWN).any():
            raise self._unknown(points)
        counts = self.counts[points]
        ends = np.cumsum(counts)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(self.starts[points] - (ends - counts), counts)
        stops = np.concatenate([[0], ends])[np.cumsum(sizes)]
        offsets = np.concatenate([[0], 2 * stops]).astype(np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.weights[places].tobytes())]
        keys = pa.Array.from_buffers(pa.large_binary(), len(values), buffers).cast(pa.binary())
        keys = pc.if_else(values.is_valid(), keys, pa.scalar(None, pa.binary()))
        return self._with_contractions(keys, values, points, sizes) if self.contractions else keys

    def _with_contractions(
        self, keys: pa.BinaryArray, values: pa.StringArray, points: Numbers, sizes: Numbers
    ) -> pa.BinaryArray:
        """Computes the keys of texts with possible contractions one by one: such texts are rare."""
        rows = np.repeat(np.arange(len(sizes)), sizes)[self._can_continue[points]]
        rows = np.unique(rows)
        if not len(rows):
            return keys
        mask = np.zeros(len(values), bool)
        mask[rows] = True
        found = [self._contracted(values[int(row)].as_py()) for row in rows]
        return pc.replace_with_mask(keys, pa.array(mask), pa.array(found, pa.binary()))

    @cached_property
    def _can_continue(self) -> Numbers:
        mask = np.zeros(POINTS, bool)
        mask[[ord(text[1]) for text in self.contractions]] = True
        return mask

    def _contracted(self, text: str) -> bytes:
        parts, at = [], 0
        while at < len(text):
            found = next((part for size in (4, 3, 2) if (part := text[at : at + size]) in self.contractions), "")
            parts.append(self.contractions[found] if found else self._of(ord(text[at])))
            at += len(found) or 1
        return b"".join(parts)

    def _of(self, point: int) -> bytes:
        return self.weights[self.starts[point] : self.starts[point] + self.counts[point]].tobytes()

    def _unknown(self, points: Numbers) -> Halted:
        point = int(points[self.codes[points] == UNKNOWN][0])
        return Halted(
            "expression-failed",
            f"the place of the character U+{point:04X} in the order of {self.name} is not known",
            todo="Write COLLATE with another collation in the expression",
        )

    @property
    def space(self) -> bytes:
        """Returns the weight of a space."""
        return self._of(0x20)

    def is_ignored(self, sign: str) -> bool:
        """Whether a character has no weight."""
        return not self.counts[ord(sign)]

    def folded(self, values: pa.StringArray) -> pa.StringArray:
        """Replaces each character by the lowest character with the same weights."""
        return replaced(values, self._first)

    def folded_text(self, text: str) -> str:
        """Does the same as `folded` for one text."""
        return "".join(chr(self._first[ord(sign)]) for sign in text)

    @cached_property
    def _first(self) -> Numbers:
        """Returns, for each code point, the lowest code point with the same weights."""
        first = np.arange(POINTS, dtype=np.int64)
        for count in np.unique(self.counts):
            mine = np.flatnonzero((self.counts == count) & ~np.isin(self.codes, list(IMPLICIT.values())))
            low, high = _APART.get(self.name, (0xD800, 0xE000))
            mine = mine[(mine < low) | (mine >= high)]
            if count and len(mine):
                keys = self.weights[self.starts[mine, None] + np.arange(count)]
                _, index, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
                first[mine] = mine[index[inverse.ravel()]]
        return first
