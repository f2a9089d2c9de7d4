"""Stores the digests of any number of keys: in memory up to a limit, the rest in a temporary file.

The file has no visible name, and disappears with the process. (It is SQLite's temporary database, in `TMPDIR`.)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pidts.model import Halted

if TYPE_CHECKING:
    from collections.abc import Iterator

_CACHE_KB = 64_000
_KEYS_A_QUERY = 500

Found = tuple[int, bytes]
"""A row's digest, preceded by the kind of the images with which it can be compared."""


class KeyStore:
    """The keys of one comparison, as digests."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for sql in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            f"PRAGMA cache_size = -{_CACHE_KB}",
            "CREATE TABLE found (key BLOB PRIMARY KEY, kind INTEGER, row BLOB) WITHOUT ROWID",
            "CREATE TABLE later (key BLOB, id INTEGER, PRIMARY KEY (key, id)) WITHOUT ROWID",
        ):
            self._file.execute(sql)

    def close(self) -> None:
        """Removes the file."""
        self._file.close()

    def found(self, keys: Sequence[bytes]) -> dict[bytes, Found]:
        """Returns the stored digests of these keys; keys that were not read yet are left out."""
        found: dict[bytes, Found] = {}
        with _disk():
            for begin in range(0, len(keys), _KEYS_A_QUERY):
                part = keys[begin : begin + _KEYS_A_QUERY]
                sql = f"SELECT key, kind, row FROM found WHERE key IN ({_placeholders(part)})"
                found.update((key, (kind, row)) for key, kind, row in self._file.execute(sql, part))
        return found

    def put(self, found: Mapping[bytes, Found]) -> None:
        """Stores, for each key, the digest that the row must have after its previous record, and the digest's kind."""
        rows = [(key, *found[key]) for key in sorted(found)]  # sorted: each page of the file is written only once
        with _disk():
            self._file.execute("BEGIN")
            self._file.executemany("INSERT OR REPLACE INTO found VALUES (?, ?, ?)", rows)
            self._file.execute("COMMIT")

    def put_later(self, key: bytes, id_: int, *, is_whole: bool) -> None:
        """Stores a record that was written after the comparison began.

        If the record has all columns of the row (`is_whole`), it replaces earlier records of the row.
        """
        with _disk():
            if is_whole:
                self._file.execute("DELETE FROM later WHERE key = ?", (key,))
            self._file.execute("INSERT OR REPLACE INTO later VALUES (?, ?)", (key, id_))

    def later(self, keys: Sequence[bytes]) -> dict[bytes, list[int]]:
        """Returns the ids of the later records of each key, in their order."""
        found: dict[bytes, list[int]] = {}
        with _disk():
            for begin in range(0, len(keys), _KEYS_A_QUERY):
                part = keys[begin : begin + _KEYS_A_QUERY]
                sql = f"SELECT key, id FROM later WHERE key IN ({_placeholders(part)}) ORDER BY key, id"
                for key, id_ in self._file.execute(sql, part):
                    found.setdefault(bytes(key), []).append(int(id_))
        return found


def _placeholders(values: Sequence[bytes]) -> str:
    return ", ".join("?" * len(values))


@contextmanager
def _disk() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise Halted(
            "verify-memory",
            f"the keys that were compared cannot be kept: {error}",
            todo="Make room in the directory TMPDIR, or in /var/tmp; or compare fewer tables at a time (--tables)",
        ) from error
