"""A relay gives a table's structure at any place, after DDL, purge and restart, on servers that log no column names."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pidts.binlog import Format, decode_slice
from pidts.binlog.row_values import rows_of
from pidts.binlog.walk import LogWalker
from pidts.model import (
    Column,
    ColumnType,
    DecodeError,
    Halted,
    Kind,
    Lsn,
    Position,
    Table,
    TableName,
    Transient,
)
from pidts.relay import RelayReader, list_segments
from pidts.relay.folder import Folder
from pidts.relay.retention import PurgeLimits, release
from pidts.relay.structures import StoredStructures, dialect_at, history_at, store_structures, stored_places
from pidts.replicate import Replicator, ReplicatorConfig
from pidts.sandbox import Server
from pidts.schema import Dialect, Unknown, classify
from pidts.schema.evolve.known_structures import KnownStructures
from pidts.source import SourceConfig, connect, log_end

RunSql = Callable[..., list[tuple[Any, ...]]]
ALTERS = 50


def source_of(server: Server) -> SourceConfig:
    return SourceConfig(server.host, server.port, server.user, server.password, source_id="s")


def end_of(server: Server) -> Position:
    session = connect(source_of(server))
    try:
        return log_end(session)
    finally:
        session.close()


@contextmanager
def replicating(config: ReplicatorConfig) -> Iterator[RelayReader]:
    stop, errors = threading.Event(), []

    def run() -> None:
        try:
            Replicator(config).run(stop)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    reader = RelayReader(config.relay, "s")
    try:
        yield reader
    finally:
        stop.set()
        thread.join(60)
        reader.close()
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def received_all(reader: RelayReader, server: Server) -> Callable[[], bool]:
    end = end_of(server)
    return lambda: reader.received is not None and reader.received >= Lsn.at(end)


def alter(number: int) -> str:
    """Returns a change after which rows of the same width have other names, other types or another order."""
    ways = (
        f"ADD COLUMN c{number} INT UNSIGNED",
        f"ADD COLUMN c{number} VARCHAR(20) CHARACTER SET latin1 FIRST",
        f"CHANGE COLUMN note note{number} VARCHAR({20 + number})",
        f"CHANGE COLUMN note{number - 1} note VARCHAR({20 + number})",
        "MODIFY COLUMN amount DECIMAL(10, 2)" if number % 2 else "MODIFY COLUMN amount DECIMAL(12, 2) FIRST",
        f"DROP COLUMN c{number - 4}",
    )
    return ways[number % len(ways)]


def write(run_sql: RunSql, server: Server, database: str, begin: int, end: int) -> list[dict[str, Any]]:
    """Runs ALTER and INSERT in turn; records what the server itself showed of each row when it was written."""
    rows = []
    for number in range(begin, end):
        run_sql(server, f"ALTER TABLE t {alter(number)}", database=database)
        names = [str(row[0]) for row in run_sql(server, "SHOW COLUMNS FROM t", database=database)]
        filled = [name for name in names if name not in {"id", "amount"} and not name.startswith("n")]
        sql = f"INSERT INTO t SET id = {number}, amount = {number}.25" + "".join(
            f", {name} = {4_000_000_000 + number if int(name[1:]) % 6 == 0 else repr(name)}" for name in filled
        )
        run_sql(server, sql, database=database)
        row = run_sql(server, f"SELECT * FROM t WHERE id = {number}", database=database)[0]
        rows.append(dict(zip(names, row, strict=True)))
        if number % 10 == 5:  # The log must not end here: MariaDB adds events to the head of a new file at any time.
            run_sql(server, "FLUSH BINARY LOGS")
    return rows


def decoded(reader: RelayReader, after: Lsn, name: TableName, most: int = 1000) -> list[dict[str, Any]]:
    """Returns the rows after a place, decoded only with the structures that the relay has there."""
    history, dialect = history_at(reader, after), dialect_at(reader, after)
    found = []
    for entry in reader.entries(after):
        what = entry.transaction
        if name in what.tables and what.row_events:
            table = history.table(name)
            assert table is not None
            position = what.begin.position("bin")
            batches = decode_slice(
                reader.read(entry.extent),
                format=format_of(reader, entry.extent.segment),
                log_file=position.file,
                change_no=0,
                structures={name: table},
                offset=position.offset,
            )
            found += [new for batch in batches for _, _, new in rows_of(batch) if new]
        history = history.after(what, dialect)
        if len(found) >= most:
            break
    return found


def format_of(reader: RelayReader, segment: int) -> Format:
    walker = LogWalker()
    walker.feed(reader.format(segment))
    assert walker.format is not None
    return walker.format


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_a_table_altered_fifty_times_is_read_right_from_every_place(
    kind: str, request: pytest.FixtureRequest, run_sql: RunSql, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = f"structures_{kind}"
    metadata = run_sql(server, "SELECT @@GLOBAL.binlog_row_metadata")[0][0]
    assert metadata in {"NO_LOG", "MINIMAL"}, "else the log would tell"
    run_sql(server, f"CREATE DATABASE {database}")
    run_sql(server, "CREATE TABLE t (id INT PRIMARY KEY, amount DECIMAL(8, 2), note VARCHAR(20))", database=database)
    name = TableName(database, "t")
    config = ReplicatorConfig(source_of(server), tmp_path, segment_bytes=3_000, look_every=0.1)
    try:
        with replicating(config) as reader:
            until(lambda: stored_places(Folder.of(tmp_path, "s")))
            rows = write(run_sql, server, database, 0, ALTERS // 2)
            until(received_all(reader, server))
        rows += write(run_sql, server, database, ALTERS // 2, ALTERS)
        with replicating(config) as reader:
            until(received_all(reader, server))
            assert len(list_segments(tmp_path, "s")) > 6
            check_everywhere(reader, name, rows)
            middle = list(reader.entries())[len(list(reader.entries())) // 2].transaction.lsn
            assert release(tmp_path, "s", PurgeLimits(checkpoints={"shop": middle})).gone
            first = reader.first
            assert first is not None
            assert stored_places(Folder.of(tmp_path, "s"))[0] == first
            check_everywhere(reader, name, rows)
            with pytest.raises(Halted):
                history_at(reader, Lsn(0, 1, 4))
    finally:
        run_sql(server, f"DROP DATABASE {database}")


def check_everywhere(reader: RelayReader, name: TableName, rows: list[dict[str, Any]]) -> None:
    """Decodes from the relay's beginning, and from places after entries of every kind."""
    first = reader.first
    assert first is not None
    everything = decoded(reader, first, name)
    assert len(everything) > 10
    assert everything == rows[-len(everything) :]
    left = len(everything)
    for number, entry in enumerate(reader.entries()):
        left -= name in entry.transaction.tables and entry.transaction.row_events
        if number % 7:
            continue
        assert decoded(reader, entry.transaction.lsn, name, most=2) == (rows[-left:] if left else [])[:2]
    assert left == 0


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_a_relay_that_begins_before_the_catalog_was_read(
    kind: str, request: pytest.FixtureRequest, run_sql: RunSql, tmp_path: Path
) -> None:
    """Tables that were not changed in between are known. Changed tables are unknown until their last change."""
    server: Server = request.getfixturevalue(kind)
    database = f"earlier_{kind}"
    run_sql(server, f"CREATE DATABASE {database}")
    try:
        run_sql(server, "CREATE TABLE same (id INT PRIMARY KEY, v INT)", database=database)
        run_sql(server, "CREATE TABLE other (id INT PRIMARY KEY, v INT)", database=database)
        start = end_of(server)
        run_sql(server, "INSERT INTO other VALUES (1, 1)", database=database)
        run_sql(server, "ALTER TABLE other CHANGE v w INT", database=database)
        run_sql(server, "INSERT INTO other VALUES (2, 2)", database=database)
        run_sql(server, "INSERT INTO same VALUES (1, 1)", database=database)
        with replicating(ReplicatorConfig(source_of(server), tmp_path, start, look_every=0.1)) as reader:
            until(lambda: stored_places(Folder.of(tmp_path, "s")))
            until(received_all(reader, server))
            begin = history_at(reader, Lsn.at(start))
            same, other = TableName(database, "same"), TableName(database, "other")
            assert begin.table(same) is not None
            with pytest.raises(Halted, match="CHANGE v w"):
                begin.table(other)
            assert decoded(reader, Lsn.at(start), same) == [{"id": 1, "v": 1}]
            flip(tmp_path / "s" / "000000001.log", -30)
            with pytest.raises(DecodeError, match="bad-checksum"):
                decoded(reader, Lsn.at(start), same)
            flip(tmp_path / "s" / "000000001.log", -30)
            altered = next(entry for entry in reader.entries() if entry.transaction.ddl)
            assert decoded(reader, altered.transaction.lsn, other) == [{"id": 2, "w": 2}]
    finally:
        run_sql(server, f"DROP DATABASE {database}")


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_a_statement_that_is_not_understood_makes_the_replicator_look_again(
    mariadb: Server, run_sql: RunSql, database: str, tmp_path: Path
) -> None:
    odd = "CREATE TABLE odd (a INT PRIMARY KEY, b INT WITHOUT SYSTEM VERSIONING)"
    assert isinstance(classify(odd, database, dialect=Dialect(mariadb=True)), Unknown)
    name = TableName(database, "odd")
    with replicating(ReplicatorConfig(source_of(mariadb), tmp_path, look_every=0.1)) as reader:
        folder = Folder.of(tmp_path, "s")
        until(lambda: stored_places(folder))
        (first,) = stored_places(folder)
        run_sql(mariadb, odd, database=database)
        run_sql(mariadb, "INSERT INTO odd VALUES (7, 8)", database=database)
        until(received_all(reader, mariadb))
        until(lambda: len(stored_places(folder)) > 1)
        run_sql(mariadb, "INSERT INTO odd VALUES (9, 10)", database=database)
        until(received_all(reader, mariadb))
        # The structures that were read later are also used for earlier rows, from the statement on.
        assert decoded(reader, first, name) == [{"a": 7, "b": 8}, {"a": 9, "b": 10}]
        assert decoded(reader, stored_places(folder)[-1], name)[-1:] == [{"a": 9, "b": 10}]


