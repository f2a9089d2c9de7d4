"""Writes a transaction's changes to files, as rows of change tables. The transaction's COMMIT records these files.

A *change table* contains all changes of one table; sorted by `pidts_lsn, pidts_op`, they are in the order of the log:

| pidts_op | the row |
|---|---|
| insert | the inserted row |
| update_from, update_to | the row before and after an update: two rows with one Lsn |
| delete | the row before it was deleted |
| truncate | NULL in all columns: the table has no rows any more |

The files of a transaction are *waiting*: this module writes them, they are durable before COMMIT, and the COMMIT
records them in `change_file`. So a change is recorded if, and only if, its row is written. A publication
(`pidts.task.operate.change_publication`) writes the recorded changes to files in the folders that readers see, and then
removes the waiting files.

Crash points:

1. before COMMIT: no record names the files. A publication removes them under the database's lock. Waiting files are
   also written under this lock, so a file without a record belongs to a transaction that has ended.
2. after COMMIT: files, records and rows exist.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pidts.durable_folder import make_folder
from pidts.model import LoggedChanges, Lsn, Op, Table, TableName
from pidts.reduce.identity import image_columns
from pidts.target.hive.change_record import waiting_folder
from pidts.target.hive.names import CHANGE_COLUMNS
from pidts.target.hive.state import hive_columns, hive_name_of, plain_type
from pidts.target.iceberg.columns import encode
from pidts.target.iceberg.connection import CatalogConnection, mapped
from pidts.target.iceberg.files import make_durable

_TYPES = {"string": pa.string(), "timestamp": pa.timestamp("us")}
_FILE_BYTES = 32 << 20
"""If the open transaction's changes have more bytes than this, a file is written before the transaction ends."""
_LSN = np.dtype([("change_no", ">u4"), ("log_index", ">u4"), ("offset", ">u8"), ("row", ">u4")])
_SECOND = 1_000_000


class WaitingChanges:
    """Collects the changes of the open transaction, and writes them to files."""

    def __init__(self, connection: CatalogConnection) -> None:
        self._connection = connection
        self._rows: dict[tuple[str, TableName, str], list[pa.Table]] = {}
        self._size = 0
        self._written: list[Path] = []

    @property
    def folder(self) -> Path:
        """Returns the folder of the waiting files."""
        return waiting_folder(self._connection)

    def add(self, changes: LoggedChanges) -> None:
        """Adds changes of a table."""
        self.add_rows(changes.task, changes.batch.table.name, change_rows(changes))

    def add_rows(self, task: str, table: TableName, rows: pa.Table) -> None:
        """Adds rows of a change table."""
        if not rows.num_rows:
            return
        columns = json.dumps([[field.name, hive_name_of(field.type)] for field in rows.schema])
        self._rows.setdefault((task, table, columns), []).append(rows)
        self._size += rows.nbytes
        if self._size > _FILE_BYTES:
            self.write()

    def write(self) -> None:
        """Writes the collected changes to files, flushes these to disk, and records them in the open transaction."""
        for (task, table, columns), parts in self._rows.items():
            self._connection.own_database()  # see crash point 1 above
            name, rows = f"{uuid.uuid4().hex}.arrow", pa.concat_tables(parts)
            path = self.folder / name
            with mapped():
                make_folder(path.parent)
                self._written.append(path)
                with pa.ipc.new_file(str(path), rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as file:
                    file.write_table(rows)
            make_durable(str(path))
            self._connection.run(
                "INSERT INTO pidts_meta.change_file "
                "(name, task, table_schema, table_name, columns, size, published_as) "
                "VALUES (%s, %s, %s, %s, %s, %s, '')",
                (name, task, table.schema, table.name, columns, rows.nbytes),
            )
        self._rows.clear()
        self._size = 0

    def forget(self, *, is_undone: bool) -> None:
        """Forgets the transaction's changes; removes its files if the transaction was rolled back (`is_undone`)."""
        while self._written:
            path = self._written.pop()
            if is_undone:
                with suppress(OSError):
                    path.unlink()
        self._rows.clear()
        self._size = 0


def change_rows(changes: LoggedChanges) -> pa.Table:
    """Returns the rows that a change table gets: two for an update, one for any other change."""
    batch, table = changes.batch, changes.batch.table
    op = batch.rows.column("op").to_numpy()
    updated = op == int(Op.UPDATE)
    place = np.repeat(np.arange(len(batch)), np.where(updated, 2, 1))
    first = np.concatenate([[True], place[1:] != place[:-1]]) if len(place) else np.zeros(0, np.bool_)
    kind = op[place]
    is_before = (kind == int(Op.DELETE)) | (updated[place] & first)
    names = np.select(
        [kind == int(Op.INSERT), kind == int(Op.DELETE), first], ["insert", "delete", "update_from"], "update_to"
    )
    lsns = pa.array(lsn_texts(batch.rows.column("lsn"))).take(pa.array(place))
    times = np.fromiter((one.time for one in changes.transactions), np.int64, len(batch))[place] * _SECOND
    gtids = pa.array([one.gtid or None for one in changes.transactions], pa.string()).take(pa.array(place))
    about = [
        pa.array(names.tolist(), pa.string()),
        lsns,
        pa.array(times).view(pa.timestamp("us")),
        gtids,
        pa.repeat(changes.source, len(place)),
        pa.repeat(str(batch.origin), len(place)),
    ]
    chosen, where = pa.array(is_before), pa.array(place)
    own = table.arrow.names
    columns = []
    for column, old, new in zip(
        table.columns, image_columns(batch, "before", own), image_columns(batch, "after", own), strict=True
    ):
        sides = [encode(column.type, values, lambda _: None).cast(plain_type(column.type)) for values in (old, new)]
        columns.append(pc.if_else(chosen, *(values.take(where) for values in sides)))
    return pa.table([*about, *columns], schema=change_schema(table))


def truncated_row(table: Table, source: str, lsn: Lsn, time: int) -> pa.Table:
    """Returns the row that records that all rows of a table were removed at once."""
    schema = change_schema(table)
    about = ["truncate", str(lsn), time * _SECOND, None, source, None]
    values = [*about, *[None] * len(table.columns)]
    return pa.table([pa.array([value], field.type) for value, field in zip(values, schema, strict=True)], schema=schema)


def change_schema(table: Table) -> pa.Schema:
    """Returns the columns of a table's changes."""
    about = [pa.field(name, _TYPES[kind]) for name, kind in CHANGE_COLUMNS]
    own = zip(hive_columns(table), table.columns, strict=True)
    return pa.schema([*about, *(pa.field(name, plain_type(column.type)) for (name, _), column in own)])


def lsn_texts(lsns: pa.Array) -> list[str]:
    """Returns Lsns as texts, in the form of `str`."""
    begin = lsns.offset * Lsn.SIZE
    fields: np.ndarray = np.frombuffer(lsns.buffers()[1], np.uint8)[begin : begin + len(lsns) * Lsn.SIZE].view(_LSN)
    numbers: Sequence[tuple[int, int, int, int]] = fields.tolist()
    return [f"{change_no:04}.{index:010}.{offset:012}.{row:010}" for change_no, index, offset, row in numbers]
