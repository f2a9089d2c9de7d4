"""Each requirement that a source does not fulfil is named, with what fulfils it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pidts.model import PrecheckFailed, Table
from pidts.sandbox import Server
from pidts.source import (
    BinlogStream,
    Finding,
    Session,
    check_source,
    connect,
    demand,
    log_end,
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
    """Change a global variable for one test."""
    session, before = open_session(mysql_like), {}

    def change(name: str, value: str) -> None:
        before[name] = query(session, f"SELECT @@GLOBAL.{name}")[0][0]
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
        ("binlog_row_image", "MINIMAL", "binlog_row_image", "SET GLOBAL binlog_row_image = 'FULL'"),
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
    query(session, f"CREATE TABLE {database}.g (a INT PRIMARY KEY, spot POINT)")
    query(session, f"CREATE TABLE {database}.k (a INT, UNIQUE KEY (a))")
    found = failed(check_source(session, config_of(mysql_like), tables(session, database)))
    assert f"{database}.g.spot" in found["table_schema"].message
    assert "block-allow-list" in found["table_schema"].fix
    assert f"{database}.k" in found["primary_key"].message
    assert "ADD PRIMARY KEY" in found["primary_key"].fix


def test_cascades_that_no_log_shows_are_found(mysql_like, config_of, open_session, database):
    session = open_session(mysql_like)
    query(session, f"CREATE TABLE {database}.p (a INT PRIMARY KEY) ENGINE=InnoDB")
    query(session, f"CREATE TABLE {database}.c (a INT PRIMARY KEY, FOREIGN KEY (a) REFERENCES p (a) ON DELETE CASCADE) ENGINE=InnoDB".replace("p (a)", f"{database}.p (a)"))  # fmt: skip
    found = failed(check_source(session, config_of(mysql_like), tables(session, database)))
    if mysql_like.kind == "mysql97":
        assert "foreign_key" not in found  # It logs them.
    else:
        assert f"{database}.c" in found["foreign_key"].message
        assert "ON DELETE CASCADE" in found["foreign_key"].message


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
        assert "4712" in failed(check_source(session, ours, []))["server_id"].message


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
    assert failed(check_source(login, config, tables(login, database))) == {}
    with BinlogStream(config, log_end(login), non_blocking=True) as stream:
        while not stream.ended:
            stream.read_burst()
    login.close()


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
