"""Many changes of one table as Arrow columns: the form in which rows travel through the pipeline."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from pidts.model.lsn import Lsn
from pidts.model.table import Table

CHANGE_FIELDS = ("lsn", "op", "before", "after")


def change_schema(table: Table) -> pa.Schema:
    """The columns of a `ChangeBatch`: `before` and `after` are null structs where an op has no such image."""
    row = pa.struct(list(table.arrow))
    return pa.schema(
        [
            pa.field("lsn", pa.binary(Lsn.SIZE), nullable=False),
            pa.field("op", pa.int8(), nullable=False),
            pa.field("before", row),
            pa.field("after", row),
        ]
    )


@dataclass(frozen=True, slots=True)
class ChangeBatch:
    """Changes of one table under one structure, in log order."""

    table: Table
    rows: pa.RecordBatch

    def __post_init__(self) -> None:
        if self.rows.schema.names != list(CHANGE_FIELDS):
            raise ValueError(f"not a change batch of {self.table.name}: {self.rows.schema.names}")

    def __len__(self) -> int:
        return int(self.rows.num_rows)
