"""The table of values in docs/reference/events.md is the same as what `pidts events` prints for real servers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pidts.cli.app import run_command
from pidts.sandbox import Server

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "events.md").read_text("utf-8")
ROW = re.compile(r"^\| `(.+?)` \| `(.+?)` \| `(.+?)` \| (all|[\w, .]+) \|$", re.MULTILINE)
NAMES = {"mariadb": "MariaDB", "mysql97": "MySQL", "mysql56": ""}
RunSql = Callable[..., list[tuple[Any, ...]]]


def values(server: Server, version: str) -> list[tuple[str, str, str]]:
    """Returns column, SQL and JSON of each row of the page's table that is about this server."""
    lines = ROW.findall(PAGE.partition("## Values")[2])
    assert len(lines) > 50
    vectors = server.kind == "mysql97" or (server.kind == "mariadb" and version >= "11.7")
    return [
        (column, sql, shown)
        for column, sql, shown, where in lines
        if (where == "all" or NAMES[server.kind] in where.split(", ")) and (vectors or not column.startswith("vector"))
    ]


def test_each_value_is_printed_as_the_page_says(
    mysql_like: Server,
    database: str,
    run_sql: RunSql,
    in_one_session: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = values(mysql_like, run_sql(mysql_like, "SELECT VERSION()")[0][0])
    columns = ", ".join(f"c{number} {column}" for number, (column, _, _) in enumerate(expected))
    literals = ", ".join(sql for _, sql, _ in expected)
    in_one_session(
        mysql_like,
        database,
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
        f"CREATE TABLE v ({columns}) CHARSET utf8mb4",
        f"INSERT INTO v VALUES ({literals})",
    )
    url = f"mysql://{mysql_like.user}:{mysql_like.password}@{mysql_like.host}:{mysql_like.port}/"
    assert run_command(["events", url, "--tables", f"{database}.v"]) == 0
    event = json.loads(capsys.readouterr().out.splitlines()[-1])
    shown = [json.dumps(value, ensure_ascii=False) for value in event["new"].values()]
    assert list(zip([row[:2] for row in expected], shown, strict=True)) == [(row[:2], row[2]) for row in expected]
