"""A task demands from a server the encryption that its settings ask for. If the server does not provide it, the login
ends with an error.
"""

from __future__ import annotations

import os
import pickle
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pymysql
import pytest

from pidts import sandbox
from pidts.login import Mode, Tls
from pidts.model import ConfigError, PrecheckFailed, Transient, Where
from pidts.sandbox import Server
from pidts.source import BinlogStream, SourceConfig, connect, log_end, query
from pidts.source.connection import encryption
from pidts.source.failures import explain
from pidts.target.mysql import MySqlTarget
from pidts.target.mysql.errors import translate_connect
from pidts.target.postgres import PostgresTarget

from .certificates import Authority, Pair

XID = 16


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours", "ours")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "theirs", "theirs")


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    """Makes a certificate for the address, but not for the name `localhost`."""
    return authority.sign("server", hosts=("db.example",), addresses=("127.0.0.1",))


@pytest.fixture(scope="module")
def server(authority: Authority, pair: Pair) -> Iterator[Server]:
    options = (f"--ssl-ca={authority.ca}", f"--ssl-cert={pair.cert}", f"--ssl-key={pair.key}")
    with sandbox.start_mariadb(options=options) as started:
        yield started


def source(server: Server, *tls: str | Path, host: str = "127.0.0.1") -> SourceConfig:
    return SourceConfig(host, server.port, server.user, server.password, "s1", tls=Tls.of(*map(str, tls)))


def refused(config: SourceConfig) -> PrecheckFailed:
    with pytest.raises(PrecheckFailed) as caught:
        connect(config)
    assert "s1" in str(caught.value)
    assert caught.value.todo
    return caught.value


def version(config: SourceConfig) -> str:
    session = connect(config)
    try:
        shown = query(session, "SHOW SESSION STATUS LIKE 'Ssl_version'")[0][1]
        assert encryption(session) == shown
        return str(shown)
    finally:
        session.close()


@pytest.mark.parametrize(
    ("words", "mode"),
    [
        ((), Mode.PREFERRED),
        (("", "ca.pem"), Mode.VERIFY_CA),
        (("", "", "c.pem", "k.pem"), Mode.REQUIRED),
        (("VERIFY-IDENTITY",), Mode.VERIFY_IDENTITY),
        (("disabled",), Mode.DISABLED),
    ],
)
def test_a_mode_follows_from_what_is_given(words: tuple[str, ...], mode: Mode) -> None:
    assert Tls.of(*words).mode is mode


@pytest.mark.parametrize(
    "words",
    [("on",), ("required", "ca.pem"), ("preferred", "", "c.pem"), ("disabled", "", "c.pem"), ("required", "", "", "k")],
)
def test_contradictory_settings_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="ssl-"):
        Tls.of(*words)


def test_a_url_may_have_the_tls_options() -> None:
    config = SourceConfig.from_url("mysql://u@h/?ssl-mode=verify_identity&ssl-ca=/ca.pem")
    assert config.tls == Tls(Mode.VERIFY_IDENTITY, "/ca.pem")
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(ConfigError, match="verify_ca"):
        SourceConfig.from_url("mysql://u@h/?ssl-mode=yes")


def test_files_that_are_no_certificates_are_named(tmp_path: Path, pair: Pair, stranger: Authority) -> None:
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    other = stranger.sign("other")
    for tls in (Tls(Mode.VERIFY_CA, str(text)), Tls(Mode.REQUIRED, cert=str(pair.cert), key=str(other.key))):
        with pytest.raises(ConfigError, match=r"\.pem") as caught:
            tls.context()
        assert caught.value.code == "tls-files"
    with pytest.raises(ConfigError) as caught:
        Tls(Mode.VERIFY_CA, str(tmp_path / "missing.pem")).context()
    assert (caught.value.code, caught.value.where.file) == ("tls-files", str(tmp_path / "missing.pem"))


def test_disabled_is_plain_and_all_else_is_encrypted(server: Server, authority: Authority) -> None:
    assert version(source(server, "disabled")) == ""
    for tls in (("preferred",), ("required",), ("verify_ca", authority.ca), ("verify_identity", authority.ca)):
        assert version(source(server, *tls)).startswith("TLSv1")


