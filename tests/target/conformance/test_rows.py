"""Rows arrive unchanged: every type, names and texts with special characters, even if they arrive twice."""

from __future__ import annotations

import json
from copy import deepcopy
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from tests.target.conformance.samples import create, write
from tests.values_target import ValuesTarget

from pidts.apply import Target, TargetSession
from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, TableName, calendar
from pidts.reduce import NetChange
from pidts.schema import classify
from pidts.target import IcebergTarget, PostgresTarget

from .samples import EXTREMES, INT, array, change, every_type, rows, table, text


def is_postgres(target: Target) -> bool:
    return isinstance(target, PostgresTarget)


def content(session: TargetSession, structure: Table) -> pa.Table:
    return session.read_rows(structure).sort_by([(name, "ascending") for name in structure.identity])


def test_every_value_of_every_type_comes_back(session: TargetSession, name: TableName) -> None:
    structure = every_type(name)
    create(session, structure)
    nulls = [None] * len(EXTREMES)
    low, high = ([pair[side] for pair in EXTREMES.values()] for side in (0, 1))
    wanted = rows(structure, [1, *low], [2, *high], [3, *nulls])
    for _ in range(2):
        write(session, NetChange(structure, change(structure).deletes, wanted, change(structure).counts))
        found = content(session, structure)
        for column in structure.columns:
            assert (
                found[column.name].to_pylist() == wanted[column.name].to_pylist()
                if not pa.types.is_temporal(column.type.arrow)
                else found[column.name].combine_chunks().equals(wanted[column.name].combine_chunks())
            ), column.name
    assert session.count(name) == 3


def test_json_keeps_its_meaning(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "j": ColumnType(Kind.JSON)})
    create(session, structure)
    write(session, change(structure, upserts=[(1, '{"a": ["it\'s", "\\\\", "🙂", null, 1.5]}'), (2, '""'), (3, None)]))
    found = content(session, structure)["j"].to_pylist()
    assert [text and text.replace(" ", "") for text in found] == ['{"a":["it\'s","\\\\","🙂",null,1.5]}', '""', None]


DECIMALS = (
    '{"p": 12345678901234567890.12, "q": [1.5, {"it\'s \\"x\\" \\\\ é🙂": -0.123456789012345678901234567890}], "": 0.1}',
    "[99999999999999999999999999999999999999999999999999999999999999999, 18446744073709551615, 1e300]",
    "-12345678901234567890.12",
    '{"text": "12345678901234567890.12", "double": 1.2345678901234567e19}',
)


@pytest.mark.parametrize("copies", [1, 30], ids=["few", "many"])
def test_numbers_of_documents_keep_all_digits(session: TargetSession, name: TableName, copies: int) -> None:
    structure = table(name, {"id": INT, "j": ColumnType(Kind.JSON)})
    create(session, structure)
    texts = [*DECIMALS * copies, None]
    for _ in range(2):
        write(session, change(structure, upserts=list(enumerate(texts))))
        found = content(session, structure)["j"].to_pylist()
        assert [text and parsed(text) for text in found] == [text and parsed(text) for text in texts]


def parsed(text: str) -> Any:
    return json.loads(text, parse_int=Decimal, parse_float=Decimal)


def test_a_key_of_any_name_and_any_text_finds_its_row(session: TargetSession, name: TableName) -> None:
    hostile = ["a\"b`c'd", "select", "Ünïcödé 表", "%s", "x'; DROP TABLE t; --", "\\"]
    odd = TableName(name.schema + " \"'`%s", name.name + "\"`'")
    structure = table(odd, {column: text() for column in hostile}, key=hostile[:2])
    create(session, structure)
    first = ("it's", '"', "\\N", "", "\\.", "🙂")
    second = ("it''s", "\\", "NULL", None, "\n", "\t")
    write(session, change(structure, upserts=[first, second, ("", "", "", "", "", "")]))
    assert {tuple(row.values()) for row in content(session, structure).to_pylist()} == {first, second, ("",) * 6}
    write(session, change(structure, deletes=[first[:2], second[:2]]))
    assert [tuple(row.values()) for row in content(session, structure).to_pylist()] == [("",) * 6]


