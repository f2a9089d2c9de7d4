"""A password is proved by the method that the account requires, is never shown, and is never sent to a wrong server."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from pidts.login import Mode, Tls, plugins
from pidts.model import ConfigError, PidtsError, PrecheckFailed
from pidts.sandbox import Server
from pidts.source import SourceConfig, connect, query
from pidts.source.connection import encryption
from pidts.target.mysql import MySqlTarget
from pidts.target.postgres import PostgresTarget
from pidts.task.config.task_file import load_task
from pidts.task.run.replicator_process import ReplicatorProcess

PASSWORD = "pä€ss'w\"ord"
"""A password with different bytes in latin1 and in UTF-8."""


def account(server: Server, run_sql, name: str, how: str) -> SourceConfig:
    run_sql(server, f"DROP USER IF EXISTS {name}@localhost" if server.kind != "mysql56" else "DO 0")
    run_sql(server, f"CREATE USER {name}@localhost IDENTIFIED {how}", PASSWORD)
    return SourceConfig(server.host, server.port, name, PASSWORD, "s1")


@pytest.mark.parametrize("mode", [Mode.DISABLED, Mode.REQUIRED])
def test_caching_sha2_with_and_without_tls(mysql97: Server, run_sql, mode: Mode) -> None:
    """The login runs twice, since the server remembers a password that it has checked."""
    config = replace(account(mysql97, run_sql, "sha2", "WITH caching_sha2_password BY %s"), tls=Tls(mode))
    for _ in range(2):
        session = connect(config)
        assert query(session, "SELECT 1") == [(1,)]
        assert bool(encryption(session)) == (mode is Mode.REQUIRED)
        session.close()
    MySqlTarget(config.host, config.port, config.user, PASSWORD, tls=config.tls).connect().close()
    with pytest.raises(PrecheckFailed) as refused:
        connect(replace(config, password="wrong-one"))
    assert (refused.value.code, "wrong-one" in str(refused.value)) == ("access-denied", False)


def test_a_refused_login_names_the_file_of_its_password(mysql97: Server, mariadb: Server, tmp_path: Path) -> None:
    file = tmp_path / "password.txt"
    file.write_text("wrong-one")
    os.utime(file, (0, 0))  # nobody is changing it at this moment
    source = SourceConfig(mariadb.host, mariadb.port, "nobody", "wrong-one", "s1", password_file=str(file))
    target = MySqlTarget(mysql97.host, mysql97.port, "nobody", "wrong-one", password_file=str(file))
    for log_in in (lambda: connect(source), target.connect):
        with pytest.raises(PrecheckFailed) as refused:
            log_in()
        assert refused.value.todo.endswith(f". The password was read from {file}")


def test_native_passwords(mariadb: Server, mysql56: Server, run_sql) -> None:
    for server in (mariadb, mysql56):
        connect(account(server, run_sql, "native", "BY %s")).close()


@pytest.mark.parametrize("length", [0, 1, 32, 33, 200])
def test_ed25519_signs_with_a_password_of_any_length(length: int) -> None:
    password, message = bytes(range(length)), b"scramble" * 4
    signature = plugins.sign(password, message)
    if length == 32:
        assert signature == Ed25519PrivateKey.from_private_bytes(password).sign(message)
    secret = int.from_bytes(hashlib.sha512(password).digest()[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    public = plugins._packed(plugins._times(secret))
    Ed25519PublicKey.from_public_bytes(public).verify(signature, message)


@pytest.mark.parametrize("plugin", [b"mysql_clear_password", b"dialog", b"no_such_plugin"])
def test_a_server_that_asks_for_the_password_in_clear_text_does_not_get_it(plugin: bytes) -> None:
    heard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=ask_for_it, args=(listener, plugin, heard))
        thread.start()
        with pytest.raises(PidtsError) as refused:
            connect(SourceConfig("127.0.0.1", listener.getsockname()[1], "u", "hunter2", "s1"))
        thread.join()
    assert refused.value.code == "access-denied"
    assert b"u\0" in heard
    assert b"hunter2" not in heard


def ask_for_it(listener: socket.socket, plugin: bytes, heard: bytearray) -> None:
    """Acts as a server without TLS that asks its client for another plugin."""
    client, _ = listener.accept()
    capabilities = 0x000FA6DF & ~0x800
    hello = b"\x0a8.0.0\0" + (7).to_bytes(4, "little") + b"12345678\0" + (capabilities & 0xFFFF).to_bytes(2, "little")
    hello += b"\x2d\2\0" + (capabilities >> 16).to_bytes(2, "little") + b"\x15" + bytes(10) + b"123456789012\0"
    hello += b"mysql_native_password\0"
    ask = b"\xfe" + plugin + b"\0" + b"Password: " * (plugin == b"dialog")
    with client:
        client.settimeout(2)
        for number, packet in enumerate((hello, ask)):
            client.sendall(len(packet).to_bytes(3, "little") + bytes([number * 2]) + packet)
            try:
                heard += client.recv(4096)
            except OSError:
                return


@pytest.mark.parametrize("mode", [Mode.DISABLED, Mode.PREFERRED])
def test_a_target_that_passes_itself_off_as_postgresql_does_not_get_it_either(mode: Mode) -> None:
    heard: list[bytes] = []

    def ask() -> None:
        """Acts as a server without TLS that asks each client for its password in clear text."""
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client, suppress(OSError):
                heard.append(client.recv(4096))
                if heard[-1] == b"\0\0\0\x08\x04\xd2\x16\x2f":  # a request for TLS
                    client.sendall(b"N")
                    heard.append(client.recv(4096))
                if b"user\0u\0" in heard[-1]:
                    client.sendall(b"R\0\0\0\x08\0\0\0\3")
                    heard.append(client.recv(4096))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=ask, daemon=True).start()
        target = PostgresTarget("127.0.0.1", listener.getsockname()[1], "u", "hunter2", tls=Tls(mode))
        with pytest.raises(PidtsError) as refused:
            target.connect()
    assert refused.value.code == "target-denied"
    assert any(b"user\0u\0" in packet for packet in heard)
    assert not any(b"hunter2" in packet for packet in heard)


@pytest.mark.parametrize("url", ["mysql://u:hun/ter2@h/", "mysql://u:hunter2@h:port/", "mysql://u:hunter2@h/?x=1"])
def test_a_malformed_url_does_not_show_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SourceConfig.from_url(url)
    assert "hun" not in str(refused.value)


def test_a_password_is_in_no_argument_no_log_and_no_status(mariadb: Server, tmp_path: Path) -> None:
    """The login succeeds with the right password, and fails with a wrong one, which the error must not show."""
    for number, (user, password) in enumerate([(mariadb.user, mariadb.password), ("nobody", "hunter2-secret")]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "task.yaml").write_text(f"""\
name: t
task-mode: incremental
target-database: {{host: 127.0.0.1, port: 1, user: u, password: target-secret}}
mysql-instances:
  - source-id: s1
    from: {{host: 127.0.0.1, port: {mariadb.port}, user: {user}, password: "{password}"}}
""")
        process = ReplicatorProcess(load_task(folder / "task.yaml", {}))
        process.start()
        try:
            assert process._child is not None
            arguments = Path(f"/proc/{process._child.pid}/cmdline").read_bytes()
            until = time.monotonic() + 60
            while not list(folder.rglob("status.json")) and time.monotonic() < until:
                time.sleep(0.05)
            if number:
                process._child.wait(60)
                assert process._output is not None
                said = process._output.read()
                assert b"access-denied" in said
                process._output.close()
            else:
                said = b""
        finally:
            process.stop()
        written = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "task.yaml"]
        assert len(written) >= 2
        for place in (arguments, said, *written):
            assert b"secret" not in place
