"""PostgreSQL: a schema change keeps the objects that depend on its table, or is refused and changes nothing."""

from __future__ import annotations

import pytest
from tests.docs.test_commands import blocks
from tests.target.conformance.samples import INT, change, create, table, text, write

from pidts.model import Halted, Table, TableName
from pidts.schema import apply, classify
from pidts.target.postgres import PostgresSession

pytestmark = pytest.mark.parametrize("kind", ["postgres"])


@pytest.fixture
def structure(session: PostgresSession, name: TableName) -> Table:
    made = table(name, {"id": INT, "v": INT, "w": text()})
    create(session, made)
    write(session, change(made, upserts=[(1, 10, "x"), (2, 20, None)]))
    return made


def follow(session: PostgresSession, structure: Table, sql: str) -> Table | None:
    statement = classify(sql.format(t=f"`{structure.name.name}`"), structure.name.schema)
    changed = apply(statement, {structure.name: structure}, {structure.name.schema: ("utf8mb4", "utf8mb4_bin")})
    session.begin()
    try:
        for each in session.schema.ddl_statements(
            statement, {structure.name: structure}, changed or {structure.name: structure}
        ).statements:
            session.execute(each)
        session.commit()
    except BaseException:
        session.rollback()
        raise
    return changed.get(structure.name)


def place(structure: Table) -> str:
    return f'"{structure.name.schema}"."{structure.name.name}"'


def test_a_table_that_others_point_to_is_emptied_and_they_stay(session: PostgresSession, structure: Table) -> None:
    child = f'"{structure.name.schema}"."{structure.name.name}_c"'
    session.execute(f"CREATE TABLE {child} (p int REFERENCES {place(structure)} (id) ON DELETE CASCADE)")
    session.execute(f"INSERT INTO {child} VALUES (1)")
    follow(session, structure, "TRUNCATE {t}")
    assert session.count(structure.name) == 0
    assert session.count(TableName(structure.name.schema, structure.name.name + "_c")) == 1


def test_a_table_of_partitions_is_emptied(session: PostgresSession, structure: Table, name: TableName) -> None:
    session.execute(f"DROP TABLE {place(structure)}")
    session.execute(
        f"CREATE TABLE {place(structure)} (id int PRIMARY KEY, v int, w varchar(40)) PARTITION BY HASH (id)"
    )
    for part in (0, 1):
        session.execute(
            f'CREATE TABLE "{name.schema}"."{name.name}_{part}" PARTITION OF {place(structure)} '
            f"FOR VALUES WITH (MODULUS 2, REMAINDER {part})"
        )
    write(session, change(structure, upserts=[(number, 1, "x") for number in range(10)]))
    assert session.count(name) == 10
    follow(session, structure, "TRUNCATE {t}")
    assert session.count(name) == 0
    after = follow(session, structure, "ALTER TABLE {t} ADD z INT NOT NULL DEFAULT 3, DROP v")
    assert after is not None
    assert session.schema.misfits(after) == []


def test_existing_objects_are_not_created_again(session: PostgresSession, structure: Table) -> None:
    session.execute(f"ALTER TABLE {place(structure)} ADD z int NOT NULL DEFAULT 3, DROP COLUMN w")
    session.execute(f"CREATE INDEX ON {place(structure)} (v)")
    after = follow(session, structure, "ALTER TABLE {t} ADD z INT NOT NULL DEFAULT 3, DROP w, ADD KEY k (v)")
    assert after is not None
    assert session.schema.misfits(after) == []
    found = session.schema.structure(structure.name)
    assert found is not None
    assert [key.columns for key in found.keys] == [("id",), ("v",)]


def test_keys_are_created_anew_where_the_old_ones_go(session: PostgresSession, structure: Table) -> None:
    after = follow(session, structure, "ALTER TABLE {t} ADD UNIQUE u (v)")
    assert after is not None
    after = follow(session, after, "ALTER TABLE {t} DROP KEY u, ADD KEY k (v)")
    assert after is not None
    after = follow(session, after, "ALTER TABLE {t} CHANGE v old INT, ADD v INT, ADD UNIQUE (v), ADD KEY (w)")
    assert after is not None
    found = session.schema.structure(structure.name)
    assert found is not None
    keys = sorted((key.columns, key.unique) for key in found.keys if not key.primary)
    assert keys == [(("old",), False), (("v",), True), (("w",), False)]


