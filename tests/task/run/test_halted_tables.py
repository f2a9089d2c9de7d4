"""Some errors halt only one table, and all others end the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from tests.values_target import ValuesTarget

from pidts.apply import TargetSession
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.model import Checkpoint, Column, ColumnType, DecodeError, Fenced, Halted, Kind, Lsn, Table, TableName, Where
from pidts.model.advice import RESYNC
from pidts.plan import HeldTables, PlanState
from pidts.rules import RouteRule, Routes, Rules
from pidts.task.run.halted_tables import HaltedTables

A, B, C = (TableName("shop", name) for name in "abc")
STATE = PlanState(Lsn(0, 1, 500), held=(HeldTables(frozenset({B}), Lsn(0, 1, 100)),))
LANDS = Rules(routes=Routes((RouteRule("shop", "b", "crm", "all"), RouteRule("shop", "c", "crm", "all"))))


@pytest.fixture
def target() -> Iterator[TargetSession]:
    made = ValuesTarget("halting")
    with closing(made.connect()) as session:
        yield session
    made.forget()


@pytest.fixture
def halting(target: TargetSession) -> HaltedTables:
    return begun(HaltedTables("t", "s"), target)


def begun(
    halting: HaltedTables,
    target: TargetSession,
    *,
    rows_failed: bool = True,
    lands: Rules = LANDS,
    shards: ShardGroups | None = None,
    epoch: int = 0,
    state: PlanState = STATE,
) -> HaltedTables:
    stream: Any = SimpleNamespace(state=state, rows_failed=rows_failed, halts=(), tables=[A, B, C])
    halting.begin_attempt(target, lands, state, [A, B, C], epoch)
    relay: Any = SimpleNamespace(position=lambda lsn: f"bin.000001:{lsn.offset}")
    halting.watch_stream(stream, relay, shards or ShardGroups())
    return halting


def refused(table: str, code: str = "target-refused", kind: Callable[..., Halted] = Halted) -> Halted:
    return kind(code, "no", where=Where(table=table), todo="mend it")


def test_a_table_is_halted_once_at_its_place(halting: HaltedTables, target: TargetSession) -> None:
    assert halting.halt_table_of(refused("shop.a"))
    (halt,) = halting.rows
    assert (halt.tables, halt.lsn, halt.position, halt.todo) == ((A,), STATE.lsn, "bin.000001:500", "mend it")
    assert target.meta.halts.read("t", "s") == []
    begun(halting, target)
    assert target.meta.halts.read("t", "s") == [halt]
    assert not halting.halt_table_of(refused("shop.a")), "what is halted cannot fail"
    halting.forget()
    assert halting.rows == ()


@pytest.mark.parametrize(
    ("named", "position"),
    [(str(Lsn(0, 1, 777, 2)), "bin.000001:777"), ("bin.000009:4", "bin.000009:4"), ("", "bin.000001:500")],
)
def test_the_place_of_a_halt_is_named_as_the_source_names_it(halting: HaltedTables, named: str, position: str) -> None:
    assert halting.halt_table_of(Halted("row-diverged", "no", where=Where(table="shop.a", position=named)))
    (halt,) = halting.rows
    assert halt.position == position


@pytest.mark.parametrize(("zone", "named"), [("c", "c"), ("", "ZONE")], ids=["named", "not named"])
def test_the_halt_of_a_table_in_a_zone_advises_no_copy_of_the_table(
    target: TargetSession, zone: str, named: str
) -> None:
    halting = begun(HaltedTables("t", "s", into_zone=zone), target)
    error = refused("shop.a")
    error.todo = f"Correct the value, then copy the table again: {RESYNC}"
    assert halting.halt_table_of(error)
    (halt,) = halting.rows
    assert halt.into_zone == zone
    assert f"pidts zones return FILE {named}, which copies all tables of the zone" in halt.todo
    assert "--resync" not in halt.todo


def test_a_halt_that_is_taken_off_the_record_is_tried_again(
    target: TargetSession,
) -> None:
    halting, server = begun(HaltedTables("t", "s", record_seconds=0.0), target), ValuesTarget("halting")
    assert not halting.has_retry(server), "nothing was refused"
    assert halting.halt_table_of(refused("shop.a"))
    assert halting.halt_table_of(refused("crm.all"))
    begun(halting, target)
    assert not halting.has_retry(server)
    target.meta.halts.resolve("t", "s", [str(B)])
    assert halting.has_retry(server)
    assert [halt.tables for halt in halting.rows] == [(A,)]
    assert not halting.has_retry(server)


def test_a_run_that_was_taken_over_does_not_take_the_task_back(
    target: TargetSession,
) -> None:
    """When the other run begins, it tries the halted table again."""
    server, start = ValuesTarget("halting"), Checkpoint(task="t", source="s", worker=0, lsn=STATE.lsn)
    halting = begun(HaltedTables("t", "s", record_seconds=0.0), target)
    assert halting.halt_table_of(refused("shop.a"))
    (own,) = target.meta.checkpoints.claim("t", "s", 1, start)
    begun(halting, target, epoch=own.epoch)
    assert not halting.has_retry(server)
    begun(HaltedTables("t", "s"), target, epoch=target.meta.checkpoints.claim("t", "s", 1, start)[0].epoch)
    target.meta.halts.resolve("t", "s", [str(A)])
    with pytest.raises(Fenced, match="another run of task t has taken over"):
        halting.has_retry(server)


def test_a_table_that_is_refused_where_it_was_has_been_so_since_then(
    target: TargetSession,
) -> None:
    def since(at: float, table: str = "shop.a", state: PlanState = STATE) -> float:
        another = begun(HaltedTables("t", "s", now=lambda: at), target, state=state)
        assert another.halt_table_of(refused(table))
        another.begin_attempt(target, LANDS, state, [A, B, C])
        return another.rows[0].since

    assert [since(5.0), since(7.0), since(8.0, "shop.c")] == [5.0, 5.0, 8.0]
    assert since(9.0, state=PlanState(Lsn(0, 1, 900))) == 9.0, "it has gone on in between"


def test_a_halt_keeps_its_time_while_other_tables_halt_and_are_tried_again(target: TargetSession) -> None:
    """A new run tries both tables again, and finds one refused table in each attempt."""
    server, listed = (
        ValuesTarget("halting"),
        lambda: {halt.tables: halt.since for halt in target.meta.halts.read("t", "s")},
    )
    first = begun(HaltedTables("t", "s", now=lambda: 5.0), target)
    for table in ("shop.a", "shop.c"):
        assert first.halt_table_of(refused(table))
        begun(first, target)
    halting = begun(HaltedTables("t", "s", now=lambda: 9.0, record_seconds=0.0), target)
    for table in ("shop.a", "shop.c"):
        assert listed() == {(A,): 5.0, (C,): 5.0}
        assert halting.halt_table_of(refused(table))
        begun(halting, target)
    assert listed() == {(A,): 5.0, (C,): 5.0}
    target.meta.halts.resolve("t", "s", [str(A)])
    assert halting.has_retry(server)
    begun(halting, target)
    assert listed() == {(C,): 5.0}
    assert halting.halt_table_of(refused("shop.a"))
    begun(halting, target)
    assert listed() == {(A,): 9.0, (C,): 5.0}


def test_a_retry_during_the_start_of_an_attempt_is_not_lost(target: TargetSession) -> None:
    halting = begun(HaltedTables("t", "s"), target)
    assert halting.halt_table_of(refused("shop.a"))
    begun(halting, target)
    assert halting.halt_table_of(refused("shop.c"))
    target.meta.halts.resolve("t", "s", [str(A)])
    begun(halting, target)
    assert [halt.tables for halt in halting.rows] == [(C,)]


def test_rows_that_did_not_fit_are_tried_again_when_the_table_was_changed_for_other_shards(
    target: TargetSession,
) -> None:
    """One shard had to skip its change, and has rows with the new structure. The other shards reach the change later."""
    shards, server = ShardGroups(), ValuesTarget("halting")
    old, new = (Table(TableName("crm", "all"), (Column("id", ColumnType(kind)),)) for kind in (Kind.INT, Kind.BIGINT))
    shards.register("other", {A: old})
    halting = begun(HaltedTables("t", "s", record_seconds=0.0), target, shards=shards)
    assert halting.halt_table_of(refused("shop.b", "target-shape"))
    assert halting.halt_table_of(refused("shop.c"))
    begun(halting, target, shards=shards)
    assert not halting.has_retry(server)
    shards.changed("other", {A: new})
    assert halting.has_retry(server)
    assert [halt.tables for halt in halting.rows] == [(C,)], "that one was refused for something else"
    begun(halting, target, shards=shards)
    assert halting.halt_table_of(refused("shop.b", "target-shape"))
    begun(halting, target, shards=shards)
    assert not halting.has_retry(server), "it does not fit this way either"


def test_all_shards_of_one_target_table_are_halted_together(halting: HaltedTables) -> None:
    assert halting.halt_table_of(refused("crm.all"))
    (halt,) = halting.rows
    assert (halt.tables, halt.lsn) == ((B, C), Lsn(0, 1, 100))


def test_a_refused_shard_is_halted_alone_if_its_row_is_known(halting: HaltedTables, target: TargetSession) -> None:
    assert halting.halt_table_of(Halted("target-refused", "no", where=Where(source="s", table="shop.c", key="id=7")))
    (halt,) = halting.rows
    assert (halt.tables, halt.lsn, halt.key) == ((C,), STATE.lsn, "id=7")
    assert "no (key id=7)" in str(halt)
    begun(halting, target)
    assert target.meta.halts.read("t", "s") == [halt]
    assert halting.halt_table_of(Halted("target-refused", "no", where=Where(source="s", table="shop.b", key="id=8")))
    assert [(one.tables, one.key) for one in halting.rows] == [((C,), "id=7"), ((B,), "id=8")]


def test_a_table_may_have_the_name_of_the_one_that_others_become_with_it(target: TargetSession) -> None:
    lands = Rules(routes=Routes((RouteRule("shop", "b", "shop", "a"),)))
    for source, names in (("s", (A,)), ("", (A, B))):
        halting = begun(HaltedTables("t", "s"), target, lands=lands)
        assert halting.halt_table_of(Halted("target-refused", "no", where=Where(source=source, table="shop.a")))
        assert halting.rows[0].tables == names


@pytest.mark.parametrize(
    "error",
    [
        refused(""),
        refused("shop.other"),
        refused("shop.a, shop.b"),
        refused("shop.a", "structure-unknown"),
        refused("shop.a", "checkpoint-mismatch"),
        refused("shop.a", "bad-bytes", DecodeError),
    ],
)
def test_an_error_that_may_concern_other_tables_ends_the_run(halting: HaltedTables, error: Halted) -> None:
    assert not halting.halt_table_of(error)
    assert halting.rows == ()


def test_neither_a_start_nor_a_schema_change_halts_rows(halting: HaltedTables, target: TargetSession) -> None:
    halting.begin_attempt(target, Rules(), STATE, [A, B, C])
    assert not halting.halt_table_of(refused("shop.a"))
    assert not begun(halting, target, rows_failed=False).halt_table_of(refused("shop.a"))


def test_rows_that_do_not_fit_beside_other_shards_are_no_reason_to_drop_their_table(halting: HaltedTables) -> None:
    assert halting.halt_table_of(refused("shop.b", "target-shape"))
    assert halting.halt_table_of(refused("shop.a", "target-shape"))
    merged, alone = halting.rows
    assert "keep it" in merged.todo
    assert alone.todo == "mend it"
