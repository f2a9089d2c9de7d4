"""`plan`, `grants`, `check` and `status` print what is true of a channel."""

from __future__ import annotations

from collections.abc import Callable

from tests.conftest import RunSql
from tests.spark.commands import Task

from pidts.sandbox import Server


def test_the_commands_before_a_start(
    mariadb: Server, database: str, make_channel: Callable[..., Task], run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id int PRIMARY KEY)", database=database)
    run_sql(mariadb, "CREATE TABLE u (a int)", database=database)
    run_sql(mariadb, "CREATE USER gate@localhost")
    channel = make_channel(mariadb, mariadb, database, "gate_dc", name="gate_commands")
    root = f"mysql://root@{mariadb.host}:{mariadb.port}/"
    text = channel.path.read_text()
    channel.path.write_text(text.replace("type: datacenter\n  user: root", "type: datacenter\n  user: gate"))
    assert text != channel.path.read_text()

    refused = channel.command("check", str(channel.path))
    assert refused.returncode == 3
    assert b" on `gate\\_dc`.* are missing" in refused.stdout
    printed = channel.command("grants", str(channel.path), "--target", root, "--only", "target")
    assert printed.returncode == 0, printed.stderr
    for line in printed.stdout.decode().splitlines():
        if line.startswith("GRANT"):
            run_sql(mariadb, line.rstrip(";"))
    passed = channel.command("check", str(channel.path))
    assert passed.returncode == 0, passed.stdout
    assert b"gate_dc.transfer_data and transfer_checkpoint will be created" in passed.stdout

    planned = channel.command("plan", str(channel.path), "--sql").stdout.decode()
    assert "record  2 tables -> gate_dc.transfer_data" in planned
    assert planned.count("CREATE TABLE IF NOT EXISTS `gate_dc`.`transfer_data`") == 1
    assert "no key" not in planned
    assert "on-divergence" not in planned
    assert b"has not begun" in channel.command("status", str(channel.path)).stdout

    channel.sync()  # The printed grants are enough for a run.
    assert channel.command("status", str(channel.path)).returncode == 0
    run_sql(mariadb, "DROP DATABASE gate_dc")
    run_sql(mariadb, "DROP USER gate@localhost")
