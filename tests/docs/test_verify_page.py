"""The commands of docs/operate/verify.md, unchanged, with the output and exit codes that the page names."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pidts.sandbox import Server

from .test_commands import ROOT, commands, run

RunSql = Callable[..., list[tuple[Any, ...]]]

TASK = """
name: shop
task-mode: all
target-database: {{type: mysql, host: {target.host}, port: {target.port}, user: {target.user}, password: "{target.password}"}}
mysql-instances:
  - source-id: shop-1
    from: {{host: {source.host}, port: {source.port}, user: {source.user}, password: "{source.password}"}}
    block-allow-list: shop
block-allow-list: {{shop: {{do-dbs: [shop]}}}}
"""


@pytest.fixture
def shop(tmp_path: Path, mariadb: Server, mysql97: Server, run_sql: RunSql) -> Path:
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / "shop.yaml").write_text(TASK.format(source=mariadb, target=mysql97))
    for server in (mariadb, mysql97):
        run_sql(server, "DROP DATABASE IF EXISTS shop")
        run_sql(server, "CREATE DATABASE shop CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        run_sql(server, "CREATE TABLE shop.customers (id INT PRIMARY KEY, name VARCHAR(20))")
        run_sql(server, "CREATE TABLE shop.orders (id INT PRIMARY KEY, state VARCHAR(10))")
        run_sql(server, "INSERT INTO shop.customers VALUES (1, 'Ann'), (2, 'Bob')")
    run_sql(mariadb, "INSERT INTO shop.orders VALUES (7, 'new'), (12, 'paid'), (13, 'new')")
    run_sql(mysql97, "INSERT INTO shop.orders VALUES (12, 'new'), (13, 'new')")
    return tmp_path


@pytest.mark.usefixtures("mariadb", "mysql97")
def test_the_page(shop: Path, mysql97: Server, run_sql: RunSql) -> None:
    verify, chosen, restart, repair, apply = commands("docs/operate/verify.md")

    def done(command: str) -> subprocess.CompletedProcess[str]:
        return run(command, 100, shop, PATH=os.environ["PATH"])

    shown = done(verify)
    assert shown.returncode == 4, shown.stderr
    assert shown.stdout.splitlines() == [
        "shop.customers              2 rows  equal",
        "shop.orders                 3 rows  1 missing, 1 different",
        "  shop.orders (id=7): missing",
        "  shop.orders (id=12): different in state",
        "shop: 2 differences, 5 rows of 2 tables compared",
    ]
    found = json.loads(done(chosen).stdout)
    assert (found["task"], found["equal"], found["rows"]) == ("shop", False, 5)
    assert found["differences"] == [
        {"table": "shop.orders", "kind": "missing", "key": {"id": 7}, "columns": []},
        {"table": "shop.orders", "kind": "different", "key": {"id": 12}, "columns": ["state"]},
    ]
    dry = done(repair)
    assert dry.returncode == 4
    assert run_sql(mysql97, "SELECT * FROM shop.orders ORDER BY id") == [(12, "new"), (13, "new")]
    for statement in dry.stdout.split(";\n"):
        if statement.strip() and not statement.startswith("SET"):
            run_sql(mysql97, statement)
    assert done(restart).returncode == 0
    run_sql(mysql97, "DELETE FROM shop.orders WHERE id = 13")
    assert done(apply).returncode == 0
    assert run_sql(mysql97, "SELECT * FROM shop.orders ORDER BY id") == [(7, "new"), (12, "paid"), (13, "new")]
