"""Zones whose servers give new rows the same AUTO_INCREMENT values are reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pidts.model import Column, ColumnType, Key, Kind, Table, TableName
from pidts.task.checks.auto_increment import auto_increment_findings

TABLE = Table(
    TableName("shop", "orders"),
    (Column("id", ColumnType(Kind.INT), nullable=False, auto_increment=True),),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
)
PLAIN = replace(TABLE, columns=(replace(TABLE.columns[0], auto_increment=False),))


def numbering(step: int, offset: int) -> dict[str, str]:
    return {"auto_increment_increment": str(step), "auto_increment_offset": str(offset)}


@pytest.mark.parametrize(
    ("source", "target", "meet"),
    [
        ((1, 1), (1, 1), True),
        ((2, 1), (2, 2), False),
        ((2, 1), (2, 1), True),
        ((3, 1), (3, 3), False),
        ((2, 1), (4, 2), False),
        ((2, 1), (4, 3), True),
        ((2, 1), (3, 2), True),
        ((1, 1), (2, 2), True),
        ((2, 5), (2, 1), False),
    ],
)
def test_two_zones_whose_values_may_be_the_same_are_reported(
    source: tuple[int, int], target: tuple[int, int], *, meet: bool
) -> None:
    found = auto_increment_findings(("a", "b"), numbering(*source), numbering(*target), [TABLE, PLAIN])
    assert [one.ok for one in found] == [True] * meet
    if meet:
        assert "zone a and zone b may give new rows of shop.orders the same" in found[0].message
    assert auto_increment_findings(("a", "b"), numbering(1, 1), numbering(1, 1), [PLAIN]) == []
