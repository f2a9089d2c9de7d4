"""The SQL of `pidts grants` is enough, and all of it is needed: without one grant, a check fails and names this grant."""

from __future__ import annotations

import json
import re
import shlex
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.forked_programs import loaded_programs

from pidts.cli.app import run_command
from pidts.model import Column, ColumnType, Key, Kind, Position, PrecheckFailed, Table, TableName
from pidts.rules import AllowList
from pidts.sandbox import Server, start_mariadb, start_mysql56, start_mysql97
from pidts.source import ServerInfo, connect, source_dialect
from pidts.source import read_only as source_read_only
from pidts.source.uncarried_objects import left_behind
from pidts.task.checks.privileges import source_privileges
from pidts.task.config.task_file import load_task
from pidts.task.cutover.log_after_stop import changes_after
from pidts.task.cutover.target_log_end import target_as_source, target_log_end

RunSql = Callable[..., list[tuple[Any, ...]]]
PASSWORD = "s3cret ' of \\ ours"
FAMILY = r"GRANT (?P<names>.+) ON (?P<place>\S+) TO (?P<account>.+);"


@dataclass
class Accounts:
    """The accounts of one task, made with the SQL that the command printed."""

    task: Path
    urls: dict[str, str]
    servers: dict[str, Server]
    grants: dict[str, list[str]]
    run_sql: RunSql
    database: str

    def run(self, side: str, sql: str) -> None:
        server = self.servers[side]
        self.run_sql(server, sql, database=self.database if server.kind == "postgres" else None)

    def make(self) -> None:
        for side, server in self.servers.items():
            for sql in creation(server, self.database, side):
                self.run(side, sql)
            for sql in self.grants[side]:
                self.run(side, sql)

    def single(self, side: str) -> list[tuple[str, str, str]]:
        """Returns each privilege: its name, and the statements that remove it and grant it again."""
        found = []
        for sql in self.grants[side]:
            if match := re.fullmatch(FAMILY, sql):
                for name in match["names"].split(", "):
                    place, account = match["place"], match["account"]
                    found.append(
                        (name, f"REVOKE {name} ON {place} FROM {account}", f"GRANT {name} ON {place} TO {account}")
                    )
            else:
                name = sql.split()[1]
                found.append((name, sql.replace("GRANT", "REVOKE", 1).replace(" TO ", " FROM "), sql))
        return found


def user(database: str, side: str) -> str:
    return f"{side[0]}_{database}"[-16:].strip("_")  # In MySQL 5.6, names have at most 16 characters.


def creation(server: Server, database: str, side: str) -> list[str]:
    name, password = user(database, side), PASSWORD.replace("\\", "\\\\").replace("'", "''")
    if server.kind == "postgres":
        plain = PASSWORD.replace("'", "''")
        return [f'REVOKE ALL ON DATABASE "{database}" FROM PUBLIC', f"CREATE ROLE \"{name}\" LOGIN PASSWORD '{plain}'"]
    nobody = ["DELETE FROM mysql.user WHERE User = ''", "FLUSH PRIVILEGES"] if server.kind == "mysql56" else []
    return [*nobody, f"CREATE USER '{name}'@'%' IDENTIFIED BY '{password}'"]


def removal(server: Server, database: str, side: str) -> list[str]:
    name = user(database, side)
    if server.kind == "postgres":
        return [f'DROP OWNED BY "{name}" CASCADE', f'DROP ROLE "{name}"']
    return [f"DROP USER '{name}'@'%'"]


def write_task(path: Path, source: Server, target: Server, database: str, users: tuple[str, str]) -> None:
    kind = f"type: postgresql, database: {database}, " if target.kind == "postgres" else ""
    path.write_text(f"""\
name: {database}
task-mode: all
target-database: {{{kind}host: {target.host}, port: {target.port}, user: {users[1]}, password: "${{THE_PASSWORD}}"}}
mysql-instances:
  - source-id: s
    from: {{host: {source.host}, port: {source.port}, user: {users[0]}, password: "${{THE_PASSWORD}}"}}
    block-allow-list: one
    syncer-config-name: one
block-allow-list: {{one: {{do-dbs: ["{database}"]}}}}
syncers: {{one: {{worker-count: 1}}}}
pidts: {{heartbeat: 1s, spark: {{master: "local[2,4]"}}}}
""")


