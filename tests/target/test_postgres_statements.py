"""PostgreSQL gets the right SQL and the right binary fields. These tests need no server."""

from __future__ import annotations

import struct
from decimal import Context, Decimal

import pyarrow as pa
import pytest

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName
from pidts.schema import apply, classify
from pidts.schema.statement_time import UNKNOWN_TIME
from pidts.target.difference import difference, unfillable
from pidts.target.postgres import alter
from pidts.target.postgres.create import create_table
from pidts.target.postgres.divergent_rows import doubts
from pidts.target.postgres.encode.binary import wire
from pidts.target.postgres.encode.columns import form
from pidts.target.postgres.shape import PgColumn, PgKey, PgTable
from pidts.target.postgres.statements import statements

INT = ColumnType(Kind.INT)


def pg_column(name: str, kind: str = "integer", base: str = "") -> PgColumn:
    return PgColumn(name, kind, base or kind, False, False, False, False, True)


def numeric(field: bytes) -> Decimal:
    """Decodes a numeric from the binary form that the server documents: count, weight, sign, scale, digits of base
    10,000.
    """
    count, weight, sign, scale = struct.unpack_from(">hhHh", field)
    digits = struct.unpack_from(f">{count}h", field, 8)
    assert all(0 <= digit < 10_000 for digit in digits)
    assert (len(field), sign in {0, 0x4000}) == (8 + 2 * count, True)
    plain = sum(digit * 10_000 ** (count - 1 - place) for place, digit in enumerate(digits))
    value = Decimal((1 if sign else 0, tuple(map(int, str(plain))), 4 * (weight - count + 1)))
    assert value == round_to(value, scale), "nothing but zeros behind the scale"
    return round_to(value, scale)


def round_to(value: Decimal, scale: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-scale), context=Context(prec=100))