KEYS = [
    ColumnType(Kind.BIGINT, unsigned=True),
    ColumnType(Kind.DECIMAL, precision=40, scale=20),
    ColumnType(Kind.FLOAT),
    ColumnType(Kind.DOUBLE),
    ColumnType(Kind.BIT, length=12),
    ColumnType(Kind.YEAR),
    ColumnType(Kind.DATE),
    ColumnType(Kind.TIME, fsp=6),
    ColumnType(Kind.DATETIME, fsp=6),
    ColumnType(Kind.TIMESTAMP, fsp=6),
    ColumnType(Kind.VARBINARY, length=40),
    ColumnType(Kind.BINARY, length=4),
    ColumnType(Kind.ENUM, labels=("a", "it's"), charset="utf8mb4", collation="utf8mb4_bin"),
]
KEY_VALUES: list[list[Any]] = [
    [0, 2**64 - 1],
    ["0.00000000000000000001", "-12345678901234567890.00000000000000000001"],
    [0.10000000149011612, -3.4028234663852886e38],
    [0.1, 1e-300],
    [0, 4095],
    [1901, 2155],
    [calendar.days(1000, 1, 1), calendar.days(9999, 12, 31)],
    [-1, 3020399_000_000],
    [0, 253402300799_999_999],
    [1_000_001, 2147483647_999_999],
    [b"", b"'\\\x00\xff"],
    [b"\x00\x00\x00\x00", b"'\\\x00\xff"],
    ["a", "it's"],
]


@pytest.mark.parametrize(
    ("kind_of_key", "values"), list(zip(KEYS, KEY_VALUES, strict=True)), ids=[str(key.kind) for key in KEYS]
)
@pytest.mark.parametrize("composite", [False, True])
def test_rows_are_found_by_keys_of_every_type(
    session: TargetSession, name: TableName, kind_of_key: ColumnType, values: list[Any], *, composite: bool
) -> None:
    if kind_of_key.kind is Kind.DECIMAL:
        values = pa.array(values).cast(kind_of_key.arrow).to_pylist()
    key = ("k", "part") if composite else ("k",)
    structure = table(name, {"k": kind_of_key, "part": INT, "v": INT}, key=key)
    create(session, structure)
    for version in (1, 2):
        write(session, change(structure, upserts=[(value, 7, version) for value in values]))
    assert content(session, structure)["v"].to_pylist() == [2, 2]
    wanted = pa.table({"k": array(values[:1], kind_of_key.arrow), "part": [7]}).select(list(key))
    assert session.read_rows(structure, keys=wanted).num_rows == 1
    assert session.read_rows(structure, limit=1).num_rows == 1
    write(session, change(structure, deletes=[(values[0], 7)[: len(key)]]))
    left = content(session, structure)["k"].combine_chunks()
    assert left.equals(array(values[1:], kind_of_key.arrow))


def test_deletes_come_first_so_that_unique_values_can_be_swapped(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "u": text()}, unique=["u"])
    create(session, structure)
    write(session, change(structure, upserts=[(1, "a"), (2, "b")]))
    write(session, change(structure, deletes=[(1,), (2,)], upserts=[(1, "b"), (2, "a")]))
    assert content(session, structure)["u"].to_pylist() == ["b", "a"]


def test_a_unique_value_of_another_row_is_an_error_and_overwrites_nothing(
    session: TargetSession, name: TableName, target: Target
) -> None:
    if isinstance(target, IcebergTarget):
        pytest.skip("an Iceberg table has no unique keys besides its identity")
    structure = table(name, {"id": INT, "u": text()}, unique=["u"])
    create(session, structure)
    write(session, change(structure, upserts=[(1, "a")]))
    session.begin()
    with pytest.raises(Halted) as error:  # noqa: PT012 - the answer to a write may come with COMMIT
        session.write(change(structure, upserts=[(2, "a")]))
        session.commit()
    session.rollback()
    assert error.value.code == "target-refused"
    assert name.name in str(error.value.where)
    assert content(session, structure).to_pylist() == [{"id": 1, "u": "a"}]


def test_rows_rolled_back_are_not_visible(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT})
    create(session, structure)
    session.begin()
    session.write(change(structure, upserts=[(1,)]))
    session.rollback()
    write(session, change(structure, upserts=[(2,)]))
    assert content(session, structure)["id"].to_pylist() == [2]


def test_a_table_is_written_twice_in_one_transaction(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "v": INT})
    create(session, structure)
    write(
        session,
        change(structure, upserts=[(1, 1), (2, 1)]),
        change(structure, deletes=[(1,)], upserts=[(2, 2)]),
        change(structure, upserts=[(3, 3)]),
    )
    assert content(session, structure).to_pylist() == [{"id": 2, "v": 2}, {"id": 3, "v": 3}]


