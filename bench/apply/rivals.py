"""The programs with which PiDTS is compared. All but `native` read no log, and cannot continue after a crash.

- bulk: decoded and reduced changes, in batches of 10,000, written as fast as one connection can by SQL, with a
  checkpoint row in each commit.
- events: the same, but rows are written as row events (BINLOG), as `pidts.target.mysql.row_events` does. The events are
  made before the measured time begins, so the measured time is that of the server alone.
- single: one statement for each row, one commit for each transaction of the source.
- native: the target as a replica of the source. The replica's relay log has the whole log before the replica applies.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from pymysql.cursors import DictCursor
from targets import TargetServer
from workload import SCHEMA, Log, Source

from pidts.binlog.events import EventType
from pidts.model import ChangeBatch, Op, Table
from pidts.model.column_text import duration_text
from pidts.reduce import net_changes
from pidts.target.mysql.row_events.cells import cell_type
from pidts.target.mysql.row_events.statements import RowLayout, format_statement, row_statements

BATCH = 10_000
_STATEMENT = 1000
_BYTES = pa.large_binary()


@dataclass(frozen=True)
class Batch:
    deletes: pa.Table
    upserts: pa.Table
    is_new: pa.BooleanArray
    changes: int


def batches(changes: list[ChangeBatch]) -> list[Batch]:
    rows = pa.Table.from_batches([batch.rows for batch in changes])
    found = []
    for first in range(0, rows.num_rows, BATCH):
        part = rows.slice(first, BATCH).combine_chunks().to_batches()[0]
        (net,) = net_changes([ChangeBatch(changes[0].table, part)])
        found.append(Batch(net.deletes, net.upserts, net.likely_new, len(part)))
    return found


def bulk(target: TargetServer, table: Table, work: list[Batch]) -> dict[str, Any]:
    writer = _Postgres(target, table) if target.kind == "postgres" else _MySql(target, table)
    begun = time.perf_counter()
    for number, batch in enumerate(work):
        writer.write(batch, number)
    return _rate(sum(batch.changes for batch in work), time.perf_counter() - begun)


class _MySql:
    def __init__(self, target: TargetServer, table: Table) -> None:
        self._connection = target.connect(autocommit=False)
        self._run(b"CREATE TABLE bench.mark (id INT PRIMARY KEY, place BIGINT)")
        self._run(b"INSERT INTO bench.mark VALUES (1, 0)")
        self._connection.commit()
        self._run(b"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        self._run(b"SET SESSION foreign_key_checks = 0")
        if target.kind == "mysql97":
            self._run(b"SET SESSION range_optimizer_max_mem_size = 0")
        names = [column.name for column in table.columns]
        alias, new = (" AS n", "n.{0}") if target.kind == "mysql97" else ("", "VALUES({0})")
        sets = ", ".join(f"{name} = {new.format(name)}" for name in names if name not in table.identity)
        self._name, (self._key,) = f"{SCHEMA}.{table.name.name}", table.identity
        self._insert = f"INSERT INTO {self._name} ({', '.join(names)}) VALUES ".encode()
        self._update = f"{alias} ON DUPLICATE KEY UPDATE {sets}".encode()

    def write(self, batch: Batch, number: int) -> None:
        for head, rows, tail in self._statements(batch):
            for first in range(0, len(rows), _STATEMENT):
                self._run(head + _text(rows.slice(first, _STATEMENT)) + tail)
        self._run(f"UPDATE bench.mark SET place = {number + 1} WHERE id = 1".encode())
        self._connection.commit()

    def _statements(self, batch: Batch) -> Iterator[tuple[bytes, pa.Array, bytes]]:
        keys = _joined([_literals(batch.deletes[self._key])], b"", b",")
        yield f"DELETE FROM {self._name} WHERE {self._key} IN (".encode(), keys, b")"
        yield self._insert, _joined([_literals(values) for values in batch.upserts.columns], b"(", b"),"), self._update

    def _run(self, sql: bytes) -> None:
        self._connection.query(sql)


def events(target: TargetServer, table: Table, work: list[Batch]) -> dict[str, Any]:
    """Writes the changes as row events; returns the rate."""
    connection = target.connect(autocommit=False)
    connection.query("CREATE TABLE bench.mark (id INT PRIMARY KEY, place BIGINT)")
    connection.query("INSERT INTO bench.mark VALUES (1, 0)")
    connection.query(format_statement(connection.get_server_info().removeprefix("5.5.5-")))
    connection.commit()
    places = {name: place for place, name in enumerate(table.arrow.names)}
    types = tuple(cell_type(column) for column in table.columns)
    layout = RowLayout(
        table.name,
        tuple(places),
        types,
        tuple(column.nullable for column in table.columns),
        tuple(sorted(places[name] for name in table.identity)),
    )
    made = []
    for batch in work:
        new, there = batch.upserts.filter(batch.is_new), batch.upserts.filter(pc.invert(batch.is_new))
        made.append(
            [
                *row_statements(layout, EventType.DELETE_ROWS_V1, layout.keys(batch.deletes), 1 << 20),
                *row_statements(layout, EventType.UPDATE_ROWS_V1, layout.rows(there, updates=True), 1 << 20),
                *row_statements(layout, EventType.WRITE_ROWS_V1, layout.rows(new, updates=False), 1 << 20),
            ]
        )
    begun = time.perf_counter()
    for number, statements in enumerate(made):
        for statement in statements:
            connection.query(statement)
        connection.query(f"UPDATE bench.mark SET place = {number + 1} WHERE id = 1".encode())
        connection.commit()
    return _rate(sum(batch.changes for batch in work), time.perf_counter() - begun)


def _literals(values: pa.ChunkedArray) -> pa.Array:
    values = values.combine_chunks()
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind):
        return values.cast(pa.string()).cast(_BYTES)
    if pa.types.is_duration(kind):
        text = duration_text(values).cast(_BYTES)
    elif pa.types.is_temporal(kind):
        text = (values if pa.types.is_date(kind) else values.cast(pa.timestamp("us"))).cast(pa.string()).cast(_BYTES)
    else:
        text = values.cast(_BYTES)
        for sign in (b"\\", b"'"):
            text = pc.replace_substring(text, pattern=sign, replacement=b"\\" + sign)
    return _joined([text], b"_binary'" if pa.types.is_binary(kind) else b"'", b"'")


def _joined(columns: list[pa.Array], before: bytes, after: bytes) -> pa.Array:
    inner = columns[0]
    if len(columns) > 1:
        inner = pc.binary_join_element_wise(
            *columns, pa.scalar(b",", _BYTES), null_handling="replace", null_replacement=b"NULL"
        )
    return pc.binary_join_element_wise(
        pa.scalar(before, _BYTES), inner, pa.scalar(after, _BYTES), pa.scalar(b"", _BYTES)
    )


def _text(rows: pa.Array) -> bytes:
    """Returns the text of the rows without the last comma."""
    _, offsets, data = rows.buffers()
    places = memoryview(offsets).cast("q")
    return bytes(memoryview(data)[places[rows.offset] : places[rows.offset + len(rows)] - 1])


class _Postgres:
    def __init__(self, target: TargetServer, table: Table) -> None:
        self._connection = target.connect(autocommit=False)
        name, (key,) = f"{SCHEMA}.{table.name.name}", table.identity
        names = [column.name for column in table.columns]
        run = self._connection.execute
        run("CREATE TABLE bench.mark (id INT PRIMARY KEY, place BIGINT)")
        run("INSERT INTO bench.mark VALUES (1, 0)")
        run("SET jit = off; SET enable_hashjoin = off; SET enable_mergejoin = off")
        run(f"CREATE TEMPORARY TABLE stage ON COMMIT DELETE ROWS AS SELECT * FROM {name} LIMIT 0")
        run(f"CREATE TEMPORARY TABLE gone ON COMMIT DELETE ROWS AS SELECT {key} FROM {name} LIMIT 0")
        self._connection.commit()
        sets = ", ".join(f"{each} = EXCLUDED.{each}" for each in names if each != key)
        self._delete = f"DELETE FROM {name} t USING gone g WHERE t.{key} = g.{key}"
        columns = ", ".join(names)
        self._upsert = (
            f"INSERT INTO {name} ({columns}) SELECT {columns} FROM stage ON CONFLICT ({key}) DO UPDATE SET {sets}"
        )

    def write(self, batch: Batch, number: int) -> None:
        with self._connection.cursor() as cursor:
            for stage, rows, sql in (("gone", batch.deletes, self._delete), ("stage", batch.upserts, self._upsert)):
                sink = io.BytesIO()
                pa_csv.write_csv(rows, sink, pa_csv.WriteOptions(include_header=False))
                with cursor.copy(f"COPY {stage} FROM STDIN (FORMAT csv)") as copy:
                    copy.write(sink.getbuffer())
                cursor.execute(sql)
            cursor.execute("UPDATE bench.mark SET place = %s WHERE id = 1", (number + 1,))
        self._connection.commit()


def single(target: TargetServer, table: Table, changes: list[ChangeBatch], size: int, seconds: float) -> dict[str, Any]:
    """Applies about 50,000 changes, or fewer if the time runs out first; returns the rate.

    The rate does not depend on the number of changes.
    """
    connection = target.connect(autocommit=False)
    cursor = connection.cursor()
    name, (key,) = f"{SCHEMA}.{table.name.name}", table.identity
    names = [column.name for column in table.columns]
    rest = [each for each in names if each != key]
    update = f"UPDATE {name} SET {', '.join(f'{each} = %s' for each in rest)} WHERE {key} = %s"
    insert = f"INSERT INTO {name} ({', '.join(names)}) VALUES ({', '.join(['%s'] * len(names))})"
    delete = f"DELETE FROM {name} WHERE {key} = %s"
    work = []
    for batch in changes:
        for row in batch.rows.slice(0, 50_000).to_pylist():
            image = row["after"] or row["before"]
            if row["op"] == Op.DELETE:
                work.append((delete, (image[key],)))
            elif row["op"] == Op.INSERT:
                work.append((insert, tuple(image[each] for each in names)))
            else:
                work.append((update, (*(image[each] for each in rest), image[key])))
        if len(work) >= 50_000:
            break
    done, begun = 0, time.perf_counter()
    while done < len(work) and time.perf_counter() - begun < seconds:
        for sql, values in work[done : done + size]:
            cursor.execute(sql, values)
        connection.commit()
        done += size
    return _rate(min(done, len(work)), time.perf_counter() - begun)


def native(target: TargetServer, source: Source, log: Log, threads: int, seconds: float) -> dict[str, Any]:
    """Returns the rate of native replication, from the moment when the replica's relay log has the whole log."""
    connection = target.connect()
    cursor = connection.cursor(DictCursor)
    server = source.server
    for sql in (
        f"SET GLOBAL slave_parallel_threads = {threads}",
        f"SET GLOBAL gtid_slave_pos = '{log.gtid}'",
        f"CHANGE MASTER TO MASTER_HOST = '{server.host}', MASTER_PORT = {server.port}, MASTER_USER = '{server.user}'",
        "CHANGE MASTER TO MASTER_USE_GTID = slave_pos",
        "START SLAVE IO_THREAD",
    ):
        cursor.execute(sql)
    at = (log.end.file, log.end.offset)
    while not _reached(_status(cursor), at):
        time.sleep(0.05)
    first = _sequence(log.gtid)
    transactions = -(-log.changes // log.rows_per_transaction)
    cursor.execute("START SLAVE SQL_THREAD")
    begun = time.perf_counter()
    while True:
        time.sleep(0.01)
        cursor.execute("SELECT @@gtid_slave_pos AS gtid")
        done, now = _sequence(cursor.fetchone()["gtid"]) - first, time.perf_counter()
        if done >= transactions or now - begun > seconds:
            break
    error = _status(cursor)["Last_SQL_Error"]
    if error:
        raise RuntimeError(error)
    cursor.execute("STOP SLAVE")
    return _rate(done * log.rows_per_transaction, now - begun)


def _status(cursor: Any) -> dict[str, Any]:
    cursor.execute("SHOW SLAVE STATUS")
    return dict(cursor.fetchone())


def _reached(status: dict[str, Any], at: tuple[str, int]) -> bool:
    if status["Last_IO_Error"]:
        raise RuntimeError(status["Last_IO_Error"])
    return (status["Master_Log_File"], status["Read_Master_Log_Pos"]) >= at


def _sequence(gtid: str) -> int:
    return int(gtid.rpartition("-")[2] or 0)


def _rate(changes: int, seconds: float) -> dict[str, Any]:
    return {"changes": changes, "seconds": round(seconds, 3), "changes_per_second": round(changes / seconds)}
