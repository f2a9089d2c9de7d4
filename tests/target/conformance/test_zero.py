"""All ways of writing keep the sign of a zero if the server can store it, and rows are found whatever the sign is."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from tests.target.conformance.conftest import MYSQL_KINDS
from tests.target.conformance.samples import write

from pidts.apply import TargetSession
from pidts.model import ColumnType, Kind, Table, TableName
from pidts.reduce import Counts, NetChange
from pidts.target.mysql import MySqlSession
from pidts.target.mysql.checksums import row_sum

from .samples import INT, change, create, load, rows, table

pytestmark = pytest.mark.repeats("mysql56", "mysql97")

FLOAT, DOUBLE = ColumnType(Kind.FLOAT), ColumnType(Kind.DOUBLE)


@pytest.fixture
def minus_zero(kind: str) -> str:
    """Returns -0.0; on MariaDB 0.0, which it always stores."""
    return "0.0" if kind == "mariadb" else "-0.0"


def numbers(session: TargetSession, structure: Table) -> list[list[str]]:
    found = session.read_rows(structure).sort_by([(name, "ascending") for name in structure.identity])
    return [[str(value) for value in found[name].to_pylist()] for name in ("f", "d")]


def test_a_row_keeps_the_sign_of_its_zeros(session: TargetSession, name: TableName, minus_zero: str) -> None:
    structure = table(name, {"id": INT, "f": FLOAT, "d": DOUBLE})
    create(session, structure)
    write(session, change(structure, upserts=[(1, -0.0, -0.0), (2, 0.0, 0.0)]))
    assert numbers(session, structure) == [[minus_zero, "0.0"]] * 2
    write(session, change(structure, upserts=[(1, 0.0, 0.0), (2, -0.0, -0.0)]))
    assert numbers(session, structure) == [["0.0", minus_zero]] * 2


@pytest.mark.parametrize("by_file", [True, False])
def test_loaded_rows_keep_the_sign_of_their_zeros(
    session: TargetSession, name: TableName, minus_zero: str, *, by_file: bool
) -> None:
    if isinstance(session, MySqlSession):
        if by_file and not session.server.takes_files:
            session.execute("SET GLOBAL local_infile = ON")
        session._loader._takes_files = by_file
    elif not by_file:
        pytest.skip("there is one way only")
    structure = table(name, {"id": INT, "f": FLOAT, "d": DOUBLE})
    create(session, structure)
    assert load(session, structure, (1, -0.0, -0.0), (2, 0.0, None))
    assert numbers(session, structure) == [[minus_zero, "0.0"], [minus_zero, "None"]]


def test_a_key_is_found_whatever_the_sign_of_its_zero(session: TargetSession, name: TableName, minus_zero: str) -> None:
    structure = table(name, {"d": DOUBLE, "f": FLOAT}, key=["d"])
    create(session, structure)
    write(session, change(structure, upserts=[(0.0, 1.0)]))
    write(session, change(structure, upserts=[(-0.0, 2.0)]))
    assert numbers(session, structure) == [["2.0"], [minus_zero]]
    write(session, change(structure, deletes=[(0.0,)]))
    assert session.count(name) == 0


def test_a_row_without_a_key_is_found_whatever_the_sign_of_its_zero(session: TargetSession, name: TableName) -> None:
    structure = replace(table(name, {"id": INT, "f": FLOAT, "d": DOUBLE}), keys=())
    create(session, structure)
    write(session, NetChange(structure, rows(structure), rows(structure, (1, -0.0, -0.0), (2, 0.0, 0.0)), Counts()))
    gone, times = rows(structure, (1, 0.0, -0.0), (2, -0.0, 0.0)), pa.array([1, 1], pa.int64())
    write(session, NetChange(structure, gone, rows(structure), Counts(), times=times))
    assert session.count(name) == 0


@pytest.mark.parametrize("kind", MYSQL_KINDS)
def test_the_sum_of_rows_is_the_same_whatever_the_sign_of_their_zeros(session: TargetSession, name: TableName) -> None:
    """Otherwise the sums of equal rows would differ between MySQL and MariaDB, and every comparison would read these
    rows.
    """
    assert isinstance(session, MySqlSession)
    structure = table(name, {"id": INT, "f": FLOAT, "d": DOUBLE})
    other = structure.renamed(TableName(name.schema, name.name + "_w"))
    create(session, structure)
    create(session, other)
    write(session, change(structure, upserts=[(1, -0.0, 0.1)]), change(other, upserts=[(1, 0.0, 0.1)]))
    assert row_sum(session, structure, None, None) == row_sum(session, other, None, None)
    write(session, change(other, upserts=[(1, 0.0, 0.2)]))
    assert row_sum(session, structure, None, None) != row_sum(session, other, None, None)
