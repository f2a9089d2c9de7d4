"""Writes a complete state of one table as Parquet files of the oldest form, which even Hive 2 can read.

| warehouse | Hive | in the files |
|---|---|---|
| boolean, int, float, double, date, string, binary | the same | |
| long | bigint | |
| decimal(p, s) | decimal(p, s) | bytes: Hive 2 reads no decimals that are stored as numbers |
| timestamp | timestamp | INT96: Hive 2 and 3 read no other form |
| timestamptz | timestamp, in UTC | INT96 |

ORC is no alternative: Hive fails on pyarrow's ORC files that have a time before 1970 with fractions of a second.

Each file of the state is made from one data file of the warehouse. Its name is computed from the data file's name, its
removed rows, and the current names and types of the columns. So if the previous state has a file of the same name, its
contents are the same. Then the new folder gets a hard link to that file, and nothing is written. In an object store,
the store copies the file.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from pidts.model import ColumnType, Table
from pidts.target.hive.places import begin_folder, end_folder, take_over, write_published
from pidts.target.iceberg.columns import stored_type
from pidts.target.iceberg.files import is_local, read_columns
from pidts.target.iceberg.metadata_file import MetadataFile

_NAMES = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.string(): "string",
    pa.binary(): "binary",
}
_FORM = "2"
"""The version of the files' form. It influences each file's name, so files of another form have other names."""


def hive_type(kind: ColumnType) -> str:
    """Returns the type of a published column."""
    return hive_name_of(stored_type(kind))


def hive_name_of(stored: pa.DataType) -> str:
    """Returns Hive's name for a type in published files."""
    return f"decimal({stored.precision},{stored.scale})" if pa.types.is_decimal(stored) else _NAMES[stored]


def hive_columns(table: Table) -> list[tuple[str, str]]:
    """Returns names and types of the published columns. The names are in lower case, as a metastore has them."""
    return [(column.name.lower(), hive_type(column.type)) for column in table.columns]


def write_state(base: MetadataFile, folder: str, before: str) -> int:
    """Writes all rows of a table to a new folder, and flushes it to disk; returns the number of newly written files.

    `before` is the folder of an earlier state, whose files are used again if they are unchanged.
    """
    begin_folder(folder)
    columns = base.table.columns
    goal = pa.schema(
        [
            pa.field(name, plain_type(column.type))
            for (name, _), column in zip(hive_columns(base.table), columns, strict=True)
        ]
    )
    files = written = 0
    for path, entry in base.data.items():
        dead = base.dead.get(path, np.arange(0))
        if len(dead) == entry.data_file.record_count:
            continue
        files += 1
        name = f"{_digest(path, dead, base, goal)}.parquet"
        if not before or not take_over(f"{before}/{name}", f"{folder}/{name}"):
            rows = read_columns(path, base.some([column.name for column in columns]))
            _write(rows, dead, goal, f"{folder}/{name}")
            written += 1
    if not files and not is_local(folder):
        # A folder without objects does not exist in a store, and Hive's reader refuses a folder that does not exist.
        write_published(goal.empty_table(), f"{folder}/empty.parquet")
    end_folder(folder)
    return written


def plain_type(kind: ColumnType) -> pa.DataType:
    """Returns the type of a column in published files: a TIMESTAMP becomes its date and time in UTC."""
    stored = stored_type(kind)
    return pa.timestamp("us") if pa.types.is_timestamp(stored) else stored


def _digest(path: str, dead: np.ndarray, base: MetadataFile, goal: pa.Schema) -> str:
    found = hashlib.sha256(f"{_FORM}\0{path}\0{len(dead)}\0".encode())
    found.update(dead.astype("<i8").tobytes())
    found.update(
        repr(
            [
                (base.fields[each.name][0], field.name, str(field.type))
                for each, field in zip(base.table.columns, goal, strict=True)
            ]
        ).encode()
    )
    return found.hexdigest()[:32]


def _write(rows: pa.Table, dead: np.ndarray, goal: pa.Schema, file: str) -> None:
    if len(dead):
        alive = np.ones(rows.num_rows, bool)
        alive[dead] = False
        rows = rows.filter(pa.array(alive))
    columns = [column.cast(field.type) for column, field in zip(rows.columns, goal, strict=True)]
    write_published(pa.table(columns, schema=goal), file)
