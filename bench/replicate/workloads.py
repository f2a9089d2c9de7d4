"""Makes the logs that a replicator receives. Each fills one binary log file of a private server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pymysql

from pidts.model import Position
from pidts.sandbox import Server
from pidts.source import SourceConfig, connect, log_end

Session = pymysql.connections.Connection
_ROW = "RPAD(i, 119, '68487932199-96439406143-93774651418-41631865787-'), RPAD(i, 59, '67847967377-48000963322-')"


@dataclass(frozen=True)
class Log:
    """A part of a server's log."""

    name: str
    begin: Position
    end: Position
    transactions: int

    @property
    def bytes(self) -> int:
        return self.end.offset - self.begin.offset


def source_of(server: Server) -> SourceConfig:
    return SourceConfig(server.host, server.port, server.user, server.password, source_id="s")


def end_of(server: Server) -> Position:
    session = connect(source_of(server))
    try:
        return log_end(session)
    finally:
        session.close()


def prepare(session: Session) -> None:
    run(
        session,
        "CREATE DATABASE bench",
        "USE bench",
        "CREATE TABLE n (i INT PRIMARY KEY)",
        "INSERT INTO n VALUES " + ",".join(f"({number})" for number in range(1000)),
        "CREATE TABLE sb (id BIGINT AUTO_INCREMENT PRIMARY KEY, k INT, c CHAR(120), pad CHAR(60)) CHARSET latin1",
        "CREATE TABLE large (id BIGINT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)",
        "CREATE PROCEDURE tiny(count INT) BEGIN DECLARE i INT DEFAULT 0; WHILE i < count DO "
        f"INSERT INTO sb (k, c, pad) VALUES (i, {_ROW}); SET i = i + 1; END WHILE; END",
        "CREATE PROCEDURE thousands(count INT) BEGIN DECLARE j INT DEFAULT 0; WHILE j < count DO "
        f"INSERT INTO sb (k, c, pad) SELECT i, {_ROW} FROM n; SET j = j + 1; END WHILE; END",
        "CREATE PROCEDURE huge(count INT) BEGIN DECLARE j INT DEFAULT 0; START TRANSACTION; WHILE j < count DO "
        "INSERT INTO large (v) SELECT REPEAT('0123456789', 800) FROM n; SET j = j + 1; END WHILE; COMMIT; END",
    )


def run(session: Session, *statements: str) -> None:
    with session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def made(server: Server, session: Session, name: str, transactions: int, fill: Callable[[], None]) -> Log:
    run(session, "FLUSH BINARY LOGS")
    begin = Position(end_of(server).file, 4)
    fill()
    return Log(name, begin, end_of(server), transactions)


def thousands(server: Server, session: Session, megabytes: int) -> Log:
    """Fills sysbench's table in transactions of 1,000 rows; returns the log of these transactions."""
    count = megabytes * 5
    return made(server, session, "1,000 rows", count, lambda: run(session, f"CALL thousands({count})"))


def tiny(server: Server, session: Session, count: int) -> Log:
    """Fills sysbench's table in transactions of one row; returns the log of these transactions."""
    return made(server, session, "1 row", count, lambda: run(session, f"CALL tiny({count})"))


def huge(server: Server, session: Session, megabytes: int) -> Log:
    """Writes one transaction of many events of 8 kB; returns its log."""
    return made(server, session, "one large transaction", 1, lambda: run(session, f"CALL huge({megabytes // 8})"))


def long_event(server: Server, session: Session, megabytes: int) -> Log:
    """Writes one row that makes one long event; returns its log."""
    row = f"INSERT INTO large (v) VALUES (REPEAT('x', {megabytes << 20}))"
    return made(server, session, "one large event", 1, lambda: run(session, row))
