"""A first task file describes both servers, has no password, overwrites nothing, and is accepted by `pidts check`."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest

from pidts.cli.app import run_command
from pidts.cli.server_urls import source_address, target_address
from pidts.model import ConfigError, PrecheckFailed, TableName
from pidts.model.errors import AccessNotGranted, LoginRefused
from pidts.rules import AllowList
from pidts.sandbox import Server, start_mariadb
from pidts.source import SourceConfig
from pidts.source.finding import Finding
from pidts.source.structures import TableSize
from pidts.target import PostgresTarget
from pidts.target.mysql import errors as mysql_errors
from pidts.task.config.task_file import load_task
from pidts.task.draft.inspect import FirstLook, SeenTable, look_at
from pidts.task.draft.task_file import Draft, Login, pattern, source_id_of, task_name_of

RunSql = Callable[..., list[tuple[Any, ...]]]


def seen(schema: str, name: str, **more: Any) -> SeenTable:
    return SeenTable(TableName(schema, name), more.pop("size", TableSize(3, 16384)), **more)


def drafted(tmp_path: Path, *tables: SeenTable, findings: tuple[Finding, ...] = (), **more: Any) -> tuple[str, Any]:
    source = Login("db.example", 3306, "repl", "SOURCE_PASSWORD")
    target = Login("::1", 5432, "app", "PGPASSWORD", type="postgresql", database="on")
    has_gtids, sees_all_schemas = more.pop("has_gtids", False), more.pop("sees_all_schemas", True)
    look = FirstLook("mariadb 11", tables, findings, has_gtids=has_gtids, sees_all_schemas=sees_all_schemas)
    draft = Draft("shop", "db.example-3306", source, target, look, **more)
    path = tmp_path / "shop.yaml"
    path.write_text(draft.text("shop.yaml"), "utf-8")
    return path.read_text("utf-8"), load_task(path, {"SOURCE_PASSWORD": "a", "PGPASSWORD": "b"})


def test_names_that_are_special_in_yaml_or_in_the_list_are_quoted(tmp_path: Path) -> None:
    odd = ["yes", "1", "a: b", "it's", 'a"b', "star*", "~x", "q?[z]", "ünïcode", "# no", "${SOURCE_PASSWORD}", "a\nb"]
    _, config = drafted(tmp_path, *(seen(name, "t") for name in odd))
    for name in odd:
        assert config.allow(TableName(name, "t")), name
    assert not config.allow(TableName("starfish", "t"))
    assert not config.allow(TableName("qxz", "t"))
    assert config.target.database == "on"
    assert (config.source.server.password, config.target.password) == ("a", "b")


def test_a_source_with_gtids_is_followed_by_gtid(tmp_path: Path) -> None:
    text, config = drafted(tmp_path, seen("shop", "t"))
    assert (config.source.use_gtid, "enable-gtid" in text) == (False, False)
    _, config = drafted(tmp_path, seen("shop", "t"), has_gtids=True)
    assert config.source.use_gtid


def test_the_task_file_has_a_password_line_even_if_none_was_needed() -> None:
    assert '# password: "${PASSWORD}"   # none was needed' in Login("h", 3306, "root", "").lines()


@pytest.mark.parametrize(("only", "told"), [((), True), ((("shop_*", "*"),), True), ((("shop", "t"),), False)])
def test_the_file_says_that_the_source_may_have_schemas_which_the_account_does_not_see(
    tmp_path: Path, only: tuple[tuple[str, str], ...], told: bool
) -> None:
    said = "# repl sees only schemas on which it has a privilege."
    assert (said in drafted(tmp_path, seen("shop", "t"), only=only, sees_all_schemas=False)[0]) == told
    assert said not in drafted(tmp_path, seen("shop", "t"), only=only)[0]


def test_tables_that_no_task_can_take_are_left_out_with_the_reason(tmp_path: Path) -> None:
    text, config = drafted(tmp_path, seen("shop", "fine"), seen("shop", "old*", left_out="it is system-versioned"))
    assert config.allow(TableName("shop", "fine"))
    assert not config.allow(TableName("shop", "old*"))
    assert config.allow(TableName("shop", "older"))
    assert "- source-id: db.example-3306   # the source's name in commands, messages and records\n" in text
    assert "# shop.old*: it is system-versioned\n" in text


def test_tables_that_cannot_be_carried_are_left_out_of_a_list(tmp_path: Path) -> None:
    tables = (seen("shop", "oa"), seen("shop", "ob", left_out="a reason"))
    _, config = drafted(tmp_path, *tables, only=(("shop", "o*"),))
    assert [config.allow(TableName("shop", name)) for name in ("oa", "ob", "oc")] == [True, False, False]
    _, config = drafted(tmp_path, tables[0], only=(("shop", "o*"),))
    assert [config.allow(TableName("shop", name)) for name in ("oa", "ob", "p")] == [True, True, False]
    _, config = drafted(tmp_path, *tables, only=(("shop", "*"),))
    assert [config.allow(TableName("shop", name)) for name in ("oa", "ob", "p")] == [True, False, True]


def test_the_facts_found_are_shown_with_each_setting(tmp_path: Path) -> None:
    text, _ = drafted(
        tmp_path,
        seen("shop", "log", has_key=False, size=TableSize(1_000_000, 5_000_000)),
        seen("shop", "orders", problem="it lacks column state", notes=("column at: zero dates become NULL",)),
        findings=(
            Finding(
                "binlog_format", ok=False, message="binlog_format = MIXED", fix="SET GLOBAL binlog_format = 'ROW';"
            ),
            Finding("gtid", ok=True, message="every transaction has a GTID"),
        ),
    )
    assert "# shop: 2 tables, about 1,000,003 rows, 5.0 MB\n" in text
    assert text.index("#   log: about 1,000,000 rows") < text.index("#   orders: about 3 rows"), "the largest first"
    assert "no key: the table is copied in one piece" in text
    assert "#   shop.orders: it lacks column state\n" in text
    assert "#   shop.orders: column at: zero dates become NULL\n" in text
    assert "#   binlog_format: binlog_format = MIXED\n#     fix: SET GLOBAL binlog_format = 'ROW';\n" in text
    assert "# gtid: every transaction has a GTID\n" in text


def test_names_that_differ_in_case_alone_make_the_task_mind_case(tmp_path: Path) -> None:
    _, config = drafted(tmp_path, seen("shop", "T"), seen("Shop", "t"))
    assert config.allow.case_sensitive
    _, config = drafted(tmp_path, seen("shop", "T"), seen("shop", "u"))
    assert not config.allow.case_sensitive


def test_hundreds_of_tables_are_not_reported_one_by_one(tmp_path: Path) -> None:
    text, _ = drafted(tmp_path, *(seen("shop", f"t{n}", notes=("a note",)) for n in range(100)))
    assert "#   and 60 more\n" in text
    assert len(text.splitlines()) < 140


@pytest.mark.parametrize(
    ("host", "port", "name"),
    [("::1", 3306, "1-3306"), ("db." + "x" * 40 + ".example", 3306, "x" * 19 + ".example-3306")],
)
def test_a_source_id_can_be_a_folder(host: str, port: int, name: str) -> None:
    assert source_id_of(host, port) == name


def test_a_task_is_called_after_its_only_schema() -> None:
    assert task_name_of([seen("shop", "a"), seen("shop", "b")]) == "shop"
    assert task_name_of([seen("shop", "a"), seen("crm", "b")]) == "sync"
    assert task_name_of([seen("ш", "a")]) == "sync"
    assert pattern("plain_1") == "plain_1"


def test_an_empty_password_in_a_url_is_not_replaced_by_the_one_of_another_server() -> None:
    environ = {"MYSQL_PWD": "x", "PGPASSWORD": "y", "NONE": ""}
    for url in ("mysql://u:@h/", "mysql://u:${NONE}@h/", "postgresql://u:@h/d", "postgresql://u:${NONE}@h/d"):
        assert target_address(url, environ).password == ""
    assert source_address("mysql://u:@h/", environ).password == ""
    assert (source_address("mysql://u@h/", environ).password, target_address("mysql://u@h/", environ).password) == (
        "x",
        "x",
    )
    assert target_address("postgresql://u@h/d", environ).password == "y"
    for url in ("mysql://u:${UNSET}@h/", "postgresql://u:${UNSET}@h/d"):
        with pytest.raises(ConfigError, match="the environment variable UNSET is not set"):
            target_address(url, environ)


def test_the_variable_is_that_of_the_url_or_of_the_environment() -> None:
    assert source_address("mysql://u:${MY_PW}@h/", {"MY_PW": "x"}).variable == "MY_PW"
    assert source_address("mysql://u:x@h/", {}).variable == "SOURCE_PASSWORD"
    assert source_address("mysql://u@h/", {"MYSQL_PWD": "x"}).variable == "MYSQL_PWD"
    assert source_address("mysql://u@h/", {}).variable == ""
    assert source_address("mysql://u:@h/", {"MYSQL_PWD": "x"}).variable == ""
    assert target_address("mysql://u:x@h/", {}).variable == "TARGET_PASSWORD"
    assert target_address("postgresql://u@h/d", {"PGPASSWORD": "x"}).variable == "PGPASSWORD"
    assert target_address("postgres://u:p%2Fw@h:1/d%20b", {}).password == "p/w"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:secret@h/", "no database"),
        ("postgresql://u:secret/@h:5432/d", "the port .* from 1 to 65535"),
        ("postgresql://u:secret@h:99999/d", "the port .* from 1 to 65535"),
        ("postgresql://u:secret@h:0/d", "the port .* from 1 to 65535"),
        ("postgresql://u:secret@[::1:5432/d", "the host .* malformed"),
        ("mysql://u:secret@h:330x/", "the port .* from 1 to 65535"),
        ("mysql://u:secret@:3306/", "names no host"),
        ("postgresql://u:secret@h/d?sslmode=x", "sslmode"),
        ("oracle://u:secret@h/d", "oracle"),
    ],
)
def test_a_bad_url_of_a_target_is_refused_without_showing_the_password(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        target_address(url, {})
    assert refused.value.code == "bad-target-url"
    assert "secret" not in str(refused.value)


def address(server: Server, database: str) -> str:
    if server.kind == "postgres":
        return f"postgresql://{server.user}:{server.password}@{server.host}:{server.port}/{database}"
    return f"mysql://{server.user}:{server.password}@{server.host}:{server.port}/"


@pytest.mark.parametrize(
    ("source", "target"), [("mariadb", "postgres"), ("mysql97", "mariadb"), ("mysql56", "mysql97")]
)
def test_a_check_accepts_the_file(
    source: str,
    target: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    servers = [request.getfixturevalue(name) for name in (source, target)]
    name = f"init_{source}"
    run_sql(servers[0], f"CREATE DATABASE {name}")
    run_sql(servers[1], f"CREATE DATABASE {name}x" if servers[1].kind == "postgres" else "SELECT 1")
    try:
        run_sql(servers[0], "CREATE TABLE orders (id INT PRIMARY KEY, at DATETIME NOT NULL)", database=name)
        run_sql(servers[0], "CREATE TABLE log (line TEXT)", database=name)
        if source == "mariadb":
            run_sql(servers[0], "CREATE TABLE old (id INT PRIMARY KEY) WITH SYSTEM VERSIONING", database=name)
        monkeypatch.chdir(tmp_path)
        urls = [address(server, f"{name}x") for server in servers]
        assert run_command(["init", *urls, "--tables", f"{name}.*"]) == 0, capsys.readouterr().err
        file = tmp_path / f"{name}.yaml"
        text = file.read_text("utf-8")
        assert "log: about 0 rows" in text
        assert "no key" in text
        assert ("old: it is system-versioned" in text) == (source == "mariadb")
        assert ("zero or partial date" in text) == (target == "postgres")
        for server, variable in zip(servers, ("SOURCE_PASSWORD", "TARGET_PASSWORD"), strict=True):
            assert not server.password or server.password not in text
            monkeypatch.setenv(variable, server.password)
        assert run_command(["check", str(file)]) == 0, capsys.readouterr().out
        assert run_command(["init", *urls, "--tables", f"{name}.*"]) == 2
        assert "[file-exists]" in capsys.readouterr().err
        assert file.read_text("utf-8") == text
        assert run_command(["init", *urls, "--tables", f"{name}.*", "-o", "-"]) == 0
        assert capsys.readouterr().out.splitlines()[3:] == text.splitlines()[3:]
        assert run_command(["init", *urls, "--tables", "no_such.*", "-o", "other.yaml"]) == 3
        capsys.readouterr()
        assert run_command(["init", *urls, "--tables", f"{name}.orders, no_such.*", "-o", "other.yaml"]) == 3
        assert "can see no table on the source that matches no_such.*" in capsys.readouterr().err
        assert not Path("other.yaml").exists()
    finally:
        run_sql(servers[0], f"DROP DATABASE {name}")
        if servers[1].kind == "postgres":
            run_sql(servers[1], f"DROP DATABASE {name}x WITH (FORCE)")


def test_without_tables_every_schema_is_chosen_and_those_that_are_not_fit_are_reported(
    tmp_path: Path,
    mariadb: Server,
    postgres: Server,
    database: str,
    run_sql: RunSql,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY, a INT)", database=database)
    run_sql(postgres, f'CREATE SCHEMA "{database}"', database=database)
    run_sql(postgres, f'CREATE TABLE "{database}".t (id int PRIMARY KEY)', database=database)
    file = tmp_path / "all.yaml"
    urls = [address(server, database) for server in (mariadb, postgres)]
    assert run_command(["init", *urls, "-o", str(file), "--name", "all"]) == 0, capsys.readouterr().err
    text = file.read_text("utf-8")
    assert f"      - {database}\n" in text
    assert f"#   {database}.t: it lacks column a\n" in text
    assert stat.S_IMODE(file.stat().st_mode) & stat.S_IRUSR


def test_init_says_if_the_account_may_not_see_all_schemas(
    mariadb: Server, postgres: Server, database: str, run_sql: RunSql, capsys: pytest.CaptureFixture[str]
) -> None:
    run_sql(mariadb, "CREATE TABLE t (id INT PRIMARY KEY)", database=database)
    run_sql(mariadb, f"CREATE USER {database}@'%' IDENTIFIED BY 'x'")
    try:
        run_sql(mariadb, f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {database}@'%'")
        run_sql(mariadb, f"GRANT SELECT ON `{database}`.* TO {database}@'%'")
        urls = [f"mysql://{database}:x@{mariadb.host}:{mariadb.port}/", address(postgres, database)]
        said = "sees only schemas on which it has a privilege"
        assert run_command(["init", *urls, "-o", "-"]) == 0
        assert said in capsys.readouterr().out
        run_sql(mariadb, f"GRANT SHOW DATABASES ON *.* TO {database}@'%'")
        assert run_command(["init", *urls, "-o", "-"]) == 0
        assert said not in capsys.readouterr().out
    finally:
        run_sql(mariadb, f"DROP USER {database}@'%'")


def test_zero_dates_are_errors_where_the_source_refuses_them_and_has_none(postgres: Server, run_sql: RunSql) -> None:
    """This test has a server of its own, since it changes how the server's sessions begin."""
    strict = "STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE"
    target = PostgresTarget(postgres.host, postgres.port, postgres.user, postgres.password)
    login = Login("h", 1, "u", "", type="postgresql", database="d")
    with start_mariadb() as server:
        source = SourceConfig(server.host, server.port, server.user, server.password)
        run_sql(server, "CREATE DATABASE shop")
        run_sql(server, "CREATE TABLE shop.days (id INT PRIMARY KEY, made DATE NOT NULL, at DATETIME(3))")
        for sql_mode, value, refuses in (
            (strict, "2024-02-29", True),
            (strict, "0000-00-00", False),
            (strict, "2024-00-10", False),
            ("STRICT_TRANS_TABLES", "2024-02-29", False),
        ):
            run_sql(server, f"SET GLOBAL sql_mode = '{sql_mode}'")
            run_sql(server, f"SET STATEMENT sql_mode = '' FOR REPLACE INTO shop.days VALUES (1, '{value}', NULL)")
            look = look_at(source, target, AllowList.parse("shop.*"))
            text = Draft("t", "s", login, login, look).text("t.yaml")
            assert look.refuses_unreal is refuses, (sql_mode, value)
            assert ("\npidts:\n  zero-dates: error" in text) is refuses
            # The notes take account of the line `zero-dates: error`, with which the column stays NOT NULL.
            assert ("created without NOT NULL" in text) is not refuses


