"""Remembers what was read of any number of keys: in memory as far as there is room, and in a file of its own beyond.

The file has no name that others see, and is gone with the process (SQLite's temporary database; `TMPDIR` says where).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pidts.model import Halted

if TYPE_CHECKING:
    from collections.abc import Iterator

_CACHE_KB = 64_000
_KEYS_A_QUERY = 500


class KeyStore:
    """The keys of one comparison, as digests."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for sql in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            f"PRAGMA cache_size = -{_CACHE_KB}",
            "CREATE TABLE found (key BLOB PRIMARY KEY, mark INTEGER, row BLOB) WITHOUT ROWID",
            "CREATE TABLE later (key BLOB, id INTEGER, PRIMARY KEY (key, id)) WITHOUT ROWID",
        ):
            self._file.execute(sql)

    def close(self) -> None:
        """Removes everything."""
        self._file.close()

    def found(self, key: bytes) -> tuple[int, bytes] | None:
        """Returns what was put for a key; None where it was not met yet."""
        with _disk():
            row = self._file.execute("SELECT mark, row FROM found WHERE key = ?", (key,)).fetchone()
        return None if row is None else (int(row[0]), bytes(row[1]))

    def put(self, key: bytes, mark: int, row: bytes) -> None:
        """Puts a digest of the row that an earlier record has to leave, comparable where it has this mark."""
        with _disk():
            self._file.execute("INSERT OR REPLACE INTO found VALUES (?, ?, ?)", (key, mark, row))

    def put_later(self, key: bytes, id_: int, *, is_whole: bool) -> None:
        """Notes a record that came after the comparison began; a whole row says all that the ones before it say."""
        with _disk():
            if is_whole:
                self._file.execute("DELETE FROM later WHERE key = ?", (key,))
            self._file.execute("INSERT OR REPLACE INTO later VALUES (?, ?)", (key, id_))

    def later(self, keys: Sequence[bytes]) -> dict[bytes, list[int]]:
        """Returns the ids of the later records of these keys, in their order."""
        found: dict[bytes, list[int]] = {}
        with _disk():
            for begin in range(0, len(keys), _KEYS_A_QUERY):
                part = keys[begin : begin + _KEYS_A_QUERY]
                marks = ", ".join("?" * len(part))
                for key, id_ in self._file.execute(
                    f"SELECT key, id FROM later WHERE key IN ({marks}) ORDER BY key, id", tuple(part)
                ):
                    found.setdefault(bytes(key), []).append(int(id_))
        return found


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Halted(
            "verify-memory",
            f"the keys that were compared cannot be kept: {error}",
            todo="Make room where TMPDIR, or else /var/tmp, is; or compare fewer tables at a time (--tables)",
        ) from error
