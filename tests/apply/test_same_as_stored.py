"""Documents that a server spells in its own way are those of the log; others are not."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pidts.apply.locks.same_as_stored import Stored, equal_columns
from pidts.model import Column, ColumnType, Kind, Table, TableName

TABLE = Table(TableName("shop", "notes"), (Column("note", ColumnType(Kind.JSON)),))


@pytest.mark.parametrize(
    ("logged", "stored", "same"),
    [
        ('{"a": 1, "b": [true]}', '{"b":[true],"a":1}', True),
        ("-10000000.0", "-10000000", True),
        ("4.095398469883106e+16", "40953984698831060", True),  # the floating point number is 40953984698831064
        ("4.095398469883106e+16", "40953984698831064", False),
        ("40953984698831060", "40953984698831061", False),
        ("1.8446744073709552e+19", "18446744073709552000", True),
        ("18446744073709551615", "18446744073709551614", False),
        ("1.1550623324890059e+126", "11550623324890059" + "0" * 110, True),
        ("1", "true", False),
        ("0.1", "0.10000000000000001", True),  # one floating point number
        ("-0.0", "0", True),
    ],
)
def test_documents_are_compared_by_what_they_say(logged, stored, same):
    column = TABLE.arrow.field("note")
    images = pa.StructArray.from_arrays([pa.array([logged], column.type)], fields=[column])
    rows = pa.table({"note": pa.array([stored], column.type)})
    equal = equal_columns(TABLE, images, rows, None, lambda: Stored(TABLE))
    assert equal.tolist() == np.array([[same]]).tolist()
