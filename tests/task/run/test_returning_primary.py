"""A lost source that returns as a replica of its successor may become the source again only if it has no transactions
that were never received.
"""

from __future__ import annotations

import errno
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.conftest import RunSql
from tests.replicated_pair import promote, replicated_pair, wait

from pidts.cli.app import run_command
from pidts.model import Halted, Transient
from pidts.sandbox import Server
from pidts.task.config.current_server import address_of, barred, choose_server
from pidts.task.config.task_file import TaskConfig, load_task
from pidts.task.operate.standbys import fail_over, state_of
from pidts.task.run.failover import Failover, StandbyWatch

FILE = """\
name: c
task-mode: all
target-database: {{type: mysql, host: t, user: u}}
mysql-instances:
  - source-id: one
    enable-gtid: true
    from: {{host: 127.0.0.1, {at}}}
    standbys: [{{{standby}}}]
"""


def _loaded(tmp_path: Path, at: str, standby: str) -> TaskConfig:
    path = tmp_path / "c.yaml"
    path.write_text(FILE.format(at=at, standby=standby))
    return load_task(path, {})


def test_an_old_primary_with_transactions_that_were_not_received_does_not_take_over(
    tmp_path: Path, run_sql: RunSql
) -> None:
    with replicated_pair("mariadb", tmp_path, run_sql) as (old, new):
        run_sql(old, "CREATE DATABASE shop")
        run_sql(old, "CREATE TABLE t (id int PRIMARY KEY, v int)", database="shop")
        run_sql(old, "INSERT INTO t VALUES (1, 1)", database="shop")
        config = _loaded(tmp_path, f"port: {old.port}, user: root", f"host: 127.0.0.1, port: {new.port}")
        server, (standby,) = config.source.server, config.source.standbys
        wait(lambda: state_of(standby).has_all_of(state_of(server)), "the standby follows")
        promote(new, run_sql)
        run_sql(new, "SET GLOBAL gtid_domain_id = 1")  # Otherwise an old primary in strict mode refuses to follow.
        run_sql(old, f"SET GLOBAL gtid_slave_pos = '{state_of(server).executed}'")
        run_sql(old, "UPDATE t SET v = 2", database="shop")
        config = replace(config, source=choose_server(config.source, config.relay, address_of(standby)))
        run_sql(new, "UPDATE t SET v = 3", database="shop")
        run_sql(old, f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {new.port}, MASTER_USER = 'root'")
        run_sql(old, "CHANGE MASTER TO MASTER_USE_GTID = slave_pos")
        run_sql(old, "START SLAVE")
        wait(lambda: state_of(server).has_all_of(state_of(standby)), "the old primary follows the new one")
        received = state_of(standby).executed
        before = address_of(server)
        assert "not compared" in barred(config.relay, "one", before)

        shown: list[str] = []
        with closing(StandbyWatch(config, shown.append)):
            wait(lambda: bool(shown), "the comparison")
        assert f"{before} has transactions that the source {address_of(standby)} lacks" in shown[0]
        for to in ("", before):
            with pytest.raises(Halted) as refused:
                fail_over(config, to, received_of=lambda _: received)
            assert refused.value.code == "no-standby"
            assert f"it has transactions that the source {address_of(standby)} lacked" in refused.value.what
        new.kill()
        with pytest.raises(Halted, match="it has transactions"):
            fail_over(config, "", received_of=lambda _: received)
        assert fail_over(config, before, force=True, received_of=lambda _: received) == before


def test_a_standby_without_surplus_may_take_over_again_once_it_was_compared(tmp_path: Path, mariadb: Server) -> None:
    at = f"port: {mariadb.port}, user: {mariadb.user}, password: '{mariadb.password}'"
    config = _loaded(tmp_path, at, "host: localhost")
    standby = config.source.standbys[0]
    received = state_of(standby).executed
    first = address_of(config.source.server)
    config = replace(config, source=choose_server(config.source, config.relay, address_of(standby)))
    assert barred(config.relay, "one", first)
    assert fail_over(config, "", received_of=lambda _: received) == first
    assert not barred(config.relay, "one", first)
    assert barred(config.relay, "one", address_of(standby))


def test_a_standby_without_gtids_is_refused_with_the_remedy_after_its_relay_was_lost(
    tmp_path: Path, mariadb: Server
) -> None:
    """No server lacks a transaction, so it would not help to wait."""
    at = f"port: {mariadb.port}, user: {mariadb.user}, password: '{mariadb.password}'"
    config = _loaded(tmp_path, "port: 1, user: root", f"host: 127.0.0.1, {at}")
    config = replace(config, source=replace(config.source, use_gtid=False))
    with pytest.raises(Halted) as refused:
        fail_over(config, "")
    assert "cannot take over without GTIDs" in refused.value.what
    assert "or continue from here: `pidts run TASK --resync`" in refused.value.what
    assert refused.value.todo.startswith("If a server lacks received transactions: wait")


def test_a_full_disk_delays_the_turn_to_a_standby(
    tmp_path: Path, mariadb: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = f"port: {mariadb.port}, user: {mariadb.user}, password: '{mariadb.password}'"
    config = _loaded(tmp_path, f"port: 1, user: {mariadb.user}", f"host: 127.0.0.1, {at}")
    standby = config.source.standbys[0]
    received = state_of(standby).executed
    monkeypatch.setattr("pidts.task.run.failover._BETWEEN_LOOKS", 0.0)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    shown: list[str] = []
    failover = Failover(shown.append, lambda _: received)
    with monkeypatch.context() as disk:
        disk.setattr("pidts.relay.task_needs.os.fsync", full)
        assert [failover.look(config, is_failing=True) for _ in range(4)] == [None] * 4
        with pytest.raises(Transient) as refused:
            fail_over(config, "", received_of=lambda _: received)
    assert refused.value.code == "relay-full"
    assert refused.value.where.file.startswith(str(config.relay / "one"))
    assert "no standby can take over: [relay-full] the relay's disk is full" in shown[0]
    assert str(config.relay / "one") in shown[0]
    assert failover.look(config, is_failing=True) == config.source.at(address_of(standby))


@pytest.mark.parametrize("standby", ["", "{host: b}"])
def test_a_standby_that_was_added_after_the_run_began_is_read_at_the_next_start(
    tmp_path: Path, mariadb: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], standby: str
) -> None:
    at = f"port: {mariadb.port}, user: {mariadb.user}, password: '{mariadb.password}'"
    running = _loaded(tmp_path, at, "host: b")
    text = running.path.read_text()
    running.path.write_text(text.replace("[{host: b}]", f"[{standby}]"))
    running = load_task(running.path, {})
    running.path.write_text(text.replace("[{host: b}]", "[{host: localhost}]"))
    received = state_of(running.source.server).executed
    monkeypatch.setattr("pidts.task.operate.standbys.fail_over", partial(fail_over, received_of=lambda _: received))
    assert run_command(["failover", str(running.path)]) == 0
    assert (
        "If the server was added to the task file after the run began, the task changes to it at the next start"
        in capsys.readouterr().out
    )
    shown: list[str] = []
    assert Failover(shown.append).look(running, is_failing=False) is None
    assert f"localhost:{mariadb.port} was chosen as the source, but the task file did not name it" in shown[0]