def test_many_rows_are_more_than_one_statement(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "v": text()})
    create(session, structure)
    write(session, change(structure, upserts=[(number, f"v{number}") for number in range(2500)]))
    write(session, change(structure, deletes=[(number,) for number in range(0, 2500, 2)]))
    assert content(session, structure)["id"].to_pylist() == list(range(1, 2500, 2))
    page = session.read_rows(structure, after=[1], limit=3)
    assert page["id"].to_pylist() == [3, 5, 7]


def test_a_table_that_lacks_a_column_is_named_with_it(session: TargetSession, name: TableName) -> None:
    create(session, table(name, {"id": INT}))
    wide = table(name, {"id": INT, "late": INT})
    session.begin()
    with pytest.raises(Halted, match="late") as error:
        session.write(change(wide, upserts=[(1, 2)]))
    session.rollback()
    assert (error.value.code, error.value.where.table) == ("target-shape", str(name))


@pytest.mark.parametrize(
    ("way", "drops"),
    [*((way, "table") for way in ("write", "delete", "load", "read", "anew")), ("write", "database")],
)
def test_a_table_that_was_dropped_under_the_session_is_named_with_the_way_out(
    target: Target, session: TargetSession, name: TableName, way: str, drops: str
) -> None:
    name = TableName(f"{name.schema}_{name.name}"[:60], name.name)
    structure = table(name, {"id": INT, "v": INT})
    create(session, structure)
    write(session, change(structure, upserts=[(1, 1)]))
    other = target.connect()
    if drops == "database" and not isinstance(target, ValuesTarget | IcebergTarget):
        other.execute(f'DROP SCHEMA "{name.schema}" CASCADE' if is_postgres(target) else f"DROP SCHEMA {name.schema}")
    else:
        statement = classify(f"DROP TABLE `{name.name}`", name.schema)
        for sql in other.schema.ddl_statements(statement, {name: structure}, {name: None}).statements:
            other.execute(sql)
    other.close()
    writer = target.connect() if way == "anew" else session
    writer.begin()
    with pytest.raises(Halted) as error:  # noqa: PT012 - the answer to a write may come with COMMIT
        if way == "load":
            writer.load(structure, rows(structure, (2, 2)))
        elif way == "read":
            writer.read_rows(structure)
        elif way == "delete":
            writer.write(change(structure, deletes=[(1,)]))
        else:
            writer.write(change(structure, upserts=[(2, 2)]))
        writer.commit()
    writer.rollback()
    writer.close()
    assert (error.value.code, error.value.where.table) == ("target-shape", str(name))
    assert "--resync" in error.value.todo


def test_a_column_that_was_dropped_under_the_session_is_no_row_s_fault(
    target: Target, session: TargetSession, name: TableName
) -> None:
    if isinstance(target, ValuesTarget):
        pytest.skip("this target looks at the table at each write")
    structure = table(name, {"id": INT, "v": INT})
    create(session, structure)
    # On PostgreSQL, the first commit after the session's CREATE TABLE makes the session forget the table's columns. So
    # only after the second write does the session remember the columns, as a running task does.
    for number in (1, 2):
        write(session, change(structure, upserts=[(number, 1)]))
    # The copy's session is like one of another process; sessions of one process see each other's changes.
    other = deepcopy(target).connect()
    if isinstance(target, IcebergTarget):
        statement = classify(f"ALTER TABLE `{name.name}` DROP COLUMN v", name.schema)
        for sql in other.schema.ddl_statements(
            statement, {name: structure}, {name: table(name, {"id": INT})}
        ).statements:
            other.execute(sql)
    else:
        other.execute(f"ALTER TABLE {name} DROP COLUMN v")
    other.close()
    session.begin()
    with pytest.raises(Halted) as error:  # noqa: PT012 - the answer to a write may come with COMMIT
        session.write(change(structure, upserts=[(3, 3)]))
        session.commit()
    session.rollback()
    assert (error.value.code, error.value.where.table) == ("target-shape", str(name))
    assert isinstance(target, IcebergTarget) or "columns" in error.value.todo