def test_a_table_with_dependent_objects_stays_unchanged(session: PostgresSession, structure: Table) -> None:
    view = f'"{structure.name.schema}"."{structure.name.name}_v"'
    session.execute(f"CREATE VIEW {view} AS SELECT v FROM {place(structure)}")
    for sql in ("DROP TABLE {t}", "ALTER TABLE {t} ADD z INT, DROP v", "ALTER TABLE {t} MODIFY v BIGINT"):
        with pytest.raises(Halted, match="objects-depend"):
            follow(session, structure, sql)
        assert session.schema.misfits(structure) == []
        assert session.count(structure.name) == 2


def test_values_that_do_not_fit_stop_it(session: PostgresSession, structure: Table) -> None:
    """Only a source without strict mode accepts such an ALTER, and it converts the values in its own way."""
    with pytest.raises(Halted, match="target-refused"):
        follow(session, structure, "ALTER TABLE {t} MODIFY w VARCHAR(40) NOT NULL")
    with pytest.raises(Halted, match="target-refused"):
        follow(session, structure, "ALTER TABLE {t} MODIFY w ENUM('a', 'b')")
    assert session.schema.misfits(structure) == []


@pytest.mark.parametrize(
    ("sql", "instead"),
    [
        ("ALTER TABLE {t} ADD n INT AUTO_INCREMENT UNIQUE", 'ADD COLUMN "n" integer NOT NULL GENERATED BY DEFAULT'),
        ("ALTER TABLE {t} MODIFY w INT", 'ALTER COLUMN "w" TYPE integer USING VALUE'),
        ("ALTER TABLE {t} ADD g DOUBLE AS (v / 3) STORED", 'ADD COLUMN "g" double precision'),
        ("ALTER TABLE {t} ADD u VARCHAR(36) NOT NULL DEFAULT (UUID())", 'ALTER COLUMN "u" DROP DEFAULT'),
        ("ALTER TABLE {t} ADD u INT NOT NULL DEFAULT (FLOOR(RAND() * 9))", "NOT NULL DEFAULT 0"),
        ("ALTER TABLE {t} ADD u DATETIME NOT NULL DEFAULT (NOW() + INTERVAL 1 DAY)", 'ADD COLUMN "u" timestamp'),
    ],
)
def test_a_change_that_cannot_be_translated_comes_with_statements_to_complete(
    session: PostgresSession, structure: Table, sql: str, instead: str
) -> None:
    with pytest.raises(Halted, match="ddl-not-translatable") as caught:
        follow(session, structure, sql)
    assert any(instead in each for each in caught.value.instead)
    for each in caught.value.instead:
        session.execute(each.replace("VALUE", "length(w)"))
    assert session.rows(f"SELECT count(*) FROM {place(structure)}") == [(2,)]


def test_the_error_shows_the_views_that_prevent_a_change_and_how_to_drop_them(
    session: PostgresSession, structure: Table
) -> None:
    schema, own = structure.name.schema, structure.name.name
    views = [f'{schema}."{own} By v"', f"{schema}.{own}_sums", f"{schema}.{own}_above"]
    session.execute(f"CREATE VIEW {views[0]} AS SELECT id, v FROM {place(structure)}")
    session.execute(f"CREATE MATERIALIZED VIEW {views[1]} AS SELECT sum(v) AS total FROM {place(structure)}")
    session.execute(f"CREATE VIEW {views[2]} AS SELECT id FROM {views[0]}")

    def refused(statement: str) -> Halted:
        with pytest.raises(Halted) as caught:
            follow(session, structure, statement)
        assert caught.value.code == "objects-depend"
        return caught.value

    altered = refused("ALTER TABLE {t} MODIFY v BIGINT")
    assert sum(f"view {view} depends on" in altered.what for view in views) == 1, "the server names one of them"
    for statement in ("ALTER TABLE {t} DROP COLUMN v", "DROP TABLE {t}"):
        error = refused(statement)
        assert all(f"view {view} depends on" in error.what for view in views)
    steps = error.todo.partition("For the views: ")[2].split("; ")
    definitions = [str(session.rows(step)[0][0]) for step in steps if step.startswith("SELECT ")]
    assert len(definitions) == 3
    (query,) = (block.text for block in blocks("docs/operate/table-halted.md") if "pg_get_viewdef" in block.text)
    listed = dict(session.rows(query.replace("shop.orders", place(structure))))
    assert set(listed) == set(views), "the page also shows the view that uses a view of the table"
    assert next(iter(listed)) == views[2], "a view can be dropped only before the view that it uses"
    assert set(listed.values()) == set(definitions)
    for step in steps[3:]:
        session.execute(step)
    assert {step.partition("VIEW ")[2] for step in steps[3:]} == set(views)
    follow(session, structure, "ALTER TABLE {t} DROP COLUMN v")
