"""Runs statements on real servers that fill their logs, and records what the servers have afterwards.

`make_vectors.py` keeps the logs and the servers' answers in `vectors/`. The tests with servers run the same statements,
and check the logs of the servers that they start.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.binlog.logs import all_types

from pidts.binlog import MAGIC, Format, LogWalker, decode_slice, iter_raw
from pidts.model import Column, ColumnType, Key, Kind, Op, Table, TableName

VECTORS = Path(__file__).parents[1] / "vectors"

ID = Column("id", ColumnType(Kind.INT), nullable=False)
WORD = Column("v", ColumnType(Kind.VARCHAR, length=500, charset="latin1"))
PRIMARY = (Key("PRIMARY", ("id",), unique=True, primary=True),)
INNO = Table(TableName("tx", "i"), (ID, WORD), PRIMARY)
MYISAM = Table(TableName("tx", "m"), (ID, WORD), PRIMARY)
SELECTED = Table(TableName("tx", "cs"), (ID, WORD))
FUNCTIONAL = Table(
    TableName("tx", "f"),
    (
        ID,
        Column("j", ColumnType(Kind.JSON)),
        Column("g", ColumnType(Kind.INT), generated=True),
        Column("h", ColumnType(Kind.BIGINT, unsigned=True), nullable=False, generated=True),
        Column("inv", ColumnType(Kind.ENUM, charset="latin1", labels=("ä", "b"))),
    ),
    PRIMARY,
)
OLD_TIMES = Table(
    TableName("tx", "old"),
    (
        ID,
        *(
            Column(f"c{place}", example.type)
            for place, example in enumerate(e for f in range(7) for e in all_types.times(f))
        ),
    ),
    PRIMARY,
)

CURRENT = ("mariadb", "mysql97", "mysql56")
"""The servers that tests start. For other servers there are only the files in `vectors/`."""


@dataclass(frozen=True)
class Scenario:
    """Statements for some kinds of server, and the tables whose rows the log must return."""

    name: str
    kinds: tuple[str, ...]
    statements: Sequence[str]
    tables: tuple[Table, ...]
    queries: Sequence[str] = ()

    def query(self, table: Table) -> str:
        names = [f"cast({column.name} as char)" for column in table.columns[1:]]
        return f"SELECT id, {', '.join(names)} FROM {table.name} ORDER BY id"


MAKE = [
    "DROP DATABASE IF EXISTS tx",
    "CREATE DATABASE tx CHARACTER SET latin1",
    "CREATE TABLE tx.i (id int primary key, v varchar(500)) ENGINE=InnoDB",
    "CREATE TABLE tx.m (id int primary key, v varchar(500)) ENGINE=MyISAM",
    "USE tx",
    "FLUSH LOGS",
]
COMMON = [
    "INSERT INTO i VALUES (1, 'one'), (2, 'zwei ß'), (3, NULL)",
    *("BEGIN", "UPDATE i SET v = 'uno' WHERE id = 1", "DELETE FROM i WHERE id = 2", "INSERT INTO i VALUES (4, '')", "COMMIT"),
    *("BEGIN", "INSERT INTO i VALUES (10, 'a')", "SAVEPOINT `S 1`", "INSERT INTO i VALUES (11, 'b')", "ROLLBACK TO `S 1`", "INSERT INTO i VALUES (12, 'c')", "COMMIT"),
    *("BEGIN", "INSERT INTO i VALUES (13, 'a')", "ROLLBACK"),
    "INSERT INTO m VALUES (1, 'my')",
    "UPDATE i SET id = id + 100 WHERE id < 5",
    "INSERT INTO m VALUES (2, 'again')",
    "CREATE TABLE other (a int)",
    "ALTER TABLE other ADD COLUMN z int",
    "INSERT INTO other VALUES (1, 2)",
    "TRUNCATE TABLE other",
    "DROP TABLE other",
    *("XA START 'one'", "INSERT INTO i VALUES (50, 'xa')", "XA END 'one'", "XA COMMIT 'one' ONE PHASE"),
]  # fmt: skip
MIXED_ENGINES = [
    *("BEGIN", "INSERT INTO i VALUES (60, 'kept')", "SAVEPOINT s", "INSERT INTO i VALUES (61, 'undone')", "INSERT INTO m VALUES (61, 'my')", "ROLLBACK TO s", "INSERT INTO i VALUES (62, 'kept')", "COMMIT"),
    *("BEGIN", "SAVEPOINT s", "INSERT INTO i VALUES (63, 'undone')", "INSERT INTO m VALUES (63, 'my')", "ROLLBACK TO s", "INSERT INTO i VALUES (64, 'kept')", "COMMIT"),
    *("BEGIN", "INSERT INTO i VALUES (65, 'undone')", "CREATE TEMPORARY TABLE tmp (a int)", "INSERT INTO tmp VALUES (1)", "ROLLBACK"),
]  # fmt: skip
PAYLOAD = [
    "SET SESSION binlog_transaction_compression = ON",
    "CREATE TABLE aside (a int)",
    *("BEGIN", "INSERT INTO i VALUES (70, 'packed'), (71, 'packed')", "INSERT INTO aside VALUES (1), (2)", "UPDATE i SET v = 'more' WHERE id = 71", "COMMIT"),
    "SET SESSION binlog_transaction_compression = OFF",
    "SET gtid_next = 'AUTOMATIC:some_tag'",
    "INSERT INTO i VALUES (72, 'tagged')",
    "SET gtid_next = 'AUTOMATIC'",
    "FLUSH LOGS",
    "INSERT INTO i VALUES (73, 'in the next file')",
]  # fmt: skip
ZLIB = [
    "SET GLOBAL log_bin_compress = 1",
    "INSERT INTO i VALUES " + ", ".join(f"({number}, repeat('q', {number}))" for number in range(200, 220)),
    "UPDATE i SET v = concat(v, v) WHERE id BETWEEN 210 AND 211",
    "UPDATE i SET v = concat(v, '!') WHERE id BETWEEN 200 AND 215",
    "DELETE FROM i WHERE id > 216",
    f"CREATE TABLE packed (a int) COMMENT '{'x' * 400}'",
    "SET GLOBAL log_bin_compress = 0",
]
SELECT_INTO = ["CREATE TABLE cs (id int NOT NULL, v varchar(500)) SELECT id, v FROM i"]
TWO_PHASE_ALTER = [
    "SET SESSION binlog_alter_two_phase = 1",
    "ALTER TABLE m COMMENT 'one'",
    "ALTER TABLE m ADD COLUMN w int",
    "SET SESSION binlog_alter_two_phase = 0",
]
STATEMENT = [
    "SET SESSION binlog_format = STATEMENT",
    "INSERT INTO i VALUES (1, 'sent as text')",
    "SET SESSION binlog_format = ROW",
]
COMPUTED = [
    "CREATE TABLE g (id int PRIMARY KEY, a int, v bigint AS (id * 3) VIRTUAL, s int AS (a + 1) STORED, b int)",
    "INSERT INTO g (id, a, b) VALUES (1, 1, 1)",
    "UPDATE g SET a = 2",
    "DELETE FROM g",
]
PREPARED = [
    *("XA START 'two'", "INSERT INTO i VALUES (1, 'xa')", "XA END 'two'", "XA PREPARE 'two'"),
    "XA COMMIT 'two'",
]
PARTIAL = [
    "INSERT INTO i VALUES (1, 'one')",
    "SET SESSION binlog_row_image = MINIMAL",
    "UPDATE i SET v = 'two' WHERE id = 1",
    "SET SESSION binlog_row_image = FULL",
]
FULL_METADATA = [
    "SET GLOBAL binlog_row_metadata = FULL",
    "CREATE TABLE f (id int PRIMARY KEY, j json, g int AS (id * 2) VIRTUAL, h bigint unsigned AS (id * 3) STORED NOT NULL, inv enum('ä', 'b') DEFAULT 'ä' INVISIBLE, INDEX ((cast(j->'$.a' AS unsigned))))",
    """INSERT INTO f (id, j) VALUES (1, '{"a": 1}')""",
    "CREATE TABLE k (a varchar(20) CHARACTER SET utf8mb4, b char(5) CHARACTER SET ascii, c blob, d text CHARACTER SET latin1, e decimal(7,3) unsigned, s set('x','y'), p varbinary(7), PRIMARY KEY (a(3), b), t timestamp(3) NULL, y year, o bit(11), geo geometry, ve vector(5))",
    "INSERT INTO k (a, b) VALUES ('x', 'y')",
    "CREATE TABLE l (id int PRIMARY KEY, v varchar(500), w tinyint unsigned)",
    "INSERT INTO l VALUES (1, 'ß', 255)",
    "SET GLOBAL binlog_row_metadata = MINIMAL",
]
OLD_FORMS = [
    "SET GLOBAL mysql56_temporal_format = OFF",
    "SET time_zone = '+00:00'",
    "SET sql_mode = 'ALLOW_INVALID_DATES'",
    "CREATE TABLE old (id int PRIMARY KEY, "
    + ", ".join(
        f"c{place} {example.ddl}" for place, example in enumerate(e for f in range(7) for e in all_types.times(f))
    )
    + ")",
    *(
        f"INSERT INTO old VALUES ({row}, "
        + ", ".join(example.values[row % len(example.values)] for f in range(7) for example in all_types.times(f))
        + ")"
        for row in range(5)
    ),
    "SET GLOBAL mysql56_temporal_format = ON",
]


def scenarios(kind: str) -> list[Scenario]:
    found = [
        Scenario("types", all_types.ALL, ["DROP DATABASE IF EXISTS zoo", "FLUSH LOGS", *all_types.statements(kind)], (all_types.table(kind),)),
        Scenario("transactions", ("mysql56",), [*MAKE, *COMMON], (INNO, MYISAM)),
        Scenario("transactions", ("mysql97",), [*MAKE, *COMMON, *SELECT_INTO, *PAYLOAD], (INNO, MYISAM, SELECTED)),
        Scenario("transactions", all_types.NEW_MARIADB, [*MAKE, *COMMON, *MIXED_ENGINES, *SELECT_INTO, *ZLIB, *TWO_PHASE_ALTER], (INNO, MYISAM, SELECTED)),
        Scenario("transactions", ("mariadb102",), [*MAKE, *COMMON, *MIXED_ENGINES, *SELECT_INTO, *ZLIB], (INNO, MYISAM, SELECTED)),
        Scenario("transactions", ("mariadb101",), [*MAKE, *COMMON, *MIXED_ENGINES, *SELECT_INTO], (INNO, MYISAM, SELECTED)),
        Scenario("old-times", ("mariadb", "mariadb101"), [*MAKE, *OLD_FORMS], (OLD_TIMES,)),
        Scenario("computed", ("mariadb118",), [*MAKE, *COMPUTED], ()),
        Scenario("metadata", ("mysql97",), [*MAKE, *FULL_METADATA], (FUNCTIONAL,)),
        Scenario("statement", CURRENT, [*MAKE, *STATEMENT], ()),
        Scenario("prepared", CURRENT, [*MAKE, *PREPARED], ()),
        Scenario("partial", CURRENT, [*MAKE, *PARTIAL], ()),
    ]  # fmt: skip
    return [scenario for scenario in found if kind in scenario.kinds]


@dataclass(frozen=True)
class Recording:
    """A server's log of one scenario, and the rows that the server shows afterwards."""

    log_file: str
    log: bytes
    tables: tuple[Table, ...]
    rows: dict[str, list[list[Any]]]

    @property
    def format(self) -> Format:
        walker = LogWalker(self.log_file)
        walker.feed(next(iter_raw(self.events)))
        assert walker.format is not None
        return walker.format

    @property
    def events(self) -> bytes:
        assert self.log.startswith(MAGIC)
        return self.log[len(MAGIC) :]

    @property
    def structures(self) -> dict[TableName, Table]:
        return {table.name: table for table in self.tables}


