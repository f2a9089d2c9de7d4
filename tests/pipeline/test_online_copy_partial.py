"""A full copy runs while the source logs changes with MINIMAL images. At the end, the target equals the source.

A row that gets another key is logged in part. If neither the log nor the copy certainly has its other columns, its key
is read again. So the copy ends, whatever is read at whatever time, with crashes at any point of the target's
transactions.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from tests.crashes import ProcessDied
from tests.examples import examples

from pidts.batch import applying
from pidts.model import ChangeBatch, Column, Halted, Lsn, Op, Table, TableName
from pidts.plan import CopyMode, Limits
from pidts.plan.copy import settlement

from .minimal_images import minimal
from .online_copy import Row, Server, Task, in_any_order
from .test_online_copy import (
    FIXED,
    IDS,
    INT,
    ORDERS,
    PLAIN,
    SLOTS,
    Changes,
    ChangingSource,
    crash_after,
    diverged,
    in_words,
    is_valid,
    new_target,
    value,
)
from .values_source import ValuesSource


class Minimal(Server):
    """A source whose log has the key of a row before a change, and the changed columns of an update."""

    def decode(self, after: Lsn, until: Lsn, structures: Mapping[TableName, Table] | None = None) -> list[ChangeBatch]:
        return [minimal(batch) for batch in ValuesSource.decode(self, after, until, structures)]


class Moving(ChangingSource):
    """A source on which rows often get other keys, and other rows get their former keys."""

    def __init__(self, chance: random.Random, steps: int, *, texts: bool = False) -> None:
        tables = [in_words(table) if texts else table for table in (ORDERS, PLAIN, FIXED)]
        super().__init__(chance, steps, ddl=False, tables=tables, made=Minimal)
        self.often = chance.choice([0.02, 0.1, 0.3])

    def happen(self) -> None:
        name = self.chance.choice(sorted(self.server.structures))
        rows = self.server.rows(name)
        if not rows or self.chance.random() >= self.often:
            super().happen()
            return
        old = self.chance.choice(rows)
        key, slot = self.server.structures[name].columns[:2]
        moved: Row = {**old, "id": value(key, self.chance.choice(IDS))}
        if self.chance.random() < 0.3:
            moved["slot"] = value(slot, self.chance.choice(SLOTS[:4]))
        came: Row = {**old, "value": self.chance.choice(IDS)}
        if self.server.structures[name].secondary_unique and self.chance.random() < 0.5:  # `slot` is unique.
            came["slot"] = None
        changes: Changes = [(Op.UPDATE, old, moved)]
        changes += [(Op.INSERT, None, came)] if self.chance.random() < 0.5 else []
        if moved != old and is_valid(self.server, name, changes):
            self.server.commit((name, changes))


# With this example, a copy that kept loaded rows over several batches would lose rows.
@example(
    rows=36,
    steps=58,
    ddl=False,
    chunk=1,
    size=1,
    workers=2,
    crashes=[41, 7, 35, 17],
    is_long=False,
    zones="ab",
    texts="",
    seed=25778291,
)
@settings(max_examples=examples(25), deadline=None)
@given(
    rows=st.integers(5, 60),
    steps=st.integers(0, 60),
    ddl=st.booleans(),
    chunk=st.integers(1, 5),
    size=st.integers(1, 5),
    workers=st.integers(1, 3),
    crashes=st.lists(st.integers(0, 60), max_size=4),
    is_long=st.booleans(),
    zones=st.sampled_from(["", "", "ab", "abc"]),
    texts=st.sampled_from(["", "", "exact", "folded"]),
    seed=st.integers(0, 2**32),
)
def test_the_target_ends_as_the_source(rows, steps, ddl, chunk, size, workers, crashes, is_long, zones, texts, seed):
    chance = random.Random(seed)
    changing = Moving(chance, steps, texts=bool(texts))
    server = changing.server
    for _ in range(rows):
        changing.happen()
    changing.ddl = ddl
    target = new_target(folds=texts == "folded")
    limits = Limits(transactions=size, chunk_rows=chunk, most_rows=chunk + 1, idle_entries=chance.choice([1, 1000]))
    limits = replace(limits, one_origin=bool(zones))
    ways = {ORDERS.name: CopyMode.NEW, PLAIN.name: CopyMode.NEW, FIXED.name: CopyMode.REPAIR}
    task = Task(
        server,
        target,
        ways,
        limits=limits,
        workers=workers,
        chance=chance,
        between=changing.step,
        is_long=is_long,
        origins=zones,
    )
    diverged(target, server, chance)
    with pytest.MonkeyPatch.context() as patch:
        if is_long:
            patch.setattr(settlement, "_ONE_PIECE_BYTES", -1)
            patch.setattr(applying, "PART_BYTES", 1)
        try:
            for points in [*crashes, None]:
                target.store.hook = None
                if points is not None:
                    crash_after(target, points)
                with suppress(ProcessDied):
                    task.run()
            target.store.hook = None
            while changing.left:
                changing.step()
            state = task.run()
        except Halted as error:
            # When the table's copy is done, nothing sends the row to the worker of its new key.
            copying = {str(name) for name, copy in task.end.copy.items() if not copy.done}
            if "two workers" not in error.what or error.where.table in copying:
                raise
            event("halts behind the copy")
            target.forget()
            return
    assert not state.copying
    for name in server.structures:
        assert task.content(name) == in_any_order(server.rows(name)), f"{name} differs"
    assert not any(target.store.rereads.values())
    event("reads keys again" if task.reread else "done")
    target.forget()


@pytest.mark.parametrize("to", [1, 3])
def test_a_row_that_was_read_after_its_move_does_not_halt(to: int) -> None:
    """The row had key 2 when the window of the chunk up to key 4 began. The chunk has it at its new key."""
    server, target = Minimal([ORDERS]), new_target()
    server.insert(ORDERS.name, {"id": 2, "slot": 0, "value": 5}, {"id": 4, "slot": 1, "value": 6})
    changes = iter([((2,), {"id": to}), ((to,), {"value": 7})])

    def between() -> None:
        for key, values in itertools.islice(changes, 1):
            server.update(ORDERS.name, key, **values)

    task = Task(server, target, {ORDERS.name: CopyMode.NEW}, between=between)
    task.run()
    task.run()
    assert task.content(ORDERS.name) == in_any_order(server.rows(ORDERS.name))
    target.forget()


def test_where_two_workers_would_split_an_update_after_the_copy_none_of_them_writes() -> None:
    """The table halts with both workers at one place, so their number can be changed, as the halt's message says."""
    server, target = Minimal([PLAIN]), new_target()
    rows = [{"id": key, "slot": 0, "value": key} for key in range(8)]
    server.insert(PLAIN.name, *rows)
    task = Task(server, target, {PLAIN.name: CopyMode.NEW}, workers=2)
    task.run()
    for key in range(8):
        server.update(PLAIN.name, (key, 0), id=key + 100)
    with pytest.raises(Halted, match="two workers") as caught:
        task.run()
    assert "worker-count: 1" in caught.value.todo
    assert task.content(PLAIN.name) == in_any_order(rows)
    task.workers = 1
    task.run()
    assert task.content(PLAIN.name) == in_any_order(server.rows(PLAIN.name))
    target.forget()


