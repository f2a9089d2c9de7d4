"""Loads new rows into MySQL and MariaDB: by LOAD DATA LOCAL if the server allows it, else by INSERTs of many rows.

LOCAL turns every error into a warning: the server skips a row that already exists, and cuts off a value that does not
fit. So the loader reads the warnings. If all of them report duplicates, the chunk counts as not loaded. Any other
warning stops the task. In both cases the rows are rolled back to a savepoint before anything is committed.

The text is UTF-8 and tab-separated. Each part of the text is made while the server works on the previous part. Some
values cannot be written directly in the text:

- Bytes are not text, and the server would decode them as characters: they are written as hexadecimal digits.
- The server would take the digits of a BIT value for its bits, so the number is converted by an expression.
- If a column of numbers has another type on the target, the server would not read the digits as this number. Such a
  table is written by INSERT.
- A table whose values are nearly as large as a packet is written by INSERT. So is every table of TiDB, which commits in
  the middle of a LOAD DATA.
- An enum's index 0 is not a label; rows with it are written by INSERT, too.
- Some numbers of JSON documents would lose digits (`json_decimals`): these rows are written by INSERT.

If all text is ASCII, and a column's charset is not utf8mb4, the statement declares that the text has no charset. The
bytes are the same in all charsets, so the server need not convert each byte. This saves a quarter of the server's work.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Column, Halted, Kind, Table, Where
from pidts.model.types import FRACTIONS, IDENTIFIERS
from pidts.target.mysql.dialect import identifier, qualified
from pidts.target.mysql.driver import FILE
from pidts.target.mysql.encode import escaped, is_number, plain
from pidts.target.mysql.errors import DUPLICATE, StatementRefused, refused_row_todo
from pidts.target.mysql.prepared_tables import PreparedTable, PreparedTables
from pidts.target.mysql.server import TargetServer
from pidts.target.mysql.statement_pipeline import StatementPipeline
from pidts.target.mysql.writer import Writer, each, invalid_labels
from pidts.target.text import hex_text, text_of

_SWITCHED_OFF = (1148, 3948, 4166)
_BYTES = pa.large_binary()
_SPECIAL = ((b"\\", b"\\\\"), (b"\t", b"\\t"), (b"\n", b"\\n"))
"""The special bytes of the text, with their escapes."""
_ASCII_BASED = frozenset({"latin1", "ascii", "utf8", "utf8mb3", "utf8mb4"})
_READ_AS_BYTES = IDENTIFIERS | {Kind.JSON}
"""Types for which the server takes text without a charset as bytes, or refuses it."""

Warnings = Callable[[], list[tuple[int, str]]]


class _RowExistsError(Exception):
    """Raised if the server has skipped a row, since the target already has it."""


class Loader:
    """Loads the rows of one session."""

    def __init__(
        self,
        server: TargetServer,
        prepared: PreparedTables,
        writer: Writer,
        pipeline: StatementPipeline,
        warnings: Warnings,
    ) -> None:
        self._prepared, self._writer, self._pipeline, self._warnings = prepared, writer, pipeline, warnings
        self._takes_files = server.takes_files and not server.tidb
        self._largest = server.max_packet // 4

    def load(self, table: Table, rows: pa.Table) -> bool:
        """Loads all rows, or no row. Returns False if the target already has one of them."""
        if not rows.num_rows:
            return True
        prepared = self._prepared.of(table)
        prepared.demand_values(rows)
        self._pipeline.later(b"SAVEPOINT pidts_load", str(table.name))
        try:
            self._add(prepared, rows)
            self._pipeline.flush()
        except _RowExistsError:
            pass
        except StatementRefused as error:
            if not error.is_duplicate:
                raise
        else:
            return True
        self._pipeline.now(b"ROLLBACK TO SAVEPOINT pidts_load", str(table.name))
        return False

    def _add(self, prepared: PreparedTable, rows: pa.Table) -> None:
        statement = _statement(prepared, rows) if self._takes_files and self._fits(prepared, rows) else None
        if statement is None:
            self._writer.insert(prepared.table, rows)
            return
        masks = [mask for mask in (invalid_labels(prepared, rows), prepared.losing_digits(rows)) if mask is not None]
        if masks:
            odd = reduce(pc.or_, masks)
            self._writer.insert(prepared.table, rows.filter(odd))
            rows = rows.filter(pc.invert(odd))
        try:
            done = self._pipeline.load(statement, each(partial(_lines, prepared), rows), str(prepared.table.name))
        except StatementRefused as error:
            if error.number not in _SWITCHED_OFF:
                raise
            self._takes_files = False
            self._writer.insert(prepared.table, rows)
            return
        if done.count != rows.num_rows or done.warnings:
            self._judge(prepared, rows.num_rows, done.count)

    def _fits(self, prepared: PreparedTable, rows: pa.Table) -> bool:
        """Whether no value, and no row, is so large that the server might refuse it."""
        sizes = (
            pc.max(pc.binary_length(rows[column.name])).as_py() or 0
            for column in prepared.written
            if pa.types.is_binary(rows.schema.field(column.name).type) or pa.types.is_string(column.type.arrow)
        )
        return sum(sizes) <= self._largest

    def _judge(self, prepared: PreparedTable, sent: int, added: int) -> None:
        """Raises `_RowExistsError` if rows were skipped as duplicates, else `Halted`.

        MySQL 5.6 skips duplicates without a warning. So if there is no warning, the skipped rows count as duplicates.
        """
        said = self._warnings()
        others = [(number, text) for number, text in said if number not in DUPLICATE]
        if added < sent and not others:
            raise _RowExistsError
        number, text = (others or said or [(0, "no reason given")])[0]
        times = [column.name for column in prepared.written if column.type.kind is Kind.TIME]
        raise Halted(
            "target-refused",
            f"the target took {added} of {sent} rows: {text} (warning {number})",
            where=Where(table=str(prepared.table.name)),
            todo=refused_row_todo(number, text, str(prepared.table.name), times),
        )


def _statement(prepared: PreparedTable, rows: pa.Table) -> bytes | None:
    """Returns the LOAD DATA statement; None if it would change a value."""
    fields, sets = [], []
    for number, column in enumerate(prepared.written):
        found = prepared.found.column(column.name) or column
        way = _way(column, found)
        if way is None:
            return None
        name = identifier(column.name)
        if not way:
            fields.append(name)
            continue
        fields.append(f"@pidts_{number}")
        sets.append(f"{name} = {way.format(f'@pidts_{number}')}")
    charset = "binary" if _is_plain(prepared, rows) else "utf8mb4"
    sql = (
        f"LOAD DATA LOCAL INFILE '{FILE}' INTO TABLE {qualified(prepared.table.name)} CHARACTER SET {charset} FIELDS "
        "TERMINATED BY '\\t' ENCLOSED BY '' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n' STARTING BY '' "
        f"({', '.join(fields)})"
    )
    return (sql + (f" SET {', '.join(sets)}" if sets else "")).encode()


def _is_plain(prepared: PreparedTable, rows: pa.Table) -> bool:
    """Whether the rows can be loaded as bytes, which the server need not convert between charsets.

    They can if all text has the same bytes in each charset of the table. The result is False if each charset is
    utf8mb4, since this would save no work.
    """
    pairs = [(column, prepared.found.column(column.name) or column) for column in prepared.written]
    if any(found.type.kind in _READ_AS_BYTES for _, found in pairs):
        return False
    texts = [(column, found.type.charset) for column, found in pairs if found.type.is_text]
    if not _ASCII_BASED.issuperset(charset for _, charset in texts):
        return False
    others = [column for column, charset in texts if charset != "utf8mb4" and pa.types.is_string(column.type.arrow)]
    return bool(others) and all(pc.all(pc.string_is_ascii(rows[column.name])).as_py() is not False for column in others)


def _way(column: Column, found: Column) -> str | None:
    """Returns the expression that converts a field to the column's value; empty if none is needed, None if none can."""
    if column.type.is_bytes:
        return "UNHEX({})"
    if not is_number(column) or found.type.is_integer or found.type.kind in FRACTIONS:
        return ""
    return "CAST({} AS UNSIGNED)" if column.type.kind is found.type.kind is Kind.BIT else None


def _lines(prepared: PreparedTable, rows: pa.Table) -> memoryview:
    """Returns the text that LOAD DATA reads, one line for each row."""
    fields = [_field(column, rows[column.name]) for column in prepared.written]
    fields[-1] = _joined([fields[-1], pa.scalar(b"", _BYTES)], b"\n")
    return text_of(_joined(fields, b"\t"))


def _field(column: Column, values: pa.ChunkedArray) -> pa.Array:
    data = plain(column, values)
    if column.type.is_bytes:
        return hex_text(data).cast(_BYTES)
    return escaped(data, _SPECIAL) if pa.types.is_string(column.type.arrow) else data


def _joined(fields: list[pa.Array | pa.Scalar], separator: bytes) -> pa.Array:
    return pc.binary_join_element_wise(
        *fields, pa.scalar(separator, _BYTES), null_handling="replace", null_replacement=b"\\N"
    )
