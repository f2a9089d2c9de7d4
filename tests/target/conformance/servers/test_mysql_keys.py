"""MySQL and MariaDB: a collision in a key or column that only the target has is an error, and removes no other row."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.target.conformance.conftest import MYSQL_KINDS
from tests.target.conformance.samples import INT, change, create, rows, table, text, write

from pidts.apply import Target, TargetSession
from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName
from pidts.target.mysql.prepared_tables import PreparedTables
from pidts.target.mysql.writer import Writer

ALL = pytest.mark.parametrize("kind", MYSQL_KINDS)
MODERN = pytest.mark.parametrize("kind", ["mariadb", "mysql97"])


def made(session: TargetSession, name: TableName, body: str) -> None:
    session.execute(f"CREATE DATABASE IF NOT EXISTS {name.schema}")
    session.execute(f"CREATE TABLE {name} ({body}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4")


def content(session: TargetSession, structure: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in session.read_rows(structure).to_pylist())


@ALL
@pytest.mark.parametrize(
    ("key", "first", "second"),
    [
        (ColumnType(Kind.INT), 1, 2),
        (ColumnType(Kind.BIGINT, unsigned=True), 2**64 - 1, 2),
        (ColumnType(Kind.TIMESTAMP), 1_000_000, 2_000_000),
        (ColumnType(Kind.TIMESTAMP, fsp=6), 1_000_001, 2_000_000),
        (ColumnType(Kind.DATETIME), 0, 2_000_000),
        (ColumnType(Kind.FLOAT), -3.4028234663852886e38, 1.0),
        (ColumnType(Kind.VARCHAR, length=9, charset="latin1", collation="latin1_swedish_ci"), "ä", "b"),
        (ColumnType(Kind.VARCHAR, length=9, charset="ucs2", collation="ucs2_general_ci"), "ä", "b"),
        (ColumnType(Kind.ENUM, labels=("a", "b"), charset="utf8mb4", collation="utf8mb4_bin"), "a", "b"),
    ],
    ids=lambda each: str(each.kind) if isinstance(each, ColumnType) else None,
)
def test_another_rows_unique_value_is_refused_whatever_the_key_is(
    session: TargetSession, name: TableName, key: ColumnType, first: Any, second: Any
) -> None:
    structure = Table(
        name,
        (Column("k", key, nullable=False, auto_increment=key.is_integer), Column("u", INT), Column("v", INT)),
        (Key("PRIMARY", ("k",), unique=True, primary=True), Key("u", ("u",), unique=True)),
    )
    create(session, structure)
    for version in (1, 2):
        write(session, change(structure, upserts=[(first, 1, version)]))
    with pytest.raises(Halted, match="overwrite another"):
        write(session, change(structure, upserts=[(second, 1, 3)]))
    assert session.read_rows(structure).equals(rows(structure, (first, 1, 2)))


OWN_KEYS = {
    "one more": "id int PRIMARY KEY, u varchar(40) COLLATE utf8mb4_bin, v int, UNIQUE (u)",
    "counting": "id int AUTO_INCREMENT PRIMARY KEY, u varchar(40) COLLATE utf8mb4_bin, v int, UNIQUE (u)",
    "prefix": "id int PRIMARY KEY, u varchar(40) COLLATE utf8mb4_bin, v int, UNIQUE (u(4))",
    "folding": "id int PRIMARY KEY, u varchar(40) COLLATE utf8mb4_general_ci, v int, UNIQUE (u)",
}
NEW_KEYS = {
    "stored": "id int PRIMARY KEY, u varchar(40), v int, g varchar(9) GENERATED ALWAYS AS (left(u, 4)) STORED, UNIQUE (g)",
    "virtual": (
        "id int PRIMARY KEY, u varchar(40), v int, g varchar(9) GENERATED ALWAYS AS (left(u, 4)) VIRTUAL, UNIQUE (g)"
    ),
}


@ALL
@pytest.mark.parametrize("body", OWN_KEYS.values(), ids=OWN_KEYS.keys())
def test_a_unique_key_that_only_the_target_has_refuses(session: TargetSession, name: TableName, body: str) -> None:
    _refuses(session, name, body)


@MODERN
@pytest.mark.parametrize("body", NEW_KEYS.values(), ids=NEW_KEYS.keys())
def test_a_unique_key_over_a_computed_column_refuses(
    session: TargetSession, name: TableName, kind: str, body: str
) -> None:
    del kind
    _refuses(session, name, body)


@pytest.mark.parametrize("kind", ["mysql97"])
def test_a_unique_key_over_an_expression_refuses(session: TargetSession, name: TableName, kind: str) -> None:
    del kind
    _refuses(session, name, "id int PRIMARY KEY, u varchar(40), v int, UNIQUE ((left(u, 4)))")


@ALL
@pytest.mark.parametrize("key", [("id",), ()], ids=["with a key", "without a key"])
def test_the_advice_has_the_statement_that_removes_the_targets_own_unique_key(
    session: TargetSession, name: TableName, key: tuple[str, ...]
) -> None:
    made(
        session,
        name,
        "id int PRIMARY KEY, u int, v int, UNIQUE own (u)" if key else "id int, u int, v int, UNIQUE own (u)",
    )
    structure = table(name, {"id": INT, "u": INT, "v": INT})
    structure = structure if key else replace(structure, keys=())
    write(session, change(structure, upserts=[(1, 7, 1)]))
    with pytest.raises(Halted, match="target-refused") as refused:
        write(session, change(structure, upserts=[(2, 7, 1)]))
    (statement,) = re.findall(r"Remove the index: (ALTER TABLE .* DROP INDEX `own`)", refused.value.todo)
    session.execute(statement)
    session.schema.forget()
    write(session, change(structure, upserts=[(2, 7, 1)]))
    assert content(session, structure) == [(1, 7, 1), (2, 7, 1)]


@ALL
def test_the_advice_names_each_own_unique_key_that_may_have_refused_and_no_primary_key(
    session: TargetSession, name: TableName
) -> None:
    made(session, name, "id int NOT NULL, u int, v int, w int PRIMARY KEY, UNIQUE (id), UNIQUE a (u), UNIQUE b (v)")
    structure = table(name, {"id": INT, "u": INT, "v": INT, "w": INT})
    write(session, change(structure, upserts=[(1, 7, 1, 1)]))
    with pytest.raises(Halted, match="overwrite another") as refused:
        write(session, change(structure, upserts=[(2, 7, 2, 2)]))
    place = f"ALTER TABLE `{name.schema}`.`{name.name}` DROP"
    assert f"{place} INDEX `a` or {place} INDEX `b`. Otherwise: give the target's unique keys" in refused.value.todo
    assert "PRIMARY" not in refused.value.todo


@ALL
def test_a_key_that_the_source_has_is_compared(session: TargetSession, name: TableName) -> None:
    made(session, name, "id int PRIMARY KEY, u int, UNIQUE own (u)")
    structure = table(name, {"id": INT, "u": INT}, unique=["u"])
    write(session, change(structure, upserts=[(1, 7)]))
    with pytest.raises(Halted, match="overwrite another") as refused:
        write(session, change(structure, upserts=[(2, 7)]))
    assert "DROP INDEX" not in refused.value.todo
    assert "--resync TABLE" in refused.value.todo


def _refuses(session: TargetSession, name: TableName, body: str) -> None:
    """Checks that a statement is refused if its texts are equal in the target's key only, and that no row is lost."""
    made(session, name, body)
    structure = table(name, {"id": INT, "u": text(), "v": INT})
    folds = "general_ci" in body or "left" in body or "(4)" in body
    first, second = ("same1", "SAME1" if "general_ci" in body else "same2") if folds else ("same", "same")
    write(session, change(structure, upserts=[(1, first, 1)]))
    for version in (2, 3):
        write(session, change(structure, upserts=[(1, first, version)]))
    for rival in ([(2, second, 3)], [(5, "other", 5), (2, second, 3)]):
        with pytest.raises(Halted, match="overwrite another"):
            write(session, change(structure, upserts=rival))
        assert content(session, structure) == [(1, first, 3)]
    write(session, change(structure, upserts=[(2, "free", 0)]))
    with pytest.raises(Halted, match="target-refused"):
        write(session, change(structure, upserts=[(2, second, 3)]))
    write(session, change(structure, deletes=[(1,)], upserts=[(2, second, 3)]))
    assert content(session, structure) == [(2, second, 3)]