@pytest.mark.parametrize("precision", range(1, 66))
def test_a_decimal_of_any_width_is_written_digit_for_digit(precision):
    """Decimals of up to 18 digits are made from 64-bit numbers, wider ones from their text. Both ways are tested."""
    for scale in range(min(precision, 30) + 1):
        column = Column("d", ColumnType(Kind.DECIMAL, precision=precision, scale=scale))
        top = 10**precision - 1
        plain = [0, 1, -1, 9, 10_000, top, -top, top // 3, -(top // 7)]
        values = [
            Decimal((int(each < 0), tuple(map(int, str(abs(each)))), -scale)) for each in plain if abs(each) <= top
        ]
        data = pa.array([None, *values], column.type.arrow).slice(1)
        written = wire(form(column, pg_column("d", f"numeric({precision},{scale})", "numeric")), data)
        assert [numeric(each.tobytes()) for each in written] == values, (precision, scale)


@pytest.mark.parametrize("unsigned", [False, True])
def test_a_whole_number_for_a_numeric_is_written_digit_for_digit(unsigned):
    column = Column("n", ColumnType(Kind.BIGINT, unsigned=unsigned))
    values = [0, 1, 9_999, 10_000, 2**63 - 1, *([2**64 - 1] if unsigned else [-1, -(2**63)])]
    written = wire(form(column, pg_column("n", "numeric(20,0)", "numeric")), pa.array(values, column.type.arrow))
    assert [numeric(each.tobytes()) for each in written] == values


@pytest.mark.parametrize(
    ("unique", "gives_way"),
    [
        pytest.param(("c",), True, id="a unique key of the source"),
        pytest.param(("a", "c"), True, id="a unique key of the source and a column of the identity"),
        pytest.param(("d",), True, id="a unique key of the source over prefixes"),
        pytest.param(("a", "b", "e"), True, id="the identity and more"),
        pytest.param(("b", "a"), False, id="the identity in another order"),
        pytest.param(("a",), False, id="a part of the identity"),
        pytest.param(("e",), False, id="a column with other keys on the source"),
        pytest.param(("c", "only_there"), False, id="a unique key of the source and a column that the source has not"),
        pytest.param(("a", "only_there"), False, id="a column that the source has not"),
    ],
)
def test_in_safe_mode_rows_give_way_for_each_unique_key_that_follows_from_one_of_the_source(unique, gives_way):
    names = ("a", "b", "c", "d", "e")
    source = Table(
        TableName("d", "t"),
        tuple(Column(name, INT, nullable=name not in ("a", "b")) for name in names),
        (
            Key("PRIMARY", ("a", "b"), unique=True, primary=True),
            Key("c", ("c",), unique=True),
            Key("d", ("d",), prefixes=(3,), unique_prefixes=True),
            Key("e", ("e",)),
        ),
    )
    keys = (
        PgKey("t_pkey", ("a", "b"), unique=True, primary=True, constraint=True),
        PgKey("u", unique, unique=True, primary=False, constraint=False),
        PgKey("plain", ("c",), unique=False, primary=False, constraint=False),
    )
    shape = PgTable(source.name, "r", True, tuple(pg_column(name) for name in (*names, "only_there")), keys, ())
    found = statements(source, shape).give_way
    assert len(found) == gives_way
    for columns, sql in found:
        assert columns == tuple(dict.fromkeys((*unique, "a", "b")))
        same = " AND ".join(f't."{name}" = s."{name}"' for name in unique)
        assert sql.endswith(f'WHERE {same} AND (t."a" <> s."a" OR t."b" <> s."b")')


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("ADD x int", ['ADD COLUMN "x" integer']),
        ("ADD PRIMARY KEY (a)", []),
        ("DROP KEY kz", ['DROP INDEX "d"."kz"']),
        ("DROP KEY ka", ['DROP CONSTRAINT "t_pkey"', 'ADD PRIMARY KEY ("z")']),
        ("DROP COLUMN a", ['DROP CONSTRAINT "t_pkey"', 'DROP COLUMN IF EXISTS "a"', 'ADD PRIMARY KEY ("z")']),
        ("CHANGE a b int NOT NULL", ['RENAME COLUMN "a" TO "b"']),
        (
            "MODIFY a int",
            [
                'DROP CONSTRAINT "t_pkey"',
                'ALTER COLUMN "a" DROP NOT NULL',
                'ADD PRIMARY KEY ("z")',
                'CREATE UNIQUE INDEX ON "d"."t" ("a")',
            ],
        ),
    ],
)
def test_a_primary_key_for_another_unique_key_of_the_source_goes_with_that_key(clause, expected):
    """Another program has created the table, with a primary key over the source's second unique key."""
    name = TableName("d", "t")
    before = {}
    before |= apply(
        classify("CREATE TABLE t (z int NOT NULL, a int NOT NULL, UNIQUE kz (z), UNIQUE ka (a))", "d"), {}, {}
    )
    assert before[name].identity == ("z",)
    statement = classify(f"ALTER TABLE t {clause}", "d")
    after = apply(statement, before, {})
    keys = (
        PgKey("t_pkey", ("a",), unique=True, primary=True, constraint=True),
        PgKey("kz", ("z",), unique=True, primary=False, constraint=False),
    )
    found = PgTable(name, "r", True, (pg_column("z"), pg_column("a")), keys, ())
    made = alter.render(statement, before, after, {name: found}, UNKNOWN_TIME).statements
    assert [sql.removeprefix('ALTER TABLE "d"."t" ') for sql in made] == expected


@pytest.mark.parametrize(
    ("clause", "is_doubtful"),
    [
        ("MODIFY a decimal(10,1)", True),
        ("MODIFY a decimal(10,3)", True),
        ("MODIFY a double", True),
        ("CHANGE a b int", True),
        ("MODIFY t varchar(5)", True),
        ("MODIFY n int unsigned", True),
        ("MODIFY a decimal(12,2) NOT NULL, MODIFY t text, MODIFY n bigint", False),
        ("CHANGE a b decimal(10,2), ADD x int, CONVERT TO CHARACTER SET utf8mb4", False),
    ],
)
def test_values_that_the_source_computes_anew_without_a_word_in_the_log_are_refused(clause, is_doubtful):
    name = TableName("d", "t")
    before = {}
    definition = "a decimal(10,2), t varchar(9), n int, g decimal(10,2) AS (a * 2) STORED) CHARSET latin1"
    before |= apply(classify(f"CREATE TABLE t ({definition}", "d"), {}, {})
    statement = classify(f"ALTER TABLE t {clause}", "d")
    after = apply(statement, before, {})[name]
    found = [
        refusal.what
        for condition, refusal in doubts(statement, before[name], after, None, UNKNOWN_TIME)
        if condition == "true"
    ]
    assert [what.partition(" has ")[0] for what in found] == ["column g"] * is_doubtful


