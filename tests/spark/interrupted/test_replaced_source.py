"""Tasks share a relay, and the source is replaced by its standby: no change is lost or doubled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import RunSql
from tests.replicated_pair import promote, replicated_pair, start, wait
from tests.spark.commands import Task

from pidts.sandbox import Server

COUNT = "SELECT COUNT(*) FROM shop.t"
ROWS = "SELECT tx, n FROM shop.t ORDER BY tx, n"
FORGET_LOG_FILE = r"""UPDATE pidts_meta.checkpoint
SET copy_progress = regexp_replace(copy_progress, '"digest": "[0-9a-f]*", "log": \[[^]]*\], ', '')"""
"""Makes the checkpoints as versions without log files and digests stored them."""


def refused(task: Task, *options: str) -> str:
    """Runs the task, which ends with an error, and returns the error's code."""
    run = task.start("--until-synced", "--json", *options)
    assert run.process.wait(120) == 5, task.logs()
    return str(json.loads(run.log.read_text().splitlines()[-1])["error"]["code"])


@pytest.mark.parametrize(
    ("kind", "first", "is_same_place", "cure"),
    [
        ("mariadb", "behind", True, "own relay"),
        ("mariadb", "behind", False, "copy"),
        pytest.param("mariadb", "ahead", False, "copy", marks=pytest.mark.long),
        pytest.param("mysql97", "behind", False, "own relay", marks=pytest.mark.long),
        pytest.param("mysql97", "ahead", False, "own relay", marks=pytest.mark.long),
    ],
)
def test_a_relay_that_begins_at_the_place_of_another_task_is_refused(
    kind: str,
    first: str,
    is_same_place: bool,
    cure: str,
    postgres: Server,
    make_task: Callable[..., Task],
    run_sql: RunSql,
    tmp_path: Path,
) -> None:
    """Without a key, a row that is applied twice stays twice.

    `is_same_place`: the two servers' logs are equal up to the place of the task that is behind, and only then differ.
    Its checkpoint does not have the log file, so the task takes the new log for the former one.
    """
    with replicated_pair(kind, tmp_path, run_sql) as (primary, standby):
        names = {name: f"replaced_{kind}_{first}_{is_same_place}_{name}".lower() for name in ("behind", "ahead")}
        run_sql(primary, "CREATE DATABASE shop")
        run_sql(primary, "CREATE TABLE t (tx int, n int)", database="shop")
        tasks = {}
        for name, database in names.items():
            run_sql(postgres, f"CREATE DATABASE {database}")
            tasks[name] = make_task(
                primary,
                postgres,
                ["shop"],
                database=database,
                name=database,
                pidts={"relay": "shared"},
                instance={"enable-gtid": True},
            )

        def add(server: Server, numbers: range) -> None:
            for number in numbers:
                run_sql(server, f"INSERT INTO t VALUES ({number}, 1), ({number}, 2)", database="shop")

        def rows(name: str) -> Any:
            return run_sql(postgres, ROWS, database=names[name])

        def flush() -> None:
            wait(lambda: run_sql(standby, COUNT) == run_sql(primary, COUNT), "the standby has all")
            for _ in range(2):
                run_sql(standby, "FLUSH BINARY LOGS")

        add(primary, range(3))
        tasks["behind"].sync()
        if is_same_place:
            flush()
        add(primary, range(3, 4))
        if not is_same_place:
            flush()
            tasks["behind"].sync()
        add(primary, range(4, 6))
        tasks["ahead"].sync()
        add(primary, range(6, 9))
        flush()
        before = {name: rows(name) for name in names}
        primary.kill()
        promote(standby, run_sql)
        add(standby, range(9, 12))
        for task in tasks.values():
            shutil.rmtree(task.path.parent / "shared", ignore_errors=True)
            task.path.write_text(task.path.read_text().replace(str(primary.port), str(standby.port)))
        if is_same_place:
            run_sql(postgres, FORGET_LOG_FILE, database=names[first])
        tasks[first].sync()
        assert rows(first) == run_sql(standby, ROWS)
        (other,) = names.keys() - {first}
        refusal = "other-source" if first == "behind" else "relay-purged"
        assert refused(tasks[other]) == refusal
        assert rows(other) == before[other]
        if is_same_place:
            # The Lsns of the new log are not new to the task.
            assert refused(tasks[other], "--resync") == "relay-still-needed"
        if cure == "copy":
            run = tasks[other].start("--until-synced", "--resync")
            assert run.process.wait(120) == 0, tasks[other].logs()
        else:  # a relay of its own begins at the task's own place
            path = tasks[other].path
            path.write_text(path.read_text().replace("shared", "own"))
            tasks[other].sync()
        assert rows(other) == run_sql(standby, ROWS)
        add(standby, range(12, 15))
        for name in names:
            tasks[name].sync()
            assert rows(name) == run_sql(standby, ROWS)
        for database in names.values():
            run_sql(postgres, f"DROP DATABASE {database} WITH (FORCE)")


