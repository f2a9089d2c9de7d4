"""Computes the checksum of rows on the source; see `pidts.schema.row_digest`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pidts.model import Table
from pidts.schema.row_digest import UNKNOWN, sum_query
from pidts.source.connection import Session, query
from pidts.source.keys import after, upto


def row_sum(
    connection: Session,
    table: Table,
    behind: Sequence[Any] | None,
    highest: Sequence[Any] | None,
    *,
    floats: bool,
    constants: Mapping[str, str] | None = None,
) -> tuple[int, int] | None:
    """Returns number and checksum of the rows after one key up to another; None if the server cannot compute them.

    `constants`: as if each row had these texts behind its own columns.
    """
    bounds = [] if behind is None else [f"({after(table, behind)})"]
    bounds += [] if highest is None else [f"({upto(table, highest)})"]
    index = "FORCE INDEX (PRIMARY) " if bounds and any(key.primary for key in table.keys) else ""
    sql = sum_query(
        table, index + (f"WHERE {' AND '.join(bounds)}" if bounds else ""), floats=floats, constants=constants
    )
    if sql is None:
        return None
    rows, total = query(connection, sql)[0]
    digest = int(total or 0)
    return None if digest >= UNKNOWN else (int(rows), digest)
