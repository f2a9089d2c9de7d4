"""Documents that a server has stored in another form are equal, and no other documents are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pidts.apply.locks.same_as_stored import RowStorage, equal_columns
from pidts.model import Column, ColumnType, Key, Kind, Table, TableName

COLUMNS = (Column("id", ColumnType(Kind.INT), nullable=False), Column("d", ColumnType(Kind.JSON)))
TABLE = Table(TableName("s", "t"), COLUMNS, keys=(Key("PRIMARY", ("id",), unique=True, primary=True),))


def same(said: str, found: str) -> bool:
    rows = (pa.table([[1], [text]], schema=TABLE.arrow) for text in (said, found))
    image, row = next(rows).to_struct_array().combine_chunks(), next(rows)
    return bool(equal_columns(TABLE, image, row, None, lambda: RowStorage(TABLE)).all())


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('{"a": 4.095398469883106e16}', '{"a": 40953984698831060}'),  # PostgreSQL keeps all digits.
        ("[4.88376103798077e60]", f"[488376103798077{'0' * 46}]"),
        ("[18446744073709551616]", "[1.8446744073709552e19]"),  # MySQL stores integers of more than 64 bits as DOUBLE.
        ("[-9223372036854775809]", "[-9.223372036854775808e18]"),
        ("[1.10]", "[1.1]"),
        ("[1e2]", "[100]"),
        ("[-0.0]", "[0.0]"),
        ("[0.1000000000000000055511151231257827]", "[0.1]"),
        ('{"a": 1, "b": "\\u00e9"}', '{"b":"é","a":1}'),
        ('{"a": 1, "b": [true]}', '{"b":[true],"a":1}'),
        ("-10000000.0", "-10000000"),
        ("1.8446744073709552e+19", "18446744073709552000"),
        ("1.1550623324890059e+126", f"11550623324890059{'0' * 110}"),
        ("0.1", "0.10000000000000001"),
    ],
)
def test_a_document_in_other_words_is_the_same(said, found):
    assert same(said, found)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('{"a": 4.095398469883106e16}', '{"a": 40953984698831061}'),
        ("4.095398469883106e+16", "40953984698831064"),  # the second number, as a DOUBLE, is equal to the first one
        ("40953984698831060", "40953984698831061"),
        ("[9007199254740993]", "[9007199254740992.0]"),
        ("[18446744073709551615]", "[18446744073709551614]"),
        ("[1e400]", "[1e401]"),
        ("[1.1]", "[1.2]"),
        ("[1]", "[true]"),
        ("[1]", '["1"]'),
        ("[null]", "[]"),
        ("[1]", "[1, 1]"),
    ],
)
def test_a_document_with_another_value_is_another(said, found):
    assert not same(said, found)
