"""Each check before a run is reported and writes nothing, and an ignored check does not stop the run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.running import connect

from pidts.cli.app import run_command
from pidts.model import (
    Checkpoint,
    Column,
    ColumnType,
    Halt,
    Kind,
    Lsn,
    MergedTablesKey,
    Position,
    PrecheckFailed,
    SourceTablesKey,
    Table,
    TableName,
)
from pidts.sandbox import Server
from pidts.source.finding import demand
from pidts.task.checks.source import check_one_source
from pidts.task.checks.unused_rules import unused_rule_findings
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.tables.rule_changes import record_rules

RunSql = Callable[..., list[tuple[Any, ...]]]
Write = Callable[..., TaskConfig]


@pytest.fixture
def write(tmp_path: Path, mariadb: Server, postgres: Server, database: str) -> Write:
    def task(*, source_port: int = 0, target_port: int = 0, extra: str = "", mode: str = "all") -> TaskConfig:
        path = tmp_path / "task.yaml"
        path.write_text(f"""\
name: {database}
task-mode: {mode}
target-database: {{type: postgresql, host: {postgres.host}, port: {target_port or postgres.port}, user: {postgres.user},
  password: "{postgres.password}", database: {database}}}
mysql-instances:
  - source-id: s
    from: {{host: {mariadb.host}, port: {source_port or mariadb.port}, user: {mariadb.user}, password: "{mariadb.password}"}}
    block-allow-list: one
