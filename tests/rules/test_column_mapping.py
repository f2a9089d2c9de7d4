"""Column mappings change values as DM's column mappings do."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from pidts.model import Column, ColumnType, ConfigError, Halted, Key, Kind, Table, TableName
from pidts.rules.column_mapping import ColumnMapping, mapping_of

BIGINT = ColumnType(Kind.BIGINT)
ARGUMENTS = ("1", "shop", "orders", "_")


def text(length: int = 20, kind: Kind = Kind.VARCHAR) -> ColumnType:
    return ColumnType(kind, length=length, charset="utf8mb4", collation="utf8mb4_bin")


def table(kind: ColumnType, name: str = "shop_2.orders_10") -> Table:
    schema, _, plain = name.partition(".")
    columns = (Column("x", BIGINT), Column("id", kind, nullable=False, auto_increment=True), Column("y", text()))
    return Table(TableName(schema, plain), columns, (Key("PRIMARY", ("id",), unique=True, primary=True),))


def mapping(expression: str, *arguments: str, tables: str = "shop*.orders*", column: str = "id") -> ColumnMapping:
    schema, _, name = tables.partition(".")
    return ColumnMapping(schema, name, column, expression, arguments)


def images(of: Table, values: list, nulls: list[bool] | None = None) -> pa.StructArray:
    count = len(values)
    arrays = [
        pa.array([7] * count, of.columns[0].type.arrow),
        pa.array(values, of.columns[1].type.arrow),
        pa.array(["y"] * count, pa.string()),
    ]
    mask = pa.array(nulls) if nulls else None
    return pa.StructArray.from_arrays(arrays, fields=list(of.arrow), mask=mask)


def ids(rows: pa.StructArray) -> list:
    return [None if row is None else row["id"] for row in rows.to_pylist()]


@pytest.mark.parametrize(
    ("name", "arguments", "base"),
    [
        ("shop_2.orders_10", ARGUMENTS, 1 << 59 | 2 << 52 | 10 << 44),
        ("shop.orders", ARGUMENTS, 1 << 59),
        ("shop.orders_255", ARGUMENTS, 1 << 59 | 255 << 44),
        ("shop_127.orders", ("15", *ARGUMENTS[1:]), 15 << 59 | 127 << 52),
        ("shop2.orders010", ARGUMENTS[:3], 1 << 59 | 2 << 52 | 10 << 44),
        ("SHOP_2.Orders_10", ARGUMENTS, 1 << 59 | 2 << 52 | 10 << 44),
        # An omitted part takes no bits: the other parts move up.
        ("shop_2.orders_10", ("", *ARGUMENTS[1:]), 2 << 56 | 10 << 48),
        ("shop_2.orders_10", ("1", "", "orders", "_"), 1 << 59 | 10 << 51),
        ("shop_2.orders_10", ("1", "shop", "", "_"), 1 << 59 | 2 << 52),
        ("shop_2.orders_10", ("", "", "orders", "_"), 10 << 55),
        ("shop_2.orders_10", ("", "", ""), 0),
    ],
)
def test_a_partition_id_says_where_a_row_is_from(name: str, arguments: tuple[str, ...], base: int) -> None:
    of = table(BIGINT, name)
    one = mapping("partition id", *arguments)
    assert ids(one.mapped(images(of, [0, 1, 2**44 - 1]), of)) == [base, base | 1, base | 2**44 - 1]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("shop_x.orders", ARGUMENTS),
        ("shopping.orders", ARGUMENTS),
        ("shop_.orders", ARGUMENTS),
        ("shop_128.orders", ARGUMENTS),
        ("shop.orders_256", ARGUMENTS),
        ("shop.orders_-1", ARGUMENTS),
        ("shop.orders_1_0", ARGUMENTS),
        ("shop.orders_²", ARGUMENTS),
        ("shop2.orders", ARGUMENTS),
    ],
)
def test_a_name_that_is_no_number_after_the_prefix_is_an_error(name: str, arguments: tuple[str, ...]) -> None:
    of = table(BIGINT, name)
    with pytest.raises(ConfigError) as caught:
        mapping("partition id", *arguments).mapped_table(of)
    assert caught.value.code == "bad-partition-id"
    assert caught.value.where.table == name


@pytest.mark.parametrize("instance", ["16", "-1", "x", " 1", "1.0"])
def test_an_instance_has_four_bits(instance: str) -> None:
    with pytest.raises(ConfigError) as caught:
        mapping("partition id", instance, "shop", "orders")
    assert caught.value.code == "bad-partition-id"


@pytest.mark.parametrize("kind", [Kind.TINYINT, Kind.SMALLINT, Kind.MEDIUMINT, Kind.INT, Kind.BIGINT])
@pytest.mark.parametrize("unsigned", [False, True])
def test_every_integer_becomes_one_of_64_bits_of_its_sign(kind: Kind, unsigned: bool) -> None:
    of = table(ColumnType(kind, unsigned=unsigned, length=4))
    one = mapping("partition id", *ARGUMENTS)
    target_table = one.mapped_table(of)
    assert target_table.columns[1].type.kind is Kind.BIGINT
    assert target_table.columns[1].type.unsigned is unsigned
    assert [target_table.name, target_table.columns[0], target_table.keys] == [of.name, of.columns[0], of.keys]
    assert target_table.columns[1].auto_increment
    rows = one.mapped(images(of, [0, 100]), of)
    assert rows.type == pa.struct(list(target_table.arrow))
    assert ids(rows) == [one.base(of.name), one.base(of.name) + 100]


def test_a_text_of_digits_stays_a_text_and_gets_longer() -> None:
    of = table(text(6))
    one = mapping("partition id", *ARGUMENTS)
    assert one.mapped_table(of).columns[1].type.length == 19
    assert one.mapped_table(table(text(30))).columns[1].type.length == 30
    assert ids(one.mapped(images(of, ["5", "+5", "005"]), of)) == [str(one.base(of.name) + 5)] * 3


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (BIGINT, -1),
        (BIGINT, 2**44),
        (ColumnType(Kind.BIGINT, unsigned=True), 2**64 - 1),
        (ColumnType(Kind.TINYINT), -128),
        (text(), "x"),
        (text(), ""),
        (text(), "-5"),
        (text(), "5 "),
        (text(), "17592186044416"),
        (text(), "9" * 20),
    ],
)
def test_a_value_that_is_out_of_range_halts_and_is_named(kind: ColumnType, value: object) -> None:
    of = table(kind)
    with pytest.raises(Halted) as caught:
        mapping("partition id", *ARGUMENTS).mapped(images(of, ["1" if kind.is_text else 1, value]), of)
    assert caught.value.code == "value-not-mapped"
    assert repr(value) in caught.value.what
    assert caught.value.where.table == "shop_2.orders_10"


@pytest.mark.parametrize(("expression", "expected"), [("add prefix", "de:a"), ("add suffix", "ade:")])
def test_a_text_gets_a_prefix_or_a_suffix_and_its_column_gets_longer(expression: str, expected: str) -> None:
    of = table(text(4))
    one = mapping(expression, "de:")
    assert ids(one.mapped(images(of, ["a", "", None]), of)) == [expected, "de:", None]
    assert one.mapped_table(of).columns[1].type.length == 7


def test_a_char_that_grows_too_long_becomes_a_varchar_and_a_text_stays() -> None:
    one = mapping("add prefix", "abc")
    assert one.mapped_table(table(text(252, Kind.CHAR))).columns[1].type == text(255, Kind.CHAR)
    assert one.mapped_table(table(text(253, Kind.CHAR))).columns[1].type == text(256)
    plain = table(ColumnType(Kind.TEXT, charset="utf8mb4", collation="utf8mb4_bin"))
    assert one.mapped_table(plain) is plain


@pytest.mark.parametrize("expression", ["partition id", "add prefix"])
def test_a_missing_image_stays_missing_whatever_its_children_have(expression: str) -> None:
    of = table(text() if expression == "add prefix" else BIGINT)
    arguments = ("p",) if expression == "add prefix" else ARGUMENTS
    below = "z" if expression == "add prefix" else -5
    one = mapping(expression, *arguments)
    rows = images(of, [below, None, below], [True, False, True])
    assert ids(one.mapped(rows, of)) == [None, None, None]
    assert one.mapped(rows, of).is_null().to_pylist() == [True, False, True]
    nothing = images(of, [below], [True])
    assert one.mapped(nothing, of).to_pylist() == [None]
    assert one.mapped(nothing, of).type == pa.struct(list(one.mapped_table(of).arrow))
    assert len(one.mapped(images(of, []), of)) == 0


def test_a_slice_of_rows_keeps_its_place() -> None:
    of = table(BIGINT)
    one = mapping("partition id", "", "", "")
    rows = images(of, [1, 2, 3, 4], [False, False, True, False]).slice(1, 3)
    assert one.mapped(rows, of).to_pylist() == [{"x": 7, "id": 2, "y": "y"}, None, {"x": 7, "id": 4, "y": "y"}]


def test_a_column_of_a_statement_gets_the_type_that_the_table_has() -> None:
    one, name = mapping("partition id", *ARGUMENTS), TableName("shop_2", "orders_10")
    made = Column("id", ColumnType(Kind.INT), nullable=False)
    assert one.mapped_column(made, name) == Column("id", BIGINT, nullable=False)
    for column, other in ((Column("x", ColumnType(Kind.INT)), name), (made, TableName("other", "t"))):
        assert one.mapped_column(column, other) is column


def test_other_tables_are_not_changed() -> None:
    of = table(BIGINT, "other.orders_1")
    rows = images(of, [1])
    one = mapping("partition id", *ARGUMENTS)
    assert one.mapped_table(of) is of
    assert one.mapped(rows, of) is rows


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("partition id", ColumnType(Kind.DECIMAL, precision=20, scale=0)),
        ("partition id", ColumnType(Kind.DOUBLE)),
        ("partition id", ColumnType(Kind.VARBINARY, length=20)),
        ("add prefix", BIGINT),
        ("add prefix", ColumnType(Kind.ENUM, labels=("a",), charset="utf8mb4", collation="utf8mb4_bin")),
        ("add suffix", ColumnType(Kind.BLOB)),
        ("add suffix", ColumnType(Kind.JSON)),
    ],
)
def test_a_type_that_cannot_be_mapped_is_an_error_before_the_first_row(expression: str, kind: ColumnType) -> None:
    arguments = ARGUMENTS if expression == "partition id" else ("p",)
    with pytest.raises(ConfigError) as caught:
        mapping(expression, *arguments).mapped_table(table(kind))
    assert caught.value.code == "bad-value"


@pytest.mark.parametrize("column", ["missing", "ID"])
def test_a_column_that_is_not_there_is_an_error(column: str) -> None:
    with pytest.raises(ConfigError) as caught:
        mapping("partition id", *ARGUMENTS, column=column).mapped_table(table(BIGINT))
    assert caught.value.code == "unknown-name"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"schema_pattern": ""}, "bad-pattern"),
        ({"table_pattern": "a*b"}, "bad-pattern"),
        ({"target_column": ""}, "missing-key"),
        ({"expression": "add middle"}, "bad-value"),
        ({"expression": "Partition ID"}, "bad-value"),
        ({"arguments": ()}, "bad-value"),
        ({"arguments": ("a", "b")}, "bad-value"),
        ({"expression": "partition id", "arguments": ("1", "a")}, "bad-value"),
        ({"expression": "partition id", "arguments": ("1", "a", "b", "_", "c")}, "bad-value"),
    ],
)
def test_a_mapping_that_means_nothing_is_an_error(arguments: dict, code: str) -> None:
    right = {"schema_pattern": "s", "table_pattern": "t", "target_column": "c", "expression": "add prefix"}
    with pytest.raises(ConfigError) as caught:
        ColumnMapping(**{**right, "arguments": ("p",), **arguments})
    assert caught.value.code == code


def test_one_mapping_counts_for_a_table() -> None:
    schema, special = mapping("add prefix", "a", tables="shop*"), mapping("add prefix", "b", tables="shop*.orders*")
    assert mapping_of((schema, special), TableName("shop_1", "orders")) is special
    assert mapping_of((schema, special), TableName("shop_1", "other")) is schema
    assert mapping_of((schema, special), TableName("x", "orders")) is None
    assert mapping_of((), TableName("shop_1", "orders")) is None
    twice = schema, mapping("add suffix", "c", tables="shop_1")
    with pytest.raises(ConfigError) as caught:
        mapping_of(twice, TableName("shop_1", "orders"))
    assert caught.value.code == "ambiguous-mapping"
    assert mapping_of((*twice, special), TableName("shop_1", "orders")) is special


def test_case_matters_where_asked() -> None:
    one = ColumnMapping("Shop*", "", "id", "partition id", ("1", "Shop", ""), case_sensitive=True)
    assert one.fits(TableName("Shop1", "t"))
    assert not one.fits(TableName("shop1", "t"))
    assert one.base(TableName("Shop1", "t")) == 1 << 59 | 1 << 52


def test_a_mapping_travels_to_other_processes() -> None:
    one = mapping("partition id", *ARGUMENTS)
    assert pickle.loads(pickle.dumps(one)) == one
    assert hash(one) == hash(pickle.loads(pickle.dumps(one)))
