"""A row with text in an unknown charset is read if the log names the charset, and refused otherwise."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.binlog.logs.scenarios import INNO, load
from tests.binlog.logs.twins import decoded

from pidts.binlog.kernel import texts
from pidts.binlog.values import strings
from pidts.model import Column, ColumnType, Halted, Kind, TableName
from pidts.model.types import UNKNOWN_CHARSET

from .test_table_map import maps

UNREAD = ColumnType(Kind.VARCHAR, length=9, charset=UNKNOWN_CHARSET)
TABLE = replace(INNO, columns=(INNO.columns[0], replace(INNO.columns[1], type=UNREAD)))
KERNELS = ("compiled", "python")


def rows_of(name, kernel, structure):
    recording = load(name)
    return decoded(
        kernel,
        recording.events,
        format=recording.format,
        log_file=recording.log_file,
        change_no=0,
        structures=lambda logged: structure(logged) if logged.name == INNO.name else None,
    )


def test_a_column_whose_text_type_depends_on_the_charset_has_the_one_that_the_log_has():
    table_map = maps("mysql97-metadata")["k"]
    found = table_map.to_table()
    unread = replace(
        found,
        columns=tuple(
            replace(column, type=ColumnType(Kind.TINYTEXT, charset=UNKNOWN_CHARSET))
            if column.name in ("c", "d")
            else replace(column, type=replace(column.type, charset=UNKNOWN_CHARSET if column.type.charset else None))
            for column in found.columns
        ),
    )
    assert table_map.complete(unread) == found
    silent = replace(table_map, metadata=b"")
    kinds = [column.type.kind for column in silent.complete(unread).columns]
    assert kinds[:4] == [Kind.VARCHAR, Kind.CHAR, Kind.TEXT, Kind.TEXT]
    assert silent.complete(unread).has_unknown_charset
    shown = silent.complete(unread, as_bytes=True).columns
    assert [column.type.kind for column in shown[:4]] == [Kind.VARBINARY, Kind.BINARY, Kind.BLOB, Kind.BLOB]
    assert shown[1].type.length == 0  # Without a length, no zeros are added at the end: the column may be a CHAR.
    assert shown[5].type.labels == ("x", "y")


def words(batches):
    return [row and row["v"] for batch in batches for row in batch.rows.column("after").to_pylist()]


@pytest.mark.parametrize("kernel", KERNELS)
def test_charsets_in_the_log_complete_the_table(kernel):
    found = rows_of("mysql97-transactions", kernel, lambda logged: logged.complete(TABLE))
    assert words(found) == words(rows_of("mysql97-transactions", kernel, lambda _: INNO))
    assert any(words(found))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", ["mariadb-transactions", "mariadb101-transactions", "mysql56-transactions"])
def test_text_is_refused_where_the_log_shows_no_charset(name, kernel):
    found = rows_of(name, kernel, lambda logged: logged.complete(TABLE))
    assert isinstance(found, Halted)
    assert (found.code, found.where.table) == ("unknown-charset", "tx.i")
    as_bytes = words(rows_of(name, kernel, lambda logged: logged.complete(TABLE, as_bytes=True)))
    texts_there = words(rows_of(name, kernel, lambda _: INNO))
    assert as_bytes == [None if word is None else word.encode("latin1") for word in texts_there]


@pytest.mark.parametrize(
    ("values", "text"), [([None, b"", None], [None, "", None]), ([b"", b"a"], None), ([b"\xe4"], None)]
)
def test_only_null_and_the_empty_text_are_the_same_in_every_charset(values, text):
    table, column = TableName("a", "t"), Column("s", UNREAD)
    raw = pa.array(values, pa.binary())

    def by_column():
        return texts.text(table, column, len(values), raw.buffers())

    def by_value():
        return strings.text_builder(table, column, UNKNOWN_CHARSET)(values)

    for read in (by_column, by_value):
        if text is not None:
            assert read().to_pylist() == text
            continue
        with pytest.raises(Halted, match="unknown-charset") as caught:
            read()
        assert "s inherits its charset" in caught.value.what
