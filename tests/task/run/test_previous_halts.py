"""A recorded halt stays recorded until its table is halted again or has passed the place, and not longer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from tests.values_target import ValuesTarget

from pidts.apply import TargetSession
from pidts.model import Checkpoint, DdlJournal, DdlState, Halt, Lsn, TableName
from pidts.plan import HeldTables, PlanState
from pidts.task.operate.ddl_commands import AS_BEFORE
from pidts.task.run.halted_tables import PreviousHalts

A, B, C = (TableName("shop", name) for name in "abc")
SERVER = ValuesTarget("recall")


def at(offset: int) -> Lsn:
    return Lsn(0, 1, offset)


STATE = PlanState(at(500), held=(HeldTables(frozenset({B}), at(100)),))


def waits(name: TableName, offset: int, code: str = "shard-awaits", **more: str) -> Halt:
    values = {"statement": "ALTER TABLE t ADD c INT", "what": "others have not come", "code": code, **more}
    return Halt(tables=(name,), lsn=at(offset), awaits=("s2: shop.z",), since=7.0, **values)


@pytest.fixture
def target() -> Iterator[TargetSession]:
    with closing(SERVER.connect()) as session:
        yield session
    SERVER.forget()


def begun(target: TargetSession, *halts: Halt) -> PreviousHalts:
    for halt in halts:
        target.meta.halts.save("t", "s", halt)
    recall = PreviousHalts("t", "s")
    recall.begin_attempt(target, STATE.at, [A, B])
    return recall


def recorded(target: TargetSession) -> list[Halt]:
    return target.meta.halts.read("t", "s")


def test_a_halt_at_the_same_place_is_reported_as_of_before(target: TargetSession) -> None:
    shard = waits(B, 200, "shards-disagree")
    begun(target, shard, replace(waits(A, 600), awaits=()))
    assert [halt.what for halt in recorded(target)] == [f"others have not come{AS_BEFORE}"] * 2
    assert [(halt.lsn, halt.since, halt.awaits) for halt in recorded(target)][:1] == [(shard.lsn, 7.0, shard.awaits)]
    begun(target)
    assert recorded(target)[0].what.count(AS_BEFORE) == 1, "it is started once more"


ROWS = {"statement": "", "code": "target-refused"}


@pytest.mark.parametrize(
    "halt", [waits(A, 500), waits(A, 400), waits(B, 100), waits(C, 600), waits(A, 400, **ROWS), waits(C, 600, **ROWS)]
)
def test_halts_are_removed_if_their_tables_have_passed_them_or_are_gone(target: TargetSession, halt: Halt) -> None:
    begun(target, halt)
    assert recorded(target) == []


@pytest.mark.parametrize(
    "halt",
    [
        waits(B, 200, "target-refused"),
        waits(B, 200, "ddl-awaits-tables"),
        waits(B, 100, **ROWS),
        waits(A, 500, **ROWS),
        replace(waits(A, 600, "target-refused"), tables=()),
    ],
)
def test_failed_changes_stay_recorded_while_they_are_tried_again(target: TargetSession, halt: Halt) -> None:
    recall = begun(target, halt)
    recall.begin_attempt(target, STATE.at, [A, B])
    assert recorded(target) == [replace(halt, what=f"{halt.what}{AS_BEFORE}", is_earlier=True)]
    assert recorded(target)[0].since == 7.0
    recall.drop_past_records(SERVER, STATE.at, [A, B])
    assert len(recorded(target)) == 1
    recall.drop_past_records(SERVER, PlanState(at(700)).at, [A, B])
    assert recorded(target) == []


def test_refused_rows_that_the_rules_now_leave_out_are_not_halted(target: TargetSession) -> None:
    """No log of the table follows, so its place does not change."""
    recall = begun(target, waits(A, 500, **ROWS), waits(B, 200))
    recall.drop_past_records(SERVER, STATE.at, [A, B], [A])
    assert len(recorded(target)) == 2
    recall.drop_past_records(SERVER, STATE.at, [A, B], [])
    assert [halt.tables for halt in recorded(target)] == [(B,)]


def test_rows_that_follow_a_finished_schema_change_stay_halted(target: TargetSession) -> None:
    target.meta.prepare()
    target.meta.checkpoints.claim("t", "s", 1, Checkpoint(task="t", source="s", worker=0, lsn=at(100)))
    target.begin()
    journal = DdlJournal(task="t", source="s", lsn=at(100), statement="", rendered=(), step=0)
    target.meta.journal.write(replace(journal, state=DdlState.DONE))
    target.commit()
    begun(target, waits(B, 100, **ROWS))
    assert [halt.tables for halt in recorded(target)] == [(B,)]


def test_a_halt_is_removed_when_another_shard_has_made_the_change(target: TargetSession) -> None:
    target.meta.prepare()
    target.meta.checkpoints.claim("t", "s", 1, Checkpoint(task="t", source="s", worker=0, lsn=at(100)))
    target.begin()
    journal = DdlJournal(task="t", source="s", lsn=at(200), statement="", rendered=(), step=0)
    target.meta.journal.write(replace(journal, state=DdlState.DONE))
    target.meta.journal.write(replace(journal, lsn=at(300)))
    target.commit()
    begun(target, waits(B, 200), waits(B, 300))
    assert [halt.lsn for halt in recorded(target)] == [at(300)]


def test_a_halt_is_removed_when_its_table_has_passed_it(target: TargetSession) -> None:
    recall = begun(target, waits(B, 200), waits(A, 600))
    recall.drop_past_records(SERVER, STATE.at, [A, B])
    assert len(recorded(target)) == 2
    arrived = waits(A, 600)
    target.meta.halts.save("t", "s", arrived)
    recall.drop_past_records(SERVER, PlanState(at(599), held=(HeldTables(frozenset({B}), at(200)),)).at, [A, B])
    assert recorded(target) == [arrived], "what is recorded anew is from the threads'"
    recall.drop_past_records(SERVER, PlanState(at(700)).at, [A, B])
    assert recorded(target) == []


def test_a_halt_of_a_missing_table_is_removed(target: TargetSession) -> None:
    recall = begun(target, waits(B, 200))
    recall.drop_past_records(SERVER, STATE.at, [A])
    assert recorded(target) == []