def url(server: Server, database: str) -> str:
    if server.kind == "postgres":
        return f"postgresql://{server.user}:{server.password}@{server.host}:{server.port}/{database}"
    return f"mysql://{server.user}:{server.password}@{server.host}:{server.port}/"


@pytest.fixture
def accounts(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    database_on,
):
    """`accounts(source, target, database)` makes the accounts; the tables must exist before."""
    monkeypatch.setenv("THE_PASSWORD", PASSWORD)
    made: list[Accounts] = []

    def make(source: Server, target: Server, database: str) -> Accounts:
        task = tmp_path / "task.yaml"
        write_task(task, source, target, database, (user(database, "source"), user(database, "target")))
        urls = {"source": url(source, database), "target": url(target, database)}
        capsys.readouterr()
        asked = ["grants", str(task), "--source", urls["source"], "--target", urls["target"], "--json"]
        assert run_command(asked) == 0, capsys.readouterr().err
        found = json.loads(capsys.readouterr().out)["servers"]
        grants = {server["side"]: server["statements"] for server in found}
        made.append(Accounts(task, urls, {"source": source, "target": target}, grants, run_sql, database))
        made[-1].make()
        return made[-1]

    yield make
    for one in made:
        for side, server in one.servers.items():
            if server.pid is not None:
                for sql in removal(server, one.database, side):
                    one.run(side, sql)


def failed(task: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    run_command(["check", str(task), "--json"])
    result = json.loads(capsys.readouterr().out)
    assert "findings" in result, result
    return [f"{one['item']}: {one['message']} / {one['fix']}" for one in result["findings"] if not one["ok"]]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("mariadb", "postgres"),
        pytest.param("mysql97", "mariadb", marks=pytest.mark.long),
        pytest.param("mysql56", "mysql97", marks=pytest.mark.long),
    ],
)
def test_with_all_of_it_a_check_passes_and_without_any_it_fails_by_its_name(
    source: str, target: str, request: pytest.FixtureRequest, accounts, run_sql: RunSql, capsys, database_on
) -> None:
    servers = [request.getfixturevalue(name) for name in (source, target)]
    database = database_on(*servers)
    run_sql(servers[0], "CREATE TABLE t_1 (id INT PRIMARY KEY, name VARCHAR(9))", database=database)
    run_sql(servers[0], "CREATE TABLE keyless (a INT)", database=database)
    made = accounts(*servers, database)
    assert failed(made.task, capsys) == [], made.grants
    with closing(load_task(made.task).target.server.connect()) as session:
        session.meta.prepare()  # The account may still lack the privileges to read the meta tables.
    for side in ("source", "target"):
        privileges = made.single(side)
        assert privileges
        for name, revoke, grant in privileges:
            made.run(side, revoke)
            found = failed(made.task, capsys)
            assert found, revoke
            assert any(f"{name} " in f"{one} " for one in found), (revoke, found)
            made.run(side, grant)
    assert failed(made.task, capsys) == []


@pytest.fixture
def database_on(run_sql: RunSql):
    """Creates a database on these servers whose name has characters that GRANT reads as patterns."""
    made: list[tuple[Server, str]] = []

    def make(*servers: Server) -> str:
        name = f"g_{servers[0].port}_{servers[-1].kind}"
        for server in servers:
            quote = '"' if server.kind == "postgres" else "`"
            run_sql(server, f"CREATE DATABASE {quote}{name}{quote}")
            made.append((server, f"DROP DATABASE {quote}{name}{quote}"))
        return name

    yield make
    for server, drop in made:
        run_sql(server, drop + (" WITH (FORCE)" if server.kind == "postgres" else ""))


