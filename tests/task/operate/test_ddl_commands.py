"""Ddl commands of a task with several sources: the waiting changes are listed, a command finds its change, and is
recorded for the run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.relay.sample_log import FORMAT, sealed
from tests.values_target import ValuesTarget

from pidts.apply import TargetSession
from pidts.model import (
    Checkpoint,
    CommandKind,
    ConfigError,
    DdlJournal,
    DdlState,
    Halt,
    Lsn,
    SourceTablesKey,
    Table,
    TableName,
    Transaction,
)
from pidts.plan import CopyState, HeldTables, PlanState
from pidts.relay import Origin, RelayReader, RelayWriter
from pidts.task.config.task_file import TaskConfig, load_parts
from pidts.task.operate.backlog import CountingTime, NextSchemaChange, backlogs, held_tables, next_schema_changes
from pidts.task.operate.ddl_commands import TaskCommands, is_refused_rows
from pidts.task.operate.shard_locks import chosen_change, find_lock, open_locks

TASK = """
name: t
task-mode: all
shard-mode: pessimistic
target-database: {host: 127.0.0.1, port: 9, user: root}
mysql-instances:
  - {source-id: s1, from: {host: 127.0.0.1, port: 9, user: root}, route-rules: [orders]}
  - {source-id: s2, from: {host: 127.0.0.1, port: 9, user: root}, route-rules: [orders]}
