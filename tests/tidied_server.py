"""Removes what the tests of earlier files have left on a MySQL or MariaDB server that the tests share."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pymysql

_LASTING = {"mysql", "information_schema", "performance_schema", "sys", "test", "pidts_meta"}
_PURGE_ATTEMPTS, _PAUSE = 200, 0.05


def tidy(connection: pymysql.Connection[Any], kind: str) -> None:
    """Removes the databases and the log of a server; `kind` is the server's kind."""
    with connection.cursor() as cursor:

        def rows(statement: str) -> Any:
            cursor.execute(statement)
            return cursor.fetchall()

        _end_readers(rows)
        rows("SET foreign_key_checks = 0")
        for (name,) in rows("SHOW DATABASES"):
            if name not in _LASTING:
                rows("DROP DATABASE IF EXISTS `{}`".format(name.replace("`", "``")))
        ((executed,),) = rows(f"SELECT @@GLOBAL.gtid_{'binlog_pos' if kind == 'mariadb' else 'executed'}")
        if re.fullmatch(r"([0-9a-f-]{36}(:\d+(-\d+)?)+)?|\d+-\d+-\d+", executed):
            _purge(rows)
        else:
            # A reader may not have ended yet: then the server refuses this.
            with suppress(pymysql.MySQLError):
                rows("RESET BINARY LOGS AND GTIDS" if kind == "mysql97" else "RESET MASTER")


def _end_readers(rows: Callable[[str], Any]) -> None:
    """Ends the connections that read the server's log: replicators of earlier tests that were killed.

    The server may not know yet that their processes are gone.
    """
    for number, command in rows("SELECT id, command FROM information_schema.processlist"):
        if command.startswith("Binlog Dump"):
            with suppress(pymysql.MySQLError):  # it may have ended meanwhile
                rows(f"KILL {number}")


def _purge(rows: Callable[[str], Any]) -> None:
    """Removes the server's log. A server keeps, without an error, the files that a reader has not left yet."""
    rows("FLUSH LOGS")
    last = rows("SHOW BINARY LOGS")[-1][0]
    for _ in range(_PURGE_ATTEMPTS):
        rows(f"PURGE BINARY LOGS TO '{last}'")
        if len(rows("SHOW BINARY LOGS")) == 1:
            return
        time.sleep(_PAUSE)
