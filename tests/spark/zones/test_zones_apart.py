"""Three zones in which the tasks between two of them are stopped: rows that differ in the end are locked.

Each row has a short history of its own, in which zones make the same changes and undo them.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest
from tests.spark.commands import Run, Task
from tests.spark.zones.test_zones import RunSql, Zones

from pidts.sandbox import Server

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROWS = 400
APART = {("a", "b"), ("b", "a")}


class Write(NamedTuple):
    """A change of a row by a program, and its time; without a value, it deletes the row."""

    seconds: float
    zone: str
    row: int
    value: int | None

    @property
    def statement(self) -> str:
        if self.value is None:
            return f"DELETE FROM c WHERE name = 'row {self.row}'"
        new = f"('row {self.row}', {self.value})"
        return f"INSERT INTO c VALUES {new} ON DUPLICATE KEY UPDATE v = {self.value}"


def history(chance: random.Random, row: int) -> list[Write]:
    """Returns the writes of one row: zones `a` and `b` often make the same change, and zone `c` then often reverses it."""
    usual, seconds, writes = chance.choice([1, None]), 0.0, []
    for number in range(chance.randrange(3, 6)):
        zone = chance.choice("ab" if number < 2 else "abcc")
        is_usual = zone != "c" and chance.random() < 0.7
        seconds += chance.choice([0, 1, 4, 8])
        value = usual if is_usual else chance.choice([0, 0, 1, None])
        writes.append(Write(seconds + 2 * chance.random(), zone, row, value))
    return writes


@pytest.mark.timeout(900)
def test_rows_that_differ_are_locked(
    make_task: Callable[..., Task],
    mariadb: Server,
    mysql97: Server,
    mysql56: Server,
    database: str,
    run_sql: RunSql,
) -> None:
    chance = random.Random(os.environ["PIDTS_SEED"])
    servers = dict(zip("abc", (mariadb, mysql97, mysql56), strict=True))
    zones = Zones(servers, make_task, database, run_sql, list(itertools.permutations("abc", 2)))
    zones.sql("a", "CREATE TABLE c (name VARCHAR(20) PRIMARY KEY, v INT)")
    values = ", ".join(f"('row {row}', 0)" for row in range(ROWS))
    zones.sql("a", f"INSERT INTO c VALUES {values}")
    runs = zones.start()
    for pair in APART:
        runs[pair].kill()
    writes = [write for row in range(ROWS) for write in history(chance, row)]
    begun = time.monotonic()
    for write in sorted(writes, key=lambda one: one.seconds):
        time.sleep(max(0.0, write.seconds - (time.monotonic() - begun)))
        zones.sql(write.zone, write.statement)
        if chance.random() < 0.003:
            pair = chance.choice(sorted({*runs} - APART))
            runs[pair].kill()
            runs[pair] = zones.tasks[pair].start("--json")
    arrive(zones, runs, "first", {*runs} - APART)
    for pair in APART:
        runs[pair] = zones.tasks[pair].start("--json")
    arrive(zones, runs, "last", set(runs))
    rows = {zone: dict(zones.sql(zone, "SELECT name, v FROM c")) for zone in servers}
    locked = {shown for zone in servers for shown in locks(zones, zone)}
    for row in range(ROWS):
        name = f"row {row}"
        if len({rows[zone].get(name) for zone in servers}) > 1:
            assert f"name='{name}'" in locked, [write for write in writes if write.row == row]
    for run in runs.values():
        assert run.stop() == 0


def arrive(zones: Zones, runs: dict[tuple[str, str], Run], name: str, pairs: set[tuple[str, str]]) -> None:
    """Waits until these tasks have carried everything in the logs."""
    for zone in zones.servers:
        zones.sql(zone, f"INSERT INTO c VALUES ('{name} {zone}', 0)")
    for source, target in sorted(pairs):
        asked = f"SELECT COUNT(*) FROM c WHERE name = '{name} {source}'"
        runs[source, target].wait_until(
            lambda target=target, asked=asked: zones.sql(target, asked) == [(1,)], f"{source}{target} is synced", 300
        )


def locks(zones: Zones, zone: str) -> list[str]:
    asked = f"SELECT about FROM pidts_meta.row_lock WHERE task LIKE '%{zones.database}'"
    return [json.loads(about)["shown"] for (about,) in zones.sql(zone, asked)]
