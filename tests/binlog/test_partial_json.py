"""A JSON document of which the log has only the changes becomes equal to the document that the server stores."""

from __future__ import annotations

import random

import pymysql
import pytest

from pidts.binlog import MAGIC, LogWalker, decode_slice, iter_raw
from pidts.binlog.events import EventType
from pidts.binlog.values.partial_json import legs, rebuilt
from pidts.model import Column, ColumnType, DecodeError, Halted, Key, Kind, Table, TableName

NAME = TableName("diffs", "t")
TABLE = Table(
    NAME,
    (
        Column("id", ColumnType(Kind.INT), nullable=False),
        Column("a", ColumnType(Kind.JSON), nullable=True),
        Column("v", ColumnType(Kind.INT), nullable=True),
        Column("b", ColumnType(Kind.JSON), nullable=True),
    ),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
DOCUMENT = (
    '{"a": [1, 2.5, {"deep": "text of some length, so that a difference is shorter"}], "b": {"x y": null, "ä\\"q": -7},'
    ' "long": "%s", "n": 123456789012345, "e": [], "o": {}}'
) % ("x" * 400)
CHANGES = [
    "JSON_SET({}, '$.a[0]', {n})",
    "JSON_SET({}, '$.a[2].deep', 'new {n}')",
    "JSON_SET({}, '$.fresh{n}', CAST('[1, {{\"k\": {n}}}]' AS JSON))",
    "JSON_REPLACE({}, '$.b.\"x y\"', CAST({n}.25 AS DECIMAL(10,2)))",
    'JSON_SET({}, \'$.b."ä\\\\"q"\', {n}e50)',
    "JSON_ARRAY_INSERT({}, '$.a[1]', 'inserted {n}')",
    "JSON_ARRAY_APPEND({}, '$.a', CAST('2024-02-{day} 10:11:12.5' AS DATETIME(1)))",
    "JSON_REMOVE({}, '$.a[last]')",
    "JSON_REMOVE({}, '$.fresh{n}')",
    "JSON_SET({}, '$.a[last-1]', 'before the last {n}')",
    "JSON_SET({}, '$.n[0]', {n}, '$.n[last]', {n} + 1)",
    "JSON_SET({}, '$.long[3]', {n})",
    "JSON_REMOVE({}, '$.long[0]', '$.long[0]')",
    "JSON_ARRAY_INSERT({}, '$.a[last]', {n}, '$.a[100]', 'end')",
    "JSON_SET({}, '$.a[50]', 'behind the end')",
    "JSON_SET({}, '$.o.z', {n}, '$.o.bb', 1, '$.o.a', true, '$.long', 'short', '$.e[0]', {n})",
]


def test_rebuilt_documents_are_those_of_the_server(mysql97):
    choose = random.Random(7)
    with (
        pymysql.connect(
            host=mysql97.host, port=mysql97.port, user=mysql97.user, password=mysql97.password, autocommit=True
        ) as connection,
        connection.cursor() as cursor,
    ):
        for statement in (
            "CREATE DATABASE diffs",
            "CREATE TABLE diffs.t (id int PRIMARY KEY, a json, v int, b json)",
            "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
            "FLUSH LOGS",
        ):
            cursor.execute(statement)
        cursor.execute("INSERT INTO diffs.t VALUES (1, %s, 0, %s), (2, %s, 0, NULL)", (DOCUMENT, DOCUMENT, DOCUMENT))
        expected = {}
        for number in range(150):
            row = choose.choice((1, 1, 2))
            sets = ["v = v + 1"] if choose.random() < 0.3 else []
            for column in choose.choice((("a",), ("b",), ("a", "b"))):
                change = choose.choice(CHANGES).format("{}", n=number % 17, day=10 + number % 9)
                sets.append(f"{column} = " + change.replace("{}", column))
            image = choose.choice(("FULL", "FULL", "NOBLOB"))
            cursor.execute(f"SET SESSION binlog_row_image = {image}")
            cursor.execute(f"UPDATE diffs.t SET {', '.join(sets)} WHERE id = {row}")
            if cursor.rowcount:
                cursor.execute(f"SELECT CAST(a AS CHAR), CAST(b AS CHAR) FROM diffs.t WHERE id = {row}")
                expected[len(expected)] = (row, image, *cursor.fetchone())
        cursor.execute("SET SESSION binlog_row_image = MINIMAL")
        cursor.execute("FLUSH LOGS")
        cursor.execute("UPDATE diffs.t SET a = JSON_SET(a, '$.n', 1) WHERE id = 1")
        cursor.execute("FLUSH LOGS")
        cursor.execute("DROP DATABASE diffs")
    files = sorted((mysql97.directory / "binlog").glob("bin.0*"))[-3:-1]
    log = files[0].read_bytes()
    minimal = files[-1]
    batches = decoded(log)
    updates = [
        (new["id"], new["a"], new["b"], partial)
        for batch in batches
        for old, new, partial in zip(
            *(batch.rows.column(name).to_pylist() for name in ("before", "after", "partial")), strict=True
        )
        if old is not None
    ]
    assert len(updates) == len(expected)
    assert EventType.PARTIAL_UPDATE_ROWS in kinds(log)
    for (row, image, a, b), (found_row, found_a, found_b, partial) in zip(expected.values(), updates, strict=True):
        assert row == found_row
        if partial is None:
            assert (found_a, found_b) == (a, b)
        else:
            assert image == "NOBLOB"
            assert found_a in (a, None)
            assert found_b in (b, None)
    with pytest.raises(Halted) as caught:
        decoded(minimal.read_bytes())
    assert caught.value.code == "partial-json-without-before"
    assert caught.value.where.table == str(NAME)


def decoded(log):
    events = log[len(MAGIC) :]
    walker = LogWalker("bin.000001")
    walker.feed(next(iter_raw(events)))
    return decode_slice(events, format=walker.format, log_file="bin.000001", change_no=0, structures={NAME: TABLE})


def kinds(log):
    walker = LogWalker("bin.000001")
    return {walker.feed(raw).type for raw in iter_raw(log[len(MAGIC) :])}


def test_a_path_is_read_as_the_server_writes_it():
    assert legs('$.a[3]."x y"."q\\"\\\\"[0].ü') == ["a", 3, "x y", 'q"\\', 0, "ü"]
    assert legs("$") == []
    assert legs("$[last][last-2]") == [-1, -3]
    for bad in ("", "a", "$.", "$[", "$[x]", "$[last-]", '$."', "$a"):
        with pytest.raises(DecodeError):
            legs(bad)


@pytest.mark.parametrize("diffs", [b"\0", b"\3\3$.a\2\5\1", b"\2\5$.a.b", b"\1\1$\3\5\1\0", b"\2\4$.no"])
def test_a_change_that_does_not_fit_is_an_error(diffs):
    document = b"\0\1\0\x0c\0\x0b\0\1\0\5\1\0a"  # {"a": 1}
    with pytest.raises(DecodeError):
        rebuilt(document, diffs)
