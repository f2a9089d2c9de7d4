"""PostgreSQL: writing takes few round trips, and respects safe mode and the target's own keys and constraints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from tests.target.conformance.samples import INT, change, checkpoint, create, rows, table, text, write

from pidts.apply import Target
from pidts.model import Column, ColumnType, Fenced, Halted, Key, Kind, OnUpdate, Table, TableName
from pidts.sandbox import Server
from pidts.target import PostgresTarget
from pidts.target.postgres import PostgresSession
from pidts.target.postgres.cutover import on_update

pytestmark = pytest.mark.parametrize("kind", ["postgres"])


def content(session: PostgresSession, structure: Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in session.read_rows(structure).to_pylist()]


def quoted(name: TableName) -> str:
    return f'"{name.schema}"."{name.name}"'


def test_a_small_commit_is_two_round_trips(session: PostgresSession, name: TableName, task: str) -> None:
    tables = [
        create(session, table(TableName(name.schema, f"{name.name}_{n}"), {"id": INT, "v": text()})) for n in range(3)
    ]
    claimed = session.meta.checkpoints.claim(task, "s", 1, checkpoint(0))[0]
    taken = []
    for number in range(3):
        session.begin()
        stored = session.meta.checkpoints.lock(task, "s", 0)
        before = session.pipeline.trips - 1
        for structure in tables:
            session.write(change(structure, deletes=[(1,)], upserts=[(2, f"v{number}"), (3, None)]))
        session.meta.checkpoints.save(replace(stored, lsn=checkpoint(100 + number).lsn, epoch=claimed.epoch))
        session.commit()
        taken.append(session.pipeline.trips - before)
    assert taken[1:] == [2, 2]  # The first time, the table's structure is read, too.
    assert all(content(session, structure) == [(2, "v2"), (3, None)] for structure in tables)


def test_an_error_names_the_table_that_it_is_of(session: PostgresSession, name: TableName) -> None:
    good = create(session, table(name, {"id": INT, "v": text(3)}))
    bad = create(session, table(TableName(name.schema, name.name + "_b"), {"id": INT, "v": text(3)}))
    for _ in range(8):  # The last statements are prepared on the server.
        with pytest.raises(Halted, match="too long") as error:
            write(
                session,
                change(good, upserts=[(1, "x")]),
                change(bad, upserts=[(1, "four")]),
                change(good, upserts=[(2, "x")]),
            )
        assert error.value.where.table == str(bad.name)
    assert session.count(good.name) == 0


def test_a_checkpoint_of_another_run_takes_the_rows_with_it(
    session: PostgresSession, name: TableName, task: str
) -> None:
    structure = create(session, table(name, {"id": INT}))
    claimed = session.meta.checkpoints.claim(task, "s", 1, checkpoint(0))[0]
    session.begin()
    session.write(change(structure, upserts=[(1,)]))
    session.meta.checkpoints.save(replace(claimed, epoch=claimed.epoch + 1, lsn=checkpoint(9).lsn))
    with pytest.raises(Fenced):
        session.commit()
    session.rollback()
    assert session.count(name) == 0
    assert session.meta.checkpoints.read(task, "s") == [claimed]


def test_a_table_of_many_columns_and_a_large_row_go_through(session: PostgresSession, name: TableName) -> None:
    wide = table(name, {"id": INT, **{f"c{number}": text(20) for number in range(300)}})
    create(session, wide)
    whole = [(number, *["x" if number % 2 else None] * 300) for number in range(150)]
    write(session, change(wide, upserts=whole))
    assert content(session, wide) == whole
    large = table(
        TableName(name.schema, name.name + "_l"), {"id": INT, "t": ColumnType(Kind.LONGTEXT, charset="utf8mb4")}
    )
    create(session, large)
    write(session, change(large, upserts=[(1, "x" * 17_000_000), (2, "y"), (3, "é" * 1_000_000)]))
    assert [len(row[1]) for row in content(session, large)] == [17_000_000, 1, 1_000_000]


@pytest.mark.parametrize("count", [3, 400])
def test_null_may_be_anywhere(session: PostgresSession, name: TableName, count: int) -> None:
    """A loop packs few values, kernels pack many; slices begin inside a buffer."""
    kinds = {
        "id": INT,
        "a": ColumnType(Kind.BIGINT),
        "b": text(),
        "c": ColumnType(Kind.VARBINARY, length=9),
        "d": ColumnType(Kind.DATETIME, fsp=6),
        "e": ColumnType(Kind.TIME, fsp=6),
        "f": ColumnType(Kind.DOUBLE),
        "g": ColumnType(Kind.DECIMAL, precision=10, scale=2),
    }
    structure = create(session, table(name, kinds))
    made = [
        [
            n,
            *(
                None if (n + place) % 3 == 0 else value
                for place, value in enumerate((n, "ü", b"\0", n, -n, n / 7, None))
            ),
        ]
        for n in range(count + 5)
    ]
    whole = rows(structure, *made).slice(5)
    write(session, replace(change(structure), upserts=whole))
    assert session.read_rows(structure).equals(whole.combine_chunks())


def test_in_safe_mode_rows_with_equal_unique_values_are_removed_and_all_others_stay(
    session: PostgresSession, name: TableName
) -> None:
    create(session, table(TableName(name.schema, name.name + "_o"), {"id": INT}))
    keys = "id int PRIMARY KEY, u varchar(40) UNIQUE, a int, b int, own int DEFAULT 7, UNIQUE (a, b)"
    session.execute(f"CREATE TABLE {quoted(name)} ({keys})")
    structure = table(name, {"id": INT, "u": text(), "a": INT, "b": INT}, unique=["u"])
    structure = replace(structure, keys=(*structure.keys, Key("a_b", ("a", "b"), unique=True)))
    session.execute(
        f"INSERT INTO {quoted(name)} VALUES "
        "(1,'x',1,1,1), (2,'y',1,2,2), (3,NULL,1,NULL,3), (4,'z',2,NULL,4), (5,'it''s',2,2,5)"
    )
    upserts = [(1, "x", 9, 9), (7, "y", 2, 2), (8, None, 1, None), (9, "new", 1, 3)]
    with pytest.raises(Halted, match="duplicate key"):
        write(session, change(structure, upserts=upserts))
    for _ in range(2):
        write(session, replace(change(structure, upserts=upserts), safe=True))
        whole = table(name, {"id": INT, "u": text(), "a": INT, "b": INT, "own": INT})
        assert content(session, whole) == [
            (1, "x", 9, 9, 1),
            (3, None, 1, None, 3),
            (4, "z", 2, None, 4),
            (7, "y", 2, 2, 7),
            (8, None, 1, None, 7),
            (9, "new", 1, 3, 7),
        ]


@pytest.mark.parametrize("key", ["(u)", "(a, b)", "NULLS NOT DISTINCT (n)"])
def test_in_safe_mode_a_row_stays_if_the_source_may_have_both(
    session: PostgresSession, name: TableName, key: str
) -> None:
    """The source has no unique key over `u`, `a` and `b`, and its key over `n` allows several NULLs."""
    create(session, table(TableName(name.schema, name.name + "_o"), {"id": INT}))
    columns = {"id": INT, "u": text(), "a": INT, "b": INT, "n": INT}
    session.execute(
        f"CREATE TABLE {quoted(name)} (id int PRIMARY KEY, u varchar(40), a int, b int, n int, UNIQUE {key})"
    )
    structure = table(name, columns, unique=["n"])
    write(session, replace(change(structure, upserts=[(1, "x", 1, 1, None)]), safe=True))
    with pytest.raises(Halted, match="duplicate key"):
        write(session, replace(change(structure, upserts=[(2, "x", 1, 1, None)]), safe=True))
    assert content(session, structure) == [(1, "x", 1, 1, None)]


@pytest.mark.parametrize(
    ("column", "other"), [("varchar(40) COLLATE {}.any_case", "A\u00c4"), ("char(40)", "a\u00e4 ")]
)
def test_in_safe_mode_a_row_stays_if_only_the_target_treats_the_texts_as_equal(
    session: PostgresSession, name: TableName, column: str, other: str
) -> None:
    create(session, table(TableName(name.schema, name.name + "_o"), {"id": INT}))
    options = "provider = icu, locale = 'und-u-ks-level2', deterministic = false"
    session.execute(f'CREATE COLLATION IF NOT EXISTS "{name.schema}".any_case ({options})')
    column = column.format(f'"{name.schema}"')
    session.execute(f"CREATE TABLE {quoted(name)} (id int PRIMARY KEY, u {column} UNIQUE)")
    structure = table(name, {"id": INT, "u": text()}, unique=["u"])
    write(session, change(structure, upserts=[(1, "a\u00e4"), (2, "x")]))
    with pytest.raises(Halted, match="duplicate key"):
        write(session, replace(change(structure, upserts=[(3, other)]), safe=True))
    write(session, replace(change(structure, upserts=[(3, "x")]), safe=True))
    assert [(one[0], one[1].strip()) for one in content(session, structure)] == [(1, "a\u00e4"), (3, "x")]


def test_two_new_rows_that_collide_are_refused_in_safe_mode_too(session: PostgresSession, name: TableName) -> None:
    structure = create(session, table(name, {"id": INT, "u": text()}, unique=["u"]))
    with pytest.raises(Halted, match="duplicate key"):
        write(session, replace(change(structure, upserts=[(1, "a"), (2, "a")]), safe=True))
    assert session.count(name) == 0


def test_safe_mode_finds_composite_identities_and_bytes(session: PostgresSession, name: TableName) -> None:
    kind = ColumnType(Kind.VARBINARY, length=9)
    structure = Table(
        name,
        (Column("a", INT, nullable=False), Column("b", kind, nullable=False), Column("u", kind)),
        (Key("PRIMARY", ("a", "b"), unique=True, primary=True), Key("u", ("u",), unique=True)),
    )
    create(session, structure)
    write(session, change(structure, upserts=[(1, b"x", b"'"), (1, b"y", b"\\"), (2, b"x", None)]))
    write(session, replace(change(structure, upserts=[(1, b"x", b"\\"), (3, b"z", b"'")]), safe=True))
    assert set(content(session, structure)) == {(1, b"x", b"\\"), (2, b"x", None), (3, b"z", b"'")}


OWN_KEYS = {
    "a unique key of its own": "CREATE UNIQUE INDEX ON {t} (v)",
    "one over some of the rows": "CREATE UNIQUE INDEX ON {t} (v) WHERE v > 0",
    "one over an expression": "CREATE UNIQUE INDEX ON {t} ((v % 100))",
    "an exclusion constraint": "ALTER TABLE {t} ADD EXCLUDE (v WITH =)",
    "a generated column": "ALTER TABLE {t} ADD g int GENERATED ALWAYS AS (v * 2) STORED UNIQUE",
    "an extra column": "ALTER TABLE {t} ADD own int NOT NULL DEFAULT 3, ADD CONSTRAINT c UNIQUE (own, v)",
}


@pytest.mark.parametrize("key", OWN_KEYS)
def test_a_collision_with_the_targets_own_keys_overwrites_nothing(
    session: PostgresSession, name: TableName, key: str
) -> None:
    structure = create(session, table(name, {"id": INT, "v": INT}))
    session.execute(OWN_KEYS[key].format(t=quoted(name)))
    assert session.schema.misfits(structure) == []
    write(session, change(structure, upserts=[(1, 1), (2, 2)]))
    write(session, change(structure, upserts=[(1, 5)]))
    with pytest.raises(Halted, match="target-refused"):
        write(session, change(structure, upserts=[(3, 5)]))
    assert content(session, structure) == [(1, 5), (2, 2)]


def test_identities_that_the_target_makes_itself_are_given(session: PostgresSession, name: TableName) -> None:
    create(session, table(TableName(name.schema, name.name + "_o"), {"id": INT}))
    session.execute(f"CREATE TABLE {quoted(name)} (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v int)")
    structure = table(name, {"id": INT, "v": INT})
    for version in (1, 2):
        write(session, change(structure, upserts=[(7, version)]))
    assert content(session, structure) == [(7, 2)]


FAMILY = (
    "CREATE TABLE {p} (id int PRIMARY KEY, u int UNIQUE)",
    "CREATE TABLE {c} (id int PRIMARY KEY, p int REFERENCES {p} (id) ON DELETE CASCADE, q int REFERENCES {p} (u))",
)


def family(session: PostgresSession, name: TableName) -> tuple[Table, Table]:
    child = TableName(name.schema, name.name + "_c")
    create(session, table(TableName(name.schema, name.name + "_o"), {"id": INT}))
    for sql in FAMILY:
        session.execute(sql.format(p=quoted(name), c=quoted(child)))
    return table(name, {"id": INT, "u": INT}, unique=["u"]), table(child, {"id": INT, "p": INT, "q": INT})


def test_parents_and_children_come_in_any_order(session: PostgresSession, name: TableName) -> None:
    parents, children = family(session, name)
    assert (session.schema.misfits(parents), session.schema.misfits(children)) == ([], [])
    write(session, change(children, upserts=[(1, 10, 100)]))
    write(session, change(parents, upserts=[(10, 100)]))
    write(session, change(parents, deletes=[(10,)], upserts=[(10, 101), (11, 100)]))
    assert content(session, children) == [(1, 10, 100)]


def test_triggers_do_not_write_what_the_log_shows_anyway(session: PostgresSession, name: TableName) -> None:
    structure = create(session, table(name, {"id": INT, "v": INT}))
    session.execute(
        f"CREATE FUNCTION {quoted(name)}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.v := 0; RETURN NEW; END'"
    )
    session.execute(
        f"CREATE TRIGGER t BEFORE INSERT OR UPDATE ON {quoted(name)} FOR EACH ROW EXECUTE FUNCTION {quoted(name)}()"
    )
    write(session, change(structure, upserts=[(1, 5)]))
    assert content(session, structure) == [(1, 5)]


@pytest.fixture
def limited(session: PostgresSession, postgres: Server, name: TableName) -> Iterator[PostgresSession]:
    """Opens a session of a role with few privileges."""
    role = f"limited_{name.name[-6:]}"
    session.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    made = PostgresTarget(postgres.host, postgres.port, role, "x", "postgres").connect()
    yield made
    made.close()
    session.execute(f"DROP OWNED BY {role}")
    session.execute(f"DROP ROLE {role}")


def test_an_account_that_cannot_switch_foreign_keys_off_is_reported(
    session: PostgresSession, limited: PostgresSession, name: TableName
) -> None:
    parents, children = family(session, name)
    for structure in (parents, children):
        found = limited.schema.misfits(structure)
        assert found is not None
        assert "GRANT SET ON PARAMETER session_replication_role" in found[0]
    session.execute(f"GRANT SET ON PARAMETER session_replication_role TO limited_{name.name[-6:]}")
    assert limited.schema.misfits(parents) == found
    again = PostgresTarget(
        session.driver.info.host, session.driver.info.port, f"limited_{name.name[-6:]}", "x", "postgres"
    ).connect()
    assert again.schema.misfits(parents) == []
    again.close()


@pytest.mark.parametrize("refused_by", ["trigger", "foreign key"])
def test_the_advice_lets_the_account_switch_triggers_off(
    session: PostgresSession, limited: PostgresSession, postgres: Server, name: TableName, refused_by: str
) -> None:
    structure = create(session, table(name, {"id": INT, "v": INT}))
    role = f"limited_{name.name[-6:]}"
    session.execute(f'GRANT USAGE ON SCHEMA "{name.schema}" TO {role}')
    session.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {quoted(name)} TO {role}")
    write(limited, change(structure, upserts=[(1, 1)]))  # The structure is read before the obstacle exists.
    if refused_by == "trigger":
        session.execute(
            f"CREATE FUNCTION {quoted(name)}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''never''; END'"
        )
        session.execute(
            f"CREATE TRIGGER t BEFORE INSERT ON {quoted(name)} FOR EACH ROW EXECUTE FUNCTION {quoted(name)}()"
        )
    else:
        session.execute(f"ALTER TABLE {quoted(name)} ADD FOREIGN KEY (v) REFERENCES {quoted(name)}")
    with pytest.raises(Halted) as refused:
        write(limited, change(structure, upserts=[(2, 5)]))
    (grant,) = re.findall(r"GRANT SET ON PARAMETER session_replication_role TO \S+?(?=[;.])", refused.value.todo)
    assert "--resync, fails without this grant" in refused.value.todo
    session.execute(grant)
    with closing(PostgresTarget(postgres.host, postgres.port, role, "x", "postgres").connect()) as again:
        write(again, change(structure, upserts=[(2, 5)]))
    assert content(session, structure) == [(1, 1), (2, 5)]


@pytest.mark.parametrize("action", ["ON DELETE CASCADE", "ON UPDATE SET NULL"])
def test_a_foreign_key_that_was_added_during_a_run_changes_no_rows(
    session: PostgresSession, limited: PostgresSession, name: TableName, action: str
) -> None:
    """The account cannot switch foreign keys off. With the key's action, the target would lose rows silently."""
    structure = create(session, table(name, {"id": INT, "v": INT}))
    role, children = f"limited_{name.name[-6:]}", f'"{name.schema}"."{name.name}_children"'
    session.execute(f'GRANT USAGE ON SCHEMA "{name.schema}" TO {role}')
    session.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {quoted(name)} TO {role}")
    session.execute(f"CREATE TABLE {children} (parent integer)")
    write(limited, change(structure, upserts=[(1, 1)]))
    session.execute(f"INSERT INTO {children} VALUES (1)")
    session.execute(f"ALTER TABLE {children} ADD FOREIGN KEY (parent) REFERENCES {quoted(name)} {action}")
    for says in ("a foreign key with CASCADE", "GRANT SET ON PARAMETER session_replication_role"):
        with pytest.raises(Halted, match=says) as refused:
            write(limited, change(structure, deletes=[(1,)] if "DELETE" in action else [], upserts=[(2, 2)]))
        assert refused.value.code == "target-shape"
        limited.rollback()
    assert session.rows(f"SELECT parent FROM {children}") == [(1,)]
    session.execute(f"DROP TABLE {children}")
    write(limited, change(structure, deletes=[(1,)]))
    assert content(session, structure) == []


