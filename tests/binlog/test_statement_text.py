"""The text of a statement is read from its bytes: names, comments and literals in each session."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from pidts.binlog import Control, Event, EventType, LogWalker, Query, TransactionScanner, iter_raw
from pidts.binlog.blocks.ordinary import plain_charsets
from pidts.binlog.statement_text import statement_text
from pidts.model import Lsn
from pidts.sandbox import Server

UTF8 = "é".encode()
ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 0x4, 0x100000


@pytest.mark.parametrize(
    ("sql", "client", "connection", "sql_mode", "expected"),
    [
        (b"BEGIN", "binary", "binary", 0, "BEGIN"),
        (b"DEFAULT 'a'", "binary", "binary", 0, "DEFAULT 'a'"),
        (b"`%b` DEFAULT '%b'" % (UTF8, UTF8), "utf8mb4", "utf8mb4", 0, "`é` DEFAULT 'é'"),
        (b"`%b'` DEFAULT '%b'" % (UTF8, UTF8), "binary", "binary", 0, "`é'` DEFAULT x'C3A9'"),
        (b"`\xe9` DEFAULT '\xe9'", "latin1", "binary", 0, "`é` DEFAULT x'E9'"),
        (b"DEFAULT'\xe9'", "binary", "binary", 0, "DEFAULT x'E9'"),
        (b"DEFAULT '\xe9\\n\\'''\\\\'", "binary", "binary", 0, "DEFAULT x'E90A27275C'"),
        (b"DEFAULT '\xe9\\', 'a'", "binary", "binary", NO_BACKSLASH_ESCAPES, "DEFAULT x'E95C', 'a'"),
        (b'("\xe9", "a\'%b")' % UTF8, "binary", "binary", 0, "(x'E9', x'6127C3A9')"),
        (b"\"%b\" DEFAULT '%b'" % (UTF8, UTF8), "binary", "binary", ANSI_QUOTES, "\"é\" DEFAULT x'C3A9'"),
        (b"COMMENT '%b' COMMENT='%b'" % (UTF8, UTF8), "binary", "binary", 0, "COMMENT 'é' COMMENT='é'"),
        (b"N'%b'" % UTF8, "binary", "binary", 0, "N'é'"),
        (b"_latin1'\xe9'", "utf8mb4", "utf8mb4", 0, "_latin1 x'E9'"),
        (b"/* '%b */ -- '%b\n# '%b\na" % (UTF8, UTF8, UTF8), "binary", "binary", 0, "/* 'é */ -- 'é\n# 'é\na"),
        (b"/*!40101 DEFAULT '%b' */" % UTF8, "binary", "binary", 0, "/*!40101 DEFAULT x'C3A9' */"),
        (b"/* \xff */ `%b` DEFAULT '%b'" % (UTF8, UTF8), "utf8mb4", "utf8mb4", 0, "/* \\xff */ `é` DEFAULT 'é'"),
        (b"`\xe9` DEFAULT '\x81'", "cp1250", "utf8mb4", 0, "`é` DEFAULT x'81'"),
        ("`中` DEFAULT '".encode("gbk") + b"\xff'", "gbk", "gbk", 0, "`中` DEFAULT '\\xff'"),
        (b"'\xe9", "binary", "binary", 0, "'\\xe9"),
        (b"`%b` DEFAULT '%b'" % (UTF8, UTF8), "binary", "utf8mb4", 0, "`é` DEFAULT 'é'"),
        (b"DEFAULT '\xe9'", "binary", "utf8mb4", 0, "DEFAULT x'E9'"),
        (b"`%b` DEFAULT '%b\\n\\'\\\\'" % (UTF8, UTF8), "binary", "latin1", 0, "`é` DEFAULT 'Ã©\n''\\\\'"),
        (b"DEFAULT '\xe9\\'", "binary", "latin1", NO_BACKSLASH_ESCAPES, "DEFAULT 'é\\'"),
        (b"_latin1'\xe9', _utf8 '%b'" % UTF8, "binary", "latin1", 0, "_latin1 x'E9', _utf8 x'C3A9'"),
        (b"COMMENT '%b'" % UTF8, "binary", "latin1", 0, "COMMENT 'é'"),
        (b"DEFAULT '%b'" % UTF8, "binary", None, 0, "DEFAULT x'C3A9'"),
        (b"`%b`" % UTF8, None, None, 0, "`é`"),
    ],
)
def test_a_literal_that_is_no_text_is_written_as_bytes(
    sql: bytes, client: str | None, connection: str | None, sql_mode: int, expected: str
) -> None:
    assert statement_text(sql, client, connection, sql_mode) == expected


def test_a_session_in_binary_stops_nothing() -> None:
    """MySQL 8 logs the charset `binary` with each BEGIN, and the compiled scan accepts it like any other charset."""
    session = b"\4" + struct.pack("<HHH", 63, 63, 45)
    body = struct.pack("<IIBHH", 1, 0, 4, 0, len(session)) + session + b"shop\0BEGIN"
    query = Query.parse(Event(EventType.QUERY, 0, 1, 0, 19 + len(body), 0, 4, 7, memoryview(body)))
    assert (query.sql, query.control) == ("BEGIN", Control.BEGIN)
    assert not query.utf8_literals
    assert plain_charsets()[63]


@pytest.mark.parametrize(("client", "connection", "expected"), [(45, 255, True), (8, 8, False), (45, 8, False)])
def test_a_statement_shows_whether_its_literals_are_in_utf8(client: int, connection: int, *, expected: bool) -> None:
    settings = b"\4" + struct.pack("<HHH", client, connection, 45)
    body = struct.pack("<IIBHH", 1, 0, 4, 0, len(settings)) + settings + b"shop\0CREATE"
    query = Query.parse(Event(EventType.QUERY, 0, 1, 0, 19 + len(body), 0, 4, 7, memoryview(body)))
    assert query.utf8_literals is expected


@contextmanager
def session(server: Server, database: str) -> Iterator[Any]:
    with (
        pymysql.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=server.password,
            database=database,
            charset="utf8mb4",
            autocommit=True,
            ssl_disabled=True,
        ) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


def logged(path: Path) -> list[str]:
    """Returns the statements of a log file, as the replicator's scanner gives them."""
    walker, scanner = LogWalker(path.name), TransactionScanner(0, Lsn(0, int(path.suffix[1:]), 4))
    found = (scanner.feed(walker.feed(raw)) for raw in iter_raw(path.read_bytes()[4:]))
    return [transaction.ddl for transaction in found if transaction is not None and transaction.ddl is not None]