def play(cursor: Any, kind: str, scenario: Scenario, logs: Path) -> Recording:
    """Runs all statements on a server. The log begins with the scenario's own FLUSH LOGS."""
    first = ""
    for statement in scenario.statements:
        cursor.execute(statement)
        if statement == "FLUSH LOGS" and not first:
            first = _newest(logs).name
    rows = {str(table.name): _rows(cursor, kind, scenario, table) for table in scenario.tables}
    files = sorted(path for path in logs.glob("bin.0*[0-9]") if path.name >= first)
    log = MAGIC + b"".join(path.read_bytes()[len(MAGIC) :] for path in files)
    cursor.execute("FLUSH LOGS")
    return Recording(first, log, scenario.tables, rows)


def _newest(logs: Path) -> Path:
    return max(logs.glob("bin.0*[0-9]"))


def _rows(cursor: Any, kind: str, scenario: Scenario, table: Table) -> list[list[Any]]:
    if table.name == all_types.NAME:
        cursor.execute(all_types.query(kind))
        return [[brief(value) for value in all_types.as_server(row, kind)] for row in cursor.fetchall()]
    cursor.execute(scenario.query(table))
    return [[brief(value) for value in row] for row in cursor.fetchall()]


def brief(value: Any) -> Any:
    """Returns a short form of long values, for the files of answers."""
    if isinstance(value, str) and len(value) > 200:
        return f"{len(value)} characters {hashlib.sha256(value.encode()).hexdigest()}"
    return value