block-allow-list: {{one: {{do-dbs: [{database}]}}}}
{extra}
""")
        return load_task(path)

    return task


def failed(config: TaskConfig) -> dict[str, str]:
    return {finding.item: finding.message for finding in check_one_source(config) if not finding.ok}


def begin_on_target(config: TaskConfig) -> None:
    with closing(config.target.server.connect()) as target:
        target.meta.prepare()
        source = config.source.source_id
        first = Checkpoint(task=config.name, source=source, worker=0, lsn=Lsn.at(Position("bin.000001", 4)))
        target.meta.checkpoints.claim(config.name, source, 1, first)


def test_a_fit_task_passes_and_nothing_is_written(
    write: Write, mariadb: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    config = write()
    assert failed(config) == {}
    demand(check_one_source(config))
    assert not config.relay.exists()
    schemas = "SELECT count(*) FROM information_schema.schemata WHERE schema_name IN ('pidts_meta', %s)"
    assert run_sql(postgres, schemas, database, database=database) == [(0,)]


def test_servers_that_are_not_there_are_both_reported(write: Write) -> None:
    found = failed(write(source_port=1, target_port=2))
    assert set(found) == {"source_connection", "target_connection"}
    assert "[source-unreachable]" in found["source_connection"]


def test_prepared_transactions_are_reported_before_the_first_start(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    config = write()

    def reported() -> list[str]:
        return [one.message for one in check_one_source(config) if one.item == "prepared_xa"]

    with closing(connect(mariadb, database)) as session, session.cursor() as cursor:
        name = f"'{database}'"
        for sql in (f"XA START {name}", f"INSERT INTO {database}.t VALUES (1)", f"XA END {name}", f"XA PREPARE {name}"):
            cursor.execute(sql)
        try:
            (message,) = reported()
            assert "halts when one of them is committed (xa-not-received)" in message
            begin_on_target(config)
            assert reported() == [], "its log begins earlier"
        finally:
            cursor.execute(f"XA ROLLBACK {name}")


def test_a_list_that_lets_nothing_pass_is_reported(write: Write) -> None:
    assert set(failed(write())) == {"table_list"}
    assert failed(write(extra="ignore-checking-items: [table_list]")) == {}, "its tables may come later"
    begin_on_target(write())
    assert failed(write()) == {}, "the log has to be followed, whatever became of its tables"


def test_no_finding_names_tables_that_were_not_read(write: Write) -> None:
    found = {finding.item for finding in check_one_source(write(source_port=1))}
    assert found == {"relay_directory", "target_connection", "source_connection"}


def test_a_finding_has_the_code_of_its_cause(write: Write) -> None:
    (found,) = [one for one in check_one_source(write(source_port=1)) if not one.ok]
    assert (found.item, found.code) == ("source_connection", "source-unreachable")


def test_each_missing_privilege_of_an_account_is_reported_once(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    run_sql(mariadb, f"CREATE USER {database}@'%' IDENTIFIED BY 'x'")
    try:
        path = write().path
        path.write_text(
            path.read_text().replace(
                f'user: {mariadb.user}, password: "{mariadb.password}"}}\n    block',
                f"user: {database}, password: x}}\n    block",
            )
        )
        findings = [finding for finding in check_one_source(load_task(path)) if not finding.ok]
    finally:
        run_sql(mariadb, f"DROP USER {database}@'%'")
    assert sorted(finding.item for finding in findings) == [
        "dump_privilege",
        "replication_privilege",
        "replication_privilege",
        "table_list",
    ]
    assert {finding.item: finding.fix for finding in findings}["table_list"] == "See dump_privilege"


def test_a_mysql_target_without_privileges_is_one_finding_with_all_grants_and_the_command_for_them(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    run_sql(mariadb, f"CREATE USER {database}@'%' IDENTIFIED BY 'x'")
    try:
        path = write().path
        target = f"target-database: {{host: {mariadb.host}, port: {mariadb.port}, user: {database}, password: x}}\n"
        path.write_text(re.sub(r"target-database: .*\n.*\n", target, path.read_text()))
        (found,) = [one for one in check_one_source(load_task(path)) if one.item == "target_privilege"]
        on_meta, on_rows = (
            "SELECT, INSERT, UPDATE, DELETE, CREATE",
            "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP",
        )
        rows, account = f"`{database}`.*".replace("_", "\\_"), f"'{database}'@'%'"
        assert found.message == f"{on_meta} on `pidts\\_meta`.*, {on_rows} on {rows} are missing"
        assert found.fix == (
            f"GRANT {on_meta} ON `pidts\\_meta`.* TO {account}; GRANT {on_rows} ON {rows} TO {account}; "
            "`pidts grants TASK --only target` prints all that the account needs"
        )
        with pytest.raises(PrecheckFailed) as caught:
            demand([found])
        assert str(caught.value).count("SELECT") == 4
    finally:
        run_sql(mariadb, f"DROP USER {database}@'%'")


def as_account(path: Path, server: Server, name: str, more: str) -> Path:
    """Lets a task file use the account and the schema of this name, and also take the schema or pattern `more`."""
    text = path.read_text().replace(f"do-dbs: [{name}]", f"do-dbs: [{name}, {more}]")
    own = f'user: {server.user}, password: "{server.password}"}}\n    block'
    path.write_text(text.replace(own, f"user: {name}, password: x}}\n    block"))
    return path


def test_a_schema_that_this_source_does_not_have_needs_no_privilege(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    """The rules of a task with several sources name the schemas of all sources."""
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    run_sql(mariadb, f"CREATE USER {database}@'%' IDENTIFIED BY 'x'")
    try:
        run_sql(mariadb, f"GRANT SELECT ON `{database}`.* TO {database}@'%'")
        path = as_account(write().path, mariadb, database, f"{database}_absent")

        def lacking() -> list[str]:
            findings = check_one_source(load_task(path))
            return [one.message for one in findings if one.item == "dump_privilege" and not one.ok]

        (message,) = lacking()
        assert message.endswith(
            f"_absent`.* is missing, or this source has no schema {database}_absent: check the spelling in "
            "block-allow-list. GRANT SHOW DATABASES lets the check see which of the two it is"
        )
        run_sql(mariadb, f"GRANT SHOW DATABASES ON *.* TO {database}@'%'")
        assert lacking() == []
        run_sql(mariadb, f"CREATE DATABASE {database}_absent")
        assert len(lacking()) == 1, "now it exists"
    finally:
        run_sql(mariadb, f"DROP DATABASE IF EXISTS {database}_absent")
        run_sql(mariadb, f"DROP USER {database}@'%'")


def test_a_misspelt_schema_is_not_called_a_missing_privilege_if_the_account_sees_all_schemas(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, f"CREATE USER {database}@'%' IDENTIFIED BY 'x'")
    try:
        path = as_account(write().path, mariadb, database, "x")
        path.write_text(path.read_text().replace(f"do-dbs: [{database}, x]", f"do-dbs: [{database}x]"))

        def found() -> list[tuple[str, str]]:
            findings = check_one_source(load_task(path))
            return [(one.item, one.message) for one in findings if one.item in {"dump_privilege", "table_list"}]

        def fixes() -> list[str]:
            return [one.fix for one in check_one_source(load_task(path)) if one.item == "dump_privilege"]

        both = f"SELECT on `{database.replace('_', chr(92) + '_')}x`.* is missing, or this source has no schema {database}x"
        ((listed, what), (privilege, missing)) = found()
        assert (listed, what, privilege) == ("table_list", "the account sees no table of this task", "dump_privilege")
        assert missing.startswith(both)
        (fix,) = fixes()
        assert fix.startswith("GRANT SELECT ON "), "the account sees no schema with a similar name"
        run_sql(mariadb, f"GRANT SELECT ON `{database}`.* TO {database}@'%'")
        (fix,) = fixes()
        assert fix.startswith(
            f"If {database}x means {database}, correct it in block-allow-list. Otherwise: GRANT SELECT ON "
        )
        run_sql(mariadb, f"GRANT SHOW DATABASES ON *.* TO {database}@'%'")
        absent = f"this source has no schema {database}x: check the spelling in block-allow-list"
        assert found() == [("table_list", "no table of this server matches block-allow-list"), ("table_list", absent)]
        hint = f"If {database}x means {database}, correct it in block-allow-list."
        (said,) = [one.fix for one in check_one_source(load_task(path)) if one.message == absent]
        assert said == hint
        name = f"{{db-name: {database}x, tbl-name: t}}"
        path.write_text(path.read_text().replace(f"do-dbs: [{database}x]", f"do-tables: [{name}]"))
        (said,) = [one.fix for one in check_one_source(load_task(path)) if one.message == absent]
        assert said == hint, "do-tables name schemas, too"
    finally:
        run_sql(mariadb, f"DROP USER {database}@'%'")


def test_schemas_that_fit_a_pattern_and_cannot_be_read_are_reported(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    run_sql(mariadb, f"CREATE USER {database}@'%' IDENTIFIED BY 'x'")
    run_sql(mariadb, f"CREATE DATABASE {database}_1")
    try:
        run_sql(mariadb, f"GRANT SELECT ON `{database}`.* TO {database}@'%'")
        path = as_account(write().path, mariadb, database, f"'{database}_*'")

        def found() -> list[tuple[bool, str]]:
            findings = check_one_source(load_task(path))
            return [(one.ok, one.message) for one in findings if one.item == "dump_privilege"]

        assert any(ok and f"if some fit {database}_*, the task leaves them out" in message for ok, message in found())
        (fix,) = [one.fix for one in check_one_source(load_task(path)) if "leaves them out" in one.message]
        assert fix == f"This lets the check name them: GRANT SHOW DATABASES ON *.* TO '{database}'@'%';"
        (rule,) = unused_rule_findings(
            [load_task(path)], {load_task(path).source.source_id: [TableName(database, "t")]}
        )
        assert rule.fix.startswith("The account sees only schemas on which it has a privilege: GRANT SELECT"), rule
        run_sql(mariadb, f"GRANT SHOW DATABASES ON *.* TO {database}@'%'")
        ((message,),) = [[message for ok, message in found() if not ok]]
        assert message.endswith("\\_1`.* is missing")
        run_sql(mariadb, f"GRANT SELECT ON `{database}_1`.* TO {database}@'%'")
        assert all(ok and "leaves them out" not in message for ok, message in found())
    finally:
        run_sql(mariadb, f"DROP DATABASE IF EXISTS {database}_1")
        run_sql(mariadb, f"DROP USER {database}@'%'")


def test_a_table_that_the_target_cannot_have_is_reported(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, f"CREATE TABLE t (id INT PRIMARY KEY, {'x' * 64} INT)", database=database)
    assert "63 bytes" in failed(write())["target_tables"]


def with_rules(config: TaskConfig, taken: str, rules: str) -> TaskConfig:
    text = config.path.read_text().replace("block-allow-list: one\n", f"block-allow-list: one\n    {taken}\n", 1)
    config.path.write_text(f"{text}\n{rules}\n")
    return load_task(config.path)


def test_rules_without_effect_are_reported_and_not_refused(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY, state INT)", database=database)
    rule = f"expression-filter: {{x: {{schema: {database}, table: t, delete-value-expr: stat = 1}}}}"
    config = with_rules(write(), "expression-filters: [x]", rule)
    (found,) = [finding for finding in check_one_source(config) if finding.item == "rules"]
    assert found.ok
    assert "no column stat," in found.message


def test_routes_that_both_fit_are_reported_for_the_table(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    routes = ", ".join(f"{name}: {{schema-pattern: {database}, target-schema: {name}}}" for name in "ab")
    found = failed(with_rules(write(), "route-rules: [a, b]", f"routes: {{{routes}}}"))
    assert set(found) == {"target_tables"}
    assert f"2 routes fit {database}.t" in found["target_tables"]


def test_a_route_that_moved_while_the_task_was_stopped_is_reported(
    write: Write, mariadb: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    config = write()
    begin_on_target(config)
    with closing(config.target.server.connect()) as target:
        name = TableName(database, "t")
        table = Table(name, (Column("id", ColumnType(Kind.INT), nullable=False),))
        target.meta.structures.save(config.name, SourceTablesKey("s"), Lsn.at(Position("bin.000001", 4)), {name: table})
        record_rules(config, target)
    assert "target_tables" not in failed(config)
    moved = with_rules(config, "route-rules: [a]", f"routes: {{a: {{schema-pattern: {database}, target-schema: a}}}}")
    assert f"{database}.t has rows on the target in " in failed(moved)["target_tables"]


def test_tables_that_wait_are_reported_with_how_much_is_held(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    config = write()
    assert "held_back" not in {finding.item for finding in check_one_source(config)}
    begin_on_target(config)
    assert "held_back" not in {finding.item for finding in check_one_source(config)}
    names = tuple(TableName(database, f"t_{number}") for number in range(8))
    change = Halt(tables=names, lsn=Lsn.at(Position("bin.000001", 99)), statement="ALTER", code="shard-awaits", what="")
    with closing(config.target.server.connect()) as target:
        target.meta.halts.save(config.name, "s", change)
    (found,) = [finding for finding in check_one_source(config) if finding.item == "held_back"]
    assert found.ok
    assert (
        f"{database}.t_4 and 3 more: still at an earlier place of the log than the other tables; how much log the relay keeps for this"
        in found.message
    )
    assert f"pidts ddl list {config.path}" in found.message


def test_a_relay_that_cannot_be_written_is_reported(write: Write, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is not a directory" in failed(write(extra="pidts: {relay: file/relay}"))["relay_directory"]


def test_a_relay_that_others_can_read_is_reported(write: Write) -> None:
    config = write(source_port=1, target_port=2)
    folder = config.relay / config.source.source_id
    folder.mkdir(parents=True)

    def said() -> str:
        return next(finding.message for finding in check_one_source(config) if finding.item == "relay_directory")

    folder.chmod(0o750)
    assert f"other users of this machine can read the rows in it: chmod -R go= '{folder}'" in said()
    folder.chmod(0o700)
    assert said() == str(config.relay)


def test_tables_that_do_not_fit_are_reported_until_they_are_ignored(
    write: Write, mariadb: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY, a INT)", database=database)
    run_sql(postgres, f'CREATE SCHEMA "{database}"', database=database)
    run_sql(postgres, f'CREATE TABLE "{database}".t (id int PRIMARY KEY)', database=database)
    assert "a" in failed(write())["target_tables"]
    with pytest.raises(PrecheckFailed, match="target_tables"):
        demand(check_one_source(write()))
    demand(check_one_source(write(extra="ignore-checking-items: [target_tables]")))


def test_an_incremental_task_needs_its_tables(write: Write, mariadb: Server, database: str, run_sql: RunSql) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    assert "does not exist" in failed(write(mode="incremental"))["target_tables"]


def test_the_command_shows_each_check_and_the_fix(
    write: Write, mariadb: Server, database: str, run_sql: RunSql, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY) WITH SYSTEM VERSIONING", database=database)
    path = str(write().path)
    assert run_command(["check", path]) == 3
    shown = capsys.readouterr().out
    assert "failed  table_schema" in shown
    assert "fix: Leave the table out" in shown
    assert run_command(["check", path, "--json"]) == 3
    result = json.loads(capsys.readouterr().out)
    assert [finding["item"] for finding in result["findings"] if not finding["ok"]] == ["table_schema"]


def test_tables_without_a_key_are_copied_in_one_piece(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT)", database=database)
    assert set(failed(write(mode="incremental"))) == {"target_tables"}
    config = write()
    assert failed(config) == {}
    (reported,) = [finding.message for finding in check_one_source(config) if finding.item == "primary_key"]
    assert reported.startswith(f"without a key: {database}.t. ")
    assert reported.endswith("it is copied in one piece, from one snapshot")


def test_keys_that_will_differ_on_the_target_are_named_before_the_first_start(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(
        mariadb,
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) COLLATE utf8mb4_general_ci, n TEXT, UNIQUE KEY once (v), "
        "KEY part (n(5)))",
        database=database,
    )
    run_sql(mariadb, "CREATE TABLE exact (v VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY)", database=database)
    config = write()
    found = [finding for finding in check_one_source(config) if finding.item == "target_tables"]
    (created, note) = found
    assert (created.message, created.is_note) == ("2 tables will be created, 0 exist and fit", False)
    assert (note.ok, note.is_note) == (True, True)
    assert note.message == (
        f"the target will not have these keys as the source has them: {database}.t (key once: upper and lower case are equal in v on the "
        "source, and differ on the target; key part: left out, since an index of PostgreSQL has whole values, not "
        f"prefixes, of (n)). See: pidts plan {config.shell_path}"
    )


def test_for_a_task_that_continues_only_joining_tables_are_checked(
    write: Write, mariadb: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    config = write()
    begin_on_target(config)
    found = [finding.message for finding in check_one_source(config) if finding.item == "target_tables"]
    assert found == ["the task continues from its checkpoint; 1 table joins it"]
    run_sql(postgres, f'CREATE SCHEMA "{database}"', database=database)
    run_sql(postgres, f'CREATE TABLE "{database}".t (id int PRIMARY KEY)', database=database)
    run_sql(postgres, f'INSERT INTO "{database}".t VALUES (1)', database=database)
    assert "has rows" in failed(config)["target_tables"]
    (fix,) = [finding.fix for finding in check_one_source(config) if not finding.ok]
    assert f"--resync s:{database}.t " in fix
    demand(check_one_source(config, resync=("*.t",)))


def test_rows_left_by_dropped_shards_do_not_prevent_a_start(
    write: Write, mariadb: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    """The CREATE TABLE of the new table comes later in the log.

    The new table waits at this statement if the rows that are left on the target do not fit. These rows stay.
    """
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY, other INT)", database=database)
    config = write()
    begin_on_target(config)
    run_sql(postgres, f'CREATE SCHEMA "{database}"', database=database)
    run_sql(postgres, f'CREATE TABLE "{database}".t (id int PRIMARY KEY)', database=database)
    run_sql(postgres, f'INSERT INTO "{database}".t VALUES (1)', database=database)
    assert "target_tables" in failed(config)
    kept = Table(TableName(database, "t"), (Column("id", ColumnType(Kind.INT), nullable=False),))
    with closing(config.target.server.connect()) as target:
        target.begin()
        target.meta.structures.save(config.name, MergedTablesKey(), Lsn(0, 1, 4), {kept.name: kept})
        target.commit()
    assert failed(config) == {}


def test_a_table_that_came_while_the_task_ran_does_not_keep_it_from_starting_again(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY, v INT)", database=database)
    config = write(extra="pidts: {version-column: v}")
    begin_on_target(config)
    run_sql(mariadb, "CREATE TABLE late (id INT, v VARCHAR(9) PRIMARY KEY)", database=database)
    assert failed(config) == {}
    found = [finding.message for finding in check_one_source(config) if finding.item == "version_column"]
    assert any("late.v has type varchar" in message for message in found)


def test_a_version_column_must_guard_something(write: Write, mariadb: Server, database: str, run_sql: RunSql) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY, v TIMESTAMP(6), name VARCHAR(9))", database=database)
    run_sql(mariadb, "CREATE TABLE other (id INT PRIMARY KEY)", database=database)
    assert failed(write(extra="pidts: {version-column: v}")) == {}
    found = [
        f.message for f in check_one_source(write(extra="pidts: {version-column: v}")) if f.item == "version_column"
    ]
    assert found == [
        "v is the version column of 1 table",
        f"{database}.other has no column v: every event is applied",
    ]
    assert "no table" in failed(write(extra="pidts: {version-column: w}"))["version_column"]
    (spelled,) = [
        f.fix for f in check_one_source(write(extra="pidts: {version-column: V}")) if f.item == "version_column"
    ]
    assert spelled.endswith(": v")
    assert "varchar" in failed(write(extra="pidts: {version-column: name}"))["version_column"]
    run_sql(mariadb, "SET GLOBAL binlog_row_image = MINIMAL")
    try:
        assert "MINIMAL" in failed(write(extra="pidts: {version-column: v}"))["version_column"]
        assert "version_column" not in failed(write())
    finally:
        run_sql(mariadb, "SET GLOBAL binlog_row_image = FULL")


def test_the_version_column_that_a_table_lacks_is_proposed_with_sql_for_both_sides(
    write: Write, mariadb: Server, postgres: Server, database: str, run_sql: RunSql
) -> None:
    """On the target, the column has no value in present rows: no change that is still to come counts as older."""
    create = f"CREATE TABLE {database}.t (id INT PRIMARY KEY)"
    run_sql(mariadb, create, database=database)
    run_sql(postgres, f"CREATE SCHEMA {database}", database=database)
    run_sql(postgres, create, database=database)
    run_sql(postgres, f"INSERT INTO {database}.t VALUES (1)", database=database)
    config = write(extra="pidts: {version-column: update_time}", mode="incremental")
    (found,) = [one for one in check_one_source(config) if one.item == "version_column"]
    assert not found.ok
    *on_source, on_target = re.findall(r"ALTER TABLE [^;]*;", found.fix)
    for sql in on_source:
        run_sql(mariadb, sql, database=database)
    run_sql(postgres, on_target, database=database)
    assert failed(config) == {}
    assert run_sql(postgres, f"SELECT update_time FROM {database}.t", database=database) == [(None,)]
    run_sql(mariadb, "CREATE TABLE other (id INT PRIMARY KEY)", database=database)
    begin_on_target(config)
    (hint,) = [one.fix for one in check_one_source(config) if one.item == "version_column" and one.fix]
    assert hint.endswith("ON UPDATE CURRENT_TIMESTAMP(6); The task then adds the column on the target")


def test_tables_that_look_like_those_of_online_schema_changes_are_reported(
    write: Write, mariadb: Server, database: str, run_sql: RunSql
) -> None:
    for name in ("t", "_t_new", "_report_old"):
        run_sql(mariadb, f"CREATE TABLE {name} (id INT PRIMARY KEY)", database=database)
    config = write()
    (found,) = [finding for finding in check_one_source(config) if finding.item == "online_ddl"]
    assert found.ok
    assert f"{database}._report_old, {database}._t_new " in found.message
    assert not [one for one in check_one_source(write(extra="online-ddl: false")) if one.item == "online_ddl"]
    own = write(extra="shadow-table-rules: ['(.+)_shadow']\ntrash-table-rules: ['^_(report)_old$']")
    (found,) = [finding for finding in check_one_source(own) if finding.item == "online_ddl"]
    assert "_t_new" not in found.message
