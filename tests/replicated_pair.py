"""Two real servers, of which one is the replica of the other, and a writer that ends with its server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pymysql
from tests.conftest import RunSql
from tests.running import connect

from pidts import sandbox
from pidts.sandbox import Server

START = {"mariadb": sandbox.start_mariadb, "mysql97": sandbox.start_mysql97, "mysql56": sandbox.start_mysql56}
OPTIONS = {"mariadb": ["--log-slave-updates"], "mysql97": [], "mysql56": []}
NO_GTIDS = ["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"]
"""The options of MySQL in a pair that replicates by position.

MariaDB always writes GTIDs, but replication by position does not use them.
"""
RESET = {"mariadb": "RESET MASTER", "mysql97": "RESET BINARY LOGS AND GTIDS"}
FOLLOW = {
    "mariadb": (
        "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root', MASTER_CONNECT_RETRY = 1",
        "CHANGE MASTER TO MASTER_USE_GTID = slave_pos",
        "START SLAVE",
    ),
    "mysql97": (
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'root'",
        "CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION = 1, SOURCE_CONNECT_RETRY = 1, GET_SOURCE_PUBLIC_KEY = 1",
        "START REPLICA",
    ),
}
FOLLOW_AT = {
    "mariadb": (
        "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root', MASTER_CONNECT_RETRY = 1",
        "CHANGE MASTER TO MASTER_USE_GTID = no, MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {offset}",
        "START SLAVE",
    ),
    "mysql97": (
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'root'",
        "CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION = 0, SOURCE_CONNECT_RETRY = 1, GET_SOURCE_PUBLIC_KEY = 1",
        "CHANGE REPLICATION SOURCE TO SOURCE_LOG_FILE = '{file}', SOURCE_LOG_POS = {offset}",
        "START REPLICA",
    ),
    "mysql56": (
        "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root', MASTER_CONNECT_RETRY = 1",
        "CHANGE MASTER TO MASTER_AUTO_POSITION = 0, MASTER_LOG_FILE = '{file}', MASTER_LOG_POS = {offset}",
        "START SLAVE",
    ),
}
"""The statements of `FOLLOW` for a pair that replicates by position."""
PROMOTE = {"mariadb": ("STOP SLAVE", "RESET SLAVE ALL"), "mysql97": ("STOP REPLICA", "RESET REPLICA ALL")}
PROMOTE["mysql56"] = PROMOTE["mariadb"]


class Writer(threading.Thread):
    """Writes transactions of one to three rows until it is stopped or its server is gone."""

    def __init__(self, server: Server, database: str, first: int) -> None:
        super().__init__(daemon=True)
        self._server, self._database, self.last = server, database, first - 1
        self.stopped = threading.Event()

    def run(self) -> None:
        with suppress(pymysql.err.Error), closing(connect(self._server)) as connection, connection.cursor() as cursor:
            cursor.execute(f"USE `{self._database}`")
            while not self.stopped.wait(0.02):
                number = self.last + 1
                for sql in self.statements(number):
                    cursor.execute(sql)
                self.last = number

    def statements(self, number: int) -> list[str]:
        """Returns the statements of one transaction."""
        rows = ", ".join(f"({number}, {row})" for row in range(1 + number % 3))
        return [f"INSERT INTO t (tx, n) VALUES {rows}"]

    def end(self) -> int:
        self.stopped.set()
        self.join()
        return self.last


def start(kind: str, folder: Path, port: int | None = None, *, by: str = "gtid") -> Server:
    """Starts a server that can be either of the two. An existing data folder is used as it is."""
    without = NO_GTIDS if by == "position" and kind != "mariadb" else []
    return START[kind](folder, [*OPTIONS[kind], *without], port=port)


@contextmanager
def replicated_pair(kind: str, folder: Path, run_sql: RunSql, *, by: str = "gtid") -> Iterator[tuple[Server, Server]]:
    """Starts a primary, and the standby that follows it by GTID or by position. Their data is in `folder`."""
    with start(kind, folder / "primary", by=by) as primary, start(kind, folder / "standby", by=by) as standby:
        if by == "gtid":
            run_sql(standby, RESET[kind])
        follow(primary, standby, run_sql, by=by)
        yield primary, standby
        for server in (primary, standby):
            server.kill()


def follow(primary: Server, standby: Server, run_sql: RunSql, *, by: str = "gtid") -> None:
    """Makes a server follow another one, by position from the end of the other's log on."""
    status = "SHOW BINARY LOG STATUS" if primary.kind == "mysql97" else "SHOW MASTER STATUS"
    ((file, offset, *_),) = run_sql(primary, status)
    for sql in (FOLLOW_AT if by == "position" else FOLLOW)[standby.kind]:
        run_sql(standby, sql.format(port=primary.port, file=file, offset=offset))


def promote(standby: Server, run_sql: RunSql) -> None:
    """Makes the standby independent."""
    for sql in PROMOTE[standby.kind]:
        run_sql(standby, sql)


def wait(claim: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Waits until the condition is true."""
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)