@MODERN
def test_columns_that_the_target_computes_or_hides_are_no_hindrance(
    session: TargetSession, name: TableName, kind: str
) -> None:
    del kind
    made(
        session,
        name,
        "id int PRIMARY KEY, v int, s int GENERATED ALWAYS AS (v + 1) STORED, w int GENERATED ALWAYS AS (v + 2) VIRTUAL,"
        " hidden int DEFAULT 7 INVISIBLE, extra varchar(9) DEFAULT 'kept'",
    )
    structure = table(name, {"id": INT, "v": INT, "s": INT, "w": INT})
    assert session.schema.misfits(structure) == []
    write(session, change(structure, upserts=[(1, 10, 0, 0), (2, 20, 0, 0)]))
    write(session, change(structure, deletes=[(2,)], upserts=[(1, 11, 0, 0)]))
    whole = table(name, {"id": INT, "v": INT, "s": INT, "w": INT, "hidden": INT, "extra": text()})
    assert content(session, whole) == [(1, 11, 12, 13, 7, "kept")]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (
            "mysql97",
            "id int, v int, g int GENERATED ALWAYS AS (v % 10) STORED NOT NULL, u int UNIQUE, PRIMARY KEY (id, g)",
        ),
        ("mysql97", "id int NOT NULL, v int, g int GENERATED ALWAYS AS (v % 10) VIRTUAL, u int UNIQUE, UNIQUE (id, g)"),
        ("mariadb", "id int NOT NULL, v int, g int GENERATED ALWAYS AS (v % 10) STORED, u int UNIQUE, UNIQUE (id, g)"),
        ("mariadb", "id int NOT NULL, v int, g int GENERATED ALWAYS AS (v % 10) VIRTUAL, u int UNIQUE, UNIQUE (id, g)"),
    ],
)
def test_a_computed_column_may_be_part_of_the_key(
    session: TargetSession, name: TableName, kind: str, body: str
) -> None:
    del kind
    made(session, name, body)
    structure = table(name, {"id": INT, "v": INT, "g": INT, "u": INT}, key=["id", "g"])
    assert session.schema.misfits(structure) == []
    write(session, change(structure, upserts=[(1, 11, 1, 5), (1, 12, 2, 6)]))
    write(session, change(structure, upserts=[(1, 21, 1, 5)]))
    assert content(session, structure) == [(1, 12, 2, 6), (1, 21, 1, 5)]
    with pytest.raises(Halted, match="overwrite another"):
        write(session, change(structure, upserts=[(1, 33, 3, 5)]))
    write(session, change(structure, deletes=[(1, 1)]))
    assert content(session, structure) == [(1, 12, 2, 6)]


