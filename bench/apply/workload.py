"""Makes the source of a bench: a table with many rows, and logs with changes to this table in transactions of different
sizes.

Half of the changes are updates, three tenths inserts, two tenths deletes. No row is changed twice, so no contender
gains by combining changes of one row. No two logs change the same row. So the logs can be applied in any order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from pidts.model import Position
from pidts.sandbox import Server
from pidts.source import SourceConfig, connect, log_end

SCHEMA = "bench"
_STRIDE = 7_368_787
"""A prime number. `n * _STRIDE % rows` is a different row number for each n below `rows`, in no visible order."""

_SB = "id BIGINT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL"
_SB_ROW = (
    "{id}, {n} % 1000, RPAD({n}, 119, '68487932199-96439406143-93774651418-41631865787-'), "
    "RPAD({n}, 59, '67847967377-48')"
)
_SB_SET = "k = k + 1, c = RPAD({n}, 119, '31415926535-89793238462-64338327950-28841971693-')"

_WIDE = (
    "id BIGINT PRIMARY KEY, code BIGINT NOT NULL, state TINYINT NOT NULL, kind SMALLINT NOT NULL, amount INT NOT NULL, "
    "price DECIMAL(12,2) NOT NULL, weight DOUBLE NULL, name VARCHAR(80) NOT NULL, city VARCHAR(40) NULL, "
    "note TEXT NULL, tag CHAR(12) NOT NULL, born DATE NOT NULL, made DATETIME NOT NULL, seen DATETIME(6) NULL, "
    "total BIGINT UNSIGNED NOT NULL, UNIQUE KEY by_code (code)"
)
_WIDE_ROW = (
    "{id}, {id} * 7 + 3, {n} % 5, {n} % 3000, {n}, ({n} % 1000000) / 100, {n} / 7, CONCAT('Name of ', {n}), "
    "IF({n} % 7 = 0, NULL, CONCAT('City ', {n} % 500)), RPAD('a note', 60 + {n} % 60, ' that is longer'), "
    "CONCAT('T', {n} % 100000), DATE '2001-02-03' + INTERVAL {n} % 5000 DAY, "
    "TIMESTAMP '2020-01-01 10:11:12' + INTERVAL {n} SECOND, "
    "TIMESTAMP '2021-01-01 01:02:03.456789' + INTERVAL {n} SECOND, {n} * 1000"
)
_WIDE_SET = (
    "state = 7, amount = amount + 1, price = price + 1, name = CONCAT('Changed ', {n}), made = made + INTERVAL 1 DAY"
)

_ZOO = (
    "id BIGINT PRIMARY KEY, ti TINYINT, su SMALLINT UNSIGNED, mi MEDIUMINT, iu INT UNSIGNED, bi BIGINT, "
    "bu BIGINT UNSIGNED, de DECIMAL(10,2), db DECIMAL(30,10), fl FLOAT, dd DOUBLE, bt BIT(10), ye YEAR, da DATE, "
    "tm TIME(3), dt DATETIME(6), ts TIMESTAMP(6) NULL, ch CHAR(20), vc VARCHAR(100), "
    "vl VARCHAR(50) CHARACTER SET latin1, tx TEXT, bn BINARY(8), vb VARBINARY(20), bl BLOB, "
    "en ENUM('red','green','blue'), st SET('a','b','c','d'), js JSON"
)
_ZOO_ROW = (
    "{id}, {n} % 100, {n} % 60000, {n} % 8000000, {n} * 7, -{n} * 1000003, {n} * 1000003, {n} / 7, {n} * 1234567.891, "
    "{n} / 3, {n} / 9, {n} % 8, 1950 + {n} % 150, '2000-01-01' + INTERVAL {n} % 9000 DAY, "
    "SEC_TO_TIME({n} % 80000 + 0.5), '2001-02-03 04:05:06.789' + INTERVAL {n} MINUTE, "
    "'2001-02-03 04:05:06.789' + INTERVAL {n} MINUTE, LEFT(MD5({n}), 20), CONCAT('größe ', {n}, ' €'), "
    "CONCAT('e', {n}), REPEAT('some text ', {n} % 20), UNHEX(LEFT(MD5({n}), 16)), UNHEX(MD5({n})), "
    "UNHEX(REPEAT(MD5({n}), 3)), 1 + {n} % 3, {n} % 16, JSON_OBJECT('n', {n}, 's', 'abc')"
)
_ZOO_SET = "ti = ti + 1, bi = bi + 1, de = de + 1, vc = CONCAT('changed ', {n}), dt = dt + INTERVAL 1 DAY"


@dataclass(frozen=True)
class Shape:
    """The columns and values of one table."""

    name: str
    columns: str
    charset: str
    row: str
    change: str


SHAPES = {
    "sb": Shape("sb", _SB, "latin1", _SB_ROW, _SB_SET),
    "wide": Shape("wide", _WIDE, "utf8mb4", _WIDE_ROW, _WIDE_SET),
    "zoo": Shape("zoo", _ZOO, "utf8mb4", _ZOO_ROW, _ZOO_SET),
}


@dataclass(frozen=True)
class Log:
    """A part of the source's log that has only changes of one table."""

    shape: str
    rows_per_transaction: int
    changes: int
    begin: Position
    end: Position
    gtid: str
    """The GTID after which a replica begins, so that it gets exactly this part."""


