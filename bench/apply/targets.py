"""The target servers of the benches.

Before each contender runs, a server's files are replaced by their base copy: all contenders begin with the same files.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from pidts import sandbox
from pidts.model import Table
from pidts.sandbox import Server
from pidts.target.mysql import MySqlTarget
from pidts.target.postgres import PostgresTarget

_MYSQL = (
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-buffer-pool-size=1G",
    "--max-allowed-packet=64M",
    "--skip-log-bin",
)
_START: dict[str, Callable[[Path], Server]] = {
    "mariadb": lambda folder: sandbox.start_mariadb(folder, (*_MYSQL, "--innodb-log-file-size=512M")),
    "mysql97": lambda folder: sandbox.start_mysql97(folder, (*_MYSQL, "--innodb-redo-log-capacity=512M")),
    "postgres": lambda folder: sandbox.start_postgres(
        folder, ("-c", "fsync=on", "-c", "shared_buffers=1GB", "-c", "max_wal_size=4GB", "-c", "min_wal_size=2GB")
    ),
}
KINDS = tuple(_START)
SQL_USER = "sql_only"
"""An account of MariaDB that has all privileges, except those for executing row events."""


class TargetServer:
    """A target server that makes every commit durable, and that writes no binary log."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._folder = kind, folder
        self.server = _START[kind](folder)
        self._table = ""

    @property
    def target(self) -> MySqlTarget | PostgresTarget:
        server = self.server
        if self.kind == "postgres":
            return PostgresTarget(server.host, server.port, server.user, server.password, "postgres")
        return MySqlTarget(server.host, server.port, server.user, server.password)

    def connect(self, *, autocommit: bool = True) -> Any:
        server = self.server
        if self.kind == "postgres":
            return psycopg.connect(
                host=server.host, port=server.port, user=server.user, dbname="postgres", autocommit=autocommit
            )
        return pymysql.connect(
            host=server.host, port=server.port, user=server.user, autocommit=autocommit, charset="utf8mb4"
        )

    def make_base(self, table: Table, dump: Path) -> None:
        """Creates the source's table on the target, fills it, and keeps the server's files as the base copy."""
        self._table = f"{table.name.schema}.{table.name.name}"
        session = self.target.connect()
        session.meta.prepare()
        for statement in session.schema.create_statements(table).statements:
            session.execute(statement)
        session.close()
        connection = self.connect()
        cursor = connection.cursor()
        if self.kind == "postgres":
            with dump.open("rb") as file, cursor.copy(f"COPY {self._table} FROM STDIN") as copy:
                while data := file.read(1 << 20):
                    copy.write(data)
            cursor.execute(f"VACUUM ANALYZE {self._table}")
            cursor.execute("CHECKPOINT")
        else:
            # With this charset, the server reads each column as the source has written it.
            charset = "binary" if self.kind == "mariadb" else "utf8mb4"
            cursor.execute(f"LOAD DATA INFILE '{dump}' INTO TABLE {self._table} CHARACTER SET {charset}")
            cursor.execute(f"ANALYZE TABLE {self._table}")
            if self.kind == "mariadb":
                cursor.execute(f"CREATE USER {SQL_USER}@'%'")
                cursor.execute(f"GRANT ALL ON *.* TO {SQL_USER}@'%'")
                cursor.execute(f"REVOKE BINLOG REPLAY, SUPER ON *.* FROM {SQL_USER}@'%'")
        connection.close()
        self.keep_base()

    def keep_base(self) -> None:
        """Makes the server's current files the base copy, which `reset` puts back."""
        self.server.restart()
        self.server.restart()  # the second start completes what the first one has not finished
        self.down()
        self._copy("data", "base")

    def reset(self) -> None:
        """Puts the base copy back, starts the server, and reads the table into memory."""
        with suppress(Exception):
            self.server.kill()
        shutil.rmtree(self._folder / "data")
        self._copy("base", "data")
        self.server.start()
        if self._table:
            self._warm()

    def run_in(self) -> None:
        """Makes a new PostgreSQL server write and delete as much log as an old one.

        A new server first fills its memory and its new log files with zeros, whichever program copies. Without this
        method, that work would be part of the measured time. MySQL creates its log files at once.
        """
        if self.kind != "postgres":
            return
        with closing(self.connect()) as session:
            session.execute("CREATE TABLE before (id int, filling text)")
            session.execute("INSERT INTO before SELECT i, repeat('x', 900) FROM generate_series(1, 2000000) i")
            session.execute("DROP TABLE before")
            session.execute("CHECKPOINT")

    def _warm(self) -> None:
        connection = self.connect()
        cursor = connection.cursor()
        for order in ("id", "code"):
            with suppress(pymysql.err.Error, psycopg.Error):
                cursor.execute(f"SELECT SUM(x) FROM (SELECT {order} AS x FROM {self._table} ORDER BY {order}) y")
                cursor.fetchall()
        if self.kind != "postgres":
            with suppress(pymysql.err.Error):  # a table may have no key
                cursor.execute(f"SELECT COUNT(*) FROM {self._table} FORCE INDEX (PRIMARY) WHERE CRC32(id) = 0")
                cursor.fetchall()
        connection.close()

    def count(self) -> int:
        connection = self.connect()
        cursor = connection.cursor()
        cursor.execute(f"SELECT COUNT(*) FROM {self._table}")
        found = int(cursor.fetchone()[0])
        connection.close()
        return found

    def down(self) -> None:
        self.server._end(self.server.launch.stop_signal)  # noqa: SLF001 - ends the server, and keeps its folder

    def _copy(self, origin: str, to: str) -> None:
        subprocess.run(["cp", "-a", self._folder / origin, self._folder / to], check=True)


@contextmanager
def target_server(kind: str) -> Iterator[TargetServer]:
    with tempfile.TemporaryDirectory(prefix=f"bench-{kind}-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        found = TargetServer(kind, Path(folder))
        try:
            yield found
        finally:
            found.server.kill()
