"""Both sides change all the time: no false difference is reported, no loss is missed, and repairs work meanwhile.

The applier is a thread that does what a task's worker does: it writes rows to the target in the source's order, late,
with its checkpoint in the same transaction.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Self

import pyarrow as pa
import pytest

from pidts.cli.repair import repaired
from pidts.model import Checkpoint, Lsn, Table, TableName
from pidts.plan import HeldTables, PlanState
from pidts.reduce import Counts, NetChange
from pidts.sandbox import Server
from pidts.source import connect, log_end, query
from pidts.task.compare.wiring import compare_task
from pidts.task.operate.presence import show_presence

from .conftest import Pair

ROWS = 2000
HOT = 12
"""The number of rows that switch between two values without a pause."""
LATE = 0.15


@dataclass
class Live:
    """A writer and an applier, each in a thread."""

    pair: Pair
    changes: list[tuple[TableName, int, tuple[int, ...] | None, Lsn]] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.tables = self.pair.tables()
        with closing(self.pair.config.target.server.connect()) as target:
            name, source = self.pair.config.name, self.pair.config.source.source_id
            with closing(connect(self.pair.config.source.server)) as session:
                begin = Lsn.at(log_end(session))
            self.checkpoint = target.meta.checkpoints.claim(
                name, source, 1, Checkpoint(task=name, source=source, worker=0, lsn=begin)
            )[0]
        for work in (self._write, self._apply):
            self.threads.append(threading.Thread(target=self._guarded, args=(work,), daemon=True))
            self.threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(30)
        assert not self.errors, self.errors

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - reported by the test
            self.errors.append(error)

    def _write(self) -> None:
        dice = random.Random(1)
        cold, hot = sorted(self.tables)
        with closing(connect(self.pair.config.source.server)) as source:
            while not self.stop.wait(0.01):
                key = dice.randrange(ROWS)
                row = None if dice.random() < 0.3 else (key, key, dice.randrange(100))
                self._change(source, cold, key, row)
                key = dice.randrange(HOT)
                self._change(source, hot, key, (key, dice.randrange(2)))

    def _change(self, source: object, name: TableName, key: int, row: tuple[int, ...] | None) -> None:
        values = ", ".join(map(str, row or ()))
        sql = f"REPLACE INTO {name} VALUES ({values})" if row else f"DELETE FROM {name} WHERE id = {key}"
        query(source, sql)  # type: ignore[arg-type]
        self.changes.append((name, key, row, Lsn.at(log_end(source))))  # type: ignore[arg-type]

    def _apply(self) -> None:
        done = 0
        with closing(self.pair.config.target.server.connect()) as target:
            while not self.stop.wait(LATE):
                batch = self.changes[done : len(self.changes) - 3]
                if not batch:
                    continue
                target.begin()
                target.meta.checkpoints.lock(self.checkpoint.task, self.checkpoint.source, 0)
                for name, table in self.tables.items():
                    last = {key: row for at, key, row, _ in batch if at == name}
                    if last:
                        target.write(_net(table, last))
                self.checkpoint = replace(self.checkpoint, lsn=batch[-1][3], batch=self.checkpoint.batch + 1)
                target.meta.checkpoints.save(self.checkpoint)
                target.commit()
                done += len(batch)


@pytest.mark.timeout(200)
def test_tables_whose_changes_never_arrive_are_repaired_in_limited_time(
    pair_of: Callable[[Server, Server], Pair], mariadb: Server, postgres: Server
) -> None:
    """Each table waits at a place of its own, and no halt shows why. With unique keys, a repair waits for a moment."""
    pair = pair_of(mariadb, postgres)
    task, names = pair.config.name, [f"t{number}" for number in range(2)]
    for name in names:
        pair.on_source(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, u INT UNIQUE)", f"INSERT INTO {name} VALUES (1, 1), (2, 2)"
        )
    pair.copy()
    waiting = []
    with (
        closing(pair.config.target.server.connect()) as target,
        closing(connect(pair.config.source.server)) as source,
        closing(pair.config.target.server.connect()) as run,
    ):
        for name in names:
            waiting.append(HeldTables(frozenset({TableName(task, name)}), Lsn.at(log_end(source))))
            pair.on_source(f"UPDATE {name} SET u = 3 WHERE id = 1")
        state = PlanState(Lsn.at(log_end(source)), held=tuple(waiting))
        start = Checkpoint(task=task, source="one", worker=0, lsn=state.lsn, copy=state.copy_json())
        target.meta.checkpoints.claim(task, "one", 1, start)
        show_presence(run, task, "one")
        began = time.monotonic()
        work = repaired([pair.config], "", apply=True, stop=threading.Event(), show=print)
        seconds = time.monotonic() - began
        assert work.report is not None
        assert (work.written, work.report.equal) == (2, True)
        assert target.meta.safe_range.read(task, "one") is not None
        assert seconds < 50, "each table alone would take the two limits, which are 30 seconds together"


def _net(table: Table, last: dict[int, tuple[int, ...] | None]) -> NetChange:
    gone = pa.table({"id": pa.array(sorted(key for key, row in last.items() if row is None), pa.int32())})
    rows = [row for _, row in sorted(last.items()) if row is not None]
    columns = zip(*rows, strict=True) if rows else [()] * len(table.columns)
    arrays = [pa.array(values, pa.int32()) for values in columns]
    return NetChange(table, gone, pa.Table.from_arrays(arrays, schema=table.arrow), Counts())


@pytest.mark.timeout(200)
def test_a_loss_is_found_and_repaired_while_everything_is_written_to(
    pair_of: Callable[[Server, Server], Pair], mariadb: Server, postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pidts.task.compare.repair._CROWDED_SECONDS", 0.3)
    pair = pair_of(mariadb, postgres)
    name = pair.config.name
    pair.on_source(
        "CREATE TABLE cold (id INT PRIMARY KEY, u INT UNIQUE, n INT)",
        "CREATE TABLE hot (id INT PRIMARY KEY, n INT)",
        f"INSERT INTO cold SELECT seq, seq, 0 FROM seq_0_to_{ROWS - 1}",
        f"INSERT INTO hot SELECT seq, 0 FROM seq_0_to_{HOT + 10}",
    )
    pair.copy()
    quiet = HOT + 5
    with Live(pair) as live:
        assert compare_task(pair.config).examples == ()
        pair.on_target(
            f"UPDATE {name}.hot SET n = 5 WHERE id = {quiet}",
            f"DELETE FROM {name}.hot WHERE id = {quiet + 1}",
            f"INSERT INTO {name}.hot VALUES (100000, 0)",
            f"INSERT INTO {name}.cold VALUES (-7, -7, 0)",
        )
        found = compare_task(pair.config)
        assert {(one.table.name, one.kind.value, one.key["id"]) for one in found.examples} == {
            ("hot", "different", quiet),
            ("hot", "missing", quiet + 1),
            ("hot", "extra", 100000),
            ("cold", "extra", -7),
        }
        before = len(live.changes)
        work = repaired([pair.config], "", apply=True, stop=threading.Event(), show=print)
        assert work.report is not None
        assert (work.report.examples, work.written, work.removed) == ((), 2, 2)
        assert compare_task(pair.config).equal
        assert len(live.changes) > before