@MODERN
def test_a_key_that_is_computed_as_a_whole_is_reported_as_unfit(
    session: TargetSession, name: TableName, kind: str
) -> None:
    del kind
    made(session, name, "v int, g int GENERATED ALWAYS AS (v + 1) STORED, UNIQUE (g)")
    problems = session.schema.misfits(table(name, {"v": INT, "g": INT}, key=["g"]))
    assert problems is not None
    assert any("computed" in problem for problem in problems)


@ALL
def test_columns_of_a_fixed_width_would_lose_what_is_short(session: TargetSession, name: TableName) -> None:
    made(session, name, "id int PRIMARY KEY, v char(40), b binary(4), c binary(4), d binary(4)")
    short, alike = (ColumnType(Kind.BINARY, length=length) for length in (2, 4))
    structure = table(name, {"id": INT, "v": text(), "b": ColumnType(Kind.VARBINARY, length=4), "c": short, "d": alike})
    assert session.schema.misfits(structure) == [
        "column v is char on the target and would lose trailing spaces",
        "column b is binary on the target and would lose the length of short values",
        "column c is binary on the target and would lose the length of short values",
    ]


@ALL
def test_rows_keep_the_key_that_the_target_gave_them(session: TargetSession, name: TableName) -> None:
    made(
        session, name, "own int AUTO_INCREMENT PRIMARY KEY, code varchar(40) COLLATE utf8mb4_bin NOT NULL UNIQUE, v int"
    )
    structure = table(name, {"code": text(), "v": INT}, key=["code"])
    assert session.schema.misfits(structure) == []
    write(session, change(structure, upserts=[("a", 1), ("b", 1)]))
    write(session, change(structure, deletes=[("a",)], upserts=[("b", 2), ("c", 2)]))
    whole = table(name, {"own": INT, "code": text(), "v": INT}, key=["code"])
    assert [row[1:] for row in content(session, whole)] == [("b", 2), ("c", 2)]
    assert content(session, whole)[0][0] == 2