class Source:
    """A private MariaDB server with the table."""

    settings: tuple[str, ...] = ()
    """Statements that run before the first rows are inserted."""

    def __init__(self, server: Server, shape: Shape, rows: int) -> None:
        self.server, self.shape, self.rows = server, shape, rows
        self._used = 0
        self._session = pymysql.connect(
            host=server.host, port=server.port, user=server.user, password=server.password, autocommit=True
        )
        self._make()

    @property
    def config(self) -> SourceConfig:
        return SourceConfig(self.server.host, self.server.port, self.server.user, self.server.password, source_id="one")

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        with self._session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def dump(self, path: Path) -> None:
        """Writes the table's rows to a file, in the server's text form."""
        self.run(f"SELECT * FROM {self.shape.name} ORDER BY id INTO OUTFILE '{path}'")

    def _make(self) -> None:
        shape = self.shape
        self.run(f"CREATE DATABASE {SCHEMA}", f"USE {SCHEMA}")
        self.run(f"CREATE TABLE {shape.name} ({shape.columns}) CHARSET {shape.charset}")
        row = shape.row.format(id="(seq * 2)", n="seq")
        self.run(*self.settings, f"INSERT INTO {shape.name} SELECT {row} FROM {self.numbers(self.rows)}")
        id_ = f"(j * {_STRIDE}) % {self.rows} * 2"
        change, row = shape.change.format(n="j"), shape.row.format(id="(at + 1)", n="j")
        self.run(
            "CREATE PROCEDURE small(first BIGINT, behind BIGINT, size INT) BEGIN DECLARE j, at BIGINT; SET j = first; "
            "WHILE j < behind DO IF size > 1 AND (j - first) % size = 0 THEN START TRANSACTION; END IF; "
            f"SET at = {id_}; "
            f"CASE WHEN j % 10 < 5 THEN UPDATE {shape.name} SET {change} WHERE id = at; "
            f"WHEN j % 10 < 8 THEN INSERT INTO {shape.name} VALUES ({row}); "
            f"ELSE DELETE FROM {shape.name} WHERE id = at; END CASE; SET j = j + 1; "
            "IF size > 1 AND (j - first) % size = 0 THEN COMMIT; END IF; END WHILE; END"
        )
        if self.server.kind != "mariadb":
            return
        id_ = f"((first + s.seq) * {_STRIDE}) % {self.rows} * 2"
        found = f"s STRAIGHT_JOIN {shape.name} ON {shape.name}.id = {id_}"
        change = shape.change.format(n="first + s.seq")
        row = shape.row.format(id=f"({id_} + 1)", n="(first + s.seq)")
        self.run(
            "CREATE PROCEDURE large(first BIGINT, behind BIGINT) BEGIN WHILE first < behind DO START TRANSACTION; "
            f"UPDATE seq_0_to_999 {found} SET {change} WHERE s.seq % 10 < 5; "
            f"INSERT INTO {shape.name} SELECT {row} FROM seq_0_to_999 s WHERE s.seq % 10 BETWEEN 5 AND 7; "
            f"DELETE {shape.name} FROM seq_0_to_999 {found} WHERE s.seq % 10 > 7; "
            "COMMIT; SET first = first + 1000; END WHILE; END"
        )

    def log(self, rows_per_transaction: int, changes: int, procedure: str = "small") -> Log:
        """Writes the next changes, and returns their part of the log.

        The stored procedure `procedure` makes transactions of less than 1,000 rows.
        """
        if rows_per_transaction not in (1, 4, 1000) or changes % 1000 or self._used + changes > self.rows:
            what = f"{changes} changes in transactions of {rows_per_transaction} rows"
            raise ValueError(f"{what}: too many changes, no multiple of 1,000, or an unknown size of transactions")
        self.run("FLUSH BINARY LOGS")
        begin, gtid = self.end(), self.executed()
        first, behind = self._used, self._used + changes
        if rows_per_transaction == 1000:
            self.run(f"CALL large({first}, {behind})")
        else:
            self.run(f"CALL {procedure}({first}, {behind}, {rows_per_transaction})")
        self._used = behind
        return Log(self.shape.name, rows_per_transaction, changes, begin, self.end(), gtid)

    def numbers(self, count: int) -> str:
        """Returns the name of MariaDB's built-in table whose column `seq` has the numbers from 0 on."""
        return f"seq_0_to_{count - 1}"

    def executed(self) -> str:
        """Returns the GTIDs executed so far: a replica begins after them."""
        return str(self.run("SELECT @@gtid_binlog_pos")[0][0])

    def end(self) -> Position:
        session = connect(self.config)
        try:
            return log_end(session)
        finally:
            session.close()


class MySqlSource(Source):
    """A private MySQL server with the table."""

    def __init__(self, server: Server, shape: Shape, rows: int) -> None:
        self.settings = (f"SET SESSION cte_max_recursion_depth = {rows}",)
        super().__init__(server, shape, rows)

    def numbers(self, count: int) -> str:
        return (
            f"(WITH RECURSIVE s (seq) AS (SELECT 0 UNION ALL SELECT seq + 1 FROM s WHERE seq < {count - 1}) "
            "SELECT seq FROM s) numbers"
        )

    def executed(self) -> str:
        return ""
