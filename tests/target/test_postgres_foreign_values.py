"""If another program has written a value on PostgreSQL that the source's type cannot hold, the table halts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from tests.target.conformance.samples import INT, create, table, text

from pidts.login import Mode, Tls
from pidts.model import ColumnType, Halted, Kind, Table, TableName, Transient
from pidts.sandbox import Server
from pidts.target import PostgresTarget
from pidts.target.postgres import PostgresSession, reader


@pytest.fixture
def session(postgres: Server) -> Iterator[PostgresSession]:
    target = PostgresTarget(
        postgres.host, postgres.port, postgres.user, postgres.password, "postgres", tls=Tls(Mode.DISABLED)
    )
    with closing(target.connect()) as made:
        made.meta.prepare()
        yield made


def made(session: PostgresSession, database: str, kind: ColumnType, **more: Any) -> Table:
    structure = table(TableName(database, "t"), {"id": INT, "v": kind}, **more)
    create(session, structure)
    return structure


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (ColumnType(Kind.INT, unsigned=True), "-1", "v, invalid value '-1'"),
        (ColumnType(Kind.DECIMAL, length=10, scale=2), "'NaN'", "NaN"),
    ],
)
def test_the_table_halts_and_the_message_has_the_value(
    session: PostgresSession, database: str, kind: ColumnType, value: str, said: str
) -> None:
    structure = made(session, database, kind)
    session.execute(f"INSERT INTO {database}.t VALUES (1, {value})")
    with pytest.raises(Halted, match="a value that the source's column cannot hold") as halted:
        session.read_rows(structure)
    assert said in halted.value.what
    assert halted.value.where is not None
    assert halted.value.where.table == str(structure.name)


@pytest.mark.parametrize("kind", [Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP])
def test_a_date_without_end_is_named_with_its_key(session: PostgresSession, database: str, kind: Kind) -> None:
    structure = made(session, database, ColumnType(kind))
    session.execute(f"INSERT INTO {database}.t VALUES (1, '2024-02-29'), (7, '-infinity')")
    with pytest.raises(Halted, match="a value that the source's column cannot hold: v, -infinity") as halted:
        session.read_rows(structure)
    assert (halted.value.where.table, halted.value.where.key) == (str(structure.name), "id=7")
    session.execute(f"DELETE FROM {database}.t WHERE id = 7")
    assert session.read_rows(structure).num_rows == 1, "the session goes on"


def test_nothing_is_written_after_an_infinite_date(session: PostgresSession, database: str) -> None:
    """The reading fails the caller's transaction: the transaction cannot be committed any more."""
    structure = made(session, database, ColumnType(Kind.DATE))
    session.execute(f"INSERT INTO {database}.t VALUES (1, 'infinity')")
    session.begin()
    session.clear(structure.name)
    session.execute(f"INSERT INTO {database}.t VALUES (2, 'infinity')")
    with pytest.raises(Halted, match="cannot hold: v, infinity"):
        session.read_rows(structure)
    assert session.in_transaction()
    with pytest.raises(Halted, match="current transaction is aborted"):
        session.execute(f"INSERT INTO {database}.t VALUES (3, '2024-02-29')")
    with pytest.raises(Transient, match="answered COMMIT with ROLLBACK"):
        session.commit()
    assert session.rows(f"SELECT id FROM {database}.t") == [(1,)]


@pytest.mark.parametrize("key", [["id"], ["id", "k"]], ids="-".join)
def test_the_rows_of_many_keys_come_in_parts(
    session: PostgresSession, database: str, monkeypatch: pytest.MonkeyPatch, key: list[str]
) -> None:
    monkeypatch.setattr(reader, "_KEYS", 7)
    structure = table(TableName(database, "t"), {"id": INT, "k": text(), "v": ColumnType(Kind.DATE)}, key=key)
    create(session, structure)
    session.execute(f"INSERT INTO {database}.t SELECT i, 'k' || i, '2024-02-29' FROM generate_series(1, 30) i")
    wanted = [(place * 11) % 40 for place in range(40)]
    keys = pa.table({"id": pa.array(wanted, pa.int64()), "k": [f"k{one}" for one in wanted]}).select(key)
    session.begin()
    found = session.read_rows(structure, keys=keys, lock=True)
    assert sorted(found["id"].to_pylist()) == list(range(1, 31))
    assert found.schema == structure.arrow
    session.rollback()
    session.execute(f"UPDATE {database}.t SET v = 'infinity' WHERE id = 20")
    session.begin()
    with pytest.raises(Halted, match="cannot hold: v, infinity"):
        session.read_rows(structure, keys=keys, lock=True)
    session.rollback()
    session.execute(f"DELETE FROM {database}.t WHERE id = 20")
    session.begin()
    assert session.read_rows(structure, keys=keys, lock=True).num_rows == 29, "the session goes on"
    session.rollback()
