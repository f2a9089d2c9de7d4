"""Unique indexes of a table of PostgreSQL, those over expressions or some of the rows included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pidts.model import TableName
from pidts.reduce import ANYTHING, UniqueKey

Run = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]


def unique_keys(run: Run, name: TableName) -> list[UniqueKey]:
    """Returns the unique keys of a table; none where there is no such table.

    What an EXCLUDE constraint compares is left open.
    """
    rows = run(
        "SELECT array_agg(coalesce(a.attname::text, '') ORDER BY k.place), i.indpred IS NOT NULL OR i.indisexclusion "
        "FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "CROSS JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k(attnum, place) "
        "LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum > 0 "
        "WHERE n.nspname = %s AND c.relname = %s AND (i.indisunique OR i.indisexclusion) AND i.indisready "
        "GROUP BY i.indexrelid, 2 ORDER BY i.indexrelid",
        (name.schema, name.name),
    )
    return [
        UniqueKey((*columns, ANYTHING) if is_special else tuple(columns), whole=not is_special)
        for columns, is_special in rows
    ]
