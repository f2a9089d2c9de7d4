"""Tombstones on PostgreSQL: lists travel as arrays, and each key is looked up by the index.

A table without statistics counts as nearly empty: a list behind IN, or a plain join, would be compared with each of its
rows. LIMIT inside LATERAL leaves no other way than one look per key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pidts.model import Tombstone
from pidts.target.tombstones import TombstoneRecord


class PostgresTombstones(TombstoneRecord):
    """The tombstones, as one session reads and writes them."""

    def _find(self, place: tuple[str, str], keys: Sequence[str]) -> list[tuple[Any, ...]]:
        rows, _ = self._run(
            "SELECT t.row_key, t.version_value, t.source, t.lsn FROM unnest(%s::text[]) AS k(row_key), "
            "LATERAL (SELECT * FROM pidts_meta.tombstone WHERE table_schema = %s AND table_name = %s "
            "AND row_key = k.row_key LIMIT 1) t",
            (list(keys), *place),
        )
        return rows

    def _put(self, place: tuple[str, str], tombstones: Sequence[Tombstone], now: int) -> None:
        keys, versions, sources, lsns = zip(
            *((t.key, t.version, t.source, str(t.lsn)) for t in tombstones), strict=True
        )
        self._run(
            "INSERT INTO pidts_meta.tombstone "
            "(table_schema, table_name, row_key, version_value, source, lsn, buried_at) "
            "SELECT %s, %s, k.row_key, k.version, k.source, k.lsn, %s "
            "FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) AS k(row_key, version, source, lsn) "
            "ON CONFLICT (table_schema, table_name, row_key) DO UPDATE SET version_value = EXCLUDED.version_value, "
            "source = EXCLUDED.source, lsn = EXCLUDED.lsn, buried_at = EXCLUDED.buried_at",
            (*place, now, list(keys), list(versions), list(sources), list(lsns)),
        )