def _triggered(session: PostgresSession, name: TableName, table: str) -> None:
    """Creates a trigger that changes new rows of a table."""
    function = quoted(name)
    session.execute(
        f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.v := 0; RETURN NEW; END'"
    )
    session.execute(f"CREATE TRIGGER changes BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION {function}()")


@pytest.mark.parametrize("way", ["write", "load"])
def test_a_trigger_that_was_added_during_a_run_changes_no_rows(
    session: PostgresSession, limited: PostgresSession, postgres: Server, name: TableName, way: str
) -> None:
    """A start refuses such a trigger if the account cannot switch it off."""
    structure = create(session, table(name, {"id": INT, "v": INT}))
    role = f"limited_{name.name[-6:]}"
    session.execute(f'GRANT USAGE ON SCHEMA "{name.schema}" TO {role}')
    session.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {quoted(name)} TO {role}")

    def add(to: PostgresSession, key: int) -> None:
        if way == "write":
            write(to, change(structure, upserts=[(key, 5)]))
            return
        to.begin()
        assert to.load(structure, change(structure, upserts=[(key, 5)]).upserts)
        to.commit()

    add(limited, 1)
    _triggered(session, name, quoted(name))
    for says in ("a trigger of the target's table, or", "trigger changes would fire"):
        with pytest.raises(Halted, match=says) as refused:
            add(limited, 2)
        assert refused.value.code == "target-shape"
        limited.rollback()
    assert content(session, structure) == [(1, 5)]
    session.execute(f"ALTER TABLE {quoted(name)} DISABLE TRIGGER changes")
    add(limited, 2)
    # Its user wants it in every session, so it runs.
    session.execute(f"ALTER TABLE {quoted(name)} ENABLE ALWAYS TRIGGER changes")
    add(limited, 4)
    assert content(session, structure) == [(1, 5), (2, 5), (4, 0)]
    session.execute(f"ALTER TABLE {quoted(name)} ENABLE TRIGGER changes")
    with pytest.raises(Halted) as refused:
        add(limited, 3)
    limited.rollback()
    (grant,) = re.findall(r"GRANT SET ON PARAMETER session_replication_role TO \S+?(?=;)", refused.value.todo)
    session.execute(grant)
    with closing(PostgresTarget(postgres.host, postgres.port, role, "x", "postgres").connect()) as again:
        assert isinstance(again, PostgresSession)
        add(again, 3)
    assert content(session, structure) == [(1, 5), (2, 5), (3, 5), (4, 0)]


