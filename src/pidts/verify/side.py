"""What a comparison asks of the source and of the target; the callers bring the connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pidts.model import Table


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison. All rows come with the columns of `table.arrow`."""

    rows: Callable[[Table], Iterator[pa.Table]]
    """The whole table in chunks of bounded size, each row once, in any order."""
    find: Callable[[Table, pa.Table], pa.Table]
    """The rows with these keys (a table of the identity columns), in any order; keys without a row are left out."""
    count: Callable[[Table], int]


def pages(
    read: Callable[[Table, Sequence[Any] | None, int], pa.Table],
    last_key: Callable[[pa.Table, Table], Sequence[Any] | None],
    limit: int = 10_000,
) -> Callable[[Table], Iterator[pa.Table]]:
    """`Side.rows` out of a reader that returns the `limit` rows after a key, in its server's order of keys."""

    def rows(table: Table) -> Iterator[pa.Table]:
        after: Sequence[Any] | None = None
        while True:
            chunk = read(table, after, limit)
            if len(chunk):
                yield chunk
            if len(chunk) < limit:
                return
            after = last_key(chunk, table)

    return rows
