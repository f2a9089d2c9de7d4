"""Every character of every charset of each server is read as the server reads it.

A column is filled with every byte, every pair of bytes, and so on, and keeps those that are well formed. Bytes for
which the server itself has no character are an error that names table and column, never a wrong character or a
replacement character.
"""

# Tables of characters are full of characters that look like others.
# ruff: noqa: RUF001

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing

import pymysql
import pytest

from pidts.binlog.values import charsets
from pidts.model import Halted, TableName
from pidts.source import SourceConfig, connect, read_structures, select_range

WIDE = ("big5", "gbk", "gb2312", "gb18030", "euckr", "sjis", "cp932", "ujis", "eucjpms", "ucs2", "utf16", "utf16le")
UTF = {"utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be"}  # fmt: skip
WHOLE = bool(os.environ.get("PIDTS_EXAMPLES"))
"""Whether the tests use all 1.6 million codes of gb18030's four bytes, and all 1.1 million of Unicode. Otherwise they
use some codes of each part.
"""

ONLY_OURS = {
    "big5": {
        bytes.fromhex(code): character
        for code, character in zip(["a15a", "a1c3", "a1c5", "a1fe", "a240", "a2cc", "a2ce"], "╴￣ˍ／＼十卅", strict=True)
    },
    "cp1256": {bytes([code]): character for code, character in zip(b"\x8a\x8f\x98\x9a\x9f\xaa\xc0\xff", "ٹڈکڑںھہے", strict=True)},
}  # fmt: skip
"""Characters that the servers lack and all other programs have."""


@pytest.fixture
def fill(mysql_like, database) -> Iterator[Callable[..., list[tuple[bytes, bytes, bytes | None]]]]:
    """`fill(charset, expression, count)` writes values to a column of the charset. It returns for each value its bytes,
    the bytes that the column then has, and the latter converted to UTF-8 by the server.
    """
    with (
        closing(
            pymysql.connect(host=mysql_like.host, port=mysql_like.port, user=mysql_like.user, password=mysql_like.password, database=database, charset="utf8mb4", autocommit=True)
        ) as connection,
        connection.cursor() as cursor,
    ):  # fmt: skip
        for statement in (
            "SET sql_log_bin = 0",
            "SET sql_mode = ''",
            "CREATE TABLE numbers (n int PRIMARY KEY) ENGINE=MyISAM",
            f"INSERT INTO numbers VALUES {', '.join(f'({number})' for number in range(256))}",
            "INSERT INTO numbers SELECT a.n * 256 + b.n FROM numbers a, numbers b WHERE a.n > 0",
        ):
            cursor.execute(statement)

        def run(charset: str, expression: str, count: int) -> list[tuple[bytes, bytes, bytes | None]]:
            cursor.execute("DROP TABLE IF EXISTS texts")
            cursor.execute(
                f"CREATE TABLE texts (given varbinary(8), c varchar(8) CHARACTER SET {charset}) ENGINE=MyISAM"
            )
            cursor.execute(
                f"INSERT INTO texts SELECT {expression}, {expression} FROM (SELECT n FROM numbers WHERE n < {count}) x"
            )
            cursor.execute("SELECT given, cast(c AS binary), cast(convert(c USING utf8mb4) AS binary) FROM texts")
            return list(cursor.fetchall())

        run.charsets = _charsets(cursor)
        yield run


def _charsets(cursor) -> list[str]:
    cursor.execute("SHOW CHARACTER SET")
    return sorted({row[0] for row in cursor.fetchall()} - {"binary"})


def _number(offset: int, *bases: tuple[int, int]) -> str:
    """Returns `n + offset` as bytes. The last byte counts fastest; each byte has a lowest value and a number of values."""
    parts, unit = [], 1
    for low, count in reversed(bases):
        parts.append(f"unhex(lpad(hex({low} + ((n + {offset}) DIV {unit}) MOD {count}), 2, '0'))")
        unit *= count
    return f"concat({', '.join(reversed(parts))})"