def test_a_stranger_s_certificate_is_refused_where_it_is_looked_at(server: Server, stranger: Authority) -> None:
    for mode in ("verify_ca", "verify_identity"):
        error = refused(source(server, mode, stranger.ca))
        assert (error.code, "ssl-ca" in error.todo) == ("tls-certificate", True)
    assert refused(source(server, "verify_identity")).code == "tls-certificate"


def test_another_host_s_certificate_is_refused_where_the_name_is_looked_at(
    server: Server, authority: Authority
) -> None:
    assert version(source(server, "verify_ca", authority.ca, host="localhost"))
    error = refused(source(server, "verify_identity", authority.ca, host="localhost"))
    assert (error.code, "localhost" in error.what) == ("tls-host", True)


def test_a_server_without_tls_is_refused_where_tls_is_demanded(mysql56: Server, authority: Authority) -> None:
    assert version(source(mysql56)) == ""
    for tls in (("required",), ("verify_ca", authority.ca), ("verify_identity", authority.ca)):
        assert refused(source(mysql56, *tls)).code == "tls-not-offered"


def test_a_handshake_that_fails_is_never_answered_by_continuing_in_plain(authority: Authority, pair: Pair) -> None:
    """The server has a certificate, but speaks only TLS 1.1, which PiDTS does not accept."""
    files = (f"--ssl-ca={authority.ca}", f"--ssl-cert={pair.cert}", f"--ssl-key={pair.key}")
    with sandbox.start_mariadb(options=(*files, "--tls-version=TLSv1.1")) as old:
        assert refused(source(old, "preferred")).code == "tls-failed"
        assert version(source(old, "disabled")) == ""


def test_an_expired_certificate_and_an_account_that_wants_ours(authority: Authority, server: Server, run_sql) -> None:
    run_sql(server, "CREATE OR REPLACE USER shy@'127.0.0.1' IDENTIFIED BY 'pw' REQUIRE X509")
    ours = authority.sign("client")
    config = replace(source(server, "required"), user="shy", password="pw")
    assert refused(config).code == "access-denied"
    assert version(replace(config, tls=Tls.of("", str(authority.ca), str(ours.cert), str(ours.key))))
    late = authority.sign("late", addresses=("127.0.0.1",), expired=True)
    with sandbox.start_mariadb(options=(f"--ssl-cert={late.cert}", f"--ssl-key={late.key}")) as expired:
        error = refused(source(expired, "verify_ca", authority.ca))
        assert (error.code, "expired" in error.what) == ("tls-certificate", True)


def test_mysql_s_own_certificates_and_a_server_that_requires_tls(mysql97: Server, run_sql) -> None:
    ca = f"{run_sql(mysql97, 'SELECT @@datadir')[0][0]}ca.pem"
    assert version(source(mysql97, "verify_ca", ca))
    assert refused(source(mysql97, "verify_identity", ca)).code == "tls-host"
    session = connect(source(mysql97, "required"))
    query(session, "SET GLOBAL require_secure_transport = ON")
    try:
        error = refused(source(mysql97, "disabled"))
    finally:
        query(session, "SET GLOBAL require_secure_transport = OFF")
        session.close()
    assert (error.code, "ssl-mode" in error.todo) == ("access-denied", True)


def test_the_log_is_complete_over_tls(server: Server, authority: Authority, run_sql) -> None:
    """The events have all sizes: several fit into one TLS record, one needs many records, and one needs several
    packets.
    """
    run_sql(server, "SET GLOBAL max_allowed_packet = 67108864")
    config = source(server, "verify_identity", authority.ca)
    session = connect(config)
    query(session, "CREATE DATABASE d")
    query(session, "CREATE TABLE d.t (a INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB)")
    start = log_end(session)
    for size in (1, 100, 16_300, 3_000_000, 17_000_000):
        query(session, f"INSERT INTO d.t (b) VALUES (REPEAT('x', {size})), ('y')")
    session.close()
    received = {}
    for tls in (config.tls, Tls(Mode.DISABLED)):
        with BinlogStream(replace(config, tls=tls), start, non_blocking=True) as stream:
            events: list[bytes] = []
            while not stream.ended:
                events += stream.read_burst()
        assert [event[4] for event in events].count(XID) == 5
        received[tls] = events[2:]
    assert received[config.tls] == received[Tls(Mode.DISABLED)]