def test_each_server_has_a_variable_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"MYSQL_PWD": "x", "SOURCE_PASSWORD": "s", "TARGET_PASSWORD": "t", "PGPASSWORD": "p"}
    one = source_address("mysql://u@h/", environ, "SOURCE_PASSWORD")
    assert (one.password, one.variable, one.source and one.source.password) == ("s", "SOURCE_PASSWORD", "s")
    for url in ("mysql://u@h/", "postgresql://u@h/d"):
        other = target_address(url, environ, "TARGET_PASSWORD")
        assert (other.password, other.variable) == ("t", "TARGET_PASSWORD")
        assert target_address(url, environ).variable in {"MYSQL_PWD", "PGPASSWORD"}, "an administrator's URL"
    assert source_address("mysql://u:${MYSQL_PWD}@h/", environ, "SOURCE_PASSWORD").password == "x"
    assert source_address("mysql://u:@h/", environ, "SOURCE_PASSWORD").password == ""
    assert source_address("mysql://u@h/", {"MYSQL_PWD": "x"}, "SOURCE_PASSWORD").variable == "MYSQL_PWD"


@pytest.mark.parametrize("target", ["mysql97", "postgres"])
def test_a_refused_login_says_which_variable_has_the_password_of_this_server(
    target: str,
    mariadb: Server,
    request: pytest.FixtureRequest,
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The task file does not exist yet, so the advice names neither its keys nor commands on it."""
    other: Server = request.getfixturevalue(target)
    run_sql(mariadb, "CREATE OR REPLACE USER init_source@'%' IDENTIFIED BY 'right'")
    run_sql(mariadb, "GRANT SELECT ON *.* TO init_source@'%'")
    refused = f"mysql://init_source@{mariadb.host}:{mariadb.port}/"
    scheme = "postgresql" if target == "postgres" else "mysql"
    there = f"{scheme}://no_such_user@{other.host}:{other.port}/" + ("d" if target == "postgres" else "")
    file = tmp_path / "t.yaml"
    for name in ("MYSQL_PWD", "PGPASSWORD", "SOURCE_PASSWORD", "TARGET_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MYSQL_PWD", "wrong")
    try:
        assert run_command(["init", refused, there, "-o", str(file)]) == 3
        said = capsys.readouterr().err
        assert "[access-denied]" in said
        assert f"The login at {mariadb.host}:{mariadb.port} used the password in MYSQL_PWD" in said
        assert "Give the password of this server in the variable SOURCE_PASSWORD" in said
        monkeypatch.setenv("SOURCE_PASSWORD", "right")
        monkeypatch.setenv("TARGET_PASSWORD", "wrong")
        assert run_command(["init", refused, there, "-o", str(file)]) == 3
        said = capsys.readouterr().err
        assert "[target-denied]" in said
        assert f"The login at {other.host}:{other.port} used the password in TARGET_PASSWORD" in said
        assert "TASK" not in said
        assert "target-database" not in said
        assert "task file" not in said
    finally:
        run_sql(mariadb, "DROP USER init_source@'%'")


def test_the_advice_after_a_login_fits_the_cause(
    mariadb: Server,
    postgres: Server,
    run_sql: RunSql,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A password that is right but cannot be used is no wrong password, nor is a database without a privilege."""
    name = "init_closed"
    run_sql(postgres, f"CREATE ROLE {name} LOGIN PASSWORD 'x'")
    run_sql(postgres, f"CREATE DATABASE {name}")
    try:
        run_sql(postgres, f"REVOKE CONNECT ON DATABASE {name} FROM PUBLIC")
        monkeypatch.setenv("SOURCE_PASSWORD", mariadb.password)
        monkeypatch.setenv("TARGET_PASSWORD", "x")
        source = f"mysql://{mariadb.user}@{mariadb.host}:{mariadb.port}/"
        target = f"postgresql://{name}@{postgres.host}:{postgres.port}/{name}"
        assert run_command(["init", source, target, "-o", "-"]) == 3
        said = capsys.readouterr().err
        assert "[target-denied]" in said
        assert f"let {name} log in from this machine, and give it access to the database" in said
        assert "TARGET_PASSWORD" not in said, "the password is right"
        assert "TASK" not in said
    finally:
        run_sql(postgres, f"DROP DATABASE {name} WITH (FORCE)")
        run_sql(postgres, f"DROP ROLE {name}")


@pytest.mark.parametrize(("number", "kind"), [(1045, LoginRefused), (1130, AccessNotGranted), (2059, PrecheckFailed)])
def test_the_kind_of_a_refused_login_is_a_value(number: int, kind: type[PrecheckFailed]) -> None:
    assert type(mysql_errors.translate_connect(pymysql.err.OperationalError(number, "no"), "h:1")) is kind
