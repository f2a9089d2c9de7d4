"""A datacenter's records are read from the last to the first: the first record that is found of a key has the key's
current row.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidts.gate.replay import KeyChange, ReplayedRow, TableNames, TransferRow, documents, follows, row_digest, steps
from pidts.gate.schema_records import OTHERS
from pidts.model import Column, ColumnType, Key, Kind, Table, TableName

_INT = ColumnType(Kind.INT)


def _table(name: str, *columns: str, key: str = "id", generated: str = "") -> Table:
    made = tuple(Column(one, _INT, generated=one == generated) for one in columns)
    return Table(TableName("d", name), made, (Key("PRIMARY", (key,), unique=True, primary=True),))


def _record(optype: str, table: str, **document: Any) -> TransferRow:
    return TransferRow(1, 1, TableName("d", table), "a:1", optype, json.dumps(document) if document else "")


def _images(**sides: dict[str, str | None]) -> dict[str, Any]:
    return {side.upper(): [{name: value} for name, value in row.items()] for side, row in sides.items()}


def _before(table: Table, *records: TransferRow) -> TableNames:
    """Returns the names that the tables had before these records, of which the last is given first."""
    lineage = TableNames.of([table])
    for record in records:
        lineage = lineage.before(record)
    return lineage


def test_an_earlier_name_leads_to_the_present_table() -> None:
    swap = [("t", "old"), ("new", "t")]
    pairs = [
        {"from": {"dbname": "d", "tablename": one}, "to": {"dbname": "d", "tablename": other}} for one, other in swap
    ]
    lineage = _before(_table("t", "id"), _record("RENAME", "t", RENAME=pairs))
    assert list(lineage.tables) == [TableName("d", "new")]


def test_an_added_or_changed_column_is_not_known_before() -> None:
    alter = {
        "ADDCOLUMN": [{"field_name": "A", "data_type": "INT"}],
        "CHANGECOLUMN": [{"origin_field_name": "x", "field_name": "b", "data_type": "INT"}],
        "OTHERS": OTHERS,
    }
    lineage = _before(_table("t", "id", "a", "b", "c", "g", generated="g"), _record("ALTERTABLE", "t", **alter))
    followed = lineage.tables[TableName("d", "t")]
    assert followed.names == {"id": "id", "a": None, "b": None, "c": "c", "g": None}
    assert followed.has_key
    assert not followed.may_lack_changes


@pytest.mark.parametrize(
    "alter",
    [
        {"CHANGECOLUMN": [{"origin_field_name": "id", "field_name": "id", "data_type": "BIGINT"}]},
        {"ADDCOLUMN": [{"field_name": "id", "data_type": "INT"}]},
        {"DROPINDEX": ["PRIMARY"], "ADDINDEX": [{"index_name": "PRIMARY", "column_name": ["ID"]}]},
    ],
)
def test_before_a_new_key_rows_are_not_distinguished(alter: dict[str, Any]) -> None:
    lineage = _before(_table("t", "id", "a"), _record("ALTERTABLE", "t", **alter, OTHERS=OTHERS))
    assert not lineage.tables[TableName("d", "t")].has_key
    assert not lineage.before(_record("CREATETABLE", "t", NEW=[])).whole


def test_a_statement_that_the_record_does_not_show_may_have_changed_rows() -> None:
    lineage = _before(_table("t", "id"), _record("ALTERTABLE", "t", OTHERS=OTHERS))
    assert lineage.tables[TableName("d", "t")].may_lack_changes
    assert not lineage.before(_record("TRUNCATE", "t")).whole


def test_a_table_begins_empty_and_what_its_name_meant_before_is_another_table() -> None:
    for optype in ("TRUNCATE", "CREATETABLE"):
        lineage = _before(_table("t", "id"), _record(optype, "t"))
        assert lineage.whole == {TableName("d", "t")}
        assert not lineage.tables


def test_an_update_of_a_key_concerns_two_rows() -> None:
    lineage = TableNames.of([_table("t", "id", "a")])
    found = steps(_images(old={"id": "1", "a": "x"}, new={"id": "2", "a": "x"}), lineage.tables[TableName("d", "t")])
    assert found == (KeyChange(("2",), None, {"id": "2", "a": "x"}), KeyChange(("1",), {"id": "1", "a": "x"}, None))


def test_an_image_in_part_takes_its_key_from_the_other_one() -> None:
    followed = TableNames.of([_table("t", "id", "a")]).tables[TableName("d", "t")]
    found = steps(_images(old={"id": "1"}, new={"a": None}), followed)
    assert found == (KeyChange(("1",), {"id": "1"}, {"a": None}),)
    assert steps(_images(old={"a": "1"}), followed) is None
    assert steps(_images(old={"a": "1"}, new={"id": "1"}), followed) is None
    assert steps(_images(new={"a": "1"}), followed) is None


def test_an_image_is_known_by_the_present_columns_that_it_had_then() -> None:
    alter = {"ADDCOLUMN": [{"field_name": "b", "data_type": "INT"}], "OTHERS": OTHERS}
    lineage = _before(_table("t", "id", "a", "b"), _record("ALTERTABLE", "t", **alter))
    followed = lineage.tables[TableName("d", "t")]
    assert steps(_images(new={"id": "1", "a": "2", "gone": "3"}), followed) == (
        KeyChange(("1",), None, {"id": "1", "a": "2"}),
    )
    assert followed.known(["a"]) == ("id", "a")
    assert followed.known(["a", "b"]) == ("id", "a")


def test_many_documents_are_read_at_once() -> None:
    texts = ['{"NEW":[{"a":"},{\\"b\\":"}]}', '{"OLD":[{"a":null}]}']
    assert documents(texts) == [json.loads(text) for text in texts]
    assert documents([]) == []


def test_images_of_other_columns_prove_nothing_about_each_other() -> None:
    whole, part, other = ({"id": "1", "a": "2"}, {"id": "1"}, {"id": "1", "a": "3"})
    assert follows(row_digest(whole), row_digest(whole))
    assert follows(row_digest(part), row_digest(whole))
    assert not follows(row_digest(other), row_digest(whole))
    assert not follows(row_digest(None), row_digest(whole))
    assert follows(row_digest(None), row_digest(None))


@dataclass
class Server:
    """Tables with one key and some columns, and the records of their changes."""

    tables: dict[str, tuple[list[str], dict[str, dict[str, str | None]]]] = field(default_factory=dict)
    records: list[TransferRow] = field(default_factory=list)

    def log(self, optype: str, table: str, **document: Any) -> None:
        number = len(self.records) + 1
        self.records.append(
            TransferRow(number, number, TableName("d", table), "a:1", optype, json.dumps(document) if document else "")
        )

    def do(self, step: Sequence[Any]) -> None:
        action, name, key, value = step
        columns, rows = self.tables.get(name, ([], {}))
        if action == "create" and name not in self.tables:
            self.tables[name] = (["id", "a"], {})
            self.log("CREATETABLE", name, NEW=[])
        elif name not in self.tables:
            return
        elif action == "write":
            row = dict.fromkeys(columns, value) | {"id": key}
            old = rows.get(key)
            self.log(
                *("INSERT" if old is None else "UPDATE", name), **_images(**({"old": old} if old else {}), new=row)
            )
            rows[key] = row
        elif action == "move" and key in rows and value not in rows:
            self.log("UPDATE", name, **_images(old=rows[key], new={**rows[key], "id": value}))
            rows[value] = {**rows.pop(key), "id": value}
        elif action == "delete" and key in rows:
            self.log("DELETE", name, **_images(old=rows.pop(key)))
        elif action == "truncate":
            rows.clear()
            self.log("TRUNCATE", name)
        elif action == "drop":
            del self.tables[name]
        elif action == "rename" and f"{name}{key}" not in self.tables:
            to = f"t{key}" if f"t{key}" not in self.tables else ""
            if to:
                self.tables[to] = self.tables.pop(name)
                pair = {"from": {"dbname": "d", "tablename": name}, "to": {"dbname": "d", "tablename": to}}
                self.log("RENAME", name, RENAME=[pair])
        elif action == "alter":
            self._alter(name, columns, rows, value)

    def _alter(self, name: str, columns: list[str], rows: dict[str, dict[str, str | None]], value: str) -> None:
        column = f"c{value}"
        if column in columns:
            columns.remove(column)
            self.log("ALTERTABLE", name, DROPCOLUMN=[column], OTHERS=OTHERS)
            filled = {key: {one: row[one] for one in columns} for key, row in rows.items()}
        else:
            columns.append(column)
            self.log("ALTERTABLE", name, ADDCOLUMN=[{"field_name": column, "data_type": "INT"}], OTHERS=OTHERS)
            filled = {key: {**row, column: "default"} for key, row in rows.items()}
        rows.clear()
        rows.update(filled)


_NAMES, _FEW = st.sampled_from(["t1", "t2", "t3"]), st.sampled_from(["1", "2", "3"])
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", *["write"] * 4, "move", "delete", "truncate", "drop", "rename", "alter"]),
        _NAMES,
        _FEW,
        _FEW,
    ),
    max_size=40,
)


@given(earlier=_STEPS, later=_STEPS)
def test_records_that_are_read_backwards_give_the_present_rows(earlier: list[Any], later: list[Any]) -> None:
    server = Server()
    for step in earlier:
        server.do(step)
    server.records.clear()  # The channel begins here.
    for step in later:
        server.do(step)
    tables = {name: _table(name, *columns) for name, (columns, _) in server.tables.items()}
    lineage = TableNames.of(tables.values())
    found: dict[tuple[str, str | None], ReplayedRow] = {}
    expected: dict[tuple[str, str | None], tuple[int, bytes]] = {}
    for record in reversed(server.records):
        if not record.is_row:
            lineage = lineage.before(record)
            continue
        followed = lineage.tables.get(record.table)
        if followed is None:
            continue
        said = steps(json.loads(record.data), followed)
        assert said is not None
        for step in said:
            place = followed.table.name.name, step.key[0]
            found.setdefault(place, ReplayedRow(step.key, step.after))
            if place in expected and expected[place][0] == followed.age:
                assert follows(expected[place][1], row_digest(step.after))
            expected[place] = followed.age, row_digest(step.before)
    for (name, key), fact in found.items():
        row = server.tables[name][1].get(str(key))
        assert (row is None) is (fact.row is None)
        assert fact.row is None or row is None or fact.row.items() <= row.items()
    for name in lineage.whole:
        there = {key for (table, key), fact in found.items() if table == name.name and fact.row is not None}
        assert there == server.tables[name.name][1].keys()