def test_the_triggers_of_an_automatic_timestamp_neither_halt_a_table_nor_change_its_rows(
    session: PostgresSession, limited: PostgresSession, name: TableName
) -> None:
    """A cutover adds PiDTS's own triggers while the task runs. They leave a column alone that a statement sets."""
    structure = create(session, table(name, {"id": INT, "v": INT, "at": ColumnType(Kind.DATETIME)}))
    role = f"limited_{name.name[-6:]}"
    session.execute(f'GRANT USAGE ON SCHEMA "{name.schema}" TO {role}')
    session.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {quoted(name)} TO {role}")
    then = datetime(2020, 1, 1)
    microseconds = 1_577_836_800_000_000
    write(limited, change(structure, upserts=[(1, 5, microseconds)]))
    session.execute(on_update.create(OnUpdate("at", name, 0, 3)))
    write(limited, change(structure, upserts=[(1, 6, microseconds)]))
    assert content(session, structure) == [(1, 6, then)]


def test_a_trigger_of_a_partition_changes_no_rows(
    session: PostgresSession, limited: PostgresSession, name: TableName
) -> None:
    structure = table(name, {"id": INT, "v": INT})
    role, part = f"limited_{name.name[-6:]}", f'"{name.schema}"."{name.name}_p"'
    for sql in (
        f"CREATE TABLE {quoted(name)} (id integer PRIMARY KEY, v integer) PARTITION BY RANGE (id)",
        f"CREATE TABLE {part} PARTITION OF {quoted(name)} FOR VALUES FROM (0) TO (9)",
        f'GRANT USAGE ON SCHEMA "{name.schema}" TO {role}',
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {quoted(name)} TO {role}",
    ):
        session.execute(sql)
    write(limited, change(structure, upserts=[(1, 1)]))
    _triggered(session, name, part)
    for says in ("a trigger of the target's table, or", "trigger changes would fire"):
        with pytest.raises(Halted, match=says):
            write(limited, change(structure, upserts=[(2, 5)]))
        limited.rollback()
    assert content(session, structure) == [(1, 1)]