def test_a_table_that_a_trigger_misses_is_not_the_one_that_is_written_to(
    target: Target, session: TargetSession, name: TableName
) -> None:
    if isinstance(target, ValuesTarget | IcebergTarget):
        pytest.skip("this target has no triggers")
    structure = table(name, {"id": INT, "v": INT})
    create(session, structure)
    insert = f"INSERT INTO {name.schema}.nowhere VALUES (NEW.id)"
    if is_postgres(target):
        function = f"{name}_f"
        session.execute(
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {insert}; RETURN NEW; END$$"
        )
        session.execute(f"CREATE TRIGGER t AFTER INSERT ON {name} FOR EACH ROW EXECUTE FUNCTION {function}()")
        session.execute(f"ALTER TABLE {name} ENABLE ALWAYS TRIGGER t")
    else:
        session.execute(f"CREATE TRIGGER {name}_t AFTER INSERT ON {name} FOR EACH ROW {insert}")
    session.begin()
    with pytest.raises(Halted) as error:  # noqa: PT012 - the answer to a write may come with COMMIT
        session.write(change(structure, upserts=[(2, 2)]))
        session.commit()
    session.rollback()
    assert (error.value.code, error.value.where.table) == ("target-refused", str(name))


def test_a_table_that_is_not_there_is_named(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT})
    assert session.schema.structure(name) is None
    assert session.schema.misfits(structure) is None
    session.begin()
    with pytest.raises(Halted, match="no such table"):
        session.write(change(structure, upserts=[(1,)]))
    session.rollback()


def test_extra_columns_are_left_alone_if_they_can_be_left_out(session: TargetSession, name: TableName) -> None:
    create(session, table(name, {"id": INT, "v": INT, "extra": INT}))
    structure = table(name, {"id": INT, "v": INT})
    write(session, change(structure, upserts=[(1, 5)]))
    assert content(session, structure).to_pylist() == [{"id": 1, "v": 5}]
    needy = TableName(name.schema, name.name + "_n")
    strict = Table(
        needy,
        (Column("id", INT, nullable=False), Column("x", INT, nullable=False)),
        (Key("PRIMARY", ("id",), unique=True, primary=True),),
    )
    create(session, strict)
    problems = session.schema.misfits(table(needy, {"id": INT}))
    assert problems is not None
    assert "x" in problems[0]


def test_the_structure_found_has_names_nullability_and_keys(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "v": text(), "w": INT}, key=["id", "v"], unique=["w"])
    create(session, structure)
    found = session.schema.structure(name)
    assert found is not None
    assert [(column.name, column.nullable) for column in found.columns] == [("id", False), ("v", False), ("w", True)]
    assert found.identity == ("id", "v")
    assert [key.columns for key in found.secondary_unique] == [("w",)]
    assert session.schema.misfits(structure) == []


def test_unreal_dates_stay_as_they_are_or_become_null(session: TargetSession, name: TableName, target: Target) -> None:
    kinds = {
        "id": INT,
        "d": ColumnType(Kind.DATE),
        "t": ColumnType(Kind.DATETIME, fsp=6),
        "s": ColumnType(Kind.TIMESTAMP),
    }
    nullable = table(name, kinds)
    columns = tuple(Column(c.name, c.type, nullable=False) for c in nullable.columns)
    structure = Table(name, columns, nullable.keys)
    create(session, structure)
    zero = calendar.days(0, 0, 0)
    odd = calendar.days(2024, 0, 15)
    moment = calendar.microseconds(calendar.days(2023, 2, 31), 12_345_678)
    wanted = rows(structure, [1, zero, moment, calendar.microseconds(zero, 0)], [2, odd, 0, 1_000_000])
    write(session, NetChange(structure, change(structure).deletes, wanted, change(structure).counts))
    found = content(session, structure)
    if isinstance(target, PostgresTarget | IcebergTarget):
        assert [found[column].null_count for column in kinds] == [0, 2, 1, 1]
    else:
        assert found.equals(wanted)


def test_the_invalid_value_of_an_enum_is_kept(session: TargetSession, name: TableName) -> None:
    structure = table(
        name,
        {
            "id": INT,
            "e": ColumnType(Kind.ENUM, labels=("a", "b"), charset="utf8mb4", collation="utf8mb4_bin"),
            "v": text(3),
        },
    )
    create(session, structure)
    for _ in range(2):
        write(session, change(structure, upserts=[(1, "", "x"), (2, "b", "y"), (3, "", "z")]))
    assert content(session, structure)["e"].to_pylist() == ["", "b", ""]


