"""The check names each requirement that a source does not fulfil, and how to fulfil it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from pidts.model import PrecheckFailed, ServerDown, Table
from pidts.sandbox import Server
from pidts.source import (
    BinlogStream,
    Finding,
    ServerInfo,
    Session,
    SourceConfig,
    check_source,
    connect,
    demand,
    log_end,
    prechecks,
    query,
    read_structures,
    server_info,
)
from pidts.source.grants import global_privileges, holds


def tables(session: Session, database: str) -> list[Table]:
    return list(read_structures(session, lambda name: name.schema == database).values())


def failed(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.item: finding for finding in findings if not finding.ok}


@pytest.fixture
def setting(mysql_like, open_session) -> Iterator[object]:
    """Changes a global variable for one test."""
    session, before = open_session(mysql_like), {}

    def change(name: str, value: str) -> None:
        before.setdefault(name, query(session, f"SELECT @@GLOBAL.{name}")[0][0])
        query(session, f"SET GLOBAL {name} = %s", (value,))

    yield change
    for name, value in before.items():
        query(session, f"SET GLOBAL {name} = %s", (value,))


def test_a_fit_source_passes_and_needs_no_fix(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY, b VARCHAR(9))")
    findings = check_source(session, config_of(mysql_like), tables(session, database), log_end(session))
    assert failed(findings) == {}
    assert all(not finding.fix and finding.message for finding in findings)
    demand(findings)


@pytest.mark.parametrize(
    ("name", "value", "item", "fix"),
    [
        ("binlog_format", "STATEMENT", "binlog_format", "SET GLOBAL binlog_format = 'ROW'"),
    ],
)
def test_wrong_log_settings_are_found(mysql_like, config_of, open_session, setting, name, value, item, fix):
    setting(name, value)
    findings = check_source(open_session(mysql_like), config_of(mysql_like), [])
    assert fix in failed(findings)[item].fix
    with pytest.raises(PrecheckFailed) as refused:
        demand(findings)
    assert item in str(refused.value)
    demand(findings, ignored=[item])


def test_images_logged_in_part_pass_with_a_note(mysql_like, config_of, open_session, setting, database):
    """MariaDB's log lacks columns that a REPLACE sets to their defaults: all of these columns, or only blobs."""
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY, b VARCHAR(9))")
    for image in ("MINIMAL", "NOBLOB"):
        setting("binlog_row_image", image)
        findings = check_source(open_session(mysql_like), config_of(mysql_like), tables(session, database))
        if mysql_like.kind == "mariadb":
            assert "REPLACE" in failed(findings)["binlog_row_image"].message
            demand(findings, ignored=["binlog_row_image"])
        else:
            assert "binlog_row_image" not in failed(findings)
            assert any("read from the target" in finding.message for finding in findings)


def test_partial_json_updates_are_found(mysql97, config_of, open_session):
    session = open_session(mysql97)
    query(session, "SET GLOBAL binlog_row_value_options = 'PARTIAL_JSON'")
    try:
        findings = check_source(session, config_of(mysql97), [])
    finally:
        query(session, "SET GLOBAL binlog_row_value_options = ''")
    assert "binlog_row_value_options = ''" in failed(findings)["binlog_row_image"].fix


