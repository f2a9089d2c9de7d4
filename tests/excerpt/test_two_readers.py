"""`pidts events` reads a log row by row, and `format("binlog")` column by column. Both have the same result."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.binlog.logs.log_maker import LogMaker

from pidts.binlog import EventType
from pidts.cli.events.changes import read_events
from pidts.cli.events.command import event_line
from pidts.cli.events.structures import Structures
from pidts.excerpt.blocks import FileInput
from pidts.excerpt.cut import LogCutter, LogSelection, pieces, resolved
from pidts.excerpt.range import LogRange, RangeFilter
from pidts.excerpt.rows import QueryView, record_batches
from pidts.excerpt.store import FileStore
from pidts.excerpt.table_options import asked_tables
from pidts.model import ConfigError, Halted, Lsn, TableName
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.schema.evolve.known_structures import KnownStructures


@pytest.fixture(params=["compiled", "python"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIDTS_KERNEL", request.param)


_TEXTS = ("lsn", "prev_lsn", "source", "database", "table", "op", "gtid", "old", "new")
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS),
        ("zone", pa.int32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("xid", pa.int64()),
        ("is_retry", pa.bool_()),
    ]
)
SHOWN = ("lsn", "prev_lsn", "gtid", "op", "new")


class Maker(LogMaker):
    """Makes tables of the schema `shop` with one column `id INT`."""

    def __init__(self, file: str = "bin.000007") -> None:
        super().__init__(random.Random(1), product="mysql", checksums=True)
        self.file = file

    def statement(self, sql: str) -> None:
        self.gtid()
        self.plain_query(sql)

    def insert(self, table: str, number: int) -> None:
        self.table_map(table)
        body = struct.pack("<IHH", 17, 0, 0) + b"\2\0\1\1\0" + struct.pack("<i", number)
        self.put(EventType.WRITE_ROWS, body)

    def commit(self, table: str, number: int) -> None:
        self.gtid()
        self.put_begin()
        self.insert(table, number)
        self.put(EventType.XID, bytes(8))

    def prepare(self, xid: bytes, table: str, number: int) -> None:
        self.gtid()
        self.plain_query(f"XA START X'{xid.hex()}',X'',1")
        self.insert(table, number)
        self.plain_query(f"XA END X'{xid.hex()}',X'',1")
        self.put(EventType.XA_PREPARE, struct.pack("<BIII", 0, 1, len(xid), 0) + xid)

    def settle(self, verb: str, xid: bytes) -> None:
        self.statement(f"XA {verb} X'{xid.hex()}',X'',1")


def written(folder: Path, *makers: Maker) -> tuple[Path, ...]:
    for maker in makers:
        (folder / maker.file).write_bytes(b"\xfebin" + b"".join(maker.events))
    return tuple(folder / maker.file for maker in makers)


def by_rows(paths: tuple[Path, ...], say: Callable[[str], None], start: Lsn | None = None) -> list[dict[str, Any]]:
    everything = AllowList()
    structures = Structures(None, everything, say)
    changes = read_events(FileInput(paths, say), LogRange(start), everything, structures, zone=0, say=say)
    lines = [json.loads(event_line(change.event, "s", change.table)) for change in changes]
    return [{**line, "new": line.get("statement", line.get("new"))} for line in lines]


def by_columns(paths: tuple[Path, ...], say: Callable[[str], None], start: Lsn | None = None) -> list[dict[str, Any]]:
    wanted = LogSelection(AllowList(), Dialect(), statements=True)
    cutter = LogCutter(wanted, 1 << 20)
    cut, found = RangeFilter(LogRange(start)), []
    for piece, _ in pieces(FileInput(paths, say).blocks()):
        if cut.takes(piece.transaction):
            found += cutter.take(piece)
        else:
            cutter.pass_by(piece)
    found += cutter.close()
    store, view = FileStore(), QueryView(wanted, SCHEMA, "s", 0, typed=None, after=start)
    log_parts = resolved(found, cutter.changes, KnownStructures(complete=False), wanted.dialect)
    batches = [batch for log_part in log_parts for batch in record_batches(store, log_part, view)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [{**row, "new": row["new"] if row["op"] == "ddl" else json.loads(row["new"])} for row in rows]


def both(*paths: Path, start: Lsn | None = None) -> list[dict[str, Any]]:
    said: list[str] = []
    found = [
        [{name: row[name] or "" for name in SHOWN} for row in read(paths, said.append, start)]
        for read in (by_rows, by_columns)
    ]
    assert found[0] == found[1]
    assert said == []
    return found[0]


def tables(maker: Maker) -> Maker:
    for name in ("t", "u"):
        maker.statement(f"CREATE TABLE {name} (id int)")
    return maker


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [row["new"]["id"] for row in rows if row["op"] == "insert"]


@pytest.mark.parametrize("verb", ["ROLLBACK", "COMMIT"])
def test_prepared_transactions_count_at_their_commit_only(tmp_path: Path, verb: str) -> None:
    maker = tables(Maker())
    maker.commit("u", 1)
    maker.prepare(b"r1", "t", 2)
    maker.commit("u", 3)
    maker.settle(verb, b"r1")
    maker.commit("u", 4)
    assert numbers(both(*written(tmp_path, maker))) == ([1, 3, 4] if verb == "ROLLBACK" else [1, 3, 2, 4])


def test_undecided_xa_transactions_do_not_count(tmp_path: Path) -> None:
    maker = tables(Maker())
    maker.commit("u", 1)
    maker.prepare(b"r1", "t", 2)
    maker.commit("u", 3)
    assert numbers(both(*written(tmp_path, maker))) == [1, 3]


def test_a_transaction_follows_what_comes_before_it_in_its_own_file(tmp_path: Path) -> None:
    first, second = tables(Maker()), Maker("bin.000008")
    first.commit("t", 1)
    second.put(EventType.PREVIOUS_GTIDS, bytes(8))
    begins = second.offset
    second.statement("DROP TABLE t, u")
    tables(second)
    second.commit("t", 2)
    one, two = written(tmp_path, first, second)
    rows = both(one, two)
    behind = rows[len(both(one)) :]
    assert behind[0]["prev_lsn"] == f"0000.0000000008.{begins:012}.0000000000"
    assert both(two) == behind, "wherever reading begins"


@pytest.mark.parametrize("read", [by_rows, by_columns])
def test_reading_continues_at_the_place_in_the_error_about_a_statement(
    tmp_path: Path, read: Callable[..., list[dict[str, Any]]]
) -> None:
    maker = tables(Maker())
    maker.gtid()
    maker.put_begin()
    maker.plain_query("UPDATE t SET id = 5")
    maker.insert("t", 1)
    maker.put(EventType.XID, bytes(8))
    maker.commit("t", 2)
    paths = written(tmp_path, maker)
    with pytest.raises(Halted, match="statement-format") as caught:
        read(paths, str)
    named = re.search(r"--from (\S+)", caught.value.todo)
    assert named is not None
    assert numbers(read(paths, str, Lsn.parse(named[1]))) == [1, 2], "also what follows in the same transaction"


def test_the_servers_own_tables_are_refused_by_name() -> None:
    assert asked_tables("shop.t,crm.*", "--tables")(TableName("crm", "a"))
    for text in ("mysql.user", "shop.t,SYS.*", "pidts_meta"):
        with pytest.raises(ConfigError, match=r"bad-value.*--tables: the tables of .* are never shown"):
            asked_tables(text, "--tables")
