"""Records have the form of the examples in Inception Gate's manual, and are JSON whatever text they have."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.gate.json_text import image, quoted
from pidts.gate.records import of_rows
from pidts.gate.schema_records import schema_records
from pidts.model import ChangeBatch, Column, ColumnType, Kind, Lsn, Op, Table, TableName
from pidts.schema import apply, classify

HOTELS = Table(
    TableName("shop", "hotel"),
    (
        Column("id", ColumnType(Kind.INT), nullable=False),
        Column("hotel_id", ColumnType(Kind.INT)),
        Column("from_date", ColumnType(Kind.DATE)),
        Column("to_date", ColumnType(Kind.DATE)),
        Column("status", ColumnType(Kind.TINYINT)),
        Column("update_time", ColumnType(Kind.DATETIME)),
        Column("wrapper_ids", ColumnType(Kind.VARCHAR, length=20, charset="utf8mb4")),
        Column("priority", ColumnType(Kind.INT)),
    ),
)
UPDATE = """{"OLD":[{"id":"13581311"},{"hotel_id":"10826108"},{"from_date":"2016-01-12"},{"to_date":"2016-04-11"},\
{"status":"0"},{"update_time":"2016-01-12 14:12:32"},{"wrapper_ids":""},{"priority":"0"}],\
"NEW":[{"id":"13581311"},{"hotel_id":"10826108"},{"from_date":"2016-01-12"},{"to_date":"2016-04-11"},\
{"status":"1"},{"update_time":"2016-01-12 19:02:16"},{"wrapper_ids":""},{"priority":"0"}]}"""
ALTERTABLE = """{"ADDCOLUMN":[{"field_name":"age","data_type":"INT"}],\
"ADDINDEX":[{"index_name":"idx_name_sno","column_name":["name","sno"]}],"DROPCOLUMN":["grade"],\
"CHANGECOLUMN":[{"origin_field_name":"name","field_name":"name","data_type":"VARCHAR(64)"}],\
"DROPINDEX":["idx_sno"],"OTHERS":"Be ignored or nothing"}"""
RENAME = """{"RENAME":[{"from":{"dbname":"test","tablename":"t"},"to":{"dbname":"test","tablename":"tnew"}}]}"""
CREATETABLE = """{"NEW":[{"field_name":"sno","nullable":"Yes","primary_key":"No","data_type":"int(11)"},\
{"field_name":"name","nullable":"Yes","primary_key":"No","data_type":"varchar(100)"}]}"""

STUDENTS = "CREATE TABLE t (sno int, name varchar(100), grade int, KEY idx_sno (sno))"


def _students() -> dict[TableName, Table]:
    made = apply(classify(STUDENTS, "test"), {}, {})
    return {name: table for name, table in made.items() if table is not None}


def _records(sql: str, known: Mapping[TableName, Table]) -> list[tuple[str, str, str]]:
    statement = classify(sql, "test")
    after = {**known, **apply(statement, known, {})}
    return [(one.optype, one.tablename, one.data) for one in schema_records(statement, known, after)]


def test_an_update_is_as_in_the_manual() -> None:
    def at(text: str) -> dict[str, object]:
        return {
            "id": 13581311,
            "hotel_id": 10826108,
            "from_date": pa.scalar("2016-01-12").cast(pa.date32()),
            "to_date": pa.scalar("2016-04-11").cast(pa.date32()),
            "status": 0 if "14:12" in text else 1,
            "update_time": pa.scalar(text).cast(pa.timestamp("us")),
            "wrapper_ids": "",
            "priority": 0,
        }

    def struct(values: dict[str, object]) -> pa.StructArray:
        columns = [pa.array([values[field.name]], field.type) for field in HOTELS.arrow]
        return pa.StructArray.from_arrays(columns, fields=list(HOTELS.arrow))

    batch = ChangeBatch.of(
        HOTELS,
        pa.array([Lsn(0, 1, 400).to_bytes()], pa.binary(Lsn.SIZE)),
        pa.array([int(Op.UPDATE)], pa.int8()),
        struct(at("2016-01-12 14:12:32")),
        struct(at("2016-01-12 19:02:16")),
    )
    records = of_rows([batch], lambda lsns: pa.array([1452625336000000] * len(lsns)), "+00:00")
    assert records is not None
    assert records["data"].to_pylist() == [UPDATE]
    assert records["optype"].to_pylist() == ["UPDATE"]


def test_schema_changes_are_as_in_the_manual() -> None:
    altered = (
        "ALTER TABLE t ADD COLUMN age INT, ADD INDEX idx_name_sno (name, sno), DROP COLUMN grade, "
        "CHANGE name name VARCHAR(64), DROP INDEX idx_sno"
    )
    assert _records(altered, _students()) == [("ALTERTABLE", "t", ALTERTABLE)]
    assert _records("RENAME TABLE t TO tnew", _students()) == [("RENAME", "t", RENAME)]
    assert _records("TRUNCATE TABLE t", _students()) == [("TRUNCATE", "t", "")]
    assert _records("CREATE TABLE s (sno int, name varchar(100))", {}) == [("CREATETABLE", "s", CREATETABLE)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ALTER TABLE t ENGINE = InnoDB", [("ALTERTABLE", {"OTHERS": "Be ignored or nothing"})]),
        ("DROP TABLE t", []),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS grade INT, DROP COLUMN IF EXISTS absent", []),
        ("ALTER TABLE t MODIFY COLUMN IF EXISTS absent INT, CHANGE IF EXISTS absent x INT", []),
        (
            "ALTER TABLE t ADD INDEX IF NOT EXISTS idx_sno (name), ADD COLUMN IF NOT EXISTS age INT, DROP IF EXISTS grade",
            [("ALTERTABLE", {"ADDCOLUMN": [{"field_name": "age", "data_type": "INT"}], "DROPCOLUMN": ["grade"]})],
        ),
        ("CREATE INDEX i ON t (name)", [("ALTERTABLE", {"ADDINDEX": [{"index_name": "i", "column_name": ["name"]}]})]),
        (
            "ALTER TABLE t ADD INDEX (grade), MODIFY grade decimal(10,2) unsigned NOT NULL",
            [
                (
                    "ALTERTABLE",
                    {
                        "ADDINDEX": [{"index_name": "grade", "column_name": ["grade"]}],
                        "CHANGECOLUMN": [
                            {
                                "origin_field_name": "grade",
                                "field_name": "grade",
                                "data_type": "DECIMAL(10,2) UNSIGNED",
                            }
                        ],
                    },
                )
            ],
        ),
        (
            "ALTER TABLE t ADD e enum('a','B') CHARACTER SET latin1, RENAME TO u",
            [
                ("ALTERTABLE", {"ADDCOLUMN": [{"field_name": "e", "data_type": "ENUM('a','B')"}]}),
                (
                    "RENAME",
                    {
                        "RENAME": [
                            {
                                "from": {"dbname": "test", "tablename": "t"},
                                "to": {"dbname": "test", "tablename": "u"},
                            }
                        ]
                    },
                ),
            ],
        ),
        (
            "CREATE TABLE l LIKE t",
            [
                (
                    "CREATETABLE",
                    {
                        "NEW": [
                            {"field_name": "sno", "nullable": "Yes", "primary_key": "No", "data_type": "int(11)"},
                            {"field_name": "name", "nullable": "Yes", "primary_key": "No", "data_type": "varchar(100)"},
                            {"field_name": "grade", "nullable": "Yes", "primary_key": "No", "data_type": "int(11)"},
                        ]
                    },
                )
            ],
        ),
    ],
)
def test_other_schema_changes(sql: str, expected: list[tuple[str, dict[str, object]]]) -> None:
    found = _records(sql, _students())
    assert [one[0] for one in found] == [one[0] for one in expected]
    for (_, _, data), (optype, document) in zip(found, expected, strict=True):
        others = {"OTHERS": "Be ignored or nothing"} if optype == "ALTERTABLE" else {}
        assert json.loads(data) == {**document, **others}


def test_types_of_a_new_table() -> None:
    sql = (
        "CREATE TABLE s (a tinyint unsigned, b bigint NOT NULL, c decimal, d char, e bit, f year, g datetime(3), "
        "h double, i text, j int(5), PRIMARY KEY (b))"
    )
    (record,) = _records(sql, {})
    columns = json.loads(record[2])["NEW"]
    assert [column["data_type"] for column in columns] == [
        *("tinyint(3) unsigned", "bigint(20)", "decimal(10,0)", "char(1)", "bit(1)", "year(4)", "datetime(3)"),
        *("double", "text", "int(5)"),
    ]
    assert [column["primary_key"] for column in columns] == ["No", "Yes", *["No"] * 8]
    assert columns[1]["nullable"] == "No"


@given(
    st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"])), max_size=20),
    st.text('a"\\\n\u00e9', max_size=5),
)
def test_any_text_is_one_json_string(texts: list[str | None], name: str) -> None:
    columns = quoted(pa.array(texts, pa.string()))
    rows = image([name, "n"], [columns, columns], len(texts)).to_pylist()
    assert [json.loads(row) for row in rows] == [[{name: text}, {"n": text}] for text in texts]
