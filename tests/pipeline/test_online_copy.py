"""A full copy during a history: whatever happens at whatever time, the target becomes equal to the source.

There are tables with unique values, without them, and without a key, a table that joins later, and a table that is
repaired. Transactions over several tables insert, update and delete rows, change keys, and swap unique values. Columns
are added and dropped, and tables are renamed. The tests vary the sizes of chunks and batches, the number and the order
of the workers, and how long a schema change takes. Processes die at any point of the target's transactions and loads.
Other processes were believed dead, and still load, a second time, the rows that they have read.

PIDTS_EXAMPLES=2000 tries more histories.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.crashes import ProcessDied
from tests.examples import examples
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules
from pidts.batch import applying
from pidts.model import Column, ColumnType, Fenced, Key, Kind, Op, SourceTablesKey, Table, TableName, Transient
from pidts.plan import BatchPlan, CopyMode, Limits
from pidts.plan.copy import settlement

from .online_copy import Row, Server, Task, in_any_order

INT = ColumnType(Kind.INT)
TEXT = ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4", collation="utf8mb4_general_ci")


def table_of(name: str, identity: tuple[str, ...], *unique: str) -> Table:
    columns = tuple(Column(column, INT, nullable=column not in identity) for column in ("id", "slot", "value"))
    keys = [Key("PRIMARY", identity, unique=True, primary=True)] if identity else []
    return Table(TableName("shop", name), columns, (*keys, *(Key(each, (each,), unique=True) for each in unique)))


ORDERS = table_of("orders", ("id",), "slot")
PLAIN = table_of("plain", ("id", "slot"))
BAG = table_of("bag", ())
LATE = table_of("late", ("id",), "slot", "value")
LATE_BAG = table_of("late_bag", ())
FIXED = table_of("fixed", ("id",), "slot")
TABLES = (ORDERS, PLAIN, BAG, LATE, LATE_BAG, FIXED)
IDS, SLOTS = range(9), (0, 1, 2, 3, None)
WORDS = ("a", "A", "b", "B", "c", "C", "d", "e", "F")
"""Values of `id` and `slot` in tables with texts, in place of numbers; the source ignores case."""


def in_words(table: Table) -> Table:
    """Returns the table with texts in its keys."""
    columns = tuple(replace(one, type=TEXT) if one.name in ("id", "slot") else one for one in table.columns)
    return replace(table, columns=columns)


def value(column: Column, number: int | None) -> Any:
    return WORDS[number % 9] if number is not None and column.type == TEXT else number


_numbers = itertools.count()


def new_target(*, folds: bool = False) -> ValuesTarget:
    return ValuesTarget(f"online copy {next(_numbers)}", folds=folds)


Changes = list[tuple[Op, Row | None, Row | None]]


def wished(server: Server, name: TableName, chance: random.Random) -> Changes:
    """Draws a change that one table may make in its current state."""
    table, rows = server.structures[name], server.rows(name)
    new = {column.name: value(column, chance.choice(IDS)) for column in table.columns}
    slot = table.column("slot")
    if not table.identity:
        old = chance.choice(rows) if rows else None
        new = {**new, "id": value(table.column("id"), 0), "slot": value(slot, chance.choice(SLOTS[:2]))}
        choices: list[Changes] = [[(Op.INSERT, None, new)]]
        if old is not None:
            choices += [[(Op.DELETE, old, None)], [(Op.UPDATE, old, new)], [(Op.INSERT, None, dict(old))]]
        return chance.choice(choices)
    nullable = {column.name for column in table.columns if column.nullable}
    new["slot"] = value(slot, chance.choice(SLOTS if "slot" in nullable else IDS))
    if not rows or chance.random() < 0.3:
        return [(Op.INSERT, None, new)]
    old, other = chance.choice(rows), chance.choice(rows)
    column = chance.choice(table.columns).name
    what = chance.choice(["delete", "set", "set", "key", "swap", "swap"])
    if what == "delete":
        return [(Op.DELETE, old, None)]
    if what == "set":
        return [(Op.UPDATE, old, {**old, column: new[column]})]
    if what == "key":
        return [(Op.UPDATE, old, {**old, "id": new["id"]})]
    if old == other or "slot" not in nullable:
        return []
    aside = {**old, "slot": None}
    return [
        (Op.UPDATE, old, aside),
        (Op.UPDATE, other, {**other, "slot": old["slot"]}),
        (Op.UPDATE, aside, {**aside, "slot": other["slot"]}),
    ]


def is_valid(server: Server, name: TableName, changes: Changes) -> bool:
    """Returns whether a server would accept the changes: after each of them, no key and no unique value occurs twice."""
    table, rows = server.structures[name], server.rows(name)
    for _, before, after in changes:
        if before is not None:
            rows.remove(before)
        if after is not None:
            rows.append(after)
        for key in table.keys:
            values = [server.order([row[column] for column in key.columns]) for row in rows]
            values = [value for value in values if None not in value]
            if any(one == two for one, two in itertools.combinations(values, 2)):
                return False
    return True


class ChangingSource:
    """A source whose tables are changed in all ways while they are copied."""

    def __init__(
        self,
        chance: random.Random,
        steps: int,
        *,
        ddl: bool,
        tables: Sequence[Table] = TABLES,
        made: type[Server] = Server,
    ) -> None:
        self.server, self.chance, self.left, self.ddl = made(list(tables)), chance, steps, ddl
        self.columns = 0

    def step(self) -> None:
        """Makes a random change, or none."""
        while self.left and self.chance.random() < 0.4:
            self.left -= 1
            self.happen()

    def happen(self) -> None:
        names = sorted(self.server.structures)
        if self.ddl and self.chance.random() < 0.08:
            self.change_structure(self.chance.choice(names))
        elif self.chance.random() < 0.05:
            self.server.rotate()
        else:
            chosen = self.chance.sample(names, self.chance.choice([1, 1, 2]))
            steps = [(name, wished(self.server, name, self.chance)) for name in chosen]
            steps = [(name, changes) for name, changes in steps if changes and is_valid(self.server, name, changes)]
            if steps:
                self.server.commit(*steps)

    def change_structure(self, name: TableName) -> None:
        table = self.server.structures[name]
        if not table.identity:
            return
        added = [column for column in table.columns if column.name.startswith("more")]
        what = self.chance.choice(["add", "drop", "rename", "rekey"])
        if what == "add" or (what == "drop" and not added):
            self.columns += 1
            column = Column(f"more{self.columns}", INT)
            self.server.alter(name, f"ADD COLUMN {column.name} INT", replace(table, columns=(*table.columns, column)))
        elif what == "drop":
            columns = tuple(column for column in table.columns if column != added[0])
            self.server.alter(name, f"DROP COLUMN {added[0].name}", replace(table, columns=columns), rekeyed=True)
        elif what == "rename":
            self.columns += 1
            self.server.rename(name, replace(name, name=f"{name.name}{self.columns}"))
        else:
            self.columns += 1
            key = Key(f"more{self.columns}", ("value",), unique=False)
            actions = f"ADD KEY {key.name} (value)"
            self.server.alter(name, actions, replace(table, keys=(*table.keys, key)), rekeyed=True)


def crash_after(target: ValuesTarget, points: int) -> None:
    """Lets the process die at one of the next points of the target's transactions."""
    left = points

    def hook(point: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise ProcessDied(point)

    target.store.hook = hook


def diverged(target: ValuesTarget, server: Server, chance: random.Random) -> None:
    """Makes rows of FIXED wrong, missing or extra."""
    stored = target.store.tables[FIXED.name]
    rows = [tuple(row.values()) for row in server.rows(FIXED.name) if chance.random() < 0.7]
    key_column, slot_column = stored.table.columns[:2]
    rows += [(value(key_column, number), None, chance.choice(IDS)) for number in chance.sample(range(12), 4)]
    for row in rows:
        stored.rows[stored.key(row)] = row
    slots = chance.sample([0, 2, 4, 6] if slot_column.type == TEXT else [0, 1, 2, 3], 4)
    for key, row in list(stored.rows.items())[:4]:
        stored.rows[key] = (row[0], value(slot_column, slots.pop()), row[2])
    taken = set()
    for key, row in list(stored.rows.items()):
        if stored.compared(slot_column, row[1]) in taken:
            stored.rows[key] = (row[0], None, row[2])
        taken.add(stored.compared(slot_column, row[1]))


@settings(max_examples=examples(25), deadline=None)
@given(
    rows=st.integers(0, 60),
    steps=st.integers(0, 80),
    ddl=st.booleans(),
    chunk=st.integers(1, 4),
    size=st.integers(1, 5),
    workers=st.integers(1, 3),
    crashes=st.lists(st.integers(0, 60), max_size=4),
    is_long=st.booleans(),
    split=st.sampled_from([None, 1, 3]),
    defers=st.booleans(),
    looks=st.booleans(),
    zones=st.sampled_from(["", "", "ab", "abc"]),
    texts=st.sampled_from(["", "", "exact", "folded"]),
    seed=st.integers(0, 2**32),
)
def test_the_target_ends_as_the_source(
    rows, steps, ddl, chunk, size, workers, crashes, is_long, split, defers, looks, zones, texts, seed
):
    """`texts`: keys are texts, and the target compares them exactly or, as the source does, without case."""
    chance = random.Random(seed)
    tables = tuple(map(in_words, TABLES)) if texts else TABLES
    changing = ChangingSource(chance, steps, ddl=False, tables=tables)
    for _ in range(rows):
        changing.happen()
    changing.ddl = ddl
    target = new_target(folds=texts == "folded")
    ways = {ORDERS.name: CopyMode.NEW, PLAIN.name: CopyMode.NEW, BAG.name: CopyMode.NEW, FIXED.name: CopyMode.REPAIR}
    limits = Limits(transactions=size, chunk_rows=chunk, most_rows=chunk + 1, idle_entries=chance.choice([1, 1000]))
    limits = replace(limits, one_origin=bool(zones))
    task = Task(
        changing.server,
        target,
        ways,
        limits=limits,
        workers=workers,
        chance=chance,
        between=changing.step,
        is_long=is_long,
        split=split,
        defers=defers,
        origins=zones,
    )
    task.slow_ddl = chance.random() < 0.5
    diverged(target, changing.server, chance)
    with pytest.MonkeyPatch.context() as patch:
        if is_long:  # As if each batch were large, and each transaction too large for one part.
            patch.setattr(settlement, "_ONE_PIECE_BYTES", -1)
            patch.setattr(applying, "PART_BYTES", 1)
        if looks:  # As if a filter left rows out: updates of rows that the copy has not read yet are left out.
            patch.setattr(ApplyRules, "keeps_away", lambda *_: True)
        joins = chance.randrange(len(crashes) + 2)
        for number, points in enumerate([*crashes, None, None]):
            if number >= joins and not task.has_joined:
                late = [name for name in changing.server.structures if name.name.startswith("late")]
                task.joining = dict.fromkeys(late, CopyMode.NEW)
            target.store.hook = None
            if points is not None:
                crash_after(target, points)
            try:
                task.run()
            except ProcessDied:
                continue
    target.store.hook = None
    while changing.left:
        changing.step()
    state = task.run()
    assert not state.copying
    assert not state.held
    for name, table in changing.server.structures.items():
        assert table.arrow.names == target.store.tables[name].table.arrow.names
        assert task.content(name) == in_any_order(changing.server.rows(name)), f"{name} differs"
    target.forget()


@pytest.mark.parametrize("table", [ORDERS, BAG], ids=["key", "no key"])
@pytest.mark.parametrize("mode", [CopyMode.NEW, CopyMode.REPAIR])
def test_a_copy_comes_to_its_end_while_two_zones_write_all_the_time(table, mode):
    """Each window has a change of another zone. A batch with this change names one zone, and ends inside the window."""
    if mode is CopyMode.REPAIR and not table.identity:
        pytest.skip("a table without a key is copied whole")
    server, target, chance = Server([table, PLAIN]), new_target(), random.Random(7)
    server.insert(table.name, *({"id": number, "slot": number, "value": 0} for number in range(6)))
    numbers = itertools.count()

    def between() -> None:
        number = next(numbers)
        if number < 400:
            server.insert(PLAIN.name, {"id": number, "slot": number, "value": 0})
            if table.identity and chance.random() < 0.1:
                server.update(table.name, (number % 6,), value=number)

    limits = Limits(transactions=50, chunk_rows=2, most_rows=2, idle_entries=1, one_origin=True)
    task = Task(server, target, {table.name: mode}, limits=limits, between=between, origins="abcdefgh")
    task.known.add(PLAIN.name)
    ended = []

    def carried(plan: BatchPlan, *given: Any) -> None:
        if not plan.end.copying and not ended:
            ended.append(next(numbers))
        write(plan, *given)

    write, task._write = task._write, carried
    session = target.connect()
    create(session, PLAIN)
    session.begin()
    session.meta.structures.save("t", SourceTablesKey("s"), server.received, {PLAIN.name: PLAIN})
    session.commit()
    session.close()
    task.run()
    assert ended
    assert ended[0] < 350, "the copy has waited until nobody wrote"
    assert task.content(table.name) == in_any_order(server.rows(table.name))
    target.forget()


def test_a_row_that_is_deleted_between_its_reading_and_its_writing_stays_away():
    """If a copy wrote its rows at any later time, it would restore the deleted row."""
    server, target = Server([ORDERS]), new_target()
    server.insert(ORDERS.name, *({"id": number, "slot": number, "value": 0} for number in range(4)))
    task = Task(server, target, {ORDERS.name: CopyMode.NEW})
    deleted = iter([0, 2])

    def load_late(*given: object, **about: object) -> bool:
        if (number := next(deleted, None)) is not None:
            server.delete(ORDERS.name, (number,))  # The row has been read, and is deleted before it is written.
        return attempt(*given, **about)

    attempt, task._attempt = task._attempt, load_late
    task.run()
    assert task.loaded == 4
    assert [row["id"] for row in task.content(ORDERS.name)] == [1, 3]
    for zombie in task.zombies[:2]:
        with pytest.raises(Transient, match="chunk-too-late"):
            zombie()
    target.forget()


def test_loads_of_a_replaced_run_are_refused():
    server, target = Server([PLAIN, BAG]), new_target()
    for table in (PLAIN, BAG):
        server.insert(table.name, {"id": 1, "slot": 1, "value": 1})
    task = Task(server, target, {PLAIN.name: CopyMode.NEW, BAG.name: CopyMode.NEW})
    task.run()
    zombies = list(task.zombies)
    task.run()
    for zombie in zombies:
        with pytest.raises(Fenced):
            zombie()
    assert [task.content(table.name) for table in (PLAIN, BAG)] == [[{"id": 1, "slot": 1, "value": 1}]] * 2
    target.forget()


@pytest.mark.parametrize("crash_at", range(24))
def test_a_crash_between_a_load_and_its_settling_loses_nothing_and_brings_nothing_back(crash_at):
    server, target = Server([ORDERS, BAG]), new_target()
    server.insert(ORDERS.name, *({"id": number, "slot": number, "value": 0} for number in range(4)))
    server.insert(BAG.name, *([{"id": 0, "slot": 0, "value": 0}] * 3))
    task = Task(server, target, {ORDERS.name: CopyMode.NEW, BAG.name: CopyMode.NEW})
    crash_after(target, crash_at)
    with pytest.raises(ProcessDied):
        task.run()
    target.store.hook = None
    one = {"id": 1, "slot": 1, "value": 0}
    server.delete(ORDERS.name, (0,))
    server.commit(
        (ORDERS.name, [(Op.UPDATE, one, {**one, "slot": 0})]),
        (BAG.name, [(Op.DELETE, {"id": 0, "slot": 0, "value": 0}, None)]),
    )
    task.run()
    for table in (ORDERS, BAG):
        assert task.content(table.name) == in_any_order(server.rows(table.name))
    target.forget()


@pytest.mark.parametrize("defers", [True, False])
def test_a_unique_value_may_be_taken_by_a_row_that_was_loaded_ahead_of_the_log(defers):
    """The table's structure changes, so the chunk is given up.

    Changes that are earlier in the log than the change of the structure collide with a loaded row.
    """
    server, target = Server([ORDERS]), new_target()
    server.insert(ORDERS.name, {"id": 1, "slot": 0, "value": 0}, {"id": 2, "slot": 5, "value": 0})
    happened = iter(range(2))

    def between() -> None:
        if task.zombies or next(happened, None) != 1:
            return
        server.update(ORDERS.name, (1,), slot=1)
        wider = replace(ORDERS, columns=(*ORDERS.columns, Column("more", INT)))
        server.alter(ORDERS.name, "ADD COLUMN more INT", wider)
        server.update(ORDERS.name, (1,), slot=2)
        server.update(ORDERS.name, (2,), slot=1)

    task = Task(server, target, {ORDERS.name: CopyMode.NEW}, between=between, defers=defers)
    state = task.run()
    assert not state.copying
    assert task.content(ORDERS.name) == in_any_order(server.rows(ORDERS.name))
    target.forget()


@pytest.mark.parametrize("ids", [(1, 2), (2, 1)])
def test_a_unique_value_that_a_row_had_only_while_it_was_read_is_free_for_another(ids):
    """Neither row has changed its value from the beginning to the end of the batch, and they collide on the target."""
    new, old = ids
    server, target = Server([ORDERS]), new_target()
    server.insert(ORDERS.name, {"id": old, "slot": 3, "value": 0})
    calls = itertools.count()

    def between() -> None:
        if next(calls) == 1:
            server.update(ORDERS.name, (old,), slot=1)

    def load(*given: object, **about: object) -> bool:
        loaded = attempt(*given, **about)
        if server.rows(ORDERS.name)[0]["slot"] != 3:
            server.update(ORDERS.name, (old,), slot=3)
            server.insert(ORDERS.name, {"id": new, "slot": 1, "value": 0})
        return loaded

    task = Task(server, target, {ORDERS.name: CopyMode.NEW}, between=between)
    attempt, task._attempt = task._attempt, load
    task.run()
    assert task.loaded == 1
    assert task.content(ORDERS.name) == server.rows(ORDERS.name)
    target.forget()


def test_rows_of_a_table_without_a_key_are_read_again_until_nothing_happens_meanwhile():
    server, target = Server([BAG]), new_target()
    row = {"id": 0, "slot": 0, "value": 0}
    server.insert(BAG.name, row, row)
    left = iter(range(12))
    task = Task(
        server,
        target,
        {BAG.name: CopyMode.NEW},
        between=lambda: next(left, None) and server.insert(BAG.name, row) and None,
    )
    task.run()
    reads = len(task.zombies)
    assert reads > 1
    assert task.content(BAG.name) == server.rows(BAG.name) == [row] * 13
    server.delete(BAG.name, *list(server._rows[BAG.name])[:2])
    task.run()
    assert (len(task.zombies), task.content(BAG.name)) == (reads, [row] * 11)
    target.forget()


@pytest.mark.parametrize("seed", range(30))
def test_whichever_attempt_at_a_table_without_a_key_comes_first_its_snapshot_is_the_one_that_counts(seed):
    """The snapshot's rows count together with its place in the log: with any other place, a change would be applied
    twice, or never.
    """
    chance = random.Random(seed)
    server, target = Server([BAG]), new_target()
    row = {"id": 0, "slot": 0, "value": 0}
    server.insert(BAG.name, row, row)

    def between() -> None:
        if chance.random() < 0.3 and len(server.rows(BAG.name)) < 9:
            server.insert(BAG.name, row)

    task = Task(server, target, {BAG.name: CopyMode.NEW}, between=between, chance=chance)
    task.run()
    task.run()
    assert task.content(BAG.name) == server.rows(BAG.name)
    target.forget()


def test_a_repair_removes_what_the_source_has_not_and_repairs_the_rest():
    server, target = Server([FIXED]), new_target()
    server.insert(FIXED.name, *({"id": number, "slot": number, "value": 0} for number in range(4)))
    task = Task(server, target, {FIXED.name: CopyMode.REPAIR})
    stored = target.store.tables[FIXED.name]
    for row in [(0, 0, 0), (1, 2, 0), (2, 1, 9), (7, 3, 0), (8, None, 0)]:
        stored.rows[stored.key(row)] = row
    phases = []
    task.between = lambda: phases.append(len(target.store.content(FIXED.name)))
    task.run()
    assert task.content(FIXED.name) == server.rows(FIXED.name)
    assert min(phases) > 2, "it can be read throughout"
    assert (task.loaded, task.waited) == (0, 4)
    target.forget()


@pytest.mark.parametrize("crash_at", range(24, 40, 3))
@pytest.mark.parametrize("mode", [CopyMode.NEW, CopyMode.REPAIR])
def test_a_table_that_is_renamed_before_a_divided_transaction_is_still_copied(mode: CopyMode, crash_at: int) -> None:
    """A part of the transaction is committed with the progress of the copy from before the RENAME, under the old name."""
    server, target = Server([FIXED]), new_target()
    server.insert(FIXED.name, *({"id": number, "slot": number, "value": 0} for number in range(4)))
    task = Task(server, target, {FIXED.name: mode}, is_long=True, split=1)
    name = replace(FIXED.name, name="renamed")
    server.rename(FIXED.name, name)
    server.insert(name, *({"id": number, "slot": number, "value": 0} for number in range(4, 8)))
    crash_after(target, crash_at)
    with suppress(ProcessDied):
        task.run()
    target.store.hook = None
    state = task.run()
    assert not state.copying
    assert task.content(name) == in_any_order(server.rows(name))
    target.forget()