@pytest.mark.parametrize("kind", ["mysql97"])
def test_a_hidden_key_that_the_target_made_for_itself(
    session: TargetSession, name: TableName, kind: str, target: Target
) -> None:
    del kind
    session.execute("SET SESSION sql_generate_invisible_primary_key = ON")
    made(session, name, "a int, b int")
    structure = Table(name, (Column("a", INT), Column("b", INT)))
    assert session.schema.misfits(structure) == []
    assert target.connect().schema.misfits(structure) == []


@ALL
def test_rows_that_are_written_neither_fire_cascades_nor_mind_the_order(
    session: TargetSession, name: TableName
) -> None:
    child = TableName(name.schema, name.name + "_c")
    made(session, name, "id int PRIMARY KEY, v int")
    made(
        session,
        child,
        f"id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES {name} (id) ON DELETE CASCADE ON UPDATE CASCADE",
    )
    parents, children = table(name, {"id": INT, "v": INT}), table(child, {"id": INT, "p": INT})
    write(session, change(children, upserts=[(1, 10), (2, 20)]), change(parents, upserts=[(10, 1), (20, 1)]))
    write(session, change(parents, deletes=[(10,)], upserts=[(11, 1)]))
    assert content(session, children) == [(1, 10), (2, 20)]
    write(session, change(children, deletes=[(1,)], upserts=[(2, 11)]))
    assert (content(session, parents), content(session, children)) == ([(11, 1), (20, 1)], [(2, 11)])


@ALL
@pytest.mark.parametrize(
    "column", ["v timestamp NOT NULL DEFAULT '2020-01-01 00:00:00'", "v int AUTO_INCREMENT UNIQUE"]
)
def test_null_is_never_replaced_by_what_the_server_makes_up(
    session: TargetSession, name: TableName, column: str
) -> None:
    made(session, name, f"id int PRIMARY KEY, {column}")
    structure = table(name, {"id": INT, "v": ColumnType(Kind.TIMESTAMP) if "timestamp" in column else INT})
    with pytest.raises(Halted, match="target-refused"):
        write(session, change(structure, upserts=[(1, None)]))
    write(session, change(structure, upserts=[(1, 1_000_000)]))
    assert session.count(name) == 1


@pytest.mark.parametrize("kind", ["mariadb"])
@pytest.mark.parametrize("key", ["int AUTO_INCREMENT", "bigint unsigned", "varchar(40) COLLATE utf8mb4_bin"])
def test_errors_of_tidb_have_advice_of_their_own(session: Any, name: TableName, kind: str, key: str) -> None:
    """TiDB gets a condition without a subquery. Here, MariaDB runs this form, since both have the same syntax."""
    del kind
    made(session, name, f"id {key} PRIMARY KEY, u int UNIQUE, v int")
    kind_of_key = text() if "varchar" in key else ColumnType(Kind.BIGINT, unsigned="unsigned" in key)
    structure = table(name, {"id": kind_of_key, "u": INT, "v": INT}, unique=["u"])
    server = replace(session.server, tidb=True)
    writer = Writer(
        server,
        PreparedTables(server, session.schema.shape),
        session.pipeline,
        list,
        session._events,
        session._read_near,
    )
    first, second = ("a", "b") if "varchar" in key else (2**40 + 1, 2) if "big" in key else (1, 2)
    for version in (1, 2):
        writer.write(change(structure, upserts=[(first, 1, version)]))
        session.pipeline.flush()
    writer.write(change(structure, upserts=[(second, 1, 3)]))
    (waiting,) = session.pipeline._waiting
    assert b"SELECT" not in waiting.sql
    assert b"pidts_new" not in waiting.sql
    with pytest.raises(Halted, match="overwrite another"):
        session.pipeline.flush()
    assert content(session, structure) == [(first, 1, 2)]


@ALL
def test_a_foreign_key_that_only_the_target_has_prevents_a_change_of_its_columns(session: Any, name: TableName) -> None:
    made(session, name, "id INT PRIMARY KEY, u INT, UNIQUE (u)")
    child = replace(name, name=f"{name.name}_c")
    made(session, child, f"id INT, u INT, CONSTRAINT {child.name}_k FOREIGN KEY (u) REFERENCES {name} (u)")
    session.execute(f"CREATE VIEW {name}_v AS SELECT u FROM {name}")
    for own in (name, child):
        with pytest.raises(Halted, match=rf"objects-depend.*{child.name}_k"):
            session.execute(f"ALTER TABLE {own} DROP COLUMN u")
    session.execute(f"ALTER TABLE {child} DROP FOREIGN KEY {child.name}_k")
    session.execute(f"ALTER TABLE {name} DROP COLUMN u")