def _spaces(charset: str) -> Iterator[tuple[str, int]]:
    byte = (0, 256)
    yield _number(0, byte), 256
    if charset in WIDE:
        yield _number(0, byte, byte), 65536
    if charset in ("ujis", "eucjpms"):
        yield f"concat(x'8f', {_number(0, byte, byte)})", 65536
    if charset == "gb18030":
        most = 126 * 10 * 126 * 10
        for start in range(0, most, 65536 if WHOLE else 65536 * 5):
            yield (
                _number(start, (0x81, 126), (0x30, 10), (0x81, 126), (0x30, 10)),
                min(65536 if WHOLE else 2000, most - start),
            )
    if charset in UTF:
        for start in range(0, 0x110000, 65536 if WHOLE else 65536 * 3):
            point = f"concat(unhex(lpad(hex((n + {start}) DIV 65536), 4, '0')), {_number(start, byte, byte)})"
            yield f"cast(convert(convert({point} USING utf32) USING {charset}) AS binary)", 65536 if WHOLE else 900


@pytest.mark.repeats("mysql56")  # MySQL 5.6 has no charset that MySQL 9.7 lacks.
def test_every_character_of_every_charset_is_read_as_the_server_reads_it(fill):
    wrong: dict[str, list[object]] = {}
    for charset in fill.charsets:
        decode, seen = charsets.decoder(charset), 0
        for expression, count in _spaces(charset):
            for given, held, shown in fill(charset, expression, count):
                if held is None or held != given:
                    continue  # The server has accepted only well formed text, so these bytes are in no log.
                seen += 1
                theirs, mine = _theirs(held, shown), _ours(decode, held)
                if theirs is None:
                    theirs = ONLY_OURS.get(charset, {}).get(held)
                    if charset == "ucs2" and mine is not None:
                        continue  # The server counts half characters as characters.
                if theirs != mine:
                    wrong.setdefault(charset, []).append((held.hex(), mine, theirs))
        assert seen > 120, charset
    assert wrong == {}


def _theirs(held: bytes, shown: bytes | None) -> str | None:
    """Returns the character that the server shows for the bytes; None if they are not a character for the server."""
    try:
        text = (shown or b"").decode()
    except UnicodeDecodeError:
        return None  # The bytes are half of a character.
    if not text or "\ufffd" in text:
        return "\ufffd" if _stands_for_itself(held) else None
    return None if "?" in text and b"?" not in held else text


def _stands_for_itself(held: bytes) -> bool:
    return held in {b"\xef\xbf\xbd", b"\xff\xfd", b"\xfd\xff", b"\0\0\xff\xfd", b"\x84\x31\xa4\x37"}


def _ours(decode: charsets.Decoder, held: bytes) -> str | None:
    try:
        return decode(held)
    except UnicodeDecodeError:
        return None


@pytest.mark.parametrize(("charset", "raw"), [("gb2312", "B0A1AAA1"), ("tis620", "41DB"), ("eucjpms", "A9A1"), ("ucs2", "0041D800")])  # fmt: skip
def test_bytes_without_a_character_name_table_and_column(mysql_like, database, run_sql, charset, raw):
    name = TableName(database, "t")
    run_sql(
        mysql_like, f"CREATE TABLE t (id int PRIMARY KEY, words varchar(9) CHARACTER SET {charset})", database=database
    )
    run_sql(mysql_like, f"INSERT INTO t VALUES (1, x'{raw}')", database=database)
    assert run_sql(mysql_like, "SELECT hex(words) FROM t", database=database) == [(raw,)]
    config = SourceConfig(mysql_like.host, mysql_like.port, mysql_like.user, mysql_like.password, source_id="s1")
    with closing(connect(config)) as session:
        table = read_structures(session, lambda found: found == name)[name]
        with pytest.raises(Halted, match=f"column words has bytes that are not valid {charset} text") as caught:
            select_range(session, table, None, None)
    assert (caught.value.code, caught.value.where.table) == ("undecodable-text", str(name))