def test_a_foreign_key_to_a_partition_changes_no_rows(
    session: PostgresSession, limited: PostgresSession, name: TableName
) -> None:
    """A delete from the table would also remove rows that refer to one of its partitions."""
    structure = table(name, {"id": INT, "v": INT})
    role, beside = f"limited_{name.name[-6:]}", f'"{name.schema}"."{name.name}'
    for sql in (
        f"CREATE TABLE {quoted(name)} (id integer PRIMARY KEY, v integer) PARTITION BY RANGE (id)",
        f'CREATE TABLE {beside}_p" PARTITION OF {quoted(name)} FOR VALUES FROM (0) TO (9)',
        f'GRANT USAGE ON SCHEMA "{name.schema}" TO {role}',
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {quoted(name)} TO {role}",
    ):
        session.execute(sql)
    write(limited, change(structure, upserts=[(1, 1)]))
    session.execute(f'CREATE TABLE {beside}_children" (parent integer REFERENCES {beside}_p" ON DELETE CASCADE)')
    session.execute(f'INSERT INTO {beside}_children" VALUES (1)')
    for says in ("a foreign key with CASCADE", "GRANT SET ON PARAMETER session_replication_role"):
        with pytest.raises(Halted, match=says):
            write(limited, change(structure, deletes=[(1,)]))
        limited.rollback()
    assert session.rows(f'SELECT parent FROM {beside}_children"') == [(1,)]


