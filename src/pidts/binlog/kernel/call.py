"""One call of a compiled loop: its input, its state, and the texts that plain code makes for it."""

from __future__ import annotations

import ctypes

import numpy as np

from pidts.binlog.jit import address
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel.buffers import Memory
from pidts.binlog.kernel.identifiers import put_identifier
from pidts.binlog.kernel.json import put_json
from pidts.binlog.values import json


class Call:
    """The input and output of a compiled loop, and the texts of JSON documents that the loop cannot write."""

    __slots__ = ("_answers", "_entries", "block")

    def __init__(self) -> None:
        self.block = np.zeros(at.CALL // 8, np.int64)
        self.block[at.JSON_CODE // 8] = put_json.address
        self.block[at.IDENTIFIER_CODE // 8] = put_identifier.address
        self._answers: list[bytes] = []
        self._entries = np.zeros((0, 3), np.int64)

    def help(self, result: int, memory: Memory, ahead: float = 1.0, most: int = 0) -> bool:
        """Provides the room or the text that the loop lacks; returns False if an error has stopped the loop.

        `ahead` is the expected number of rows divided by the current number. `most` limits the room for text, in bytes.
        Room is made for all expected rows: untouched memory costs nothing, and a large block need not be moved later.
        """
        block = self.block
        if result == at.MORE_ROWS:
            memory.more_rows(ahead)
        elif result == at.MORE_TEXT:
            column, place, needed = block[at.SIDE // 8 : at.NEEDED // 8 + 1].tolist()
            memory.more_text(column, place, needed, ahead, most)
        elif result == at.WANTS_HELP:
            self._answer(int(block[at.SIDE // 8]), int(block[at.NEEDED // 8]))
        else:
            return False
        return True

    def _answer(self, document: int, size: int) -> None:
        """Makes the text of a JSON document in plain code."""
        known = int(self.block[at.HELPS // 8])
        text = json.text(ctypes.string_at(document, size)).encode()
        del self._answers[known:]
        self._answers.append(text)
        self._entries = np.array([*self._entries[:known].tolist(), [document, address(text), len(text)]], np.int64)
        self.block[at.HELP // 8], self.block[at.HELPS // 8] = address(self._entries), known + 1