def test_who_has_no_account_yet_gets_the_advice_to_look_with_another(
    tmp_path: Path, mariadb: Server, postgres: Server, database: str, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("THE_PASSWORD", PASSWORD)
    task = tmp_path / "task.yaml"
    write_task(task, mariadb, postgres, database, ("nobody", "nobody"))
    assert run_command(["grants", str(task)]) == 3
    assert "--source URL" in capsys.readouterr().err
    assert run_command(["grants", str(task), "--source", url(mariadb, "")]) == 3
    shown = capsys.readouterr()
    assert "--target URL" in shown.err
    assert shown.out == "", "half an answer would be piped into a client"
    options = ["--source", url(mariadb, ""), "--target", url(postgres, database)]
    assert run_command(["grants", str(task), *options, "--only", "target"]) == 0
    target = capsys.readouterr().out
    assert "MARIADB" not in target.upper()
    assert f'GRANT CREATE ON DATABASE "{database}" TO "nobody";' in target
    assert run_command(["grants", str(task), *options, "--only", "source", "--host", "10.%"]) == 0
    source = capsys.readouterr().out
    assert "no table is visible" in source
    named = database.replace("_", "\\_")
    assert f"GRANT SELECT ON `{named}`.* TO 'nobody'@'10.%';" in source, "what the task names need not be there yet"
    assert all(line.startswith(("--", "GRANT ")) for line in source.splitlines())
    wanted = f"with another account: postgresql://ADMIN@{postgres.host}:{postgres.port}/{database}"
    for wrong, said in (
        (url(mariadb, ""), "--target is the URL of a mysql, and the task's target is a postgresql"),
        (
            url(postgres, "other"),
            f"--target names the database 'other', and the task's target is the database '{database}'",
        ),
    ):
        assert run_command(["grants", str(task), "--target", wrong]) == 2
        printed = " ".join(capsys.readouterr().err.split())
        assert "[bad-target-url]" in printed
        assert said in printed
        assert wanted in printed


def test_the_command_that_is_advised_after_a_refused_login_works_beside_the_tasks_own_password(
    tmp_path: Path, mariadb: Server, database: str, run_sql: RunSql, monkeypatch, capsys
) -> None:
    admin = f"admin_{database[-8:]}"
    run_sql(mariadb, f"CREATE OR REPLACE USER {admin}@'%' IDENTIFIED BY 'of the admin'")
    run_sql(mariadb, f"GRANT ALL ON *.* TO {admin}@'%' WITH GRANT OPTION")
    monkeypatch.setenv("MYSQL_PWD", PASSWORD)
    monkeypatch.setenv("THE_PASSWORD", PASSWORD)
    monkeypatch.setenv("ADMIN_PASSWORD", "of the admin")
    task = tmp_path / "task.yaml"
    write_task(task, mariadb, mariadb, database, ("nobody", "nobody"))
    with pytest.raises(PrecheckFailed) as refused:
        load_task(task).target.server.connect()
    (advised,) = re.findall(r"`pidts (grants .*)` prints CREATE", refused.value.todo)
    *words, url_of_target = shlex.split(advised.replace("TASK", str(task)).replace("ADMIN:", f"{admin}:"))
    source = ["--source", f"mysql://{admin}:${{ADMIN_PASSWORD}}@{mariadb.host}:{mariadb.port}/"]
    assert run_command([*words, url_of_target]) == 3
    assert "--source URL" in " ".join(capsys.readouterr().err.split()), "the task has no account on the source yet"
    assert run_command([*words, url_of_target, *source]) == 0
    assert "-- to write rows and to run DDL" in capsys.readouterr().out
    assert run_command([*words, url_of_target.replace(":${ADMIN_PASSWORD}", ""), *source]) == 3
    assert "Without a password in the URL, MYSQL_PWD" in " ".join(capsys.readouterr().err.split())


def test_of_several_accounts_the_grants_are_for_the_one_that_the_server_uses(
    tmp_path: Path, mariadb: Server, database: str, run_sql: RunSql, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    assert mariadb.host == "127.0.0.1"
    monkeypatch.setenv("THE_PASSWORD", PASSWORD)
    task, name = tmp_path / "task.yaml", f"u_{database[-8:]}"
    write_task(task, mariadb, mariadb, database, (name, name))
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)

    def accounts_in_grants() -> set[str]:
        capsys.readouterr()
        options = ["--source", url(mariadb, ""), "--target", url(mariadb, ""), "--json"]
        assert run_command(["grants", str(task), *options]) == 0, capsys.readouterr().err
        servers = json.loads(capsys.readouterr().out)["servers"]
        assert len(servers) == 2
        assert all(f" TO {one['account']};" in sql for one in servers for sql in one["statements"])
        return {one["account"] for one in servers}

    hosts = ("%", "127.%", "10.%")
    try:
        for host in hosts:
            run_sql(mariadb, f"CREATE USER '{name}'@'{host}' IDENTIFIED BY 'another'")
        assert accounts_in_grants() == {f"'{name}'@'%'"}, "the login is refused, so the account is not known"
        password = PASSWORD.replace("\\", "\\\\").replace("'", "''")
        run_sql(mariadb, f"ALTER USER '{name}'@'127.%' IDENTIFIED BY '{password}'")
        assert accounts_in_grants() == {f"'{name}'@'127.%'"}
    finally:
        for host in hosts:
            run_sql(mariadb, f"DROP USER IF EXISTS '{name}'@'{host}'")


def test_the_role_of_a_superuser_is_never_granted(
    tmp_path: Path, mariadb: Server, postgres: Server, database: str, run_sql: RunSql, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("THE_PASSWORD", PASSWORD)
    task, role = tmp_path / "task.yaml", f"{database}_owner"
    write_task(task, mariadb, postgres, database, ("nobody", "nobody"))
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)

    def there(*statements: str) -> None:
        for sql in statements:
            run_sql(postgres, sql, database=database)

    def granted() -> dict[str, list[str]]:
        capsys.readouterr()
        asked = ["--source", url(mariadb, ""), "--target", url(postgres, database), "--only", "target", "--json"]
        assert run_command(["grants", str(task), *asked]) == 0
        found = json.loads(capsys.readouterr().out)["servers"][0]
        return {name: found[name] for name in ("statements", "notes")}

    table = f'"{database}".t'
    there("CREATE SCHEMA pidts_meta", f'CREATE SCHEMA "{database}"', f"CREATE TABLE {table} (id int PRIMARY KEY)")
    of_superuser = granted()
    assert not [sql for sql in of_superuser["statements"] if f'GRANT "{postgres.user}"' in sql]
    meta, structure = of_superuser["notes"]
    assert "only its owner may change the tables in it. Its owner postgres is a superuser. Do not grant" in meta
    assert "meta-schema: NAME" in meta
    assert f'Give the table to the account: ALTER TABLE "{database}"."t" OWNER TO "nobody"' in structure
    there(f'CREATE ROLE "{role}"', f'GRANT "{postgres.user}" TO "{role}"', f'ALTER SCHEMA pidts_meta OWNER TO "{role}"')
    try:
        assert f"Its owner {role} is a superuser" in granted()["notes"][0], "it may become one"
        there(f'REVOKE "{postgres.user}" FROM "{role}"', f'ALTER TABLE {table} OWNER TO "{role}"')
        assert f'GRANT "{role}" TO "nobody";' in granted()["statements"]
    finally:
        there(f'REASSIGN OWNED BY "{role}" TO "{postgres.user}"', f'DROP ROLE "{role}"')


@pytest.mark.parametrize(
    ("target", "zone", "wanted"),
    [
        ("mariadb", "", ["GRANT BINLOG REPLAY ON *.* TO 'u'@'%';", "GRANT TRIGGER ON {schema}.* TO 'u'@'%';"]),
        ("mariadb", "zone: a, target-zone: b, ", []),
        ("mysql97", "", []),
        ("postgres", "", []),
    ],
)
def test_the_privileges_for_row_events_are_an_optional_note(
    target: str,
    zone: str,
    wanted: list[str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    mariadb: Server,
    run_sql: RunSql,
    database_on,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    monkeypatch.setenv("THE_PASSWORD", PASSWORD)
    capsys.readouterr()
    there = request.getfixturevalue(target)
    database = database_on(mariadb, *([there] if there is not mariadb else []))
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    task = tmp_path / "task.yaml"
    write_task(task, mariadb, there, database, ("u", "u"))
    task.write_text(task.read_text("utf-8").replace("pidts: {", f"pidts: {{{zone}"))
    asked = ["--source", url(mariadb, ""), "--target", url(there, database), "--host", "%", "--json"]
    assert run_command(["grants", str(task), *asked]) == 0, capsys.readouterr().err
    found = json.loads(capsys.readouterr().out)["servers"][1]
    named = "`" + database.replace("_", "\\_") + "`"
    sql = [one.format(schema=named) for one in wanted]
    assert [note.partition(" as fast as SQL: ")[2] for note in found["notes"] if "row events" in note] == (
        [" ".join(sql)] if sql else []
    )
    assert not any("BINLOG" in one or "TRIGGER" in one for one in found["statements"])


@pytest.mark.parametrize(
    ("allow", "wanted"),
    [
        ("{do-dbs: [shop]}", ["`shop`.*"]),
        ("{do-dbs: ['s*']}", ["`shop`.*"]),
        ("{ignore-tables: [{db-name: crm, tbl-name: x}]}", ["`shop`.*"]),
        ("{do-dbs: [shop], ignore-tables: [{db-name: 'sh*', tbl-name: x}]}", ["`shop`.`keyless`", "`shop`.`t_1`"]),
        ("{do-dbs: [shop], do-tables: [{db-name: shop, tbl-name: t_1}]}", ["`shop`.`t_1`"]),
        ("{do-tables: [{db-name: shop, tbl-name: t_1}, {db-name: s_2, tbl-name: u}]}", ["`shop`.`t_1`", "`s_2`.`u`"]),
        ("{do-tables: [{db-name: shop, tbl-name: '*'}, {db-name: s_2, tbl-name: '*'}]}", ["`shop`.*", "`s\\_2`.*"]),
    ],
)
def test_no_more_may_be_read_than_the_list_takes(allow: str, wanted: list[str], tmp_path: Path) -> None:
    task = tmp_path / "task.yaml"
    task.write_text(f"""\
name: t
task-mode: all
target-database: {{host: h, user: u}}
mysql-instances: [{{source-id: s, from: {{host: h, user: u}}, block-allow-list: one}}]
block-allow-list: {{one: {allow}}}
""")
    config = load_task(task)
    key = Key("PRIMARY", ("id",), unique=True, primary=True)
    columns = (Column("id", ColumnType(Kind.INT), nullable=False),)
    tables = [
        table
        for table in (
            Table(TableName("shop", "t_1"), columns, (key,)),
            Table(TableName("shop", "keyless"), columns),
        )
        if config.allow(table.name)
    ]
    for gtid_mode in (True, False):
        server = ServerInfo("5.6.51", is_mariadb=False, server_id=1, server_uuid="", gtid_mode=gtid_mode)
        found = list(source_privileges(config, server, tables))
        assert [one.place for one in found if one.name == "SELECT"] == wanted
        locks = [one.place for one in found if one.name == "LOCK TABLES"]
        keyless = any(not table.identity for table in tables)
        assert locks == (["`shop`.*"] if keyless and not gtid_mode else [])


def run_until(
    made: Accounts, claim: Callable[[], bool], meanwhile: Callable[[], None], then: Callable[[], bool]
) -> None:
    """Runs the command.

    When the condition is true, the test makes another change, and the run continues until it has arrived.
    """
    with made.task.with_suffix(".log").open("wb") as log:
        run = loaded_programs().start(["run", str(made.task)], log, log)
    try:
        for wanted, act in ((claim, meanwhile), (then, lambda: run.send_signal(signal.SIGTERM))):
            deadline = time.monotonic() + 200
            while not wanted():
                assert run.poll() is None, Path(log.name).read_text()[-6000:]
                assert time.monotonic() < deadline, Path(log.name).read_text()[-6000:]
                time.sleep(0.2)
            act()
        assert run.wait(60) == 0
    finally:
        run.kill()
        run.wait()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_with_exactly_these_a_task_copies_follows_and_is_compared(accounts, run_sql: RunSql, capsys) -> None:
    """The task goes from MySQL 5.6 without GTIDs, where the copy of a table without a key needs a lock, to MySQL 9.7.

    For other servers see tests/scenarios.
    """
    database = "g_1"
    with start_mysql56(options=["--gtid-mode=OFF"]) as source, start_mysql97() as target:
        run_sql(source, f"CREATE DATABASE {database}")
        run_sql(source, "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9))", database=database)
        run_sql(source, "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')", database=database)
        run_sql(source, "CREATE TABLE keyless (a INT)", database=database)
        run_sql(source, "INSERT INTO keyless VALUES (1), (1), (NULL)", database=database)
        run_sql(source, "CREATE TABLE gone (a INT PRIMARY KEY)", database=database)
        made = accounts(source, target, database)
        ((_, revoke, grant),) = [one for one in made.single("source") if one[0] == "LOCK TABLES"]
        made.run("source", revoke)
        assert any("LOCK TABLES" in one for one in failed(made.task, capsys))
        made.run("source", grant)
        assert failed(made.task, capsys) == []

        def count(table: str) -> int:
            try:
                return int(run_sql(target, f"SELECT COUNT(*) FROM {database}.{table}")[0][0])
            except pymysql.err.Error:
                return 0

        def change() -> None:
            for sql in (
                "UPDATE t SET name = 'bb' WHERE id = 2",
                "DELETE FROM t WHERE id = 1",
                "ALTER TABLE t ADD COLUMN more INT DEFAULT 5, ADD INDEX (name)",
                "CREATE INDEX by_more ON t (more)",
                "TRUNCATE TABLE keyless",
                "INSERT INTO keyless VALUES (7)",
                "DROP TABLE gone",
                "CREATE TABLE later (id INT PRIMARY KEY)",
                "RENAME TABLE later TO renamed",
                "INSERT INTO renamed VALUES (1), (2)",
            ):
                run_sql(source, sql, database=database)

        # A table whose keys are altered while its copy is not quite done is copied from its beginning again.
        copied, arrived = {"t": 3, "keyless": 3}, {"renamed": 2, "t": 2}

        def has(rows: dict[str, int]) -> bool:
            return all(count(table) == number for table, number in rows.items())

        run_until(made, lambda: has(copied), change, lambda: has(arrived))
        assert run_sql(target, "SELECT id, name, more FROM t ORDER BY id", database=database) == [
            (2, "bb", 5),
            (3, "c", 5),
        ]
        capsys.readouterr()
        assert run_command(["verify", str(made.task)]) == 0, capsys.readouterr()


@pytest.mark.parametrize(
    "kinds", [("mariadb", "mysql97"), pytest.param(("mysql97", "mariadb"), marks=pytest.mark.long)]
)
def test_the_additional_privileges_of_a_cutover_are_printed_on_request(
    kinds: tuple[str, str], accounts, run_sql: RunSql, capsys
) -> None:
    start = {"mariadb": start_mariadb, "mysql97": start_mysql97}
    with start[kinds[0]]() as source, start[kinds[1]]() as target:
        run_sql(source, "CREATE DATABASE shop")
        run_sql(source, "CREATE TABLE shop.parents (id INT PRIMARY KEY)")
        run_sql(source, "CREATE VIEW shop.seen AS SELECT id FROM shop.parents")
        run_sql(source, "CREATE TRIGGER shop.fires BEFORE INSERT ON shop.parents FOR EACH ROW SET NEW.id = NEW.id")
        made = accounts(source, target, "shop")
        config = load_task(made.task)

        def seen() -> dict[str, str]:
            with closing(connect(config.source.server)) as session:
                return {one.kind: one.text for one in left_behind(session, config.allow, {"shop"})}

        def make_read_only() -> bool:
            with closing(connect(config.source.server)) as session:
                return source_read_only.make_read_only(session)

        def make_key() -> None:
            with closing(config.target.server.connect()) as session:
                session.execute("CREATE DATABASE shop")
                session.execute("CREATE TABLE shop.parents (id INT PRIMARY KEY)")
                session.execute("CREATE TABLE shop.child (id INT PRIMARY KEY)")
                session.execute("ALTER TABLE shop.child ADD CONSTRAINT k FOREIGN KEY (id) REFERENCES shop.parents (id)")

        assert not make_read_only()
        assert not all(seen().values()) or "trigger" not in seen()
        words = ["grants", str(made.task), "--cutover", "--json"]
        asked = ["--source", made.urls["source"], "--target", made.urls["target"]]
        assert run_command([*words, *asked]) == 0
        for server in json.loads(capsys.readouterr().out)["servers"]:
            for sql in server["statements"]:
                made.run(server["side"], sql)
        assert make_read_only()
        assert {"view", "trigger"} <= {kind for kind, text in seen().items() if text}
        make_key()
        end = target_log_end(config, [TableName("shop", "child")])
        assert end.position
        assert [(table.name.name, table.arrow.names) for table in end.structures] == [("child", ["id"])]
        made.run("target", "INSERT INTO shop.parents VALUES (1)")
        server = target_as_source(config)
        with closing(connect(server)) as session:
            dialect = source_dialect(session)
        (found,) = changes_after(server, Position.parse(end.position), AllowList(), dialect)
        assert set(found.tables) == {TableName("shop", "parents")}, "an undo can look for such changes"