def test_a_unique_key_that_would_not_be_checked_is_reported(session: PostgresSession, name: TableName) -> None:
    structure = create(session, table(name, {"id": INT, "v": INT}))
    session.execute(f"ALTER TABLE {quoted(name)} ADD CONSTRAINT later UNIQUE (v) DEFERRABLE")
    found = session.schema.misfits(structure)
    assert found is not None
    assert "later is DEFERRABLE" in found[0]


def test_rows_that_are_read_for_a_decision_stay_until_it_is_written(
    session: PostgresSession, name: TableName, target: Target
) -> None:
    structure = create(session, table(name, {"k": text(), "v": INT}, key=["k"]))
    write(session, change(structure, upserts=[("it's \"\\{},", 1), ("b", 2)]))
    session.begin()
    session.write(change(structure, upserts=[("b", 3)]))
    found = session.read_rows(structure, keys=pa.table({"k": ["it's \"\\{},", "b", "none"]}), lock=True)
    assert sorted(found["v"].to_pylist()) == [1, 3]
    other = target.connect()
    assert isinstance(other, PostgresSession)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        other.driver.execute(f"SELECT 1 FROM {quoted(name)} WHERE v = 1 FOR UPDATE NOWAIT".encode())
    other.close()
    session.rollback()


@pytest.mark.parametrize(("kind_of_column", "value"), [(text(), "a\0b"), (ColumnType(Kind.JSON), '{"a": "\\u0000"}')])
def test_nul_in_text_is_named_with_its_row(
    session: PostgresSession, name: TableName, kind_of_column: ColumnType, value: str
) -> None:
    structure = create(session, table(name, {"id": INT, "v": kind_of_column}))
    fine = '{"a": 1}'
    for _ in range(2):
        with pytest.raises(Halted, match="column v contains NUL") as error:
            write(session, change(structure, upserts=[(1, fine), (2, value)]))
        assert (error.value.code, error.value.where.key) == ("nul-in-text", "id=2")
        assert "(1 row of this batch)" in error.value.what
        assert "the task can get past this row only if the whole table is copied again" in error.value.todo
    write(session, change(structure, upserts=[(1, fine)]))
    assert session.count(name) == 1