def test_a_row_of_an_interrupted_reading_is_not_taken_for_what_it_has_become() -> None:
    """An update of the row was left out, because the row is to be read again.

    Then the row gets a key that was read already.
    """
    server, target = Minimal([ORDERS]), new_target()
    server.insert(ORDERS.name, *({"id": key, "slot": key, "value": key} for key in (3, 4, 6)))
    wider = replace(ORDERS, columns=(*ORDERS.columns, Column("more", INT)))

    def between() -> None:
        columns = len(server.structures[ORDERS.name].columns)
        if task.zombies and columns == len(ORDERS.columns):
            server.alter(ORDERS.name, "ADD COLUMN more INT", wider)
            updates.append(server.update(ORDERS.name, (3,), more=1).transaction.lsn)
        elif len(updates) == 1 and task.end.lsn >= updates[0]:
            server.insert(ORDERS.name, {"id": 2, "slot": 2, "value": 2, "more": 2})
            updates.append(server.update(ORDERS.name, (3,), id=1).transaction.lsn)

    updates: list[Lsn] = []
    limits = Limits(transactions=3, chunk_rows=1, most_rows=1, idle_entries=1)
    task = Task(server, target, {ORDERS.name: CopyMode.NEW}, limits=limits, between=between)
    task.run()
    assert len(updates) == 2
    assert task.content(ORDERS.name) == in_any_order(server.rows(ORDERS.name))
    target.forget()
