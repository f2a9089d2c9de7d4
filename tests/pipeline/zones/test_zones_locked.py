"""Two zones in memory have changed a row before they got each other's change: both keep their row until a person
decides.
"""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.pipeline.zones.zones_in_memory import NAME, Direction, Row, Zone

from pidts.apply import ApplyRules
from pidts.apply.locks.resolve import ResolveWith, resolve
from pidts.model import OnDivergence
from pidts.plan import Limits

FIRST = {"id": 1, "value": 1}


def settle(tasks: list[Direction]) -> None:
    while any(task.step() for task in tasks):
        pass


def resolved(task: Direction, take: ResolveWith) -> int:
    """Resolves all locks of a task. The zone from which the written row comes is recorded."""
    zone = task.target
    zone.meta, zone.writer, zone.marks = [], task.source.name, True
    with closing(zone.target.connect()) as session:
        ids = {one.id for one in session.meta.row_locks.read(task.name, "s", NAME)}
        return len(resolve(session, task.name, "s", NAME, ids, take))


@pytest.mark.parametrize("mine", [{"id": 1, "value": 2}, None], ids=["changed", "deleted"])
@pytest.mark.parametrize("other", [{"id": 1, "value": 3}, None], ids=["other changed", "other deleted"])
def test_the_row_of_one_zone_becomes_that_of_both(mine: Row | None, other: Row | None) -> None:
    zones = {name: Zone(name) for name in "ab"}
    tasks = [
        Direction(
            zones[name],
            zones[target],
            1,
            Limits(),
            rules=ApplyRules(task=f"{name}{target}", source="s", zone=name, on_divergence=OnDivergence.LOCK),
        )
        for name, target in ("ab", "ba")
    ]
    zones["a"].write([], [FIRST], [])
    settle(tasks)
    assert zones["b"].rows() == {1: FIRST}
    for zone, row in zip(zones.values(), (mine, other), strict=True):
        zone.write([], [row] if row else [], [] if row else [FIRST])
    settle(tasks)
    own = [{1: row} if row else {} for row in (mine, other)]
    assert [zone.rows() for zone in zones.values()] == own, "each zone keeps its row"
    locked = 1 if mine or other else 0
    assert [resolved(tasks[0], ResolveWith.SOURCE), resolved(tasks[1], ResolveWith.KEEP)] == [locked, locked]
    settle(tasks)
    assert [zone.rows() for zone in zones.values()] == [own[0], own[0]]
    zones["b"].write([], [{"id": 1, "value": 4}], [])
    settle(tasks)
    assert [zone.rows() for zone in zones.values()] == [{1: {"id": 1, "value": 4}}] * 2, "both go on"
    for zone in zones.values():
        zone.target.forget()
