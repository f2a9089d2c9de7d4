"""The age of the oldest waiting change is reported beside the lag of all other tables, and a restart does not forget it.

The two are separate, since a table may wait for days: one number for both would hide the lag of the other tables.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunSql
from tests.forked_programs import LoadedPrograms
from tests.running import connect

from pidts.sandbox import Server
from pidts.task.operate.progress import Progress

from .test_lag import SourceAndTarget

LATE = 6.0
REFUSED = {"retry": "INSERT INTO held_lag.u VALUES (2, 10)", "skip": "ALTER TABLE held_lag.u ADD UNIQUE KEY uv (v)"}
"""The change that the target refuses, by the decision that ends the wait."""


@pytest.fixture
def world(
    mariadb: Server, postgres: Server, tmp_path: Path, run_sql: RunSql, programs: LoadedPrograms
) -> Iterator[SourceAndTarget]:
    yield SourceAndTarget(mariadb, postgres, "held_lag", tmp_path, run_sql, programs)
    run_sql(mariadb, "DROP DATABASE held_lag")
    run_sql(postgres, "DROP DATABASE held_lag WITH (FORCE)")


def pidts(world: SourceAndTarget, *words: str) -> Any:
    done = world.programs.text([*words, "--json"], 60)
    assert done.returncode in {0, 5}, done.stderr
    return json.loads(done.stdout)


def is_late(one: Progress) -> bool:
    return bool(one.halted) and (one.held_lag_seconds or 0.0) > LATE


@pytest.mark.server
@pytest.mark.parametrize("decision", ["retry", pytest.param("skip", marks=pytest.mark.long)])
def test_a_halted_table_has_a_lag_of_its_own(world: SourceAndTarget, run_sql: RunSql, decision: str) -> None:
    path = str(world.folder / "task.yaml")
    run_sql(world.source, "CREATE TABLE held_lag.u (id INT PRIMARY KEY, v INT)")
    with closing(world.reader()) as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE held_lag.u (id INT PRIMARY KEY, v INT CHECK (v < 9))")
        cursor.execute("INSERT INTO held_lag.u VALUES (98, 1), (99, 1)")
    with world.run() as run:
        run_sql(world.source, "INSERT INTO held_lag.u VALUES (1, 2)")
        calm = run.wait(lambda one: one.rows["inserted"] == 1, "the first row comes")
        assert (calm.held_lag_seconds, calm.held_tables) == (None, 0)
        begun = time.time()
        run_sql(world.source, REFUSED[decision])
        run.wait(lambda one: bool(one.halted), "the table halts")
        run.wait(
            lambda _: pidts(world, "status", path)["held_lag_seconds"] is not None,
            "the status shows the waiting change before another table has passed its place",
        )
        run_sql(world.source, "INSERT INTO held_lag.u VALUES (4, 4)")
        run.wait(is_late, "the table waits")
        _only_the_halted_table_is_late(world, run)
        at, last = next((at, one) for at, one in reversed(run.shown) if one.held_lag_seconds is not None)
        since = at - (last.held_lag_seconds or 0.0)
    assert since > begun - 1.5
    asked = time.time()
    said = pidts(world, "status", path)
    assert asked - since - 1.5 < said["held_lag_seconds"] < time.time() - since + 1.5, "as while the task runs"
    assert said["held_lag_seconds"] == pytest.approx(said["sources"][0]["held"]["lag_seconds"], abs=0.5)
    with world.run() as run:
        asked = time.time()
        again = run.wait(is_late, "the table waits again")
        assert asked - since - 1.5 < (again.held_lag_seconds or 0.0) < time.time() - since + 1.5, (
            "as before the restart"
        )
        _only_the_halted_table_is_late(world, run)
        with closing(world.reader()) as session, session.cursor() as cursor:
            cursor.execute("ALTER TABLE held_lag.u DROP CONSTRAINT u_v_check")
        pidts(world, "ddl", decision, path, "--yes")
        run.wait(lambda one: (one.held_lag_seconds, one.held_tables) == (None, 0), "no change waits")
        run_sql(world.source, "INSERT INTO held_lag.u VALUES (3, 3)")
        run.wait(lambda one: _has(world, 3) and _has(world, 4), "the table continues")
        assert max(run.lags(0.0)) < LATE - 1, "not even while the table catches up"
    assert pidts(world, "status", path)["held_lag_seconds"] is None


@pytest.mark.server
@pytest.mark.parametrize("decision", ["retry", pytest.param("skip", marks=pytest.mark.long)])
def test_a_table_that_is_tried_again_causes_no_lag(world: SourceAndTarget, run_sql: RunSql, decision: str) -> None:
    """No other table has changes, so the task stays at the place of the halted table."""
    path = str(world.folder / "task.yaml")
    run_sql(world.source, "CREATE TABLE held_lag.u (id INT PRIMARY KEY, v INT)")
    with closing(world.reader()) as session, session.cursor() as cursor:
        cursor.execute("CREATE TABLE held_lag.u (id INT PRIMARY KEY, v INT CHECK (v < 9))")
        cursor.execute("INSERT INTO held_lag.u VALUES (98, 1), (99, 1)")
    with world.run() as run:
        run_sql(world.source, REFUSED[decision])
        run_sql(world.source, "INSERT INTO held_lag.u VALUES (3, 3)")
        run.wait(is_late, "the table waits")
    with world.run() as run:
        run.wait(is_late, "the table waits again")
        with closing(world.reader()) as session, session.cursor() as cursor:
            cursor.execute("ALTER TABLE held_lag.u DROP CONSTRAINT u_v_check")
        pidts(world, "ddl", decision, path, "--yes")
        run.wait(lambda one: (one.held_lag_seconds, one.held_tables) == (None, 0), "the table continues")
        assert _has(world, 3)
        run_sql(world.source, "INSERT INTO held_lag.u VALUES (4, 4)")
        run.wait(lambda one: _has(world, 4) and one.lag_seconds is not None, "a new row comes, and the lag is known")
    assert max(run.lags(0.0)) < LATE - 1


def _only_the_halted_table_is_late(world: SourceAndTarget, run: Any) -> None:
    """Rows of another table come all the time, and then seldom, so that each may come after a time without changes."""
    begun, count = time.time(), run.shown[-1][1].rows["inserted"]
    first = int(begun * 1000) % 10**9
    with closing(connect(world.source)) as session, session.cursor() as cursor:
        for number, pause in enumerate((0.05, 0.05, 0.05, 0.05, 0.7, 0.7, 1.3, 0.3)):
            cursor.execute(f"INSERT INTO held_lag.t VALUES ({first + number}, 'x')")
            time.sleep(pause)
    run.wait(lambda one: one.rows["inserted"] >= count + 8, "the other table's rows come")
    shown = [one for at, one in run.shown if at > begun]
    assert max(one.lag_seconds or 0.0 for one in shown) < LATE - 1
    assert min(one.held_lag_seconds or 0.0 for one in shown) > LATE
    assert {one.held_tables for one in shown} == {1}


def _has(world: SourceAndTarget, row: int) -> bool:
    with closing(world.reader()) as session, session.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM held_lag.u WHERE id = {row}")
        return cursor.fetchone() is not None
