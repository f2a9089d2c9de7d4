"""Keys that may have moved, on PostgreSQL: lists travel as arrays, and each key is looked up by the index.

See `tombstones` for why there is a LATERAL. Nobody else touches entries of keys that one worker writes, so the place at
which one was found is where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pidts.model import TableName
from pidts.target.moves import MoveRecord


class PostgresMoves(MoveRecord):
    """The moved keys, as one session reads and writes them."""

    def _find(self, place: tuple[str, ...], keys: Sequence[str]) -> list[tuple[Any, ...]]:
        rows, _ = self._run(
            "SELECT m.member_schema, m.member_name, m.row_key, m.lsn FROM unnest(%s::text[]) AS k(row_key), "
            "LATERAL (SELECT * FROM pidts_meta.moved WHERE task = %s AND source = %s AND table_schema = %s "
            "AND table_name = %s AND row_key = k.row_key OFFSET 0) m",
            (list(keys), *place),
        )
        return rows

    def _put(self, rows: Sequence[tuple[str, ...]]) -> None:
        self._run(
            "INSERT INTO pidts_meta.moved "
            "(task, source, table_schema, table_name, row_key, member_schema, member_name, lsn) "
            f"SELECT * FROM unnest({', '.join(['%s::text[]'] * 8)}) "
            "ON CONFLICT (task, source, table_schema, table_name, row_key, member_schema, member_name) "
            "DO UPDATE SET lsn = EXCLUDED.lsn",
            tuple(map(list, zip(*rows, strict=True))),
        )

    def _remove(self, place: tuple[str, ...], member: TableName, keys: Sequence[str]) -> None:
        self._run(
            "DELETE FROM pidts_meta.moved WHERE ctid = ANY(ARRAY(SELECT m.place FROM unnest(%s::text[]) AS k(row_key), "
            "LATERAL (SELECT ctid AS place FROM pidts_meta.moved WHERE task = %s AND source = %s AND table_schema = %s "
            "AND table_name = %s AND row_key = k.row_key AND member_schema = %s AND member_name = %s LIMIT 1) m))",
            (list(keys), *place, member.schema, member.name),
        )
