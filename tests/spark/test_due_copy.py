"""A table that has to be copied again after a ddl command is named until its copy begins."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from typing import Any

from pidts.sandbox import Server

from .conftest import Task

RunSql = Callable[..., list[tuple[Any, ...]]]


def test_the_status_names_the_copy_that_a_halt_has_advised(
    mariadb: Server, postgres: Server, database: str, make_task: Callable[..., Task], run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    run_sql(mariadb, "INSERT INTO t VALUES (1), (2)", database=database)
    task = make_task(mariadb, postgres, [database], name=database, database=database)

    def run(*options: str) -> int:
        return task.command("run", str(task.path), "--until-synced", *options, timeout=240).returncode

    def status() -> tuple[int, str, dict[str, Any]]:
        shown = task.command("status", str(task.path))
        (source,) = json.loads(task.command("status", str(task.path), "--json").stdout)["sources"]
        return shown.returncode, shown.stdout.decode(), source

    assert run() == 0
    # Only the source has the values that it has computed for the existing rows.
    run_sql(mariadb, "ALTER TABLE t ADD COLUMN u VARCHAR(40) NOT NULL DEFAULT UUID()", database=database)
    assert run() == 5
    code, text, source = status()
    advised = re.search(r"pidts (ddl replace .* --yes)\. Then copy the table again", text)
    assert advised is not None, text
    assert task.command(*shlex.split(advised[1])).returncode == 0
    code, text, source = status()
    assert code == 5
    assert "command    ddl replace (not begun): " in text
    assert "Let the target create the column" not in text
    assert "Otherwise the next start does: pidts run" in source["halted"][0]["advice"]
    assert source["due_copies"] == []

    assert run() == 0
    code, text, source = status()
    assert code == 5
    assert f"copy due   {database}.t: " in text
    assert f"pidts run {task.path} --resync one:{database}.t" in text
    assert [one["table"] for one in source["due_copies"]] == [f"{database}.t"]

    assert run("--resync", f"{database}.t") == 0
    code, text, source = status()
    assert (code, source["due_copies"]) == (0, [])
    assert run_sql(postgres, f"SELECT * FROM {database}.t ORDER BY id", database=database) == run_sql(
        mariadb, "SELECT * FROM t ORDER BY id", database=database
    )
