"""A reader of `transfer_data` finds what a channel between real servers has to write."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.conftest import RunSql
from tests.spark.commands import Task

from pidts.sandbox import Server


def _rows(run_sql: RunSql, server: Server, datacenter: str) -> list[tuple[Any, ...]]:
    sql = "SELECT id, tid, tablename, optype, data FROM transfer_data ORDER BY id"
    return run_sql(server, sql, database=datacenter)


@pytest.mark.parametrize(
    "mysql_like",
    ["mysql97", pytest.param("mysql56", marks=pytest.mark.long), pytest.param("mariadb", marks=pytest.mark.long)],
    indirect=True,
)
def test_records_have_the_order_and_the_numbers_of_the_log(
    mysql_like: Server,
    mysql97: Server,
    database: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
    in_one_session: Callable[..., None],
) -> None:
    datacenter = f"{database}_dc"
    run_sql(mysql_like, "CREATE TABLE t (id int PRIMARY KEY, name varchar(20))", database=database)
    channel = make_channel(mysql_like, mysql97, database, datacenter)
    channel.sync()
    in_one_session(
        mysql_like,
        database,
        "INSERT INTO t VALUES (1, 'a'), (2, NULL)",
        "BEGIN",
        "UPDATE t SET name = 'b' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "COMMIT",
        "ALTER TABLE t ADD COLUMN age int",
        "INSERT INTO t VALUES (3, 'c', 4)",
        "CREATE TABLE u (id int, name varchar(20))",
        "INSERT INTO u SELECT id, name FROM t",
        "RENAME TABLE t TO x, u TO t",
        "CREATE TABLE gone (a int)",
        "INSERT INTO gone VALUES (1)",
        "DROP TABLE gone",
        "TRUNCATE TABLE t",
    )
    channel.sync()
    found = [
        (tid, table, optype, *_values(data)) for _, tid, table, optype, data in _rows(run_sql, mysql97, datacenter)
    ]
    assert found == [
        (1, "t", "INSERT", {"NEW": ["1", "a"]}),
        (1, "t", "INSERT", {"NEW": ["2", None]}),
        (2, "t", "UPDATE", {"OLD": ["1", "a"], "NEW": ["1", "b"]}),
        (2, "t", "DELETE", {"OLD": ["2", None]}),
        (3, "t", "ALTERTABLE"),
        (4, "t", "INSERT", {"NEW": ["3", "c", "4"]}),
        (5, "u", "CREATETABLE"),
        (6, "u", "INSERT", {"NEW": ["1", "b"]}),
        (6, "u", "INSERT", {"NEW": ["3", "c"]}),
        (7, "t", "RENAME"),
        (8, "gone", "CREATETABLE"),
        (9, "gone", "INSERT", {"NEW": ["1"]}),
        (10, "t", "TRUNCATE"),
    ]
    ids = run_sql(mysql97, "SELECT id FROM transfer_data ORDER BY id", database=datacenter)
    assert [id_ for (id_,) in ids] == list(range(1, len(ids) + 1))
    assert run_sql(mysql97, "SELECT * FROM transfer_checkpoint", database=datacenter) == [(len(ids), 10)]
    reported = run_sql(
        mysql97,
        "SELECT DISTINCT dbname, instance_name, ABS(TIMESTAMPDIFF(SECOND, create_time, NOW())) < 600 FROM transfer_data",
        database=datacenter,
    )
    assert reported == [(database, f"127.0.0.1:{mysql_like.port}", 1)]
    status = json.loads(channel.command("status", str(channel.path), "--json").stdout)
    assert status["sources"][0]["applied"]["lsn"]
    run_sql(mysql97, f"DROP DATABASE {datacenter}")


def _values(data: str) -> list[dict[str, list[str | None]]]:
    """Returns the values in the record of a row, without the names of their columns; empty for the record of a schema
    change.
    """
    sides = {side: pairs for side, pairs in json.loads(data or "{}").items() if side in {"OLD", "NEW"}}
    if any("field_name" in pair for pairs in sides.values() for pair in pairs):
        return []
    return (
        [{side: [value for pair in pairs for value in pair.values()] for side, pairs in sides.items()}] if sides else []
    )


def test_a_checkpoint_that_was_changed_by_hand_ends_the_channel_with_advice_that_it_can_follow(
    mariadb: Server, mysql97: Server, database: str, make_channel: Callable[..., Task], run_sql: RunSql
) -> None:
    datacenter = f"{database[-40:].strip('_')}_dc"
    run_sql(mariadb, "CREATE TABLE t (id int PRIMARY KEY)", database=database)
    channel = make_channel(mariadb, mysql97, database, datacenter)
    channel.sync()
    run_sql(mysql97, "UPDATE checkpoint SET log_position = 'x'", database=datacenter)
    for command in (["run", "--until-synced"], ["check"]):
        ended = channel.command(command[0], str(channel.path), *command[1:])
        said = (ended.stdout + ended.stderr).decode()
        assert ended.returncode in {3, 5}
        assert "checkpoint-altered" in said
        assert "--resync" not in said
        assert f"drop the datacenter {datacenter}" in said
    run_sql(mysql97, f"DROP DATABASE {datacenter}")


def test_an_operator_decides_about_what_cannot_be_followed(
    mariadb: Server,
    mysql97: Server,
    database: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
    in_one_session: Callable[..., None],
) -> None:
    datacenter = f"{database[-40:].strip('_')}_dc"
    run_sql(mariadb, "CREATE TABLE t (id int PRIMARY KEY)", database=database)
    channel = make_channel(mariadb, mysql97, database, datacenter, pidts={"retention": "7d"})
    channel.sync()
    other = make_channel(mariadb, mysql97, database, datacenter, name="other")
    refused = channel.command("check", str(other.path))
    assert refused.returncode == 3
    assert b"task channel, source one already fills the datacenter" in refused.stdout + refused.stderr
    in_one_session(
        mariadb,
        database,
        "INSERT INTO t VALUES (1)",
        "SET binlog_format = 'STATEMENT'",
        "INSERT INTO t VALUES (2)",
        "SET binlog_format = 'ROW'",
        "INSERT INTO t VALUES (3)",
    )
    run = channel.start("--until-synced")
    assert run.process.wait(120) == 5
    assert b"statement-format" in run.log.read_bytes()
    assert channel.command("status", str(channel.path)).returncode == 5
    skipped = channel.command("ddl", "skip", str(channel.path), "--yes")
    assert skipped.returncode == 0, skipped.stderr
    channel.sync()
    assert [row[4] for row in _rows(run_sql, mysql97, datacenter)] == ['{"NEW":[{"id":"1"}]}', '{"NEW":[{"id":"3"}]}']
    assert channel.command("status", str(channel.path)).returncode == 0
    run_sql(mysql97, f"DROP DATABASE `{datacenter}`")


@pytest.mark.long
def test_a_table_that_was_left_out_for_a_while_is_not_read_with_its_old_structure(
    mariadb: Server,
    mysql97: Server,
    database: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
    in_one_session: Callable[..., None],
) -> None:
    datacenter = f"{database[-40:].strip('_')}_dc"
    in_one_session(mariadb, database, "CREATE TABLE t (a int, b int)", "CREATE TABLE u (a int)")
    channel = make_channel(mariadb, mysql97, database, datacenter)
    whole = channel.path.read_text()
    without = {"ours": {"do-dbs": [database], "ignore-tables": [{"db-name": database, "tbl-name": "t"}]}}
    channel.sync()
    make_channel(mariadb, mysql97, database, datacenter, **{"block-allow-list": without})
    in_one_session(mariadb, database, "ALTER TABLE t CHANGE a b int, CHANGE b a int", "INSERT INTO u VALUES (1)")
    run = channel.start()
    run.wait_until(lambda: bool(_rows(run_sql, mysql97, datacenter)), "it follows")
    channel.path.write_text(whole)
    run.wait_until(lambda: f"{database}.t cannot join" in run.log.read_text(), "it cannot join", 30)
    assert run.stop() == 0
    in_one_session(mariadb, database, "INSERT INTO t VALUES (1, 2)")
    run = channel.start("--until-synced")
    assert run.process.wait(120) == 5
    assert b"structure-unknown" in run.log.read_bytes()
    assert [row[2] for row in _rows(run_sql, mysql97, datacenter)] == ["u"]
    run_sql(mysql97, f"DROP DATABASE `{datacenter}`")