def test_a_value_too_long_is_an_error_and_not_cut(session: TargetSession, name: TableName, kind: str) -> None:
    structure = table(name, {"id": INT, "v": text(3)})
    create(session, structure)
    session.begin()
    if kind.startswith(("values", "iceberg")):  # On these targets, a text has no maximum length.
        session.write(change(structure, upserts=[(1, "four")]))
    else:
        with pytest.raises(Halted, match="target-refused"):  # noqa: PT012 - the answer may come with COMMIT
            session.write(change(structure, upserts=[(1, "four")]))
            session.commit()
    session.rollback()
    assert session.count(name) == 0


LOOSER = {
    "postgres": "CREATE TABLE {t} (k char(20) PRIMARY KEY, v integer)",
    "mariadb": "CREATE TABLE {t} (k varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY, v int) CHARSET utf8mb4",
    "mysql97": "CREATE TABLE {t} (k varchar(20) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v int) CHARSET utf8mb4",
    "mysql56": "CREATE TABLE {t} (k varchar(20) COLLATE utf8mb4_general_ci PRIMARY KEY, v int) CHARSET utf8mb4",
}
"""Keys in which texts are equal that differ on the source."""


@pytest.mark.parametrize("kind", list(LOOSER))
@pytest.mark.parametrize(("first", "second"), [("a", "a "), ("a", "A"), ("e", "é")])
def test_two_rows_of_the_source_never_become_one(
    session: TargetSession, name: TableName, kind: str, first: str, second: str
) -> None:
    create(session, table(TableName(name.schema, name.name + "_o"), {"id": INT}))
    quote = '"' if kind == "postgres" else "`"
    session.execute(LOOSER[kind].format(t=f"{quote}{name.schema}{quote}.{quote}{name.name}{quote}"))
    structure = table(name, {"k": text(20), "v": INT}, key=["k"])
    if kind == "mysql97" and second == "a ":  # The collations of MySQL 8 and later distinguish trailing spaces.
        write(session, change(structure, upserts=[(first, 1)]))
        write(session, change(structure, upserts=[(second, 2)]))
        assert [row["k"] for row in session.read_rows(structure).to_pylist()] == [first, second]
        return
    if kind != "postgres":  # PostgreSQL refuses the structure of the table before any row is written.
        write(session, change(structure, upserts=[(first, 1)]))
    with pytest.raises(Halted) as refused:
        write(session, change(structure, upserts=[(second, 2)]))
    session.rollback()
    code, said, left = {
        "postgres": ("target-shape", "of its key, column k treats different texts as equal", []),
    }.get(kind, ("target-refused", "would overwrite another row", [{"k": first, "v": 1}]))
    assert (refused.value.code, refused.value.where.table) == (code, str(name))
    assert said in refused.value.what
    assert session.read_rows(structure).to_pylist() == left


@pytest.mark.parametrize("kind", ["mariadb", "mysql97"])
def test_a_collation_that_the_target_lacks_is_replaced_by_one_that_merges_nothing(
    session: TargetSession, name: TableName
) -> None:
    unknown = ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4", collation="utf8mb4_of_another_server")
    structure = table(name, {"k": unknown, "v": INT}, key=["k"])
    create(session, structure)
    keys = ["a", "a ", "A", "á", "ae", "æ"]
    for version in (1, 2):
        write(session, change(structure, upserts=[(key, version) for key in keys]))
    assert session.count(name) == len(keys)
    assert set(content(session, structure)["v"].to_pylist()) == {2}


def test_a_text_key_in_another_charset_is_the_same_row_again(session: TargetSession, name: TableName) -> None:
    latin = ColumnType(Kind.VARCHAR, length=20, charset="latin1", collation="latin1_swedish_ci")
    structure = table(name, {"k": latin, "v": INT}, key=["k"])
    create(session, structure)
    for version in (1, 2):
        write(session, change(structure, upserts=[("Ä€ÿ", version), ("plain", version)]))
    assert content(session, structure)["v"].to_pylist() == [2, 2]


def test_a_transaction_is_not_begun_inside_another(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT})
    create(session, structure)
    session.begin()
    session.write(change(structure, upserts=[(1,)]))
    with pytest.raises(Halted, match="already open"):
        session.begin()
    session.rollback()
    assert session.count(name) == 0