DEFAULTS = {
    "INT DEFAULT 1.6": "2", "INT DEFAULT 0x10": "16", "BIGINT DEFAULT b'11'": "3", "DECIMAL(9,2) DEFAULT 1.5": "1.50", "DOUBLE DEFAULT 1e3": "1000",
    "VARCHAR(9) DEFAULT 'a'": "'a'", "VARCHAR(9) DEFAULT -12": "'-12'", "VARCHAR(9) DEFAULT b'1000001'": "'A'", "VARCHAR(9) DEFAULT 007": "'7'",
    "VARBINARY(9) DEFAULT 'a'": "'\\x61'", "BINARY(3) DEFAULT x'41'": "'\\x410000'", "BIT(8) DEFAULT b'101'": "B'00000101'", "BIT(1) DEFAULT 1": "true",
    "YEAR DEFAULT 70": "1970", "YEAR DEFAULT '0'": "2000", "TIME DEFAULT 100": "'00:01:00'", "TIME(2) DEFAULT '01:02:03.250000'": "'01:02:03.25'",
    "DATE DEFAULT 20200102": "'2020-01-02'", "DATETIME DEFAULT '2020-1-2'": "'2020-01-02 00:00:00'", "DATE DEFAULT '0000-00-00'": None,
    "DATETIME DEFAULT CURRENT_TIMESTAMP": "LOCALTIMESTAMP(0)", "JSON DEFAULT ('{}')": "'{}'", "SET('a','b') DEFAULT 'b,a'": "'{\"a\",\"b\"}'", "ENUM('a','b') DEFAULT 'A'": "'a'",
}  # fmt: skip
"""The default by which PostgreSQL gives existing rows the value that the source gives them."""


@pytest.mark.parametrize("definition", DEFAULTS)
def test_a_column_is_added_where_existing_rows_get_the_default_that_the_source_gives_them(definition):
    sql = added(definition)[0]
    default = DEFAULTS[definition]
    assert f" DEFAULT {default}" in sql if default is not None else "DEFAULT" not in sql


def test_a_column_is_not_added_whose_default_postgresql_has_not():
    with pytest.raises(Halted, match="existing rows get"):
        added("VARCHAR(9) DEFAULT 0x00")


def added(definition):
    return altered(f"ADD COLUMN c {definition}")


def altered(clause):
    name = TableName("d", "t")
    before: dict[TableName, Table | None] = {}
    before |= apply(classify("CREATE TABLE t (id int PRIMARY KEY)", "d"), {}, {"d": ("utf8mb4", "utf8mb4_general_ci")})
    statement = classify(f"ALTER TABLE t {clause}", "d")
    after = apply(statement, before, {"d": ("utf8mb4", "utf8mb4_general_ci")})
    found = PgTable(name, "r", True, (pg_column("id"),), (), ())
    return alter.render(statement, before, after, {name: found}, UNKNOWN_TIME).statements


@pytest.mark.parametrize("name", ["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"])
def test_a_column_with_the_name_of_a_system_column_is_refused_before_any_statement(name):
    with pytest.raises(Halted, match=f"no column {name}") as error:
        create_table(Table(TableName("s", "t"), (Column("id", INT), Column(name, INT))))
    assert error.value.code == "bad-identifier"
    for clause in (f"ADD COLUMN {name} INT", f"RENAME COLUMN id TO {name}"):
        with pytest.raises(Halted, match=f"no column {name}"):
            altered(clause)
    assert altered(f"ADD COLUMN {name.upper()} INT"), "PostgreSQL tells upper case and lower case apart"


def test_a_schema_with_a_name_of_postgresql_is_refused_before_any_statement():
    with pytest.raises(Halted, match="no schema pg_shop") as error:
        create_table(Table(TableName("pg_shop", "t"), (Column("id", INT),)))
    assert error.value.code == "bad-identifier"
    assert create_table(Table(TableName("pgshop", "t"), (Column("id", INT),))).statements