def test_stored_structures_are_read_unchanged(tmp_path: Path) -> None:
    folder = Folder.of(tmp_path, "s")
    folder.path.mkdir()
    name = TableName("shop", "Größe")
    table = Table(
        name, (Column("id", ColumnType(Kind.INT)), Column("v", ColumnType(Kind.DECIMAL, precision=9, scale=2)))
    )
    history = KnownStructures(
        {name: table}, {"shop": ("utf8mb4", "utf8mb4_bin")}, {TableName("shop", "x"): "ALTER\udcff"}
    )
    for offset in (900, 4):
        store_structures(
            folder, StoredStructures(Lsn(0, 1, offset), history, Dialect(mariadb=True, version=(10, 11, 6)))
        )
    assert stored_places(folder) == [Lsn(0, 1, 4), Lsn(0, 1, 900)]
    data = json.loads((folder.path / "structures" / f"{Lsn(0, 1, 4)}.json").read_text("utf-8"))
    assert KnownStructures.from_json(data["history"]) == history


def test_an_empty_relay_has_no_structures_yet(tmp_path: Path) -> None:
    with pytest.raises(Transient) as caught:
        history_at(RelayReader(tmp_path, "s"), Lsn(0, 1, 4))
    assert caught.value.code == "structures-not-stored"
