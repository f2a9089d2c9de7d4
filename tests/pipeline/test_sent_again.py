"""Rows of past changes are sent again (`pidts.task.run.rewind`) while the source logs changes, often in part.

The target's rows with the recorded keys are wrong, and so are their unique values. The keys are read in several
requests, so some of these rows are still wrong when others are right again. At the end, the target equals the source.
"""

from __future__ import annotations

import itertools
import random
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from tests.crashes import ProcessDied
from tests.examples import examples
from tests.values_target.session import ValuesTarget

from pidts.apply.uncopied_keys import packed
from pidts.model import Halted, Lsn, Op, Table
from pidts.plan import CopyMode, Limits
from pidts.plan.copy.state import CopyState, Phase

from .online_copy import Server, Task, in_any_order
from .test_online_copy import FIXED, IDS, ORDERS, PLAIN, SLOTS, crash_after, new_target
from .test_online_copy_partial import Minimal, Moving


class Rewound(Task):
    """A task whose recorded keys are read again, but no other rows."""

    @staticmethod
    def _begun(table: Table, mode: CopyMode, since: Lsn | None = None) -> CopyState:
        if since is None:
            return CopyState(mode=mode, keyless=not table.identity)
        return CopyState(mode=mode, phase=Phase.REREAD, sends_again=True)


def record(target: ValuesTarget, ids: list[int], together: int) -> None:
    session = target.connect()
    session.begin()
    for begin in range(0, len(ids), together):
        keys = pa.table({"id": ids[begin : begin + together]}, schema=FIXED.arrow.empty_table().select(["id"]).schema)
        session.meta.rereads.add("t", "s", FIXED.name, Lsn(0, 0, 1, begin + 1), packed(keys))
    session.commit()
    session.close()


def damage(target: ValuesTarget, ids: list[int], chance: random.Random) -> None:
    """Makes rows with these keys wrong, missing or extra, and exchanges their unique values."""
    stored = target.store.tables[FIXED.name]
    rows = {row[0]: row for row in stored.rows.values()}
    taken = {row[1] for row in rows.values() if row[0] not in ids}
    free = [slot for slot in SLOTS if slot is not None and slot not in taken]
    chance.shuffle(free)
    for key in ids:
        row = rows.pop(key, None)
        if row is not None:
            del stored.rows[stored.key(row)]
        if chance.random() < 0.75:
            wrong = (key, free.pop() if free and chance.random() < 0.8 else None, chance.choice(IDS))
            stored.rows[stored.key(wrong)] = wrong


# With this example, an update without the unique value would write the target's wrong value, and remove another row.
@example(
    rows=29,
    steps=1,
    keys=set(IDS),
    together=1,
    chunk=2,
    size=2,
    workers=1,
    crashes=[],
    zones="",
    is_minimal=True,
    seed=0,
)
@settings(max_examples=examples(25), deadline=None)
@given(
    rows=st.integers(5, 60),
    steps=st.integers(0, 120),
    keys=st.sets(st.sampled_from(IDS), min_size=1),
    together=st.integers(1, 3),
    chunk=st.integers(1, 4),
    size=st.integers(1, 5),
    workers=st.integers(1, 3),
    crashes=st.lists(st.integers(0, 60), max_size=3),
    zones=st.sampled_from(["", "", "ab"]),
    is_minimal=st.sampled_from([True, True, False]),
    seed=st.integers(0, 2**32),
)
def test_the_target_ends_as_the_source(
    rows, steps, keys, together, chunk, size, workers, crashes, zones, is_minimal, seed
):
    chance = random.Random(seed)
    changing = Moving(chance, 0)
    if not is_minimal:
        changing.server = Server([ORDERS, PLAIN, FIXED])
    server = changing.server
    for _ in range(rows):
        changing.happen()
    target = new_target()
    limits = Limits(transactions=size, chunk_rows=chunk, most_rows=chunk + 1, idle_entries=chance.choice([1, 1000]))
    limits = replace(limits, one_origin=bool(zones))
    task = Rewound(
        server,
        target,
        {FIXED.name: CopyMode.NEW},
        limits=limits,
        workers=workers,
        chance=chance,
        between=changing.step,
        origins=zones,
    )
    task.run()
    assert task.content(FIXED.name) == in_any_order(server.rows(FIXED.name))
    ids = chance.sample(sorted(keys), len(keys))
    record(target, ids, together)
    damage(target, ids, chance)
    task.joining = {FIXED.name: CopyMode.REPAIR}
    changing.left = steps
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
    assert task.content(FIXED.name) == in_any_order(server.rows(FIXED.name))
    assert not any(target.store.rereads.values())
    target.forget()


def test_keys_outside_the_range_are_soon_no_longer_taken_as_wrong() -> None:
    """Updates without the unique value go on. If all keys counted as wrong, the range would be sent for ever."""
    server, target, left = Minimal([FIXED]), new_target(), 0
    ids = range(40)
    for key in ids:
        server.commit((FIXED.name, [(Op.INSERT, None, {"id": key, "slot": 1000 + key, "value": 0})]))
    missing, numbers = [], itertools.count()

    def between() -> None:
        nonlocal left
        if not left:
            return
        left -= 1
        missing.append(len(ids) - len(target.store.tables[FIXED.name].rows))
        for number in itertools.islice(numbers, 4):
            old = next(row for row in server.rows(FIXED.name) if row["id"] == 10 + number % 30)
            server.commit((FIXED.name, [(Op.UPDATE, old, {**old, "value": number + 1})]))

    limits = Limits(transactions=20, chunk_rows=2, most_rows=3, idle_entries=1)
    task = Rewound(server, target, {FIXED.name: CopyMode.NEW}, limits=limits, workers=1, between=between)
    task.run()
    record(target, [3], 1)
    task.joining, left = {FIXED.name: CopyMode.REPAIR}, 100
    task.run()
    assert not any(missing[len(missing) // 2 :]), "while updates go on, all rows are on the target again"
    assert task.content(FIXED.name) == in_any_order(server.rows(FIXED.name))
