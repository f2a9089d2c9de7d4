"""The keys of a table after a statement are those of the servers: their order, names and prefixes, and the keys made
for foreign keys.
"""

from __future__ import annotations

import pytest

from pidts.model import Table, TableName
from pidts.schema import Dialect, apply, classify

A = TableName("d", "a")
MARIADB = Dialect.of("10.11.6-MariaDB")
OLD = Dialect.of("5.6.24")


def after(*statements, dialect=None):
    """Returns the table `a` after these statements."""
    dialect, structures = dialect or Dialect(), {}
    for sql in statements:
        structures |= apply(classify(sql, "d", dialect=dialect), structures, {}, dialect=dialect)
    return structures[A]


def created(definition, *clauses, dialect=None):
    return after(f"CREATE TABLE a ({definition})", *(f"ALTER TABLE a {clause}" for clause in clauses), dialect=dialect)


def names(table):
    return [key.name for key in table.keys]


def unique(table):
    return {key.name: (key.columns, key.prefixes, key.unique, key.unique_prefixes) for key in table.keys}


def test_keys_have_the_order_of_the_server() -> None:
    table = created(
        "a int, b int NOT NULL, c varchar(20) NOT NULL, d varchar(20), UNIQUE zb (b), UNIQUE yd (d), UNIQUE xc (c(5)),"
        " FULLTEXT ft (c), UNIQUE wc (c), KEY k (a), UNIQUE vd (d(3)), UNIQUE ua (a), PRIMARY KEY (b)"
    )
    assert names(table) == ["PRIMARY", "zb", "wc", "xc", "yd", "ua", "vd", "k", "ft"]


def test_the_first_declared_unique_key_names_the_rows() -> None:
    two = "z int NOT NULL, a int NOT NULL"
    assert created(f"{two}, UNIQUE zz (z), UNIQUE aa (a)").identity == ("z",)
    assert created(f"{two}, UNIQUE aa (a), UNIQUE zz (z)").identity == ("a",)
    late = ("ADD UNIQUE zz (z)", "ADD UNIQUE aa (a)")
    assert created(two, *late).identity == ("z",)
    assert created(f"{two}, UNIQUE zz (z), UNIQUE aa (a)", "DROP KEY zz", "ADD UNIQUE zz (z)").identity == ("a",)
    assert created(f"{two}, UNIQUE zz (z), UNIQUE aa (a)", "DROP KEY zz, ADD UNIQUE zz (z)").identity == ("z",)


def test_a_column_that_takes_no_null_any_more_moves_its_key() -> None:
    nullable = "z int, a int NOT NULL, UNIQUE aa (a), UNIQUE bb (z, a), UNIQUE ab (a, z), UNIQUE zz (a)"
    assert names(created(nullable)) == ["aa", "zz", "bb", "ab"]
    stricter = "MODIFY z int NOT NULL"
    assert names(created(f"{nullable}, UNIQUE n (n), n int", stricter)) == ["aa", "zz", "bb", "ab", "n"]
    mixed = "z int, n int, a int NOT NULL, UNIQUE nn (n), UNIQUE zz (z), UNIQUE aa (a)"
    assert names(created(mixed, stricter)) == ["aa", "zz", "nn"]
    assert names(created(mixed, stricter, dialect=MARIADB)) == ["aa", "nn", "zz"]
    assert names(created(mixed, stricter, "ADD KEY k (n)", dialect=MARIADB)) == ["aa", "zz", "nn", "k"]
    assert names(created(mixed, stricter, "MODIFY a int", dialect=MARIADB)) == ["zz", "aa", "nn"]


def test_a_primary_key_takes_the_nulls_only_from_keys_after_it() -> None:
    table = created("a int, UNIQUE u (a), UNIQUE v (b), b int NOT NULL, PRIMARY KEY (a)")
    assert names(table) == ["PRIMARY", "v", "u"]
    assert names(created("a int PRIMARY KEY, UNIQUE u (a), UNIQUE v (b), b int NOT NULL")) == ["PRIMARY", "u", "v"]


def test_a_unique_prefix_becomes_whole_when_its_column_gets_shorter() -> None:
    definition = "v varchar(20) NOT NULL, n int NOT NULL, UNIQUE up (v(5)), UNIQUE vn (v(5), n)"
    assert unique(created(definition))["up"] == (("v",), (5,), False, True)
    assert created(definition).identity == ()
    assert unique(created(definition, "CHANGE v w varchar(30) NOT NULL"))["up"] == (("w",), (5,), False, True)
    for kind in ("varchar(5)", "varchar(4)", "date"):
        assert unique(created(definition, f"CHANGE v w {kind} NOT NULL"))["up"] == (("w",), (), True, False)
    back = created(definition, "MODIFY v varchar(4) NOT NULL", "MODIFY v varchar(40) NOT NULL")
    assert unique(back)["up"] == (("v",), (), True, False)


def test_a_unique_key_whose_prefixed_column_is_dropped_is_over_whole_columns() -> None:
    definition = "v varchar(20) NOT NULL, n int NOT NULL, UNIQUE vn (v(5), n)"
    table = created(definition, "DROP COLUMN v")
    assert unique(table) == {"vn": (("n",), (), True, False)}
    assert table.identity == ("n",)
    assert unique(created(definition, "DROP COLUMN n")) == {"vn": (("v",), (5,), False, True)}


def test_a_unique_prefix_is_dropped_as_a_constraint() -> None:
    assert created("v varchar(20), UNIQUE up (v(5))", "DROP CONSTRAINT up").keys == ()


