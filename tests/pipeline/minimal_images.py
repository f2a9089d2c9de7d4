"""Makes images as `binlog_row_image=MINIMAL` logs them: the key of the old row, and the changed columns of the new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from pidts.model import ChangeBatch, Lsn, Op
from pidts.reduce import with_whole_keys

Row = Mapping[str, Any]


def minimal(batch: ChangeBatch, which: Callable[[Lsn], bool] = lambda _: True) -> ChangeBatch:
    """Returns a batch with full images in the form in which a log with MINIMAL images has it.

    `which` chooses the changes by their Lsns.
    """
    table, names = batch.table, batch.table.arrow.names

    def held(op: int, before: Row | None, after: Row | None) -> list[list[str]]:
        if op == Op.UPDATE:
            assert before is not None
            assert after is not None
            return [list(table.identity), [name for name in names if before[name] != after[name]]]
        return [list(table.identity)] if op == Op.DELETE else [list(names)]

    def bits(some: list[str]) -> bytes:
        return sum(1 << names.index(name) for name in some).to_bytes((len(names) + 7) // 8, "little")

    def part(image: Row | None, some: list[str]) -> Row | None:
        return None if image is None else {name: image[name] if name in some else None for name in names}

    rows = batch.rows.to_pylist()
    some = [which(Lsn.from_bytes(row["lsn"])) for row in rows]
    if not any(some):
        return batch
    found = [
        held(row["op"], row["before"], row["after"]) if chosen else [names] * (2 if row["op"] == Op.UPDATE else 1)
        for row, chosen in zip(rows, some, strict=True)
    ]
    images: dict[str, list[Any]] = {
        "before": [part(row["before"], each[0]) for row, each in zip(rows, found, strict=True)],
        "after": [part(row["after"], each[-1]) for row, each in zip(rows, found, strict=True)],
        "partial": [b"".join(map(bits, each)) if chosen else None for each, chosen in zip(found, some, strict=True)],
    }
    columns = [
        pa.array(images[field.name], field.type) if field.name in images else batch.rows.column(field.name)
        for field in batch.rows.schema
    ]
    return with_whole_keys(
        ChangeBatch(table, pa.RecordBatch.from_arrays(columns, schema=batch.rows.schema), batch.upstream)
    )