@pytest.mark.parametrize(
    ("definition", "anywhere", "on_its_own_kind"),
    [
        ("JSON DEFAULT ('{}')", True, True),
        ("""JSON DEFAULT ('{"a":1}')""", False, True),
        ("INT DEFAULT (uuid())", False, False),
        ("DATETIME DEFAULT '2020-01-02 03:04:05.6'", False, True),
        ("DATETIME DEFAULT '2020-01-02 03:04:05+02:00'", False, False),
        ("ENUM('a','1') DEFAULT 1", False, False),
        ("DECIMAL(65,30) DEFAULT 1.5", True, True),
        ("VARBINARY(9) DEFAULT 'é'", False, False),
        ("VARCHAR(9) DEFAULT _latin1'é'", False, False),
    ],
)
def test_a_server_of_the_sources_kind_reads_literals_as_that_does(definition, anywhere, on_its_own_kind):
    before = {}
    before |= apply(classify("CREATE TABLE t (id int PRIMARY KEY)", "d"), {}, {})
    statement = classify(f"ALTER TABLE t ADD COLUMN c {definition}", "d")
    (after,) = apply(statement, before, {}).values()
    for is_own, is_filled in ((False, anywhere), (True, on_its_own_kind)):
        found = unfillable(statement, before[after.name], after, UNKNOWN_TIME, reads_alike=is_own)
        assert found == ([] if is_filled else ["c"])


@pytest.mark.parametrize(
    ("definition", "is_alike"),
    [("VARCHAR(9) DEFAULT 'a'", True), ("ENUM('1','2') DEFAULT 1", False), ("TIME DEFAULT '01:02:03.6'", False)],
)
def test_a_default_that_servers_read_in_several_ways_is_filled_by_none(definition, is_alike):
    before = {}
    before |= apply(classify("CREATE TABLE t (id int PRIMARY KEY)", "d"), {}, {})
    statement = classify(f"ALTER TABLE t ADD COLUMN c {definition}", "d")
    (after,) = apply(statement, before, {}).values()
    assert unfillable(statement, before[after.name], after, UNKNOWN_TIME) == ([] if is_alike else ["c"])


@pytest.mark.parametrize(
    ("had", "actions"),
    [
        ("g", "ADD e int, DROP g, CHANGE g e int"),
        ("g", "DROP g, ADD e int, RENAME COLUMN g TO e"),
        ("e", "DROP e, ADD e text, MODIFY e int"),
    ],
)
def test_a_dropped_column_gives_no_value_to_a_new_one(had, actions):
    """MariaDB accepts these statements: a dropped name that is used again means the new column."""
    before = {}
    before |= apply(classify(f"CREATE TABLE t (id int PRIMARY KEY, {had} int)", "d"), {}, {})
    statement = classify(f"ALTER TABLE t {actions}", "d")
    after = Table(TableName("d", "t"), (Column("id", ColumnType(Kind.INT)), Column("e", ColumnType(Kind.INT))))
    found = difference(statement, before[after.name], after)
    assert [column.name for column in found.added] == ["e"]
    assert [old.name for old, _ in found.kept] == ["id"]


def test_the_error_for_a_missing_column_names_the_table_so_that_only_this_table_halts():
    table = Table(
        TableName("shop", "t"),
        (Column("id", INT), Column("n", INT)),
        (Key("PRIMARY", ("id",), unique=True, primary=True),),
    )
    with pytest.raises(Halted, match="the target's table has no column n") as error:
        statements(table, PgTable(TableName("mine", "t"), "r", True, (pg_column("id"),), (), ()))
    assert (error.value.code, error.value.where.table) == ("target-shape", "mine.t")
    assert "pidts ddl retry TASK" in error.value.todo


def test_a_table_whose_name_is_too_long_may_get_another_name_by_a_route() -> None:
    too_long = TableName("shop", "t" * 64)
    with pytest.raises(Halted) as caught:
        create_table(Table(too_long, (Column("id", INT, nullable=False),)))
    assert "Write a route that gives the table another name" in caught.value.todo
    of_column = Table(TableName("shop", "t"), (Column("c" * 64, INT),))
    with pytest.raises(Halted) as caught:
        create_table(of_column)
    assert caught.value.todo.startswith("Change this name on the source")
