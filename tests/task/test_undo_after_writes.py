"""An undo of a cutover after the switch looks in the target's log for changes that it would lose.

The task itself does not run here: its records say that the target has everything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.task.applied_task import begin

from pidts.apply.claim import claim_workers
from pidts.cli.app import run_command
from pidts.model import CutoverStage, SourceTablesKey, TableName
from pidts.sandbox import Server
from pidts.source import connect
from pidts.task.checks.switch_structures import structures_at_start
from pidts.task.config.task_file import TaskConfig, load_task

RunSql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(params=["mysql97", "mariadb"])
def there(request: pytest.FixtureRequest) -> Server:
    server: Server = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def here(there: Server, mariadb: Server, mysql97: Server) -> Server:
    return mysql97 if there is mariadb else mariadb


@pytest.fixture
def task(there: Server, here: Server, database: str, run_sql: RunSql, tmp_path: Path) -> TaskConfig:
    """Returns a task that was cut over to a server whose log PiDTS can read."""
    one, other = (
        f'host: {each.host}, port: {each.port}, user: {each.user}, password: "{each.password}"'
        for each in (here, there)
    )
    path = tmp_path / "t.yaml"
    path.write_text(f"""\
name: {database}
task-mode: all
target-database: {{type: mysql, {other}}}
mysql-instances: [{{source-id: a, from: {{{one}}}, block-allow-list: all}}]
block-allow-list: {{all: {{do-dbs: ["{database}"]}}}}
""")
    automatic = "DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
    run_sql(here, f"CREATE TABLE t (id INT PRIMARY KEY, n INT, at DATETIME {automatic})", database=database)
    run_sql(there, "CREATE TABLE other (id INT PRIMARY KEY)", database=database)
    config = load_task(path)
    with closing(config.target.server.connect()) as target:
        begin(config, target)
    cut_over(config)
    return config


def cut_over(config: TaskConfig) -> None:
    assert run_command(["cutover", str(config.path), "--yes", "--writers-stopped", "--no-verify"]) == 0


def undo(config: TaskConfig, *options: str) -> int:
    return run_command(["cutover", str(config.path), "--undo", *options])


def test_an_undo_names_the_changes_that_it_would_lose(
    task: TaskConfig, here: Server, there: Server, database: str, run_sql: RunSql, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sql(there, "INSERT INTO t (id, n) VALUES (1, 10), (2, 20)", database=database)
    run_sql(there, "DELETE FROM t WHERE id = 2", database=database)
    for options in ((), ("--yes",)):
        assert undo(task, *options) == 3
        said = capsys.readouterr().err
        assert "[target-written]" in said
        assert (
            f"programs have changed {database}.t on the target since the switch (2 transactions, the first at 2" in said
        )
        assert f"pidts cutover {task.path} --reverse" in said
        assert f"pidts cutover {task.path} --undo --yes --discard-writes" in said
    assert run_command(["cutover", str(task.path), "--reverse"]) == 0
    back = load_task(task.path.with_name("t-back.yaml"))
    back.path.unlink()

    assert undo(task, "--yes", "--discard-writes") == 0
    with closing(task.target.server.connect()) as target:
        assert target.meta.cutovers.read(task.name) is None, "the task may run again"
    # The place is not lost: the user may decide again, as long as the task has not run.
    capsys.readouterr()
    assert run_command(["cutover", str(task.path), "--reverse"]) == 0
    said = capsys.readouterr().out
    assert "the cutover was undone" in said
    assert f"the undo has removed ON UPDATE CURRENT_TIMESTAMP from {database}.t.at, and the way back" in said
    (again,) = [line.strip() for line in said.splitlines() if "ALTER TABLE" in line]
    shown = "SELECT extra FROM information_schema.columns WHERE table_schema = %s AND column_name = 'at'"
    run_sql(here, "ALTER TABLE t MODIFY at DATETIME", database=database)
    run_sql(here, again, database=database)
    assert "on update" in run_sql(here, shown, database)[0][0].lower()
    assert load_task(back.path).source.start == back.source.start
    with closing(connect(back.source.server)) as session:
        assert [name.name for name in structures_at_start(load_task(back.path), session)] == ["t"]
    back.path.unlink()
    with closing(task.target.server.connect()) as target:
        (row,) = target.meta.checkpoints.read(task.name, "a")
        claim_workers(target, task.name, "a", 1, row)  # as a run does
    assert run_command(["cutover", str(task.path), "--reverse"]) == 3
    said = capsys.readouterr().err
    assert "[not-reversible]" in said
    assert "was undone, and task" in said


def test_an_undo_says_which_changes_are_statements(
    task: TaskConfig, there: Server, database: str, run_sql: RunSql, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sql(there, "ALTER TABLE t ADD KEY\n  by_n (n)", database=database)
    assert undo(task, "--yes") == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "(1 transaction, the first at 2" in said
    assert "1 transaction has a statement in place of rows, such as a schema change" in said
    assert "The first one: ALTER TABLE t ADD KEY by_n (n)" in said
    assert "would overwrite" not in said, "the statement has changed no rows"
    run_sql(there, "INSERT INTO t (id, n) VALUES (1, 10)", database=database)
    assert undo(task, "--yes") == 3
    said = " ".join(capsys.readouterr().err.split())
    assert "the task would overwrite the changed rows. 1 transaction has a statement in place of rows" in said


def test_an_undo_without_changes_on_the_target_is_done(
    task: TaskConfig,
    there: Server,
    database: str,
    run_sql: RunSql,
    in_one_session: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Changes of other tables do not count, nor transactions of PiDTS itself, nor statements that are not logged."""
    run_sql(there, "INSERT INTO other VALUES (1)", database=database)
    with closing(task.target.server.connect()) as target:
        target.begin()
        target.meta.notes.write(task.name, SourceTablesKey("a"), TableName("", "x"), "text")
        target.rows(f"INSERT INTO {database}.t (id, n) VALUES (7, 7)")  # type: ignore[attr-defined]
        target.commit()
    assert undo(task) == 2
    said = capsys.readouterr().err
    assert "no program has changed the task's tables there since the switch" in said
    in_one_session(there, database, "SET SESSION sql_log_bin = 0", "ALTER TABLE t ALTER COLUMN n SET DEFAULT 5")
    assert undo(task, "--yes") == 0
    # An undone cutover can be done and undone again.
    cut_over(task)
    assert undo(task, "--yes") == 0


