"""A program that reads up to `transfer_checkpoint` sees each change once, in order, and only whole transactions."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from tests.conftest import RunSql
from tests.running import connect
from tests.spark.commands import Task

from pidts.sandbox import Server

LARGE = 25_000
"""More rows than one connection writes at a time."""


class Reader(threading.Thread):
    """Polls the records as a program that reads a datacenter does, and compares each with the one that has to come
    next.
    """

    def __init__(self, server: Server, datacenter: str) -> None:
        super().__init__(daemon=True)
        self._server, self._datacenter = server, datacenter
        self.stopped = threading.Event()
        self.failure: BaseException | None = None
        self.id = self.tid = self.transactions = 0
        self._next = (1, 1, 0)
        """The number of the transaction, the number of the row in it, and its number of rows, as far as known."""

    def run(self) -> None:
        try:
            with closing(connect(self._server)) as connection, connection.cursor() as cursor:
                while not self.stopped.is_set():
                    self._poll(cursor)
                    time.sleep(0.01)
                self._poll(cursor)
        except BaseException as error:  # noqa: BLE001 - raised by the test
            self.failure = error

    def _poll(self, cursor: Any) -> None:
        cursor.execute(f"SELECT id, tid FROM `{self._datacenter}`.transfer_checkpoint")
        ((upto, upto_tid),) = cursor.fetchall()
        assert upto >= self.id, "the checkpoint has gone back"
        if upto == self.id:
            return
        sql = f"SELECT id, tid, data FROM `{self._datacenter}`.transfer_data WHERE id > %s AND id <= %s ORDER BY id"
        cursor.execute(sql, (self.id, upto))
        for id_, tid, data in cursor.fetchall():
            assert id_ == self.id + 1, "a record is missing"
            self.id = id_
            self._take(tid, [next(iter(pair.values())) for pair in json.loads(data)["NEW"]])
        assert (self.id, self.tid) == (upto, upto_tid)
        assert self._next[1] == 1, "half a transaction is visible"

    def _take(self, tid: int, values: list[str]) -> None:
        transaction, place, count = (int(value) for value in values[1:])
        assert (transaction, place) == self._next[:2], "out of order"
        assert tid == self.tid + (place == 1)
        self.tid = tid
        done = place == count
        self.transactions += done
        self._next = (transaction + done, 1 if done else place + 1, count)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("batch", [100, 1])
def test_readers_see_each_change_once(
    mariadb: Server,
    mysql97: Server,
    database: str,
    make_channel: Callable[..., Task],
    run_sql: RunSql,
    batch: int,
) -> None:
    """With a low `batch`, a batch ends in the middle of the log: the next batch's records are made while the first
    batch's records are written.
    """
    datacenter = f"{database[-40:].strip('_')}_dc"
    run_sql(mariadb, "CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, tx int, n int, total int)", database=database)
    run_sql(mariadb, f"CREATE TABLE numbers AS SELECT seq FROM seq_1_to_{LARGE}", database=database)
    channel = make_channel(
        mariadb,
        mysql97,
        database,
        datacenter,
        workers=4,
        batch=batch,
        **{"block-allow-list": {"ours": {"do-tables": [{"db-name": database, "tbl-name": "t"}]}}},
    )
    channel.sync()
    reader, done = Reader(mysql97, datacenter), threading.Event()
    written = [0]

    def write() -> None:
        with closing(connect(mariadb)) as connection, connection.cursor() as cursor:
            while not done.is_set():
                written[0] += 1
                count = LARGE if written[0] % 12 == 0 else 1 + written[0] % 7
                cursor.execute(
                    f"INSERT INTO `{database}`.t (tx, n, total) SELECT %s, seq, %s FROM `{database}`.numbers "
                    "WHERE seq <= %s ORDER BY seq",
                    (written[0], count, count),
                )
                time.sleep(0.15)

    writer = threading.Thread(target=write, daemon=True)
    reader.start()
    writer.start()
    for kill in range(3):
        begun = reader.id
        run = channel.start()
        run.wait_until(lambda begun=begun: reader.failure is not None or reader.id > begun, "records come")  # type: ignore[misc]
        time.sleep(0.3 + 0.5 * kill)
        run.kill()
        if reader.failure is not None:
            raise reader.failure
    done.set()
    writer.join()
    channel.sync()
    reader.stopped.set()
    reader.join()
    if reader.failure is not None:
        raise reader.failure
    assert reader.transactions == written[0]
    ((left,),) = run_sql(mysql97, "SELECT COUNT(*) FROM transfer_data", database=datacenter)
    assert left == reader.id
    run_sql(mysql97, f"DROP DATABASE `{datacenter}`")
