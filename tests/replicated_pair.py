"""Two real servers of which one follows the other, and a writer that ends with its server."""

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

START = {"mariadb": sandbox.start_mariadb, "mysql97": sandbox.start_mysql97}
OPTIONS = {"mariadb": ["--log-slave-updates"], "mysql97": []}
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
PROMOTE = {"mariadb": ("STOP SLAVE", "RESET SLAVE ALL"), "mysql97": ("STOP REPLICA", "RESET REPLICA ALL")}


class Writer(threading.Thread):
    """Writes transactions of one to three rows until it is stopped or its server is gone."""

    def __init__(self, server: Server, database: str, first: int) -> None:
        super().__init__(daemon=True)
        self._server, self._database, self.last = server, database, first - 1
        self.stopped = threading.Event()

    def run(self) -> None:
        with suppress(pymysql.err.Error), closing(connect(self._server)) as connection, connection.cursor() as cursor:
            while not self.stopped.wait(0.02):
                number = self.last + 1
                rows = ", ".join(f"({number}, {row})" for row in range(1 + number % 3))
                cursor.execute(f"INSERT INTO `{self._database}`.t (tx, n) VALUES {rows}")
                self.last = number

    def end(self) -> int:
        self.stopped.set()
        self.join()
        return self.last


def start(kind: str, folder: Path, port: int | None = None) -> Server:
    """Starts a server that can be either of the two; a folder with data is used as it is."""
    return START[kind](folder, OPTIONS[kind], port=port)


@contextmanager
def replicated_pair(kind: str, folder: Path, run_sql: RunSql) -> Iterator[tuple[Server, Server]]:
    """A primary, and the standby that follows it by GTID; their data is in `folder`."""
    with start(kind, folder / "primary") as primary, start(kind, folder / "standby") as standby:
        run_sql(standby, RESET[kind])
        for sql in FOLLOW[kind]:
            run_sql(standby, sql.format(port=primary.port))
        yield primary, standby
        for server in (primary, standby):
            server.kill()


def promote(standby: Server, run_sql: RunSql) -> None:
    """Makes the standby a server of its own."""
    for sql in PROMOTE[standby.kind]:
        run_sql(standby, sql)


def wait(claim: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Waits until it is so."""
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.1)
