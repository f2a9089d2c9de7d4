"""Compiled code reads the same rows as the driver, of every type, size and number."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest
from tests.target.conformance.conftest import MYSQL_KINDS
from tests.target.conformance.locks.test_rows_that_differ import random_rows
from tests.target.conformance.samples import write

from pidts.apply import Target, TargetSession
from pidts.model import Column, ColumnType, Kind, PidtsError, Table, TableName
from pidts.reduce import NetChange

from .samples import INT, change, create, every_type, rows, table, text

pytestmark = pytest.mark.parametrize("kind", MYSQL_KINDS)
COUNT = 300


def by_the_driver(session: TargetSession, structure: Table, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    with monkeypatch.context() as patch:
        patch.setenv("PIDTS_KERNEL", "python")
        return session.read_rows(structure)


def ids(count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(count), pa.int64())})


def test_values_of_every_type_are_the_same(
    session: TargetSession, name: TableName, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = every_type(name)
    structure = replace(made, columns=(*made.columns, Column("c_json", ColumnType(Kind.JSON))))
    create(session, structure)
    there = random_rows(structure, random.Random(3), 0, COUNT)
    write(session, NetChange(structure, change(structure).deletes, there, change(structure).counts))
    plain = by_the_driver(session, structure, monkeypatch)
    assert plain.num_rows == COUNT
    assert session.read_rows(structure).equals(plain)
    wanted = ids(2 * COUNT).take(pa.array(random.Random(4).sample(range(2 * COUNT), 2 * COUNT)))
    assert session.read_rows(structure, keys=wanted, lock=True).equals(plain)


def test_a_column_of_another_type_is_read_nevertheless(session: TargetSession, name: TableName) -> None:
    wider = table(name, {"id": INT, "d": ColumnType(Kind.DECIMAL, precision=12, scale=4)})
    create(session, wider)
    write(
        session,
        change(
            wider, upserts=[(at, pa.scalar(f"{at}.5000").cast(pa.decimal128(12, 4)).as_py()) for at in range(COUNT)]
        ),
    )
    structure = table(name, {"id": INT, "d": ColumnType(Kind.DECIMAL, precision=10, scale=2)})
    for _ in range(2):
        found = session.read_rows(structure)
        assert [str(each) for each in found["d"].to_pylist()[:2]] == ["0.50", "1.50"]
        assert session.count(name) == COUNT


def test_a_row_of_several_packets(target: Target, session: TargetSession, name: TableName, kind: str) -> None:
    if kind != "mysql97":
        pytest.skip("these servers send no row of more than 16 MiB, as they are set up here")
    structure = table(name, {"id": INT, "s": ColumnType(Kind.LONGTEXT, charset="utf8mb4", collation="utf8mb4_bin")})
    create(session, structure)
    size = (1 << 24) + 1000
    session.execute(f"INSERT INTO {name.schema}.{name.name} VALUES (1, REPEAT('x', {size})), (2, 'y')")
    found = session.read_rows(structure)
    assert [len(each) for each in found["s"].to_pylist()] == [size, 1]


def test_a_refusal_is_reported_and_the_session_continues(session: TargetSession, name: TableName) -> None:
    structure = table(name, {"id": INT, "s": text()})
    with pytest.raises(PidtsError, match=name.name):
        session.read_rows(structure)
    create(session, structure)
    assert session.read_rows(structure).equals(rows(structure))
