"""The first step of a cutover names each table that blocks it."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from pidts.model import Halt, Lsn, TableName
from pidts.task.config.task_file import TaskConfig
from pidts.task.cutover.remaining_steps import demand_ready, tables_step
from pidts.task.cutover.steps import StepState
from pidts.task.operate.backlog import HeldTablesOfSource
from pidts.task.operate.ddl_commands import BlockedChange
from pidts.task.operate.progress import TableProgress
from pidts.task.operate.status import LockedTable, SourceStatus, TaskStatus

AT = Lsn(0, 1, 10)
T, U, V = (TableName("shop", name) for name in "tuv")


def test_halted_and_held_tables_are_named() -> None:
    halt = Halt(tables=(T,), lsn=AT, code="target-refused", what="a value is too long")
    source = SourceStatus(
        source="s",
        server="db:3306",
        held=HeldTablesOfSource("s", {T: AT, U: AT, V: AT}, 0),
        halted=(BlockedChange(AT, "", halt),),
    )
    step = tables_step(TaskStatus("task", (source,)))
    assert step.state is StepState.BLOCKED
    assert step.details == (
        "shop.t: a value is too long",
        "shop.u, shop.v wait at an earlier place in the log than the other tables",
    )


def test_tables_that_are_behind_without_a_halt_are_waited_for() -> None:
    # For example, a table without a key is held until its log has been applied after the copy.
    held = HeldTablesOfSource("s", {T: AT}, 0)
    behind = SourceStatus(source="s", server="db:3306", held=held, applied_lsn=AT)
    status = TaskStatus("task", (behind,))
    step = tables_step(status)
    assert (step.state, step.about) == (
        StepState.TODO,
        "tables are behind the others in the log: this command waits for them",
    )
    assert step.details == ("shop.t waits at an earlier place in the log than the other tables",)
    demand_ready(status, cast("TaskConfig", None))
    copying = replace(behind, copying=(TableProgress(name="shop.u"),))
    step = tables_step(TaskStatus("task", (copying,)))
    assert (step.state, step.about) == (StepState.TODO, "tables are still being copied: this command waits for them")
    assert step.details == ("shop.u", "shop.t waits at an earlier place in the log than the other tables")


def test_locked_rows_block_a_cutover() -> None:
    # The target lacks their held changes. With `--no-verify`, nothing else would notice this.
    held = HeldTablesOfSource("s", {}, 0)
    source = SourceStatus(source="s", server="db:3306", held=held, locked_rows=(LockedTable(T, 2), LockedTable(U, 1)))
    step = tables_step(TaskStatus("task", (source,)))
    assert step.state is StepState.BLOCKED
    assert step.details == ("shop.t: 2 rows are locked", "shop.u: 1 row is locked")