def test_a_mysql_target_asks_the_same(
    server: Server, authority: Authority, stranger: Authority, mysql56: Server
) -> None:
    def target(where: Server, *tls: str | Path) -> MySqlTarget:
        return MySqlTarget(where.host, where.port, where.user, where.password, tls=Tls.of(*map(str, tls)))

    target(server, "verify_identity", authority.ca).connect().close()
    for one, code in (
        (target(server, "verify_ca", stranger.ca), "tls-certificate"),
        (target(mysql56, "required"), "tls-not-offered"),
    ):
        with pytest.raises(PrecheckFailed, match="the target 127") as caught:
            one.connect()
        assert caught.value.code == code


def give_certificate(plain: Server, pair: Pair) -> None:
    """Restarts a PostgreSQL server with TLS."""
    folder = plain.directory / "data"
    for path, name in ((pair.cert, "server.crt"), (pair.key, "server.key")):
        (folder / name).write_bytes(path.read_bytes())
        (folder / name).chmod(0o600)
        owner = folder.stat()
        os.chown(folder / name, owner.st_uid, owner.st_gid)
    with (folder / "postgresql.conf").open("a") as settings:
        settings.write("\nssl = on\n")
    plain.restart()


def test_postgresql_gets_a_password_in_clear_text_only_over_tls(authority: Authority) -> None:
    with sandbox.start_postgres(password="hunter2") as server:
        (server.directory / "data" / "pg_hba.conf").write_text("host all all 127.0.0.1/32 password\n")
        server.restart()

        def target(mode: str, password: str = "hunter2") -> PostgresTarget:
            return PostgresTarget("127.0.0.1", server.port, server.user, password, tls=Tls.of(mode))

        for mode in ("disabled", "preferred"):
            with pytest.raises(PrecheckFailed, match="in clear text, and the connection is not encrypted"):
                target(mode).connect()
        give_certificate(server, authority.sign("postgres", addresses=("127.0.0.1",)))
        target("preferred").connect().close()
        target("required").connect().close()
        with pytest.raises(PrecheckFailed, match="password authentication failed"):
            target("preferred", "wrong").connect()
        with pytest.raises(PrecheckFailed, match="in clear text, and the connection is not encrypted"):
            target("disabled").connect()


def test_a_postgresql_target_asks_the_same(authority: Authority, stranger: Authority, tmp_path: Path) -> None:
    pair = authority.sign("postgres", addresses=("127.0.0.1",))

    def target(where: Server, *tls: str | Path, host: str = "127.0.0.1") -> PostgresTarget:
        return PostgresTarget(host, where.port, where.user, where.password, tls=Tls.of(*map(str, tls)))

    def code(one: PostgresTarget) -> str:
        with pytest.raises(PrecheckFailed) as caught:
            one.connect()
        return caught.value.code

    with sandbox.start_postgres() as plain:
        assert code(target(plain, "required")) == "tls-not-offered"
        target(plain, "preferred").connect().close()
        give_certificate(plain, pair)
        target(plain, "verify_identity", authority.ca).connect().close()
        target(plain, "verify_ca", authority.ca, host="localhost").connect().close()
        assert code(target(plain, "verify_ca", stranger.ca)) == "tls-certificate"
        assert code(target(plain, "verify_identity", authority.ca, host="localhost")) == "tls-host"


@pytest.mark.parametrize("reason", ["DECRYPTION_FAILED_OR_BAD_RECORD_MAC", "SSLV3_ALERT_BAD_RECORD_MAC"])
def test_a_record_that_arrives_damaged_is_no_refusal(reason: str) -> None:
    damaged = ssl.SSLError(1, f"[SSL: {reason}] the record layer says so")
    damaged.reason = reason
    lost = pymysql.err.OperationalError(2013, f"Lost connection to MySQL server during query ({damaged})")
    lost.__context__ = damaged
    error = explain(lost, Where(source="s1"), login=True)
    assert isinstance(error, Transient)
    assert error.code == "source-lost"
    assert isinstance(translate_connect(lost, "db"), Transient)
