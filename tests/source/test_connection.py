"""A task names its source by a URL, connects to it, and recognizes it again."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from pidts.model import ConfigError, PrecheckFailed
from pidts.model.errors import Transient
from pidts.source import ServerInfo, SourceConfig, connect, query, server_info


def test_a_url_names_everything():
    config = SourceConfig.from_url("mysql://re%40pl:p%2Fw@db.example:3307/?server-id=77&source-id=shop")
    assert (config.host, config.port, config.user, config.password) == ("db.example", 3307, "re@pl", "p/w")
    assert (config.server_id, config.source_id) == (77, "shop")


def test_a_url_may_leave_out_what_is_usual():
    assert SourceConfig.from_url("mariadb://h") == SourceConfig("h", 3306, "root", "", "h-3306")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://h/", "scheme 'postgresql'"),
        ("mysql:///", "names no host"),
        ("mysql://[h/", "the host .* malformed"),
        ("mysql://h:port/", "the port .* from 1 to 65535"),
        ("mysql://h:0/", "the port .* from 1 to 65535"),
        ("mysql://h/?colour=red", "colour"),
        ("mysql://h/?server-id=0", "server-id"),
    ],
)
def test_texts_that_are_no_source_url_are_refused(url, said):
    with pytest.raises(ConfigError, match=said) as refused:
        SourceConfig.from_url(url)
    assert refused.value.code == "bad-source-url"


def test_a_refused_url_does_not_show_its_password():
    with pytest.raises(ConfigError) as refused:
        SourceConfig.from_url("mysql://u:hunter2@h/?x=1")
    assert "hunter2" not in str(refused.value)


def test_a_password_is_never_shown():
    assert "hunter2" not in repr(SourceConfig("h", password="hunter2"))


def test_a_server_that_is_not_there_may_come_back():
    with pytest.raises(Transient) as refused:
        connect(SourceConfig("127.0.0.1", 1, source_id="s1"))
    assert refused.value.code == "source-unreachable"
    assert "s1" in str(refused.value)


def test_a_wrong_password_is_a_failed_precheck(mysql_like, config_of):
    with pytest.raises(PrecheckFailed) as refused:
        connect(replace(config_of(mysql_like), user="nobody", password="wrong"))
    assert refused.value.code == "access-denied"
    assert "wrong" not in str(refused.value)


def test_a_login_without_a_password_says_where_to_write_one(mysql_like, config_of, run_sql):
    user = f"g_{os.getpid()}"  # other workers of the test run use the same server
    accounts = f"'{user}'@'%'", f"'{user}'@'localhost'"  # MySQL 5.6 prefers its anonymous account at localhost to %
    for account in accounts:
        run_sql(mysql_like, f"CREATE USER {account} IDENTIFIED BY 'Hunter2-of-us'")
    try:
        with pytest.raises(PrecheckFailed) as refused:
            connect(replace(config_of(mysql_like), user=user, password=""))
        assert refused.value.code == "access-denied"
        assert "MYSQL_PWD" in refused.value.todo
        with pytest.raises(PrecheckFailed) as refused:
            connect(replace(config_of(mysql_like), user=user, password="wrong"))
        assert "MYSQL_PWD" not in refused.value.todo
    finally:
        run_sql(mysql_like, f"DROP USER {', '.join(accounts)}")


def test_a_session_reads_in_utc_and_says_whom_it_reads(mysql_like, open_session):
    session = open_session(mysql_like)
    assert query(session, "SELECT @@session.time_zone, @@session.autocommit") == [("+00:00", 1)]
    server = server_info(session)
    assert server.product == ("mariadb" if mysql_like.kind == "mariadb" else "mysql")
    assert server.number[0] in {5, 9, 10}
    assert server.server_id > 0
    assert server.server_uuid
    assert server.gtid_mode


def test_a_login_by_caching_sha2_needs_no_tls(mysql97, config_of, run_sql):
    run_sql(mysql97, "CREATE USER IF NOT EXISTS sha IDENTIFIED WITH caching_sha2_password BY 'secret'")
    session = connect(replace(config_of(mysql97), user="sha", password="secret"))
    assert query(session, "SELECT 1") == [(1,)]
    session.close()


def test_a_server_is_named_by_what_it_keeps_for_good():
    mysql = ServerInfo("9.7.0", False, 1, "3e11fa47-71ca-11e1-9e33-c80aa9429562", True)
    assert mysql.identity == "mysql 3e11fa47-71ca-11e1-9e33-c80aa9429562"
    mariadb = ServerInfo("11.8.2-MariaDB", True, 7, "uid=", True)
    assert mariadb.identity == "mariadb server-id 7 at uid="
    assert replace(mariadb, server_uuid="").identity == "mariadb server-id 7"
    assert replace(mariadb, server_uuid="other=").identity != mariadb.identity