@pytest.mark.parametrize("cure", ["own relay", pytest.param("forget", marks=pytest.mark.long)])
def test_without_gtids_no_task_empties_a_shared_relay_to_follow_another_server(
    cure: str, postgres: Server, make_task: Callable[..., Task], run_sql: RunSql, tmp_path: Path
) -> None:
    """The replicator refuses the other server. The relay is whole, so the other task can still apply all of its log."""
    with replicated_pair("mariadb", tmp_path, run_sql) as (primary, standby):
        kind = cure.partition(" ")[0]
        names = (f"replaced_{kind}_one", f"replaced_{kind}_two")
        run_sql(primary, "CREATE DATABASE shop")
        run_sql(primary, "CREATE TABLE t (tx int, n int)", database="shop")
        for name in names:
            run_sql(postgres, f"CREATE DATABASE {name}")
        one, two = (
            make_task(primary, postgres, ["shop"], database=name, name=name, pidts={"relay": "shared"})
            for name in names
        )
        for task in (one, two):
            task.sync()
        run_sql(primary, "INSERT INTO t VALUES (1, 1)", database="shop")
        wait(lambda: run_sql(standby, COUNT) == run_sql(primary, COUNT), "the standby has all")
        primary.kill()
        promote(standby, run_sql)
        run_sql(standby, "INSERT INTO t VALUES (2, 1)", database="shop")
        for task in (one, two):
            task.path.write_text(task.path.read_text().replace(str(primary.port), str(standby.port)))
        relay = one.path.parent / "shared"
        assert refused(one) == "other-source"
        before = sorted(relay.glob("*/0*"))
        assert refused(one, "--resync") == "relay-still-needed"
        assert sorted(relay.glob("*/0*")) == before

        if cure == "own relay":
            one.path.write_text(one.path.read_text().replace("shared", "own"))
        else:
            assert one.command("relay", "forget", str(relay), "--task", names[1]).returncode == 0
        # With a relay of its own, the first task has left its need in the shared one.
        for task, name in ((one, names[0]), (two, names[1])):
            if cure == "own relay" and task is two:
                assert one.command("relay", "forget", str(relay), "--task", names[0]).returncode == 0
            run = task.start("--until-synced", "--resync")
            assert run.process.wait(120) == 0, task.logs()
            assert run_sql(postgres, ROWS, database=name) == run_sql(standby, ROWS)
        run_sql(standby, "INSERT INTO t VALUES (3, 1)", database="shop")
        for task, name in ((one, names[0]), (two, names[1])):
            task.sync()
            assert run_sql(postgres, ROWS, database=name) == run_sql(standby, ROWS)
        for name in names:
            run_sql(postgres, f"DROP DATABASE {name} WITH (FORCE)")


def test_a_task_continues_from_a_new_position_if_another_servers_log_has_no_event_at_its_place(
    postgres: Server, database: str, make_task: Callable[..., Task], run_sql: RunSql, tmp_path: Path
) -> None:
    """Only the position is known: there are no GTIDs and no relay, and an earlier version stored the checkpoint.

    The position is in the middle of an event.
    """
    with (
        start("mysql56", tmp_path / "first", by="position") as first,
        start("mysql56", tmp_path / "other", by="position") as other,
    ):
        for server in (first, other):
            run_sql(server, "CREATE DATABASE shop")
            run_sql(server, "CREATE TABLE t (tx int, n longtext)", database="shop")
            run_sql(server, "RESET MASTER")
        run_sql(first, "INSERT INTO t VALUES (1, 'first')", database="shop")
        run_sql(other, "INSERT INTO t VALUES (1, REPEAT('v', 100000))", database="shop")
        task = make_task(first, postgres, ["shop"], database=database)
        task.sync()
        shutil.rmtree(task.path.parent / "relay")
        task.path.write_text(task.path.read_text().replace(str(first.port), str(other.port)))
        assert refused(task) == "other-source"
        run_sql(postgres, FORGET_LOG_FILE, database=database)
        assert refused(task) == "source-log-unreadable"
        run = task.start("--until-synced", "--resync")
        assert run.process.wait(120) == 0, task.logs()
        assert run_sql(postgres, ROWS, database=database) == run_sql(other, ROWS)
        for server in (first, other):
            server.kill()
