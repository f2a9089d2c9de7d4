"""Logs that real servers write with each kind of row image give the right rows, and the version guard works on real
targets.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from tests.apply.rows.test_version_guard import delete, history, insert, row, update

from pidts.apply import ApplyRules, Target, TargetSession, prepared
from pidts.binlog import LogWalker, decode_slice, iter_raw
from pidts.login import Mode, Tls
from pidts.model import ChangeBatch, Column, ColumnType, Key, Kind, Lsn, Table, TableName, Tombstones, Transient
from pidts.reduce import with_whole_keys
from pidts.rules import AllowList
from pidts.sandbox import Server
from pidts.source import SourceConfig, read_structures
from pidts.source.connection import connect as connect_source
from pidts.target import MySqlTarget, PostgresTarget
from pidts.target.mysql.errors import StatementRefused

from .table_history import PRIMARY, Change, batch_of

_numbers = itertools.count(int(time.time()) % 1_000_000 * 1000)


def target_on(server: Server) -> Target:
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password}
    if server.kind == "postgres":
        return PostgresTarget(**settings)
    return MySqlTarget(**settings, tls=Tls(Mode.DISABLED))


@pytest.fixture(params=["mariadb", "postgres"])
def session(request: pytest.FixtureRequest) -> Iterator[TargetSession]:
    with closing(target_on(request.getfixturevalue(request.param)).connect()) as session:
        session.meta.prepare()
        yield session


def create(session: TargetSession, table: Table) -> None:
    if session.schema.transactional_ddl:
        session.begin()
    for sql in session.schema.create_statements(table).statements:
        session.execute(sql)
    if session.schema.transactional_ddl:
        session.commit()


def apply(session: TargetSession, batches: list[ChangeBatch], rules: ApplyRules) -> None:
    session.begin()
    for change in prepared(session, batches, rules):
        session.write(change)
    session.commit()


TABLES = [
    """CREATE TABLE {db}.a (id INT AUTO_INCREMENT PRIMARY KEY, n INT DEFAULT 5, s VARCHAR(20) NOT NULL DEFAULT 'x y',
    d DECIMAL(9,2) DEFAULT 1.50, at DATETIME(6) DEFAULT '2001-02-03 04:05:06.7', t TEXT, b BLOB,
    e ENUM('p','q') DEFAULT 'q', z BIGINT NOT NULL, k INT UNIQUE,
    ts TIMESTAMP(6) NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6))""",
    "CREATE TABLE {db}.u (n INT DEFAULT 3, k VARCHAR(9) NOT NULL UNIQUE, t TEXT)",
    "CREATE TABLE {db}.nokey (n INT DEFAULT 3, m INT NOT NULL, t TEXT)",
]


def workload(chance: random.Random, db: str, *, replaces: bool) -> Iterator[str]:
    """Returns random statements: they insert rows with some of their columns, change some columns, and give rows other
    keys.

    MariaDB logs a REPLACE with MINIMAL images as an UPDATE. This UPDATE lacks the columns that the REPLACE has set to
    their defaults, so the log does not show these values.
    """
    replace = "REPLACE" if replaces else "INSERT IGNORE"
    for _ in range(160):
        number, other = chance.randrange(12), chance.randrange(12)
        text = f"REPEAT('t', {chance.randrange(1, 40)})"
        yield chance.choice(
            [
                f"SET SESSION binlog_row_image = {chance.choice(['MINIMAL', 'MINIMAL', 'NOBLOB', 'FULL'])}",
                f"INSERT IGNORE INTO {db}.a (id, k) VALUES ({number + 1}, {other})",
                f"INSERT IGNORE INTO {db}.a (id, t, b) VALUES ({number + 1}, {text}, 0x00ff)",
                f"INSERT IGNORE INTO {db}.a () VALUES ()",
                f"{replace} INTO {db}.a (id, n, k) VALUES ({number + 1}, {other}, {other})",
                f"INSERT INTO {db}.a (id, n) VALUES ({number + 1}, 1) ON DUPLICATE KEY UPDATE n = {other}",
                f"UPDATE {db}.a SET n = n + 1 WHERE id % 3 = {number % 3}",
                f"UPDATE IGNORE {db}.a SET id = id + {other} WHERE id = {number + 1}",
                f"UPDATE IGNORE {db}.a SET k = {other} WHERE id = {number + 1}",
                f"UPDATE {db}.a SET t = {text}, e = 'p' WHERE id > {number}",
                f"UPDATE {db}.a SET b = NULL WHERE id = {number + 1}",
                f"DELETE FROM {db}.a WHERE id = {number + 1}",
                f"INSERT IGNORE INTO {db}.u (k) VALUES ('k{number}')",
                f"UPDATE IGNORE {db}.u SET t = {text}, k = 'k{other}' WHERE k = 'k{number}'",
                f"UPDATE {db}.u SET t = {text} WHERE k < 'k{number}'",
                f"DELETE FROM {db}.u WHERE k = 'k{number}'",
                f"INSERT INTO {db}.nokey (m) VALUES ({number % 3})",
                f"UPDATE {db}.nokey SET n = {other} WHERE m = {number % 3}",
                f"DELETE FROM {db}.nokey WHERE m = {number % 3} LIMIT 1",
            ]
        )


def logged(cursor: Any, statements: Iterator[str]) -> tuple[bytes, str]:
    """Returns the log file that the statements have filled."""
    cursor.execute("FLUSH LOGS")
    for statement in statements:
        cursor.execute(statement)
    cursor.execute("SHOW BINARY LOGS")
    name = cursor.fetchall()[-1][0]
    cursor.execute("SELECT @@log_bin_basename")
    return (Path(cursor.fetchone()[0]).parent / name).read_bytes()[4:], name


@pytest.mark.parametrize("to", ["mariadb", "postgres"])
def test_values_that_the_log_omits_nevertheless_arrive(mysql_like, database, to, request):
    settings = {
        "host": mysql_like.host,
        "port": mysql_like.port,
        "user": mysql_like.user,
        "password": mysql_like.password,
    }
    chance = random.Random(2)
    with (
        closing(pymysql.connect(**settings, autocommit=True, ssl_disabled=True)) as connection,
        closing(connect_source(SourceConfig(source_id="s", **settings, tls=Tls(Mode.DISABLED)))) as source,
        closing(target_on(request.getfixturevalue(to)).connect()) as target,
        closing(target_on(mysql_like).connect()) as there,
    ):
        cursor = connection.cursor()
        cursor.execute("SET SESSION sql_mode = ''")
        for sql in TABLES:
            cursor.execute(sql.format(db=database))
        structures = read_structures(source, AllowList(do_dbs=(database,)))
        data, name = logged(cursor, workload(chance, database, replaces=mysql_like.kind != "mariadb"))
        expected = {table.name: there.read_rows(table) for table in structures.values()}
        walker = LogWalker(name, 4)
        first = next(iter(iter_raw(data)))
        walker.feed(first)
        batches = decode_slice(
            data[len(first) :],
            format=walker.format,
            log_file=name,
            change_no=0,
            structures=structures,
            offset=4 + len(first),
        )
        assert any(batch.is_partial for batch in batches)
        target.meta.prepare()
        copies = {old: table.renamed(TableName(f"to_{database}", old.name)) for old, table in structures.items()}
        for table in copies.values():
            create(target, table)
        moved = [with_whole_keys(ChangeBatch(copies[batch.table.name], batch.rows)) for batch in batches]
        for part in _cut(moved, chance):
            apply(target, part, ApplyRules())
        for old, table in copies.items():
            assert _sorted(target.read_rows(table)) == _sorted(expected[old]), old


def _cut(batches: list[ChangeBatch], chance: random.Random) -> Iterator[list[ChangeBatch]]:
    """Cuts the changes of each table into pieces; the pieces of a table keep their order."""
    for batch in batches:
        begin = 0
        while begin < len(batch):
            size = chance.randrange(1, 25)
            yield [ChangeBatch(batch.table, batch.rows.slice(begin, size))]
            begin += size


def _sorted(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


VERSIONED = (
    Column("id", ColumnType(Kind.INT), nullable=False),
    Column("v", ColumnType(Kind.TIMESTAMP, fsp=6)),
    Column("w", ColumnType(Kind.INT)),
)
RULES = ApplyRules(source="s", version_column="v")


@pytest.fixture
def table(session: TargetSession) -> Table:
    made = Table(TableName("guarded", f"t{next(_numbers)}"), VERSIONED, (PRIMARY,))
    create(session, made)
    return made


def rows_of(session: TargetSession, table: Table) -> list[dict[str, Any]]:
    found = session.read_rows(table)
    return found.set_column(1, "v", found["v"].cast(pa.int64())).to_pylist()


def at(change: Change) -> Change:
    """Returns the change with times of this century as its versions, one second apart."""
    op, *images = change
    moved = [image and {**image, "v": None if image["v"] is None else 10**15 + image["v"] * 10**6} for image in images]
    return (op, moved[0], moved[1])


def test_a_replayed_range_shows_no_older_value_to_a_reader(session, table, request):
    kind = request.node.callspec.params["session"]
    reader = target_on(request.getfixturevalue(kind)).connect()
    changes = list(map(at, history(random.Random(3), 200, 8, steady=True)))
    apply(session, [batch_of(table, changes)], RULES)
    final = rows_of(session, table)
    seen: list[Any] = []
    stop = threading.Event()

    def sample() -> None:
        while not stop.is_set():
            seen.append(rows_of(reader, table))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        for begin in (0, 60, 130):
            for first in range(begin, len(changes), 40):
                apply(session, [batch_of(table, changes[first : first + 40], first)], RULES)
    finally:
        stop.set()
        thread.join()
        reader.close()
    assert seen
    versions = {found["id"]: found["v"] for found in final}
    for rows in seen:
        assert all(found["v"] >= versions.get(found["id"], 0) for found in rows)
    assert seen[-1] == rows_of(session, table) == final


def test_a_late_upsert_does_not_bring_a_deleted_row_back(session, table):
    first, last = row(5, 1), row(7, 2)
    apply(session, [batch_of(table, [at(insert(first)), at(update(first, last)), at(delete(last))], 50)], RULES)
    apply(session, [batch_of(table, [at(insert(first))], 1)], RULES)
    apply(
        session, [batch_of(table, [at(update(first, row(6, 9)))], 90)], ApplyRules(source="other", version_column="v")
    )
    assert rows_of(session, table) == []
    apply(session, [batch_of(table, [at(insert(row(8, 3)))], 95)], RULES)
    assert [found["w"] for found in rows_of(session, table)] == [3]


def test_ties_go_to_the_next_change_alone(session, table):
    one, two, three = row(5, 1), row(5, 2), row(5, 3)
    for place, change in enumerate([insert(one), update(one, two), update(two, three)]):
        apply(session, [batch_of(table, [at(change)], place)], RULES)
        assert rows_of(session, table)[0]["w"] == place + 1
    for place, change in enumerate([insert(one), update(one, two), update(two, three), delete(two)]):
        apply(session, [batch_of(table, [at(change)], place)], RULES)
        assert rows_of(session, table)[0]["w"] == 3
    apply(session, [batch_of(table, [at(delete(three))], 9)], RULES)
    assert rows_of(session, table) == []


def test_tombstones_are_kept_for_a_week(session, table, monkeypatch):
    def buried(ids: range, days: float) -> None:
        monkeypatch.setattr("pidts.target.tombstones.time.time", lambda: 10**9 + days * 86_400)
        apply(session, [batch_of(table, [at(delete(row(5, key=key))) for key in ids], next(places))], RULES)

    places = itertools.count(50, 50)

    def kept() -> int:
        counted = "SELECT count(*) FROM pidts_meta.tombstone WHERE table_schema = %s AND table_name = %s"
        return int(session.run(counted, (table.name.schema, table.name.name))[0][0][0])

    buried(range(10), 0)
    buried(range(10, 14), 6.9)
    assert kept() == 14
    for _ in range(6):  # Each statement reads as many rows as it deletes.
        buried(range(20, 24), 7.1)
    assert kept() == 8
    apply(session, [batch_of(table, [at(insert(row(4, 7))), at(insert(row(4, 8, key=12)))], 1)], RULES)
    assert [(found["id"], found["w"]) for found in rows_of(session, table)] == [(1, 7)]


def test_rows_that_are_read_for_the_guard_are_locked(session, table, request):
    apply(session, [batch_of(table, [at(insert(row(5)))])], RULES)
    other = target_on(request.getfixturevalue(request.node.callspec.params["session"])).connect()
    session.begin()
    keys = pa.table({"id": pa.array([1], pa.int32())})
    assert session.read_rows(table, keys=keys, lock=True).num_rows == 1
    wait = "SET innodb_lock_wait_timeout = 1" if not session.schema.transactional_ddl else "SET lock_timeout = '300ms'"
    other.run(wait, ())
    other.begin()
    with pytest.raises(Exception, match=r"(?i)lock") as caught:
        other.read_rows(table, keys=keys, lock=True)
    assert not isinstance(caught.value, StatementRefused)
    other.close()
    session.rollback()


def test_every_row_that_decides_is_locked_until_the_transaction_ends(session, table, request):
    """A DELETE needs the whole row of the target, an UPDATE only its version; the two are read by different queries."""
    apply(session, [batch_of(table, [at(insert(row(5, key=key))) for key in (1, 2, 3)])], RULES)
    other = target_on(request.getfixturevalue(request.node.callspec.params["session"])).connect()
    wait = "SET innodb_lock_wait_timeout = 1" if not session.schema.transactional_ddl else "SET lock_timeout = '300ms'"
    other.run(wait, ())
    session.begin()
    changes = [at(delete(row(5, key=1))), at(update(row(5, key=2), row(6, key=2)))]
    prepared(session, [batch_of(table, changes, 20)], RULES)
    for key, is_locked in ((1, True), (2, True), (3, False)):
        other.begin()
        keys = pa.table({"id": pa.array([key], pa.int32())})
        if is_locked:
            with pytest.raises(Exception, match=r"(?i)lock"):
                other.read_rows(table, keys=keys, lock=True)
        else:
            assert other.read_rows(table, keys=keys, lock=True).num_rows == 1
        other.rollback()
    other.close()
    session.rollback()


@pytest.mark.parametrize("count", [1, 300], ids=["as SQL", "as row events"])
def test_no_row_is_written_if_its_tombstone_is_refused(session, table, request, count):
    """The statement for the tombstones may wait in the pipeline: its error has to end the attempt before the COMMIT."""
    apply(session, [batch_of(table, [at(insert(row(5)))])], RULES)
    other = target_on(request.getfixturevalue(request.node.callspec.params["session"])).connect()
    other.begin()
    before = tombstones(other, table)
    other.meta.tombstones.write(table.name, Tombstones(pa.array(["1|"]), pa.array(["1"]), "s", pa.array(["y"])))
    other.run("SELECT 1", ())  # sends the statements, so that the row is locked
    wait = "SET innodb_lock_wait_timeout = 1" if not session.schema.transactional_ddl else "SET lock_timeout = '300ms'"
    session.run(wait, ())
    changes = [at(delete(row(5))), *(at(insert(row(1, key=key))) for key in range(2, 2 + count))]
    with pytest.raises(Transient):
        apply(session, [batch_of(table, changes, 20)], RULES)
    session.rollback()
    other.rollback()
    assert [found["id"] for found in rows_of(session, table)] == [1]
    assert tombstones(session, table) == before
    apply(session, [batch_of(table, changes, 20)], RULES)
    assert [found["id"] for found in rows_of(session, table)] == list(range(2, 2 + count))
    assert [key for key, *_ in tombstones(session, table)] == ["1|"]
    other.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_large_batches_leave_what_small_ones_leave(session, table, request, seed):
    """Compiled code reads the rows of large batches, and MariaDB gets row events. Small batches have neither."""
    chance = random.Random(seed)
    changes = list(map(at, history(chance, 2400, 900, steady=False)))
    twin = replace(table, name=TableName("guarded", f"t{next(_numbers)}"))
    create(session, twin)
    for made, size in ((table, 800), (twin, 40)):
        for begin in (0, 700):  # the log is read again from its middle
            for first in range(begin, len(changes), size):
                part = changes[first : min(first + size, len(changes))]
                apply(session, [batch_of(made, part, first)], RULES)
    assert rows_of(session, table) == rows_of(session, twin)
    there = {f"{found['id']}|" for found in rows_of(session, table)}
    buried = [{key: rest for key, *rest in tombstones(session, made) if key not in there} for made in (table, twin)]
    assert buried[0] == buried[1]
    assert len(buried[0]) > 50
    if request.node.callspec.params["session"] == "mariadb":
        assert int(session.run("SHOW SESSION STATUS LIKE 'Com_binlog'", ())[0][0][1]) > 0


def tombstones(session: Any, table: Table) -> list[Any]:
    sql = "SELECT row_key, version_value, source, lsn FROM pidts_meta.tombstone WHERE table_schema = %s AND table_name = %s"
    found: list[Any] = session.run(sql, (table.name.schema, table.name.name))[0]
    return found


def test_keys_of_every_kind_find_their_tombstone(session):
    columns = (
        Column("i", ColumnType(Kind.BIGINT, unsigned=True), nullable=False),
        Column("s", ColumnType(Kind.VARCHAR, length=300, charset="utf8mb4", collation="utf8mb4_bin"), nullable=False),
        Column("b", ColumnType(Kind.VARBINARY, length=20), nullable=False),
        Column("d", ColumnType(Kind.DATETIME, fsp=6), nullable=False),
        Column("n", ColumnType(Kind.DECIMAL, precision=10, scale=3), nullable=False),
        Column("v", ColumnType(Kind.BIGINT)),
    )
    names = tuple(column.name for column in columns[:5])
    keys = (Key("PRIMARY", names, unique=True, primary=True),)
    table = Table(TableName("guarded", f"k{next(_numbers)}"), columns, keys)
    create(session, table)
    rows = [
        {"i": 2**64 - 1, "s": text, "b": data, "d": 10**15 + place, "n": place, "v": 5}
        for place, (text, data) in enumerate(
            [("a|", b"b"), ("a", b"|b"), ("a ", b"b"), ("ü" * 300, b"\0"), ("\\", b"")]
        )
    ]
    apply(session, [batch_of(table, [insert(one) for one in rows])], RULES)
    apply(session, [batch_of(table, [delete(one) for one in rows], 50)], RULES)
    apply(session, [batch_of(table, [insert({**one, "v": 4}) for one in rows], 1)], RULES)
    assert session.count(table.name) == 0
    apply(session, [batch_of(table, [insert({**one, "v": 6}) for one in rows], 1)], RULES)
    assert session.count(table.name) == 5


def test_the_safe_range_is_the_last_one_that_the_first_start_saved(session):
    task = f"t{next(_numbers)}"
    assert session.meta.safe_range.read(task, "s") is None
    for lsn in (Lsn(0, 1, 99), Lsn(1, 2, 3), None, Lsn(0, 1, 7)):
        session.begin()
        session.meta.safe_range.save(task, "s", lsn)
        session.commit()
        assert session.meta.safe_range.read(task, "s") == lsn
    assert session.meta.safe_range.read(task, "other") is None


@pytest.mark.parametrize("count", [1, 300], ids=["as SQL", "as row events"])
def test_a_later_row_without_a_new_column_gets_its_default(session, table, count):
    """The zone that made the later row gives it the default, too, when the schema change arrives there."""
    keys = range(1, count + 1)
    converges = replace(RULES, converges=True)
    before = [at(insert(row(5, key=key))) for key in [*keys, 1000]]
    apply(session, [batch_of(table, before)], converges)
    if session.schema.transactional_ddl:
        session.begin()
    session.execute(f"ALTER TABLE guarded.{table.name.name} ADD COLUMN c INT NOT NULL DEFAULT 1")
    session.execute(f"UPDATE guarded.{table.name.name} SET c = 9")
    if session.schema.transactional_ddl:
        session.commit()
    later = [at(update(row(5, key=key), row(6, key=key))) for key in keys]
    earlier = at(update(row(2, key=1000), row(3, key=1000)))
    apply(session, [batch_of(table, [*later, earlier, at(insert(row(6, key=1001)))], 20)], converges)
    wider = replace(table, columns=(*table.columns, Column("c", ColumnType(Kind.INT))))
    found = {one["id"]: one["c"] for one in session.read_rows(wider).to_pylist()}
    assert found == {**dict.fromkeys(keys, 1), 1000: 9, 1001: 1}
    assert {one["id"]: one["w"] for one in rows_of(session, table)}.keys() == found.keys()
