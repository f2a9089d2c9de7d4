"""A source is lost, and its channel goes on at the standby: nothing is lost, nothing comes twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pymysql
import pytest
import yaml
from tests.conftest import RunSql
from tests.replicated_pair import Writer, promote, replicated_pair, start, wait
from tests.spark.commands import Task

from pidts.sandbox import Server


@pytest.fixture(params=["mariadb", pytest.param("mysql97", marks=pytest.mark.long)])
def pair(request: pytest.FixtureRequest, tmp_path: Path, run_sql: RunSql) -> Iterator[tuple[Server, Server]]:
    with replicated_pair(request.param, tmp_path, run_sql) as servers:
        yield servers


@pytest.mark.timeout(300)
def test_a_channel_goes_on_at_the_standby(
    pair: tuple[Server, Server],
    mysql97: Server,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
    tmp_path: Path,
) -> None:
    primary, standby = pair
    kind, datacenter = primary.kind, f"failover_{primary.kind}"
    run_sql(primary, "CREATE DATABASE shop")
    run_sql(primary, "CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, tx int, n int)", database="shop")
    channel = make_channel(primary, mysql97, "shop", datacenter, workers=2)
    _with_standby(channel, standby)
    wait(lambda: _has_table(run_sql, standby), "the standby follows")
    checked = channel.command("check", str(channel.path))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"127.0.0.1:{standby.port} can take over by GTID".encode() in checked.stdout
    run = channel.start()
    run.wait_until(lambda: _records(run_sql, mysql97, datacenter) is not None, "the channel begins")
    writer = Writer(primary, "shop", 1)
    writer.start()
    run.wait_until(lambda: len(_records(run_sql, mysql97, datacenter) or ()) > 100, "records come")
    last = writer.end()
    wait(lambda: _last(run_sql, standby) == last, "the standby has caught up")
    primary.kill()
    promote(standby, run_sql)
    writer = Writer(standby, "shop", last + 1)
    writer.start()
    run.wait_until(lambda: (_records(run_sql, mysql97, datacenter) or [(0, 0, "")])[-1][0] > last, "it goes on")
    last = writer.end()
    run.wait_until(lambda: (_records(run_sql, mysql97, datacenter) or [(0, 0, "")])[-1][0] == last, "all is there")

    expected = [(tx, n) for tx in range(1, last + 1) for n in range(1 + tx % 3)]
    found = _records(run_sql, mysql97, datacenter) or []
    assert [record[:2] for record in found] == expected
    instances = list(dict.fromkeys(record[2] for record in found))
    assert instances == [f"127.0.0.1:{primary.port}", f"127.0.0.1:{standby.port}"]
    numbers = run_sql(mysql97, "SELECT id FROM transfer_data ORDER BY id", database=datacenter)
    assert [id_ for (id_,) in numbers] == list(range(1, len(numbers) + 1))

    with start(kind, tmp_path / "primary", primary.port) as old:
        run_sql(old, "INSERT INTO t (tx, n) VALUES (-1, 0)", database="shop")
        said = f"127.0.0.1:{old.port} has transactions that the source 127.0.0.1:{standby.port} lacks"
        run.wait_until(lambda: said in run.log.read_text(), "the old primary is noticed", 60)
        refused = channel.command("failover", str(channel.path), "--to", f"127.0.0.1:{old.port}")
        assert refused.returncode == 5
        assert b"it lacks transactions that were received: these are" in refused.stderr
        old.kill()
    assert run.stop() == 0
    assert channel.sync()["sources"][0]["stage"] == "synced"  # a later run begins with the standby
    run_sql(mysql97, f"DROP DATABASE {datacenter}")


def _with_standby(channel: Task, standby: Server) -> None:
    task = yaml.safe_load(channel.path.read_text())
    (instance,) = task["mysql-instances"]
    instance |= {"enable-gtid": True, "standbys": [{"host": standby.host, "port": standby.port}]}
    channel.path.write_text(yaml.safe_dump(task))


def _records(run_sql: RunSql, server: Server, datacenter: str) -> list[tuple[int, int, str]] | None:
    """Transaction and row of each record, and where it was read; None before the channel has begun."""
    sql = (
        "SELECT d.data, d.instance_name FROM transfer_data d, transfer_checkpoint c "
        "WHERE d.id <= c.id AND optype = 'INSERT' ORDER BY d.id"
    )
    try:
        if not run_sql(server, "SELECT * FROM transfer_checkpoint", database=datacenter):
            return None
        rows = run_sql(server, sql, database=datacenter)
    except pymysql.err.Error:
        return None
    found = []
    for data, instance in rows:
        values = {name: value for pair in json.loads(data)["NEW"] for name, value in pair.items()}
        found.append((int(values["tx"]), int(values["n"]), instance))
    return found


def _has_table(run_sql: RunSql, server: Server) -> bool:
    with suppress(pymysql.err.Error):
        return not run_sql(server, "SELECT * FROM shop.t")
    return False


def _last(run_sql: RunSql, server: Server) -> int:
    return int(run_sql(server, "SELECT MAX(tx) FROM shop.t")[0][0] or 0)