def test_an_undo_says_that_the_log_of_the_target_is_gone(
    task: TaskConfig, there: Server, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(task.target.server.connect()) as target:
        record = target.meta.cutovers.read(task.name)
        assert record is not None
        target.begin()
        assert target.meta.cutovers.replace(task.name, record, replace(record, position="gone.000001:4"))
        target.commit()
    assert undo(task, "--yes") == 3
    said = capsys.readouterr().err
    assert "it is not known whether programs have written to the target since the switch" in said
    assert undo(task, "--yes", "--discard-writes") == 0


@pytest.mark.parametrize("command", ["--undo", "--yes"])
def test_an_undo_that_was_killed_looks_again_for_changes(
    task: TaskConfig,
    there: Server,
    database: str,
    run_sql: RunSql,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    """Programs may have written to the target since. The undo's own statements do not count."""
    with closing(task.target.server.connect()) as target:
        record = target.meta.cutovers.read(task.name)
        assert record is not None
        target.begin()
        assert target.meta.cutovers.replace(
            task.name, record, replace(record, stage=CutoverStage.STOPPING, is_undone=True)
        )
        target.commit()
    run_sql(there, "ALTER TABLE t COMMENT 'as DROP FOREIGN KEY of an undo'", database=database)
    run_sql(there, "INSERT INTO t (id, n) VALUES (1, 10)", database=database)
    options = [command, *(["--writers-stopped", "--no-verify"] if command == "--yes" else [])]
    assert run_command(["cutover", str(task.path), *options]) == 3
    said = capsys.readouterr().err
    assert f"programs have changed {database}.t on the target since the switch (1 transaction, the first" in said
    assert f"run pidts cutover {task.path} --undo --yes --discard-writes, and then" in said
    assert undo(task, "--yes", "--discard-writes") == 0
    assert run_command(["cutover", str(task.path), "--reverse"]) == 0


def test_an_undo_that_was_killed_is_completed(task: TaskConfig, there: Server, database: str, run_sql: RunSql) -> None:
    with closing(task.target.server.connect()) as target:
        record = target.meta.cutovers.read(task.name)
        assert record is not None
        target.begin()
        assert target.meta.cutovers.replace(
            task.name, record, replace(record, stage=CutoverStage.STOPPING, is_undone=True)
        )
        target.commit()
    run_sql(there, "ALTER TABLE t COMMENT 'as DROP FOREIGN KEY of an undo'", database=database)
    assert undo(task) == 0


def test_writes_are_only_discarded_by_an_undo(task: TaskConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["cutover", str(task.path), "--discard-writes"]) == 2
    assert "--discard-writes needs --undo and --yes" in capsys.readouterr().err
