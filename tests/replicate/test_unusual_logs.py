"""The logs of servers with unusual settings reach the relay and are decoded: with encryption, with comments, with large
events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pidts import sandbox
from pidts.batch.relay_events import log_format
from pidts.binlog import EventType, LogWalker, decode_slice, iter_raw
from pidts.model import Op, Table
from pidts.relay import RelayReader
from pidts.replicate import Replicator, ReplicatorConfig
from pidts.rules import AllowList
from pidts.sandbox import Server, programs
from pidts.source import SourceConfig, connect, log_end, read_structures

RunSql = Callable[..., list[tuple[Any, ...]]]
SERVERS = ("encrypted-mariadb", "packed-mysql97")


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("keys")
    if request.param == "encrypted-mariadb":
        found = sandbox.start_mariadb(options=mariadb_options(folder))
    else:
        found = sandbox.start_mysql97(options=mysql97_options(folder))
    with found:
        yield found


def mariadb_options(folder: Path) -> list[str]:
    keys = folder / "keys"
    keys.write_text("1;" + "a7" * 16 + "\n")
    return [
        f"--plugin-dir={programs.mariadb_plugins()}",
        "--plugin-load-add=file_key_management",
        f"--file-key-management-filename={keys}",
        "--encrypt-binlog=ON",
        "--binlog-annotate-row-events=ON",
        "--max-allowed-packet=64M",
        "--log-bin-compress=ON",
    ]


def mysql97_options(folder: Path) -> list[str]:
    """Returns options for logs with each transaction in one compressed payload, its statement before its rows."""
    del folder
    return ["--binlog-rows-query-log-events=ON", "--binlog-transaction-compression=ON", "--max-allowed-packet=64M"]


def test_everything_arrives_and_is_decoded(server: Server, run_sql: RunSql, tmp_path: Path):
    source = SourceConfig(server.host, server.port, server.user, server.password, source_id="s")
    statements = [
        "CREATE DATABASE odd",
        "CREATE TABLE odd.t (id int PRIMARY KEY AUTO_INCREMENT, v longtext, n int)",
        "CREATE TABLE odd.m (id int PRIMARY KEY, n int) ENGINE=MyISAM",
        "INSERT INTO odd.t (v, n) VALUES ('first', 1), (NULL, 2)",
        "INSERT INTO odd.t (v, n) VALUES (REPEAT('0123456789abcdef', 1200000), 3)",  # 19 MB: more than one packet.
        "INSERT INTO odd.t (v, n) SELECT CONCAT(MD5_OR_SHA(n), n), n + 10 FROM odd.t WHERE n < 3",
        "INSERT INTO odd.m VALUES (1, 1), (2, 2)",
        "FLUSH LOGS",
        "UPDATE odd.t SET n = n + 100 WHERE n < 3",
        "DELETE FROM odd.t WHERE n = 102",
    ]
    hashed = "SHA2(%s, 256)"
    connection = connect(source)
    start = log_end(connection)
    stop = threading.Event()
    replicator = Replicator(ReplicatorConfig(source, tmp_path, start))
    thread = threading.Thread(target=replicator.run, args=(stop,))
    thread.start()
    try:
        for statement in statements:
            run_sql(server, statement.replace("MD5_OR_SHA(n)", hashed % "n"))
        mixed(connection, engines=server.kind == "mariadb")
        structures = read_structures(connection, AllowList(do_dbs=("odd",)))
        end = log_end(connection)
        reader = RelayReader(tmp_path, "s")
        while (received := reader.received) is None or (received.log_index, received.offset) < (
            end.log_index,
            end.offset,
        ):
            assert thread.is_alive()
            reader.wait(received, 1)
    finally:
        stop.set()
        thread.join(60)
    rows, seen = replay(reader, structures)
    for table in structures.values():
        expected = run_sql(server, f"SELECT * FROM odd.{table.name.name} ORDER BY 1")
        assert [tuple(row.values()) for _, row in sorted(rows[table.name.name].items())] == expected
    assert EventType.ANNOTATE_ROWS not in seen  # MariaDB sends these events only to clients that ask for them.
    if server.kind == "mysql97":
        assert EventType.TRANSACTION_PAYLOAD in seen
    else:
        assert next((server.directory / "binlog").glob("bin.000002")).read_bytes()[4:].find(b"odd") < 0
        assert seen & {EventType.WRITE_ROWS_COMPRESSED_V1, EventType.QUERY_COMPRESSED}
    run_sql(server, "DROP DATABASE odd")


def mixed(connection: Any, *, engines: bool) -> None:
    """Makes a transaction with a savepoint to which it rolls back; over two engines if the server allows it."""
    with connection.cursor() as cursor:
        for statement in (
            "BEGIN",
            "SAVEPOINT e",
            "INSERT INTO odd.t (v, n) VALUES ('kept', 50)",
            "SAVEPOINT `É`",  # The server treats these names as equal.
            "INSERT INTO odd.t (v, n) VALUES ('undone', 51)",
            *(["INSERT INTO odd.m VALUES (3, 3)"] if engines else []),
            "ROLLBACK TO e",
            "INSERT INTO odd.t (v, n) VALUES ('kept too', 52)",
            "COMMIT",
        ):
            cursor.execute(statement)


def replay(reader: RelayReader, structures: dict[Any, Table]) -> tuple[dict[str, dict[int, Any]], set[int]]:
    rows: dict[str, dict[int, Any]] = {table.name.name: {} for table in structures.values()}
    seen: set[int] = set()
    for entry in reader.entries():
        raw, format_ = reader.read(entry.extent), log_format(reader.format(entry.extent.segment))
        begin = entry.transaction.begin.position(reader.log_base)
        walker = LogWalker(begin.file, begin.offset, format_)
        seen |= {walker.feed(piece).type for piece in iter_raw(raw)}
        batches = decode_slice(
            raw, format=format_, log_file=begin.file, change_no=0, structures=structures, offset=begin.offset
        )
        for batch in batches:
            for op, old, new in zip(*(batch.rows[name].to_pylist() for name in ("op", "before", "after")), strict=True):
                kept = rows[batch.table.name.name]
                if op != Op.INSERT:
                    assert kept.pop(old["id"]) == old
                if op != Op.DELETE:
                    assert new["id"] not in kept
                    kept[new["id"]] = new
    return rows, seen
