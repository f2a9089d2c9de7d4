"""Several channels fill their datacenters on one server. Each is a process of its own, under one service."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pymysql
import pytest
from tests.conftest import RunSql
from tests.running import connect
from tests.service.serving import serving, wait_for
from tests.spark.commands import Task

from pidts.sandbox import Server

CHANNELS = ("one", "two", "three")
Record = tuple[int, int, str, str]


@pytest.mark.timeout(400)
def test_each_channel_has_its_own_records_and_numbers(
    mariadb: Server,
    mysql97: Server,
    database: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
    tmp_path: Path,
) -> None:
    """Two channels carry the same schema, and one carries another schema of the same source."""
    stem = database[-30:].strip("_")
    schemas = {"one": database, "two": database, "three": f"{stem}_other"}
    run_sql(mariadb, f"CREATE DATABASE {schemas['three']}")
    for schema in {*schemas.values()}:
        run_sql(mariadb, "CREATE TABLE t (id int PRIMARY KEY, tx int)", database=schema)
    datacenters = {name: f"{stem}_{name}" for name in CHANNELS}

    def records(name: str) -> list[Record]:
        sql = "SELECT d.id, d.tid, d.dbname, d.data FROM transfer_data d, transfer_checkpoint c WHERE d.id <= c.id ORDER BY d.id"
        try:
            return run_sql(mysql97, sql, database=datacenters[name])
        except pymysql.err.Error:
            return []

    def grow(beyond: dict[str, int]) -> bool:
        return all(len(records(name)) > beyond[name] for name in CHANNELS)

    with serving(tmp_path) as service:
        for name in CHANNELS:
            channel = make_channel(mariadb, mysql97, schemas[name], datacenters[name], name=name, workers=2)
            status, made = service.call("POST", "/api/tasks", channel.path.read_text())
            assert (status, made["name"]) == (201, name), made
        for name in CHANNELS:
            service.wait_for_stage(name, "sync")
        processes = {name: service.process_of(name) for name in CHANNELS}
        assert len({*processes.values()} - {None}) == len(CHANNELS)
        with _written(mariadb, sorted({*schemas.values()})) as last:
            wait_for(lambda: grow(dict.fromkeys(CHANNELS, 20)), lambda: [service.log_of(name) for name in CHANNELS])
            lost = processes["two"]
            assert lost is not None
            os.kill(lost, signal.SIGKILL)
            wait_for(lambda: service.process_of("two") not in {None, lost}, lambda: service.task("two"))
            now = {name: len(records(name)) for name in CHANNELS}
            wait_for(lambda: grow(now), lambda: [service.log_of(name) for name in CHANNELS])
        for name in CHANNELS:
            wait_for(lambda name=name: len(records(name)) == 2 * last[0], lambda name=name: service.log_of(name))  # type: ignore[misc]
        assert {name: service.process_of(name) for name in CHANNELS if name != "two"} == {
            name: process for name, process in processes.items() if name != "two"
        }
    for name in CHANNELS:
        assert records(name) == [
            (2 * tx + place - 2, tx, schemas[name], _document(2 * tx + place - 2, tx))
            for tx in range(1, last[0] + 1)
            for place in (1, 2)
        ]
        run_sql(mysql97, f"DROP DATABASE {datacenters[name]}")
    run_sql(mariadb, f"DROP DATABASE {schemas['three']}")


def _document(id_: int, tx: int) -> str:
    return json.dumps({"NEW": [{"id": str(id_)}, {"tx": str(tx)}]}, separators=(",", ":"))


@contextmanager
def _written(source: Server, schemas: list[str]) -> Iterator[list[int]]:
    """Writes the same transactions of two rows to each schema; yields their number so far."""
    last, over = [0], threading.Event()

    def write() -> None:
        with closing(connect(source)) as connection, connection.cursor() as cursor:
            while not over.wait(0.02):
                tx = last[0] + 1
                for schema in schemas:
                    cursor.execute(f"INSERT INTO `{schema}`.t VALUES ({2 * tx - 1}, {tx}), ({2 * tx}, {tx})")
                last[0] = tx

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield last
    finally:
        over.set()
        thread.join()