def keep(recording: Recording, name: str) -> None:
    (VECTORS / f"{name}.binlog.gz").write_bytes(gzip.compress(recording.log, mtime=0))
    lines = [f'{{"log_file": "{recording.log_file}", "tables": [']
    lines.append(",\n".join(_line(table.to_json()) for table in recording.tables))
    lines.append('], "rows": {')
    lines.append(
        ",\n".join(f'"{table}": [\n' + ",\n".join(map(_line, rows)) + "\n]" for table, rows in recording.rows.items())
    )
    (VECTORS / f"{name}.json").write_text("\n".join([*lines, "}}", ""]))


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def load(name: str) -> Recording:
    answer = json.loads((VECTORS / f"{name}.json").read_text())
    return Recording(
        answer["log_file"],
        gzip.decompress((VECTORS / f"{name}.binlog.gz").read_bytes()),
        tuple(Table.from_json(table) for table in answer["tables"]),
        answer["rows"],
    )


def kept() -> list[str]:
    return sorted(path.name.removesuffix(".json") for path in VECTORS.glob("*.json"))


def replayed(recording: Recording) -> dict[str, list[list[Any]]]:
    """Returns the rows after all changes of the log. Every before image must be equal to the row as it was."""
    batches = decode_slice(
        recording.events,
        format=recording.format,
        log_file=recording.log_file,
        change_no=0,
        structures=recording.structures,
    )
    found: dict[str, dict[int, list[Any]]] = {str(table.name): {} for table in recording.tables}
    for batch in batches:
        batch.rows.validate(full=True)
        _replay(batch.rows, batch.table, found[str(batch.table.name)])
    return {name: [rows[key] for key in sorted(rows)] for name, rows in found.items()}


def _replay(changes: pa.RecordBatch, table: Table, rows: dict[int, list[Any]]) -> None:
    old = all_types.as_decoded(changes.column("before"), table)
    new = all_types.as_decoded(changes.column("after"), table)
    for number, op in enumerate(changes.column("op").to_pylist()):
        if op != Op.INSERT:
            assert rows.pop(old[number][0]) == [brief(value) for value in old[number]]
        if op != Op.DELETE:
            assert new[number][0] not in rows
            rows[new[number][0]] = [brief(value) for value in new[number]]