@pytest.mark.parametrize(
    ("client", "connection"),
    [("binary", "binary"), ("latin1", "binary"), ("binary", "latin1"), ("binary", "utf8mb4")],
)
def test_the_text_means_the_same_in_every_session(
    mysql_like: Server, database: str, client: str, connection: str
) -> None:
    """A session in UTF-8 that runs the text from the log makes the same table as the session that was logged."""
    with session(mysql_like, database) as cursor:
        cursor.execute("FLUSH LOGS")
        cursor.execute("SHOW BINARY LOGS")
        log = mysql_like.directory / "binlog" / str(cursor.fetchall()[-1][0])
        cursor.execute(f"SET NAMES {connection}")
        cursor.execute(f"SET character_set_client = {client}")
        cursor.connection.encoding = "utf8" if client == "binary" else client
        # A VARBINARY gets the bytes that é has in the connection's charset. In latin1, these are not the bytes of
        # UTF-8.
        in_bytes = "e" if connection == "latin1" else "é"
        cursor.execute(
            "CREATE TABLE `té` (id int PRIMARY KEY, `ü'` varchar(9) CHARSET latin1 DEFAULT 'é', "
            f"u varchar(9) CHARSET utf8 DEFAULT 'a\\'é' COMMENT 'wäre', b varbinary(9) DEFAULT \"{in_bytes}\\\\\", "
            "e enum('a','ö') CHARSET latin1) COMMENT='ß' /* 'é */"
            if client == "binary"
            else "CREATE TABLE `té` (id int PRIMARY KEY, `ü'` varchar(9) CHARSET latin1 DEFAULT 'é', "
            "u varchar(9), b varbinary(9) DEFAULT 'é')"
        )
        cursor.execute("INSERT INTO `té` (id) VALUES (1)")
        made, rows = shown(cursor)
    with session(mysql_like, database) as cursor:
        (text,) = [text for text in logged(log) if "té" in text]
        cursor.execute("DROP TABLE `té`")
        cursor.execute(text)
        cursor.execute("INSERT INTO `té` (id) VALUES (1)")
        assert shown(cursor) == (made, rows)


def shown(cursor: Any) -> tuple[str, Any]:
    cursor.execute("SET NAMES utf8mb4")
    cursor.connection.encoding = "utf8"
    cursor.execute("SELECT hex(`ü'`), hex(u), hex(b) FROM `té`")
    rows = cursor.fetchall()
    cursor.execute(
        "SELECT hex(column_type), column_comment FROM information_schema.columns WHERE table_name = 'té' ORDER BY ordinal_position"
    )
    return cursor.fetchall(), rows