def test_columns_and_tables_that_cannot_be_carried_are_named(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(
        session,
        f"CREATE TABLE {database}.g (a INT PRIMARY KEY, spot POINT, sure ENUM('no', 'so?') CHARACTER SET utf8mb4)",
    )
    query(session, f"CREATE TABLE {database}.k (a INT, UNIQUE KEY (a))")
    findings = check_source(session, config_of(mysql_like), tables(session, database))
    found = failed(findings)
    assert f"{database}.g.sure" in found["table_schema"].message
    assert "block-allow-list" in found["table_schema"].fix
    (keyless,) = [finding.message for finding in findings if finding.item == "primary_key"]
    assert keyless == (
        f"without a key: {database}.k. The rows of such a table are found by all their columns, and it is copied in "
        "one piece, from one snapshot"
    )


def test_a_key_with_an_empty_label_is_named(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.doubtful (e ENUM('a', '') PRIMARY KEY)")
    query(session, f"CREATE TABLE {database}.sure (e ENUM('a', 'b') PRIMARY KEY, f ENUM('a', ''))")
    findings = check_source(session, config_of(mysql_like), tables(session, database))
    (note,) = [finding for finding in findings if finding.is_note and finding.item == "primary_key"]
    assert note.ok
    assert note.message.startswith(f"{database}.doubtful: the key column e has the label ''.")


@pytest.mark.parametrize(
    "definition",
    [
        "(a INT PRIMARY KEY, b INT) WITH SYSTEM VERSIONING",
        (
            "(a INT PRIMARY KEY, s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, "
            "PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING"
        ),
        "(a INT PRIMARY KEY, b INT WITH SYSTEM VERSIONING)",
    ],
    ids=["hidden", "explicit", "column"],
)
def test_system_versioned_tables_are_refused_until_they_are_ordinary(
    definition, mariadb, config_of, open_session, database
):
    session = open_session(mariadb)

    def check(*names: str) -> dict[str, Finding]:
        chosen = [table for table in tables(session, database) if table.name.name in names]
        return failed(check_source(session, config_of(mariadb), chosen))

    query(session, f"CREATE TABLE {database}.v {definition}")
    query(session, f"CREATE TABLE {database}.o (a INT PRIMARY KEY)")
    found = check("v", "o")
    assert set(found) == {"table_schema"}
    assert f"{database}.v is system-versioned" in found["table_schema"].message
    assert f"ignore-tables: [{{db-name: {database}, tbl-name: v}}]" in found["table_schema"].fix
    assert check("o") == {}
    query(session, "SET system_versioning_alter_history = KEEP")
    columns = "DROP COLUMN s, DROP COLUMN e, " if "ROW START" in definition else ""
    query(session, f"ALTER TABLE {database}.v {columns}DROP SYSTEM VERSIONING")
    assert check("v", "o") == {}


def test_a_period_of_the_applications_leaves_plain_rows(mariadb, config_of, open_session, database):
    session = open_session(mariadb)
    query(
        session,
        f"CREATE TABLE {database}.p (a INT, s DATE, e DATE, PERIOD FOR p (s, e), PRIMARY KEY (a, p WITHOUT OVERLAPS))",
    )
    (table,) = tables(session, database)
    assert table.identity == ("a", "e", "s")
    assert not any(column.generated or column.nullable for column in table.columns)
    assert failed(check_source(session, config_of(mariadb), [table])) == {}


def test_cascades_that_no_log_shows_are_found(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.p (a INT PRIMARY KEY) ENGINE=InnoDB")
    query(session, f"CREATE TABLE {database}.c (a INT PRIMARY KEY, FOREIGN KEY (a) REFERENCES p (a) ON DELETE CASCADE) ENGINE=InnoDB".replace("p (a)", f"{database}.p (a)"))  # fmt: skip
    found = failed(check_source(session, config_of(mysql_like), tables(session, database)))
    if mysql_like.kind == "mysql97":
        assert "foreign_key" not in found  # MySQL 9.7 logs the rows that a cascade changes.
    else:
        assert f"{database}.c" in found["foreign_key"].message
        assert "ON DELETE CASCADE" in found["foreign_key"].message
    account(mysql_like, session, "reader", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*", f"SELECT ON {database}.*")
    config = replace(config_of(mysql_like), user="reader", password="pw")
    login = connect(config)
    assert ("foreign_key" in failed(check_source(login, config, tables(login, database)))) == ("foreign_key" in found)
    login.close()


def test_a_start_that_is_no_longer_there_is_found(mysql_like, config_of, open_session):
    session = open_session(mysql_like)
    end = log_end(session)
    gone = replace(end, file=f"{end.base}.000000")
    assert "full copy" in failed(check_source(session, config_of(mysql_like), [], gone))["meta_position"].fix
    behind = replace(end, offset=end.offset + 1_000_000)
    assert "meta_position" in failed(check_source(session, config_of(mysql_like), [], behind))


def test_a_server_id_that_is_taken_is_found(mysql_like, config_of, open_session):
    session = open_session(mysql_like)
    own = replace(config_of(mysql_like), server_id=server_info(session).server_id)
    assert "server_id" in failed(check_source(session, own, []))
    ours = replace(own, server_id=4712)
    assert "server_id" not in failed(check_source(session, ours, []))
    with BinlogStream(ours, log_end(session)) as stream:
        stream.read_burst()
        found = failed(check_source(session, ours, []))
        # MySQL 5.6 is not asked for its replicas, and a server id ends no other dump there.
        assert ("server_id" in found) == (mysql_like.kind != "mysql56")
        assert mysql_like.kind == "mysql56" or "4712" in found["server_id"].message


def account(server: Server, session: Session, name: str, *grants: str) -> None:
    if server.kind == "mysql56":
        query(session, f"GRANT USAGE ON *.* TO {name}@localhost IDENTIFIED BY 'pw'")
    else:
        query(session, f"CREATE USER {name}@localhost IDENTIFIED BY 'pw'")
    for grant in grants:
        query(session, f"GRANT {grant} TO {name}@localhost")


def test_missing_privileges_come_with_their_grants(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    account(mysql_like, session, "poor", f"INSERT ON {database}.*")
    poor = replace(config_of(mysql_like), user="poor", password="pw")
    login = connect(poor)
    findings = check_source(login, poor, tables(session, database))
    login.close()
    fixes = [finding.fix for finding in findings if not finding.ok]
    assert "GRANT REPLICATION SLAVE ON *.* TO 'poor'@'localhost';" in fixes
    assert "GRANT REPLICATION CLIENT ON *.* TO 'poor'@'localhost';" in fixes
    assert f"GRANT SELECT ON `{database}`.`t` TO 'poor'@'localhost';" in fixes


def test_the_grants_that_are_asked_for_are_enough(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    account(mysql_like, session, "repl", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*", f"SELECT ON {database}.*")
    config = replace(config_of(mysql_like), user="repl", password="pw")
    login = connect(config)
    findings = check_source(login, config, tables(login, database))
    assert failed(findings) == {}
    assert ["With TRIGGER on *.*" in one.message for one in findings if one.is_note] == [True]
    findings = check_source(login, config, tables(login, database), begun=True)
    assert [one.message for one in findings if one.is_note] == [], "the task runs with this account"
    with BinlogStream(config, log_end(login), non_blocking=True) as stream:
        while not stream.ended:
            stream.read_burst()
    login.close()


@pytest.mark.parametrize(
    ("grants", "asked"), [(("SELECT ON {}.*",), 1), (("INSERT ON {}.*", "SELECT ON {}.t0", "SELECT ON {}.t1"), 3)]
)
def test_tables_are_asked_for_one_by_one_only_without_a_privilege_on_their_schema(
    mysql_like, config_of, open_session, database, grants, asked
):
    session = open_session(mysql_like)
    for number in range(3):
        query(session, f"CREATE TABLE {database}.t{number} (a INT PRIMARY KEY)")
    known = tables(session, database)
    account(mysql_like, session, user := f"partly{asked}", *(grant.format(database) for grant in grants))
    with closing(connect(replace(config_of(mysql_like), user=user, password="pw"))) as login:
        sent, send = [], login.query
        login.query = lambda sql, *more: (sent.append(sql), send(sql, *more))[1]
        findings = check_source(login, replace(config_of(mysql_like), user=user), known)
    found = [sql for sql in sent if str(sql).endswith("LIMIT 0")]
    lacking = [one.message for one in findings if one.item == "dump_privilege" and not one.ok]
    assert (len(found), lacking) == (asked, [f"SELECT on {database}.t2 is missing"] if asked > 1 else [])


def test_a_privilege_on_a_pattern_of_schemas_does_not_count_for_a_schema_with_privileges_of_its_own(
    mysql_like, config_of, open_session, database
):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.t (a INT PRIMARY KEY)")
    known = tables(session, database)
    own = database.replace("_", "\\_")
    account(mysql_like, session, "pattern", f"SELECT ON `{own[:-1]}%`.*", f"INSERT ON `{own}`.*")
    with closing(connect(replace(config_of(mysql_like), user="pattern", password="pw"))) as login:
        findings = check_source(login, replace(config_of(mysql_like), user="pattern"), known)
    lacking = [one.message for one in findings if one.item == "dump_privilege" and not one.ok]
    assert lacking == [f"SELECT on {database}.t is missing"]


@pytest.mark.parametrize("kind", ["mysql97", "mariadb"])
def test_privileges_of_a_role_count(kind, request, config_of, open_session, database):
    server = request.getfixturevalue(kind)
    session = open_session(server)
    query(session, "CREATE ROLE reader")
    query(session, "GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO reader")
    account(server, session, "rolled")
    query(session, "GRANT reader TO rolled@localhost")
    query(session, "SET DEFAULT ROLE reader TO rolled@localhost" if kind == "mysql97" else "SET DEFAULT ROLE reader FOR rolled@localhost")  # fmt: skip
    config = replace(config_of(server), user="rolled", password="pw")
    login = connect(config)
    assert failed(check_source(login, config, [])) == {}
    login.close()


@pytest.mark.parametrize(
    ("grant", "wanted", "held"),
    [
        ("GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION", "REPLICATION SLAVE", True),
        ("GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `r`@`%`", "REPLICATION CLIENT", True),
        ("GRANT SELECT, REPLICATION CLIENT ON *.* TO `r`@`%`", "REPLICATION SLAVE", False),
        ("GRANT ALL PRIVILEGES ON `shop`.* TO `r`@`%`", "REPLICATION SLAVE", False),
        ("GRANT REPLICATION SLAVE ADMIN ON *.* TO `r`@`%`", "REPLICATION SLAVE", False),
        ("GRANT USAGE ON *.* TO `REPLICATION SLAVE`@`%`", "REPLICATION SLAVE", False),
    ],
)
def test_grants_are_read_by_whole_words(grant, wanted, held):
    assert holds(global_privileges([grant]), wanted) is held


def test_a_source_without_a_log_or_an_id_is_found(config_of):
    from pidts.sandbox import start_mysql56

    with start_mysql56(options=["--skip-log-bin", "--gtid-mode=OFF", "--server-id=0"]) as server:
        session = connect(config_of(server))
        found = failed(check_source(session, config_of(server), []))
        session.close()
    assert "log_bin" in found["binlog_enable"].fix
    assert "server_id = 1" in found["server_id"].fix


def findings_of(server: ServerInfo, settings: dict[str, str], check: str) -> list[Finding]:
    asked = prechecks._RequiredGrants(None, SourceConfig("h"), server, settings, {}, None)  # type: ignore[arg-type]
    return list(getattr(prechecks, check)(asked))


MYSQL84 = ServerInfo("8.4.3", False, 1, "uuid", True)
MARIADB12 = ServerInfo("12.3.1-MariaDB", True, 1, "uid", True)


@pytest.mark.parametrize(
    ("settings", "ok", "message"),
    [
        ({"expire_logs_days": "7"}, True, "168 hours"),
        ({"expire_logs_days": "0.000000"}, True, "until somebody"),
        ({"binlog_expire_logs_seconds": "2592000", "expire_logs_days": "0"}, True, "720 hours"),
        ({"binlog_expire_logs_seconds": "600"}, False, "0.1667 hours"),
        ({"binlog_expire_logs_seconds": "600", "binlog_expire_logs_auto_purge": "OFF"}, True, "until somebody"),
        ({"binlog_expire_logs_seconds": "0", "max_binlog_total_size": "1000"}, True, "at most 1000 bytes"),
    ],
)
def test_the_retention_of_a_log_has_many_names(settings, ok, message):
    (finding,) = findings_of(MYSQL84, settings, "_binlog_expiry")
    assert (finding.ok, message in finding.message) == (ok, True)
    name = next(iter(settings))
    week = {"expire_logs_days": 7, "binlog_expire_logs_seconds": 604800}[name]
    assert finding.fix.startswith(f"SET GLOBAL {name} = {week};")


def test_a_log_inside_a_storage_engine_is_named():
    findings = findings_of(MARIADB12, {"log_bin": "ON", "binlog_storage_engine": "innodb"}, "_binlog_enable")
    assert [finding.ok for finding in findings] == [True, False]
    assert all(
        finding.ok
        for finding in findings_of(MARIADB12, {"log_bin": "ON", "binlog_storage_engine": ""}, "_binlog_enable")
    )


@pytest.mark.parametrize(
    ("shown", "plugin"),
    [
        (
            "CREATE USER `u`@`%` IDENTIFIED WITH 'caching_sha2_password' AS '$A$005$' REQUIRE NONE",
            "caching_sha2_password",
        ),
        ("CREATE USER `u`@`%` IDENTIFIED BY PASSWORD '*7EAC45'", "mysql_native_password"),
        ("CREATE USER `u`@`%` IDENTIFIED VIA ed25519 USING 'Iabc' OR unix_socket", "ed25519"),
        ("CREATE USER `u`@`%`", None),
    ],
)
def test_a_plugin_is_read_from_the_account(shown, plugin):
    found = prechecks._PLUGIN.search(shown)
    assert (found and (found["plugin"] or "mysql_native_password")) == plugin


def test_encryption_and_the_plugin_are_reported_and_nothing_secret(mysql97, mariadb, open_session, config_of):
    for server, tls, plugin in (
        (mysql97, "TLSv1.3, certificate not checked", "caching_sha2_password"),
        (mariadb, "not encrypted", ""),
    ):
        findings = {one.item: one for one in check_source(open_session(server), config_of(server), [])}
        assert findings["tls"].message.startswith(tls)
        assert plugin in getattr(findings.get("auth_plugin"), "message", "")
        assert not any(
            "$A$" in one.message or "*" in one.message for one in findings.values() if one.item == "auth_plugin"
        )


def test_an_error_about_many_tables_names_some_of_them_and_each_remedy_once() -> None:
    unfit = Finding("target_tables", ok=False, message="t: its name is too long", fix="Write a route")
    with pytest.raises(PrecheckFailed) as caught:
        demand([replace(unfit, message=f"t{at}: its name is too long") for at in range(200)])
    assert caught.value.what.startswith(
        "200 checks failed. target_tables: t0: its name is too long; target_tables: t1: "
    )
    assert caught.value.what.endswith("t4: its name is too long; and 195 more: `pidts check TASK` lists all")
    assert caught.value.todo == "target_tables: Write a route"


def test_the_code_of_an_error_is_not_repeated_in_its_text() -> None:
    refused = Finding("target_connection", ok=False, message="[target-denied] no such user", code="target-denied")
    with pytest.raises(PrecheckFailed) as caught:
        demand([refused])
    assert str(caught.value) == "[target-denied] target_connection: no such user"
    with pytest.raises(PrecheckFailed) as caught:
        demand([refused, replace(refused, message="b: [target-denied] no such user")])
    assert str(caught.value) == (
        "[target-denied] 2 checks failed. target_connection: no such user; target_connection: b: no such user"
    )
    other = Finding("table_list", ok=False, message="no table")
    with pytest.raises(PrecheckFailed) as caught:
        demand([refused, other])
    assert str(caught.value).startswith("[precheck-failed] 2 checks failed. target_connection: [target-denied] no such")
    with pytest.raises(ServerDown) as down:
        demand([replace(refused, is_down=True)])
    assert str(down.value) == "[precheck-failed] target_connection: [target-denied] no such user"
