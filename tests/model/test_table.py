"""Structures are read from JSON unchanged, have an identity for their rows, and an Arrow form."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, asdict, replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.model import Column, ColumnType, Key, Kind, Table, TableName, change_schema

words = st.text(min_size=1, max_size=8)
types = st.builds(
    ColumnType,
    st.sampled_from(Kind),
    unsigned=st.booleans(),
    length=st.none() | st.integers(0, 70000),
    precision=st.none() | st.integers(1, 65),
    scale=st.none() | st.integers(0, 30),
    fsp=st.integers(0, 6),
    charset=st.none() | st.just("utf8mb4"),
    collation=st.none() | st.just("utf8mb4_bin"),
    labels=st.lists(words, max_size=3).map(tuple),
)
columns = st.builds(
    Column,
    words,
    types,
    nullable=st.booleans(),
    default=st.none() | words,
    auto_increment=st.booleans(),
    generated=st.booleans(),
    comment=st.text(max_size=5),
)
keys = st.builds(
    Key,
    words,
    st.lists(words, min_size=1, max_size=3).map(tuple),
    unique=st.booleans(),
    primary=st.booleans(),
    prefixes=st.lists(st.none() | st.integers(1, 700), max_size=3).map(tuple),
    unique_prefixes=st.booleans(),
    fulltext=st.booleans(),
    for_foreign_key=st.booleans(),
    descending=st.lists(st.booleans(), max_size=3).map(tuple),
)
tables = st.builds(
    Table,
    st.builds(TableName, words, words),
    st.lists(columns, max_size=5).map(tuple),
    st.lists(keys, max_size=3).map(tuple),
    st.none() | words,
    st.none() | words,
    st.text(max_size=5),
)

INT, TEXT = ColumnType(Kind.INT), ColumnType(Kind.TEXT, charset="utf8mb4")
NAME = TableName("d", "t")


@given(types)
def test_a_type_survives_json(kind):
    assert ColumnType.from_json(json.loads(json.dumps(kind.to_json()))) == kind


@given(tables)
def test_a_table_survives_json(table):
    read = Table.from_json(json.loads(json.dumps(table.to_json())))
    assert read == table
    assert [asdict(key) for key in read.keys] == [asdict(key) for key in table.keys], "also what equality leaves out"


def test_a_key_of_an_earlier_version_holds_no_direction():
    made = Key("k", ("a",), unique=True)
    assert "descending" not in Table(NAME, (), (made,)).to_json()["keys"][0], "records stay small"
    old = {"name": "k", "columns": ["a"], "unique": True, "primary": False}
    table = Table.from_json({**Table(NAME, ()).to_json(), "keys": [old]})
    assert asdict(table.keys[0]) == asdict(made)


@given(types)
def test_every_type_has_an_arrow_form(kind):
    if kind.kind is Kind.DECIMAL and (kind.scale or 0) > (kind.precision or 10):
        return
    assert isinstance(kind.arrow, pa.DataType)
    assert pa.types.is_string(kind.arrow) or not kind.is_text
    assert pa.types.is_binary(kind.arrow) or not kind.is_bytes


def test_the_primary_key_names_a_row():
    table = Table(
        NAME,
        (Column("a", INT), Column("b", INT, nullable=False)),
        (Key("u", ("b",), unique=True), Key("PRIMARY", ("a", "b"), unique=True, primary=True)),
    )
    assert table.identity == ("a", "b")
    assert [key.name for key in table.secondary_unique] == ["u"]


def test_else_the_first_unique_key_without_null_does():
    table = Table(
        NAME,
        (Column("a", INT), Column("b", INT, nullable=False)),
        (Key("n", ("a",), unique=True), Key("plain", ("b",)), Key("u", ("b",), unique=True)),
    )
    assert table.identity == ("b",)
    assert [key.name for key in table.secondary_unique] == ["n"]
    assert replace(table, keys=table.keys[:2]).identity == ()


def test_a_batch_has_both_images_of_a_row():
    table = Table(NAME, (Column("a", INT), Column("b", TEXT)))
    row = pa.struct([("a", pa.int32()), ("b", pa.string())])
    assert change_schema(table).field("before").type == change_schema(table).field("after").type == row
    assert table.arrow.names == ["a", "b"]


def test_tables_do_not_change():
    table = Table(NAME, (Column("a", INT),))
    with pytest.raises(FrozenInstanceError):
        table.comment = "x"
    assert table.renamed(TableName("e", "u")).columns == table.columns
    assert table.name == NAME
    with pytest.raises(KeyError):
        table.column("A")
