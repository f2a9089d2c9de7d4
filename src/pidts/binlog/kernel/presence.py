"""The column presences of one table's images: each distinct pair of bitmaps gets a number, which rows refer to.

Number 0 means that the images have all columns. Plain code decodes the first event with new bitmaps, checks them, and
enters them here. From then on, compiled code finds their number. There are seldom many numbers: with MINIMAL images,
there is one number for each list of columns that a program changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pidts.binlog.blocks.ordinary import hash_of, same
from pidts.binlog.jit import address, copy, inline, jit, load8, load64, store8
from pidts.binlog.kernel import layout as at

_FIRST_SLOTS = 16


class Presences:
    """The known presences of one table, which the compiled code finds through the table's state."""

    __slots__ = ("_keys", "_numbers", "_scratch", "_slots", "_state")

    def __init__(self, state: Any, width: int) -> None:
        """`state` is the state of the table."""
        self._state = state
        self._keys: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._scratch = np.zeros(2 * max((width + 7) // 8, 1), np.uint8)
        self._place(_FIRST_SLOTS)

    def __len__(self) -> int:
        return len(self._keys)

    def entered(self, bitmaps: bytes, null_bytes: int) -> tuple[int, int]:
        """Returns the number of a presence that lacks columns, and the address of its bitmaps.

        The bitmaps have the form of a batch's column `partial`. `null_bytes` is the argument `bitmaps` of `read_rows`.
        """
        number = self._numbers.get(bitmaps)
        if number is None:
            self._keys.append(bitmaps)
            number = self._numbers[bitmaps] = len(self._keys)
            if 2 * number > len(self._slots):
                old = self._slots[self._slots[:, at.KEY_SIZE // 8] > 0]
                self._place(2 * len(self._slots))
                for key in old.tolist():
                    self._enter(key)
            self._enter([address(bitmaps), len(bitmaps), number, null_bytes])
        self._state[at.IS_PARTIAL // 8] = 1
        return number, address(self._keys[number - 1])

    def partial(self, numbers: Any) -> pa.Array | None:
        """Returns the column `partial` of rows with these presences; None if all images have all columns."""
        if not numbers.any():
            return None
        return pa.array([None, *self._keys], pa.binary()).take(pa.array(numbers))

    def _place(self, slots: int) -> None:
        self._slots = np.zeros((slots, at.PRESENCE_SLOT // 8), np.int64)
        self._state[at.KNOWN_PRESENCES // 8], self._state[at.PRESENCE_MASK // 8] = address(self._slots), slots - 1
        self._state[at.PRESENCE_SCRATCH // 8] = address(self._scratch)

    def _enter(self, key: list[int]) -> None:
        slot = hash_of(key[at.KEY // 8], key[at.KEY_SIZE // 8]) & len(self._slots) - 1
        while self._slots[slot, at.KEY_SIZE // 8]:
            slot = slot + 1 & len(self._slots) - 1
        self._slots[slot] = key


@inline
def _copy_bitmap(target: int, bits: int, width: int) -> None:
    """Copies a bitmap, and clears the bits after the last column: they have no meaning."""
    size = (width + 7) >> 3
    copy(target, bits, size)
    if width & 7:
        last = target + size - 1
        store8(last, load8(last) & ((1 << (width & 7)) - 1))


@jit
def known_presence(table: int, bits: int, width: int, images: int) -> int:
    """Returns the slot of a presence by its bitmaps in the log, one for each of `images`; 0 if it is not known."""
    step, key = (width + 7) >> 3, load64(table + at.PRESENCE_SCRATCH)
    for number in range(images):
        _copy_bitmap(key + number * step, bits + number * step, width)
    size, mask = step * images, load64(table + at.PRESENCE_MASK)
    place = hash_of(key, size) & mask
    while True:
        slot: int = load64(table + at.KNOWN_PRESENCES) + place * at.PRESENCE_SLOT
        if load64(slot + at.KEY_SIZE) == 0:
            return 0
        if load64(slot + at.KEY_SIZE) == size and same(load64(slot + at.KEY), key, size):
            return slot
        place = place + 1 & mask