routes: {orders: {schema-pattern: "shop*", table-pattern: "t_*", target-schema: shop, target-table: orders}}
pidts: {relay: ./relay}
"""
_numbers = itertools.count()


def at(number: int) -> Lsn:
    return Lsn(0, 1, 4 + 123 * number)


def change(table: str, lsn: Lsn, code: str = "target-refused", **more: object) -> Halt:
    values = {"statement": f"ALTER TABLE {table} ADD x INT", "position": f"bin.000001:{lsn.offset}", "what": "no"}
    return Halt(tables=(TableName("shop", table),), lsn=lsn, code=code, **{**values, **more})  # type: ignore[arg-type]


def awaits(table: str, lsn: Lsn, *others: str, since: float = 1.0, code: str = "shard-awaits") -> Halt:
    return change(table, lsn, code, awaits=others, since=since)


ROWS = Halt(tables=(TableName("shop", "b"),), lsn=at(2), code="target-refused", what="too long")


class TaskOfTwoSources:
    def __init__(self, folder: Path) -> None:
        path = folder / "t.yaml"
        path.write_text(TASK)
        self.parts: tuple[TaskConfig, ...] = load_parts(path)
        self.target = ValuesTarget(f"orders {next(_numbers)}")
        self.session: TargetSession = self.target.connect()
        self.task_commands = TaskCommands(self.parts, self.session)

    def halt(self, source: str, *halts: Halt) -> None:
        for halt in halts:
            self.session.meta.halts.save("t", source, halt)

    def commands(self, source: str) -> list[tuple[CommandKind, tuple[str, ...], int]]:
        found = self.session.meta.ddl_commands.read("t", source)
        return [(command.kind, command.statements, command.number) for command in found]


@pytest.fixture
def two_sources(tmp_path: Path) -> Iterator[TaskOfTwoSources]:
    made = TaskOfTwoSources(tmp_path)
    yield made
    made.session.close()
    made.target.forget()


def test_everything_that_waits_is_listed_with_its_source(two_sources: TaskOfTwoSources) -> None:
    two_sources.halt("s1", change("a", at(1)), ROWS)
    two_sources.halt("s2", change("a", at(1)))
    found = two_sources.task_commands.blocked_changes()
    assert [(one.source, str(one.tables[0]), one.halt is not None and is_refused_rows(one.halt)) for one in found] == [
        ("s1", "shop.b", True),
        ("s1", "shop.a", False),
        ("s2", "shop.a", False),
    ]
    assert len(two_sources.task_commands.matching("s2")) == 1
    assert [one.source for one in two_sources.task_commands.matching(table="shop.b")] == ["s1"]
    with pytest.raises(ConfigError, match="no source 's3'"):
        two_sources.task_commands.matching("s3")


def test_the_one_that_waits_is_meant_or_it_has_to_be_said(two_sources: TaskOfTwoSources) -> None:
    with pytest.raises(ConfigError, match="no schema change of this task is waiting"):
        two_sources.task_commands.find()
    two_sources.halt("s1", change("a", at(1)), ROWS)
    assert two_sources.task_commands.find().source == "s1"
    two_sources.halt("s2", change("a", at(1)), change("c", at(3)))
    with pytest.raises(ConfigError, match=r"3 schema changes are waiting.*--source s1 --at .*--source s2"):
        two_sources.task_commands.find()
    with pytest.raises(ConfigError, match="2 schema changes are waiting"):
        two_sources.task_commands.find(str(at(1)))
    assert two_sources.task_commands.find(str(at(1)), "s2").source == "s2"
    assert two_sources.task_commands.find(str(at(3))).source == "s2"
    assert two_sources.task_commands.find("bin.000001:373").lsn == at(3)
    assert two_sources.task_commands.find(table="shop.c").lsn == at(3)
    with pytest.raises(ConfigError, match="no schema change at"):
        two_sources.task_commands.find(str(at(9)))
    with pytest.raises(ConfigError, match="not a position in the log"):
        two_sources.task_commands.find("there")


def test_a_halt_that_a_run_has_replaced_meanwhile_keeps_its_new_text(two_sources: TaskOfTwoSources) -> None:
    two_sources.halt("s1", change("a", at(1), "shard-awaits", what="waits for shop.b", awaits=("shop.b",)))
    found = two_sources.task_commands.find()
    two_sources.halt("s1", change("a", at(1), "shard-awaits", what="waits for shop.c", awaits=("shop.c",)))
    two_sources.task_commands.give(found, CommandKind.SKIP)
    (halt,) = two_sources.session.meta.halts.read("t", "s1")
    assert (halt.what, halt.awaits, halt.is_decided) == ("waits for shop.c", ("shop.c",), True)


def test_no_command_is_accepted_for_applied_changes(two_sources: TaskOfTwoSources) -> None:
    two_sources.halt("s1", change("a", at(1)))
    two_sources.session.begin()
    two_sources.session.meta.journal.write(
        DdlJournal(task="t", source="s1", lsn=at(1), statement="", rendered=(), step=0, state=DdlState.DONE)
    )
    two_sources.session.commit()
    assert not two_sources.task_commands.blocked_changes()[0].is_blocked
    with pytest.raises(ConfigError, match="no schema change of this task is waiting"):
        two_sources.task_commands.find()


def test_a_ddl_command_is_recorded_for_its_own_source(two_sources: TaskOfTwoSources) -> None:
    two_sources.halt("s1", change("a", at(1)))
    two_sources.halt("s2", change("a", at(1)))
    found = two_sources.task_commands.find(str(at(1)), "s2")
    two_sources.task_commands.give(found, CommandKind.REPLACE, ("one", "two"))
    two_sources.task_commands.give(found, CommandKind.SKIP)
    assert two_sources.commands("s1") == []
    assert two_sources.commands("s2") == [(CommandKind.SKIP, (), 2)]
    for sql in ("COMMIT", "/* so */ begin", "-- \nLOAD DATA LOCAL INFILE 'x' INTO TABLE a"):
        with pytest.raises(ConfigError) as error:
            two_sources.task_commands.give(found, CommandKind.REPLACE, ("one", sql))
        assert error.value.code == "bad-order", sql
    two_sources.task_commands.give(found, CommandKind.REPLACE, ("COMMENT ON TABLE a IS 'COMMIT'",))


def test_rows_are_tried_again_where_their_halt_is_off_the_record(two_sources: TaskOfTwoSources) -> None:
    two_sources.halt("s1", change("a", at(1)), ROWS)
    two_sources.task_commands.retry_rows(two_sources.task_commands.matching(table="shop.b"))
    assert [one.tables for one in two_sources.task_commands.blocked_changes()] == [(TableName("shop", "a"),)]
    assert two_sources.session.meta.ddl_commands.read("t", "s1") == []


def test_an_awaited_shard_that_cannot_come_since_its_rows_are_refused_is_reported(
    two_sources: TaskOfTwoSources,
) -> None:
    refused = Halt(tables=(TableName("shop", "t_2"),), lsn=at(1), code="target-shape", what="no")
    two_sources.halt("s1", awaits("t_1", at(1), "s1: shop.t_2", "s2: shop.t_1"), refused)
    (lock,) = open_locks(two_sources.task_commands, two_sources.task_commands.blocked_changes())
    assert lock.refused == {"s1: shop.t_2": "target-shape"}
    assert lock.to_json()["refused"] == {"s1: shop.t_2": "target-shape"}


def test_shards_that_wait_are_one_lock(two_sources: TaskOfTwoSources) -> None:
    two_sources.halt("s1", awaits("t_1", at(1), "s1: shop.t_2", "s2: shop.t_1", since=5.0))
    two_sources.halt("s2", awaits("t_1", at(1), "s1: shop.t_2", since=2.0), change("c", at(3)))
    (lock,) = open_locks(two_sources.task_commands, two_sources.task_commands.blocked_changes())
    assert (str(lock.target), lock.first.source, lock.since) == ("shop.orders", "s2", 2.0)
    assert lock.awaited == ("s1: shop.t_2",)
    assert lock.awaited_since == {"s1: shop.t_2": 2.0}, "since the first came who waits for it"
    assert not lock.disagrees
    for name in ("", "shop.orders", "shop.t_1", "t-`shop`.`orders`", "`shop`.`orders`"):
        assert find_lock([lock], name) is lock
    for name in ("shop.c", "t-`shop`.`c`"):
        with pytest.raises(ConfigError, match="waits for other shards"):
            find_lock([lock], name)
    assert chosen_change(lock, "", "") is lock.first
    assert chosen_change(lock, "", "s1").source == "s1"
    with pytest.raises(ConfigError, match=r"no shard of shop.orders waits at that source"):
        chosen_change(lock, str(at(9)), "")
    with pytest.raises(ConfigError, match=r"2 tables wait.*--table shop.orders or --table shop.orders"):
        find_lock([lock, lock], "")


def test_a_command_is_for_the_lock_at_which_a_shard_waits(two_sources: TaskOfTwoSources) -> None:
    two_sources.halt("s1", awaits("t_1", at(1)))
    (first,) = open_locks(two_sources.task_commands, two_sources.task_commands.blocked_changes())
    other = replace(first, target=TableName("shop", "other"), arrived=(replace(first.first, lsn=at(2)),))
    assert find_lock([first, other], "", str(at(1)), "s1") is first
    assert find_lock([first, other], "", str(at(2))) is other
    for place, source in (("", "s1"), (str(at(9)), "s1"), (str(at(1)), "s2")):
        with pytest.raises(ConfigError, match="2 tables wait"):
            find_lock([first, other], "", place, source)


def test_shards_that_disagree_are_not_unlocked_by_chance(two_sources: TaskOfTwoSources) -> None:
    two_sources.halt("s1", awaits("t_1", at(1), code="shards-disagree"))
    two_sources.halt("s2", awaits("t_9", at(1), code="shards-disagree"))
    (lock,) = open_locks(two_sources.task_commands, two_sources.task_commands.blocked_changes())
    assert lock.disagrees
    with pytest.raises(ConfigError, match="Name the one to run: --source s1"):
        chosen_change(lock, "", "")
    assert chosen_change(lock, "", "s2").source == "s2"
    assert chosen_change(lock, "bin.000001:127", "s1").source == "s1"


@pytest.fixture
def relay(two_sources: TaskOfTwoSources) -> Path:
    """Writes a relay with twelve transactions of s1: of a, of b, of both, and so on."""
    return _written_relay(two_sources, {3})


def _written_relay(two_sources: TaskOfTwoSources, changes: set[int]) -> Path:
    """Writes the relay; the transactions with the numbers `changes` are schema changes of a."""
    folder = two_sources.parts[0].relay
    writer = RelayWriter.open(folder, "s1", segment_bytes=350)
    writer.begin(Origin("server", "bin", 0), at(0), "0-1-0")
    writer.start_segment(FORMAT)
    tables = [(TableName("shop", "a"),), (TableName("shop", "b"),), (TableName("shop", "a"), TableName("shop", "b"))]
    for number in range(12):
        writer.append(sealed(19, bytes(100)))
        what = Transaction(
            lsn=at(number + 1),
            prev_lsn=at(number),
            begin=at(number),
            gtid="",
            timestamp=1_700_000_000 + number,
            row_events=1,
            tables=tables[number % 3],
            ddl="ALTER TABLE a ADD x INT" if number in changes else None,
            ddl_schema="shop" if number in changes else "",
        )
        writer.commit(what)
        writer.sync()
    writer.close()
    return folder


@pytest.mark.usefixtures("relay")
def test_a_schema_change_behind_refused_rows_is_shown_and_found_by_its_place(two_sources: TaskOfTwoSources) -> None:
    commands, table = two_sources.task_commands, TableName("shop", "a")
    halt = Halt(tables=(table,), lsn=at(1), code="target-refused", what="too long")
    two_sources.halt("s1", halt, ROWS)
    of_a, of_b = sorted(commands.with_backlogs(commands.blocked_changes()), key=lambda one: one.tables)
    assert of_a.next_change == NextSchemaChange(at(4), "bin.000001:496", "ALTER TABLE a ADD x INT")
    assert of_b.next_change is None, "the statement is about another table"
    with pytest.raises(ConfigError, match=r"no schema change of table shop\.a is waiting") as caught:
        commands.find(table="shop.a")
    assert f"ALTER TABLE a ADD x INT (--source s1 --at {at(4)})" in caught.value.todo
    found = commands.find(str(at(4)), "s1")
    commands.give(found, CommandKind.SKIP)
    assert two_sources.commands("s1") == [(CommandKind.SKIP, (), 1)]
    journal = DdlJournal(task="t", source="s1", lsn=at(4), statement="", rendered=(), step=0, state=DdlState.DONE)
    two_sources.session.begin()
    two_sources.session.meta.journal.write(journal)
    two_sources.session.commit()
    (of_a, _) = sorted(commands.with_backlogs(commands.matching()), key=lambda one: one.tables)
    assert of_a.next_change is None, "the target has the schema change already"


@pytest.mark.usefixtures("relay")
def test_the_search_for_a_schema_change_behind_refused_rows_has_a_time_limit(two_sources: TaskOfTwoSources) -> None:
    places = [([TableName("shop", "a")], at(1))]
    (found,) = next_schema_changes(two_sources.parts[0], places, lambda _: False)
    assert found is not None
    assert found.lsn == at(4)
    assert next_schema_changes(two_sources.parts[0], places, lambda _: False, seconds=-1.0) == [None]


@pytest.mark.parametrize(
    ("sources", "used", "most"), [(1, 1.0, 2.0), (2, 1.0, 4.0), (300, 1.0, 5.001), (300, 0.0, 0.0)]
)
def test_the_time_of_a_count_does_not_grow_with_the_sources(sources: int, used: float, most: float) -> None:
    """Each source uses this part of its time."""
    clock = [100.0]
    time = CountingTime(sources, lambda: clock[0])
    for _ in range(sources):
        seconds = time.next()
        assert 0 < seconds <= 2
        clock[0] += used * seconds
    assert clock[0] - 100 <= most
    assert used == 0 or clock[0] - 100 > most - 0.01


def test_time_that_a_source_leaves_over_goes_to_later_sources() -> None:
    time = CountingTime(300, lambda: 0.0)
    assert [time.next() for _ in range(300)][-3:] == [5 / 3, 2.0, 2.0]


@pytest.mark.usefixtures("relay")
def test_a_backlog_that_is_not_counted_to_its_end_says_so(two_sources: TaskOfTwoSources) -> None:
    a = TableName("shop", "a")
    (found,) = backlogs(two_sources.parts[0], [([a], at(3))], seconds=-1.0)
    assert found is not None
    assert not found.is_whole
    row = Checkpoint(task="t", source="s1", worker=0, lsn=at(10))
    halt = Halt(tables=(a,), lsn=at(10), code="target-refused", what="too long")
    assert held_tables(two_sources.parts[0], [row], [halt]).lag_seconds is not None
    assert held_tables(two_sources.parts[0], [row], [halt], seconds=-1.0).lag_seconds is None


def test_schema_changes_after_the_first_one_are_counted(two_sources: TaskOfTwoSources) -> None:
    _written_relay(two_sources, {0, 3, 6, 9})
    places = [([TableName("shop", "a")], at(0)), ([TableName("shop", "a")], at(4)), ([TableName("shop", "b")], at(0))]
    found = next_schema_changes(two_sources.parts[0], places, lambda lsn: lsn == at(7))
    assert [one and (one.lsn, one.further, one.is_whole) for one in found] == [
        (at(1), 2, True),
        (at(10), 0, True),
        None,
    ]


def test_a_search_for_schema_changes_can_end_early(two_sources: TaskOfTwoSources) -> None:
    """A list of halted tables must not wait until a log of many hours is searched."""
    folder = _written_relay(two_sources, {3, 9})
    with closing(RelayReader(folder, "s1")) as reader:
        assert [one.lsn for one in reader.schema_changes(at(0), at(12))] == [at(4), at(10)]
        asked = itertools.count()
        ended = list(reader.schema_changes(at(0), at(12), lambda: next(asked) >= 5))
    assert [one.lsn for one in ended] == [at(4)]
    assert next(asked) == 6


@pytest.mark.usefixtures("relay")
def test_waiting_changes_are_counted_in_the_relay(two_sources: TaskOfTwoSources) -> None:
    config = two_sources.parts[0]
    a, b = (TableName("shop", name) for name in "ab")
    found, other, nothing, both = backlogs(config, [([a], at(3)), ([b], at(8)), ([a], at(12)), ([a, b], at(9))])
    assert found is not None
    assert other is not None
    assert both is not None
    assert (other.transactions, both.transactions) == (3, 3)
    # Transaction 4 is the change itself. Transactions 6, 7, 9, 10 and 12 have rows of the table.
    assert (found.transactions, found.own_bytes, found.since) == (5, 5 * 123, 1_700_000_005)
    assert found.is_whole
    assert 9 * 123 <= found.log_bytes <= 9 * 123 + 5 * 200, "what else stands there, and heads of segments"
    assert nothing is not None
    assert (nothing.transactions, nothing.log_bytes) == (0, 0)
    assert backlogs(two_sources.parts[1], [([a], at(3))]) == [None], "its relay is elsewhere"
    two_sources.halt("s1", change("a", at(4)), ROWS)
    two_sources.halt("s2", change("a", at(4)))
    counted = two_sources.task_commands.with_backlogs(two_sources.task_commands.blocked_changes())
    assert [one.backlog is not None for one in counted] == [True, True, False]
    assert counted[0].halt is not None
    assert counted[0].halt.position == "bin.000001:250", "as the relay knows it"
    assert two_sources.task_commands.find("bin.000001:373").statement.startswith("ALTER"), (
        "behind what comes before it, too"
    )


@pytest.mark.usefixtures("relay")
def test_how_much_is_kept_for_waiting_tables(two_sources: TaskOfTwoSources) -> None:
    config, a, b = two_sources.parts[0], TableName("shop", "a"), TableName("shop", "b")
    states = [
        PlanState(at(10), held=(HeldTables(frozenset({a}), at(4)),)),
        PlanState(at(10), held=(HeldTables(frozenset({a}), at(6)), HeldTables(frozenset({b}), at(8)))),
    ]
    rows = [
        Checkpoint(task="t", source="s1", worker=number, lsn=state.lsn, copy=state.copy_json())
        for number, state in enumerate(states)
    ]
    held = held_tables(config, rows)
    assert held.tables == {a: at(4), b: at(8)}
    # The checkpoint is at transaction 10; transactions 11 and 12 have changes of no other table.
    assert 8 * 123 <= held.log_bytes <= 8 * 123 + 5 * 200
    alone = held_tables(config, rows[:1])
    assert 6 * 123 <= alone.log_bytes <= held.log_bytes - 2 * 123, "11 is of others"
    assert held.to_json()["tables"] == {"shop.a": str(at(4)), "shop.b": str(at(8))}
    assert held_tables(config, rows[:0]).log_bytes == 0
    elsewhere = held_tables(two_sources.parts[1], rows)
    assert (elsewhere.is_known, elsewhere.to_json()["log_bytes"]) == (False, None)
    assert elsewhere.lag_seconds is None


@pytest.mark.usefixtures("relay")
def test_changes_that_a_copy_leaves_out_are_not_the_oldest_waiting_change(two_sources: TaskOfTwoSources) -> None:
    a = TableName("shop", "a")

    def oldest(copy: dict[TableName, CopyState]) -> float:
        state = PlanState(at(10), copy, held=(HeldTables(frozenset({a}), at(4)),))
        row = Checkpoint(task="t", source="s1", worker=0, lsn=state.lsn, copy=state.copy_json())
        return held_tables(two_sources.parts[0], [row]).since

    assert int(oldest({})) == 1_700_000_005
    assert int(oldest({a: CopyState(since=at(6))})) == 1_700_000_006


@pytest.mark.usefixtures("relay")
def test_a_change_that_nothing_has_overtaken_yet_holds_its_table_nevertheless(two_sources: TaskOfTwoSources) -> None:
    config, a = two_sources.parts[0], TableName("shop", "a")
    assert two_sources.task_commands.held_tables()[0].tables == {}
    start = Checkpoint(task="t", source="s1", worker=0, lsn=at(3))
    two_sources.session.meta.checkpoints.claim("t", "s1", 1, start)
    two_sources.halt("s1", awaits("a", at(4)), awaits("b", at(2)), ROWS)
    (held, other) = two_sources.task_commands.held_tables()
    assert held.tables == {a: at(3)}, "the change at 2 is behind the checkpoint"
    assert 123 <= held.log_bytes < 2 * 123 + 200, "4 is the change; 5 is of others, who have not come to it"
    assert other.tables == {}
    also = held_tables(config, [start], [awaits("a", at(4)), awaits("b", at(5))])
    assert 9 * 123 <= also.log_bytes <= 9 * 123 + 5 * 200, "all is of these two"


def test_a_new_table_accepts_only_skip(two_sources: TaskOfTwoSources) -> None:
    two_sources.halt("s1", change("t_9", at(1), "shard-structure"))
    comes = two_sources.task_commands.find()
    for kind, statements in (
        (CommandKind.UNLOCK, ()),
        (CommandKind.REPLACE, ("SELECT 1",)),
        (CommandKind.INJECT, ("SELECT 1",)),
    ):
        with pytest.raises(ConfigError, match=r"shop\.t_9 joins the task with the statement") as caught:
            two_sources.task_commands.give(comes, kind, statements)
        assert caught.value.code == "shard-comes"
    assert two_sources.commands("s1") == []
    two_sources.task_commands.give(comes, CommandKind.SKIP)
    two_sources.task_commands.give(comes, CommandKind.REVERT)
    assert [kind for kind, _, _ in two_sources.commands("s1")] == [CommandKind.REVERT]


def test_one_ddl_command_is_given_about_shards_that_wait_for_each_other(two_sources: TaskOfTwoSources) -> None:
    two_sources.halt("s1", awaits("t_1", at(1), "s2: shop.t_2"), change("c", at(3)))
    two_sources.halt("s2", awaits("t_2", at(2), "s1: shop.t_1"))
    mine, other = (
        two_sources.task_commands.find(source="s1", table="shop.t_1"),
        two_sources.task_commands.find(source="s2"),
    )
    two_sources.task_commands.give(mine, CommandKind.INJECT, ("ALTER TABLE shop.orders ADD y INT",))
    with pytest.raises(ConfigError, match="already has a ddl command") as caught:
        two_sources.task_commands.give(other, CommandKind.REPLACE, ("ALTER TABLE shop.orders ADD z INT",))
    assert (caught.value.code, caught.value.where.source) == ("order-stands", "s1")
    assert two_sources.commands("s2") == []
    two_sources.task_commands.give(mine, CommandKind.REPLACE, ("ALTER TABLE shop.orders ADD z INT",))
    two_sources.task_commands.give(
        two_sources.task_commands.find(source="s1", table="shop.c"), CommandKind.REPLACE, ("SELECT 1",)
    )
    two_sources.task_commands.give(other, CommandKind.SKIP)
    two_sources.task_commands.give(mine, CommandKind.REVERT)
    two_sources.task_commands.give(other, CommandKind.UNLOCK)
    assert [kind for kind, _, _ in two_sources.commands("s2")] == [CommandKind.UNLOCK]


def carried_out(task: TaskOfTwoSources, source: str, lsn: Lsn) -> None:
    task.session.begin()
    task.session.meta.journal.write(
        DdlJournal(task="t", source=source, lsn=lsn, statement="", rendered=(), step=0, state=DdlState.DONE)
    )
    task.session.commit()


def test_a_copy_is_due_only_after_the_command_that_is_carried_out(two_sources: TaskOfTwoSources) -> None:
    """An operator may give the printed statement, and then another one that sets the values of the rows, too."""
    printed = ("ALTER TABLE a ADD x INT",)
    commands, halted = two_sources.task_commands, {"todo": "Then copy the table again: HOW", "instead": printed}
    first, second = (change("a", at(number), **halted) for number in (1, 2))
    two_sources.halt("s1", first, second)
    for lsn in (at(1), at(2)):
        commands.give(commands.find(str(lsn)), CommandKind.REPLACE, printed)
    commands.give(commands.find(str(at(2))), CommandKind.REPLACE, (*printed, "UPDATE a SET x = 1"))
    assert commands.due_copies("s1") == []
    carried_out(two_sources, "s1", at(2))
    assert commands.due_copies("s1") == []
    carried_out(two_sources, "s1", at(1))
    assert [(str(one.table), one.lsn) for one in commands.due_copies("s1")] == [("shop.a", at(1))]


@pytest.mark.parametrize("kind", [CommandKind.REPLACE, CommandKind.SKIP])
def test_all_shards_have_to_be_copied_after_a_command_that_changes_the_rows_of_all(
    two_sources: TaskOfTwoSources, kind: CommandKind
) -> None:
    printed = ("ALTER TABLE shop.orders ADD x INT",)
    two_sources.session.begin()
    for source, names in (("s1", ("t_1", "a")), ("s2", ("t_2", "t_3", "b"))):
        tables = {TableName("shop", name): Table(TableName("shop", name), ()) for name in names}
        two_sources.session.meta.structures.save("t", SourceTablesKey(source), at(0), tables)
    two_sources.session.commit()
    two_sources.halt("s1", change("t_1", at(1), todo="Then copy the table again: HOW", instead=printed))
    commands = two_sources.task_commands
    commands.give(commands.find(), kind, printed if kind is CommandKind.REPLACE else ())
    carried_out(two_sources, "s1", at(1))
    due = {source: [one.table.name for one in commands.due_copies(source)] for source in ("s1", "s2")}
    assert due == {"s1": ["t_1"], "s2": ["t_2", "t_3"] if kind is CommandKind.REPLACE else []}


def test_a_shard_whose_command_is_withdrawn_waits_as_before(two_sources: TaskOfTwoSources) -> None:
    two_sources.halt("s1", awaits("t_1", at(1), "s2: shop.t_2"), change("c", at(3)))
    for table, kind, is_decided in (
        ("shop.t_1", CommandKind.SKIP, True),
        ("shop.t_1", CommandKind.REVERT, False),
        ("shop.c", CommandKind.REVERT, True),
    ):
        two_sources.task_commands.give(two_sources.task_commands.find(table=table), kind)
        assert two_sources.task_commands.find(table=table).is_decided is is_decided
