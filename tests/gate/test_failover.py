"""A source is lost, and its channel continues at the standby: nothing is lost, and some changes may come twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pymysql
import pytest
import yaml
from tests.conftest import RunSql
from tests.replicated_pair import Writer, promote, replicated_pair, start, wait
from tests.spark.commands import Run, Task

from pidts.relay import RelayReader
from pidts.sandbox import Server

Pair = tuple[Server, Server, str]


@pytest.fixture(
    params=[
        ("mariadb", "gtid"),
        pytest.param(("mysql97", "position"), marks=pytest.mark.long),
        pytest.param(("mysql97", "gtid"), marks=pytest.mark.long),
        pytest.param(("mariadb", "position"), marks=pytest.mark.long),
        pytest.param(("mysql56", "position"), marks=pytest.mark.long),
    ],
    ids="-".join,
)
def pair(request: pytest.FixtureRequest, tmp_path: Path, run_sql: RunSql) -> Iterator[Pair]:
    kind, by = request.param
    with replicated_pair(kind, tmp_path, run_sql, by=by) as (primary, standby):
        yield primary, standby, by


@pytest.mark.timeout(500)
def test_a_channel_continues_at_the_standby(
    pair: Pair,
    mysql97: Server,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
    tmp_path: Path,
) -> None:
    primary, standby, by = pair
    kind, datacenter = primary.kind, f"failover_{primary.kind}_{by}"
    run_sql(primary, "CREATE DATABASE shop")
    run_sql(primary, "CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, tx int, n int)", database="shop")
    channel = make_channel(primary, mysql97, "shop", datacenter, workers=2)
    _with_standby(channel, standby, by)
    wait(lambda: _has_table(run_sql, standby), "the standby follows")
    checked = channel.command("check", str(channel.path))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    way = "by GTID" if by == "gtid" else "at a place in its log that the running task records"
    assert f"127.0.0.1:{standby.port} can take over {way}".encode() in checked.stdout
    run = channel.start()
    run.wait_until(lambda: _records(run_sql, mysql97, datacenter) is not None, "the channel begins")
    writer = Writer(primary, "shop", 1)
    writer.start()
    run.wait_until(lambda: len(_records(run_sql, mysql97, datacenter) or ()) > 300, "records come")
    with _nothing_received(run):
        # When the primary is lost, the standby has transactions that the channel lacks.
        ahead = writer.last + 30
        wait(lambda: _last(run_sql, standby) > ahead, "the standby is ahead")
        last = writer.end()
        wait(lambda: _last(run_sql, standby) == last, "the standby has caught up")
        primary.kill()
    promote(standby, run_sql)
    writer = Writer(standby, "shop", last + 1)
    writer.start()
    run.wait_until(lambda: _last_record(run_sql, mysql97, datacenter) > last, "it goes on", 120)
    last = writer.end()
    run.wait_until(lambda: _last_record(run_sql, mysql97, datacenter) == last, "all is there")

    expected = [(tx, n) for tx in range(1, last + 1) for n in range(1 + tx % 3)]
    found = _records(run_sql, mysql97, datacenter) or []
    instances = [f"127.0.0.1:{primary.port}", f"127.0.0.1:{standby.port}"]
    assert list(dict.fromkeys(record[2] for record in found)) == instances
    if kind == "mysql56":
        # The standby's transactions have no GTIDs, so it sends some that the lost source has sent already.
        for instance, begin in zip(instances, (0, None), strict=True):
            rows = [record[:2] for record in found if record[2] == instance]
            first = begin if begin is not None else expected.index(rows[0])
            assert rows == expected[first : first + len(rows)]
        assert {record[:2] for record in found} == set(expected)
    else:
        assert [record[:2] for record in found] == expected
    numbers = run_sql(mysql97, "SELECT id FROM transfer_data ORDER BY id", database=datacenter)
    assert [id_ for (id_,) in numbers] == list(range(1, len(numbers) + 1))

    has_gtids = by == "gtid" or kind == "mariadb"
    if not has_gtids:  # The old primary comes back after its log was purged from the relay.
        run.wait_until(lambda: _is_purged(channel), "the relay lacks the old log", 90)
    lacks = f"that the source 127.0.0.1:{standby.port} lacks" if has_gtids else "of its own that begin at bin.0"
    with start(kind, tmp_path / "primary", primary.port, by=by) as old:
        run_sql(old, "INSERT INTO t (tx, n) VALUES (-1, 0)", database="shop")
        said = f"127.0.0.1:{old.port} has transactions {lacks}"
        run.wait_until(lambda: said in run.log.read_text(), "the old primary is noticed", 60)
        refused = channel.command("failover", str(channel.path), "--to", f"127.0.0.1:{old.port}")
        assert refused.returncode == 5
        if by == "gtid":
            assert b"it lacks transactions that were received: these are" in refused.stderr
        old.kill()
    assert run.stop() == 0
    assert channel.sync()["sources"][0]["stage"] == "synced"  # This run begins with the standby.
    run_sql(mysql97, f"DROP DATABASE {datacenter}")


def _is_purged(channel: Task) -> bool:
    with closing(RelayReader(channel.path.parent / "relay", "one")) as relay:
        return relay.former_source_log(0) is None


@contextmanager
def _nothing_received(run: Run) -> Iterator[None]:
    """Freezes the replicator of a run."""
    (child,) = run.replicator()
    os.kill(child, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(child, signal.SIGCONT)


def _with_standby(channel: Task, standby: Server, by: str) -> None:
    task = yaml.safe_load(channel.path.read_text())
    (instance,) = task["mysql-instances"]
    instance |= {"enable-gtid": by == "gtid", "standbys": [{"host": standby.host, "port": standby.port}]}
    channel.path.write_text(yaml.safe_dump(task))


def _last_record(run_sql: RunSql, server: Server, datacenter: str) -> int:
    return (_records(run_sql, server, datacenter) or [(0, 0, "")])[-1][0]


def _records(run_sql: RunSql, server: Server, datacenter: str) -> list[tuple[int, int, str]] | None:
    """Returns transaction, row and source server of each record; None before the channel has begun."""
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