def test_a_structure_keeps_prefixes_in_its_record() -> None:
    definition = "v varchar(20) NOT NULL, t text, UNIQUE up (v(5)), FULLTEXT ft (t), FOREIGN KEY (v) REFERENCES b (v)"
    before = created(definition)
    read = Table.from_json(before.to_json())
    assert [(key, unique(read)[key.name], key.fulltext, key.for_foreign_key) for key in read.keys] == [
        (key, unique(before)[key.name], key.fulltext, key.for_foreign_key) for key in before.keys
    ]
    assert names(before) == ["up", "v", "ft"]


def test_a_key_for_a_foreign_key_goes_when_another_can_do_its_work() -> None:
    table = "x int, y int, FOREIGN KEY (x) REFERENCES p (a)"
    assert names(created(table, "ADD KEY xy (x, y)")) == ["xy"]
    assert names(created(table, "ADD KEY (x, y)")) == ["x"]
    assert names(created(table, "ADD KEY yx (y, x)")) == ["x", "yx"]
    assert names(created(table, "RENAME KEY x TO mine", "ADD KEY xy (x, y)")) == ["mine", "xy"]
    assert names(created(table, "DROP FOREIGN KEY f", "ADD UNIQUE xy (x, y)")) == ["xy"]
    text = "v varchar(9), FOREIGN KEY (v) REFERENCES p (v)"
    assert names(created(text, "ADD KEY part (v(3))")) == ["v", "part"]
    assert names(created(text, "ADD FULLTEXT ft (v)")) == ["v", "ft"]
    assert names(created(text, "ADD FULLTEXT ft (v)", dialect=OLD)) == ["ft"]


def test_the_longer_key_for_a_foreign_key_stays_and_the_later_of_equal_ones() -> None:
    references = "FOREIGN KEY (x, y) REFERENCES p (b, c), FOREIGN KEY (x) REFERENCES p (a)"
    assert names(created(f"x int, y int, {references}, FOREIGN KEY (y, x) REFERENCES p (b, c)")) == ["x", "y"]
    table = "x int, y int, FOREIGN KEY f (x) REFERENCES p (a)"
    assert names(created(table, "ADD FOREIGN KEY g (x, y) REFERENCES p (b, c)")) == ["g"]
    assert names(created(table, "ADD FOREIGN KEY g (x) REFERENCES p (a)")) == ["g"]


def test_a_column_with_a_primary_key_may_have_a_unique_key_besides() -> None:
    for column in ("id SERIAL PRIMARY KEY", "id int UNIQUE PRIMARY KEY", "id int PRIMARY KEY UNIQUE UNIQUE KEY"):
        assert names(created(f"{column}, b int")) == ["PRIMARY", "id"]
        assert names(created(f"{column}, b int", dialect=MARIADB)) == ["PRIMARY"]


def test_if_not_exists_asks_for_the_name_that_a_key_would_get() -> None:
    table = "a int, b int, KEY (a)"
    assert names(created(table, "ADD INDEX IF NOT EXISTS (a)", dialect=MARIADB)) == ["a"]
    twice = "ADD INDEX IF NOT EXISTS (b), ADD INDEX IF NOT EXISTS (b, a)"
    assert names(created(table, twice, dialect=MARIADB)) == ["a", "b"]
    assert names(created(table, "DROP KEY a, ADD KEY IF NOT EXISTS a (b)", dialect=MARIADB)) == []
    column = "ADD COLUMN IF NOT EXISTS b int UNIQUE PRIMARY KEY"
    assert names(created(f"{table}, PRIMARY KEY (a)", column, dialect=MARIADB)) == ["PRIMARY", "a"]


def test_mariadb_says_how_much_of_a_text_is_in_a_key() -> None:
    table = created("a text, t tinytext, b blob, KEY (a), KEY (t), KEY (b), UNIQUE u (a)", dialect=MARIADB)
    assert [(key.name, key.prefixes) for key in table.keys] == [("u", ()), ("a", (768,)), ("t", (255,)), ("b", (3072,))]


def test_keys_too_long_for_mariadb_come_last_of_the_unique_ones() -> None:
    table = created("v varchar(2000) NOT NULL, i int, UNIQUE v (v), UNIQUE i (i)", dialect=MARIADB)
    assert names(table) == ["i", "v"]


@pytest.mark.parametrize(("dialect", "default"), [(OLD, "''"), (Dialect.of("5.7.44"), None), (MARIADB, None)])
def test_old_servers_give_a_default_to_columns_of_a_primary_key(dialect, default) -> None:
    table = created("a varchar(9), b int NOT NULL, c int", "ADD PRIMARY KEY (a, b)", dialect=dialect)
    assert [(column.nullable, column.default) for column in table.columns] == [
        (False, default),
        (False, None),
        (True, None),
    ]


@pytest.mark.parametrize("dialect", [Dialect(), MARIADB], ids=["mysql", "mariadb"])
@pytest.mark.parametrize(
    "clause", ["ADD c int", "MODIFY a bigint NOT NULL", "ADD UNIQUE mm (b)", "DROP KEY n, ADD KEY n2 (b)"]
)
def test_keys_that_version_0_1_recorded_in_order_of_their_names_continue_naming_the_same_rows(dialect, clause) -> None:
    """The target's primary key, and the progress of a copy, depend on the key that is first in the record."""
    record = after("CREATE TABLE a (z int NOT NULL, a int NOT NULL, b int NOT NULL)").to_json()
    record["keys"] = [
        {"name": "aa", "columns": ["a"], "unique": True, "primary": False},
        {"name": "zz", "columns": ["z"], "unique": True, "primary": False},
        {"name": "n", "columns": ["b"], "unique": False, "primary": False},
    ]
    statement = classify(f"ALTER TABLE a {clause}", "d", dialect=dialect)
    changed = apply(statement, {A: Table.from_json(record)}, {}, dialect=dialect)[A]
    assert changed.identity == ("a",)
    assert Table.from_json(changed.to_json()) == changed
