"""PostgreSQL: rows of tables without a key are inserted and removed by the number of equal rows and by exact values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.target.conformance.samples import EXTREMES, INT, create, every_type, rows, table, text
from tests.target.conformance.servers.test_mysql_keyless import (
    PAIRS,
    check_a_nearly_equal_row_stays,
    content,
    keyless,
    write,
)

from pidts.apply import TargetSession
from pidts.model import ColumnType, Halted, Kind, TableName, calendar

pytestmark = pytest.mark.parametrize("kind", ["postgres"])


def test_a_row_of_every_type_is_found_by_its_values(session: TargetSession, name: TableName) -> None:
    typed = every_type(name)
    structure = create(
        session, replace(typed, columns=tuple(replace(c, nullable=True) for c in typed.columns), keys=())
    )
    assert session.schema.misfits(structure) == []
    low, high = ([7, *(pair[side] for pair in EXTREMES.values())] for side in (0, 1))
    nulls = [None] * len(low)
    write(session, structure, upserts=[low, high, nulls, low, nulls])
    assert session.count(name) == 5
    write(session, structure, [(low, 2), (nulls, 1)], [high])
    assert sorted(session.read_rows(structure)["id"].to_pylist(), key=str) == [7, 7, None]
    write(session, structure, [(high, 2), (nulls, 1)])
    assert session.count(name) == 0


@pytest.mark.parametrize(
    "pair",
    [pair for pair in PAIRS if pair[0].kind not in (Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP)],
    ids=lambda pair: f"{pair[0].kind}-{pair[1]!r}",
)
def test_a_row_that_is_nearly_the_same_stays(
    session: TargetSession, name: TableName, pair: tuple[ColumnType, Any, Any]
) -> None:
    check_a_nearly_equal_row_stays(session, name, pair)


def test_fewer_copies_than_recorded_halt_and_the_row_is_named(session: TargetSession, name: TableName) -> None:
    structure = create(session, keyless(name, {"a": INT, "b": text()}))
    write(session, structure, upserts=[[1, "x"], [2, "it's"]])
    with pytest.raises(Halted, match="1 of 2 copies") as error:
        write(session, structure, [([1, "x"], 1), ([2, "it's"], 2)], [[3, "new"]])
    assert (error.value.code, error.value.where.table) == ("row-missing", str(name))
    assert error.value.where.key == 'a=2, b="it\'s"'
    assert content(session, structure) == [(1, "x"), (2, "it's")]


def test_rows_that_are_one_here_are_counted_together(session: TargetSession, name: TableName) -> None:
    """PostgreSQL stores a zero date and a partial date as NULL, so they equal a row that has NULL on the source."""
    structure = create(session, keyless(name, {"d": ColumnType(Kind.DATE), "v": INT}))
    zero, odd = calendar.days(0, 0, 0), calendar.days(2024, 0, 15)
    write(session, structure, upserts=[[zero, 1], [odd, 1], [None, 1], [None, 2]])
    write(session, structure, [([zero, 1], 1), ([None, 1], 1)])
    assert content(session, structure) == [(None, 1), (None, 2)]
    with pytest.raises(Halted, match="1 of 2 copies"):
        write(session, structure, [([zero, 1], 1), ([odd, 1], 1)])


def test_columns_of_other_types_and_partitions_are_no_obstacle(session: TargetSession, name: TableName) -> None:
    create(session, table(TableName(name.schema, name.name + "_o"), {"id": INT}))
    session.execute("CREATE DOMAIN conformance.short AS varchar(3) CHECK (value <> 'no')")
    place = f'"{name.schema}"."{name.name}"'
    session.execute(
        f"CREATE TABLE {place} (a bigint, b conformance.short, c json, d numeric, extra int DEFAULT 1) PARTITION BY LIST (a)"
    )
    for part in (1, 2):
        session.execute(
            f'CREATE TABLE "{name.schema}"."{name.name}_{part}" PARTITION OF {place} FOR VALUES IN ({part})'
        )
    decimal = ColumnType(Kind.DECIMAL, precision=10, scale=2)
    structure = keyless(name, {"a": INT, "b": text(), "c": ColumnType(Kind.JSON), "d": decimal})
    assert session.schema.misfits(structure) == []
    one, two = rows(structure, [1, "x", '{"k": [1]}', None], [2, None, None, None]).to_pylist()
    first, second = list(one.values()), list(two.values())
    write(session, structure, upserts=[first, second, first])
    write(session, structure, [(first, 2)])
    assert session.count(name) == 1
    for wrong in ("long", "no"):
        with pytest.raises(Halted, match="target-refused"):
            write(session, structure, upserts=[[1, wrong, None, None]])
    session.execute(f"DROP TABLE {place}")
    session.execute("DROP DOMAIN conformance.short")


def test_many_rows_are_removed_in_time(session: TargetSession, name: TableName) -> None:
    """Comparing each row with every other row would take hours."""
    structure = create(session, keyless(name, {"a": INT, "b": text()}))
    write(session, structure, upserts=[[number % 5000, "x"] for number in range(40_000)])
    write(session, structure, [([number, "x"], 7) for number in range(5000)])
    assert session.count(name) == 5000


def test_a_key_that_only_the_target_has_refuses_the_second_copy(session: TargetSession, name: TableName) -> None:
    create(session, table(name, {"a": INT, "b": INT}, key=["a"]))
    structure = keyless(name, {"a": INT, "b": INT})
    assert session.schema.misfits(structure) == []
    write(session, structure, upserts=[[1, 1], [2, 2]])
    with pytest.raises(Halted, match="target-refused"):
        write(session, structure, upserts=[[1, 1]])
    write(session, structure, [([1, 1], 1)], [[1, 5]])
    assert content(session, structure) == [(1, 5), (2, 2)]
