"""Checks whether the target's tables fit the task, chooses how each copy begins, and creates missing tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import structlog

from pidts.apply import TargetSession
from pidts.apply.ddl.wrong_in_log import COMPUTE_THERE, wrong_in_log, wrong_text
from pidts.model import Halted, PidtsError, PrecheckFailed, Table, TableName
from pidts.plan import CopyMode
from pidts.rules import Rules
from pidts.source import Session
from pidts.source.structures import system_versioned
from pidts.task.tables.merged import Shard, by_target, own_shards, target_name_of, with_extracted_keys

_log = structlog.get_logger(__name__)

CHANGE = "Change or drop the table on the target, or exclude it in block-allow-list"
_CHANGE_ONLY = (
    "Change the table on the target, or exclude it in block-allow-list. Do not drop it: "
    "task-mode incremental copies no rows"
)
_CREATE = "Create the table on the target, or set task-mode: all"
_VERSIONED = "it is system-versioned on the source: the log shows old versions of its rows as new rows"
_LEAVE_OUT = "Exclude the table in block-allow-list"
_NOT_FROM_COUNTER = f"Exclude the table in block-allow-list, or drop the column on the source. Or {COMPUTE_THERE}"
_NEEDS_KEY = (
    "Add a primary key to these tables on their sources. Or exclude all but one of them in block-allow-list, or write "
    "routes that lead them to different tables"
)
LOOK_FIRST = "TRUNCATE also removes rows that the source does not have: look at these rows first"
_EMPTY = (
    f"Empty the table on the target, or set task-mode: incremental to carry only changes. {LOOK_FIRST}. Between zones, "
    "do not set incremental, because it copies no rows. Insert the rows that only the target has into the source, then "
    "empty the table on the target"
)


OTHER_TABLES = "they may be rows of other tables"
"""A reason why a copy does not remove rows that the source does not have."""


@dataclass(frozen=True, slots=True)
class TableFit:
    """A table of the source and the state of its target table."""

    name: TableName
    """The name on the source."""
    target_table: Table
    """The structure that the target needs."""
    mode: CopyMode = CopyMode.NEW
    missing: bool = False
    """Whether the target table has to be created."""
    has_rows: bool = False
    """Whether the target table has rows, and the source's rows are to be copied."""
    is_shared: bool = False
    """Whether other tables of the task have the same target table."""
    stay: tuple[str, ...] = ()
    """The reasons why a copy does not remove rows that the source does not have."""
    made: Table | None = None
    """The structure to create; None if it is `target_table`."""
    problem: str = ""
    """The reason why the target table cannot be used; empty if it can."""
    fix: str = ""
    notes: tuple[str, ...] = ()
    """How the target table will differ from the source table, if it has to be created."""

    def __str__(self) -> str:
        return str(self.name) if self.target_table.name == self.name else f"{self.name} -> {self.target_table.name}"


def fit_of(
    target: TargetSession,
    table: Table,
    rules: Rules,
    *,
    copies: bool,
    may_have_rows: bool = False,
    other_shards: Iterable[Shard] = (),
) -> TableFit:
    """Returns whether and how the target table of `table` can take the source table's rows with their right values.

    - `copies`: the table's existing rows are to be copied.
    - `may_have_rows`: rows on the target are repaired. If not, a target table with rows is refused: a row that only the
      target has would stay for ever, and may have a unique value that a row of the source needs.
    - `other_shards`: if the task already carries one of these shards with the same target table, the target's rows
      count as rows of that shard. Then a row is removed only if its own source deletes it.
    """
    fit = _fit_of(target, table, rules, copies=copies, may_have_rows=may_have_rows, other_shards=other_shards)
    wrong = [] if fit.problem else wrong_in_log(target.schema, table, fit.target_table)
    return replace(fit, problem=wrong_text(wrong), fix=_NOT_FROM_COUNTER) if wrong else fit


def _fit_of(
    target: TargetSession,
    table: Table,
    rules: Rules,
    *,
    copies: bool,
    may_have_rows: bool,
    other_shards: Iterable[Shard],
) -> TableFit:
    try:
        rules.check(table)
    except PidtsError as error:
        return TableFit(table.name, table, problem=error.what, fix=error.todo)
    target_table = rules.target_table(table)
    others = [
        one
        for one in other_shards
        if one.target_name == target_table.name and (one.source or one.table.name != table.name)
    ]
    if others:  # each shard may compute a column in its own way
        target_table = target_table.of_any_shard
    fit = TableFit(table.name, target_table, CopyMode.ADD if others else CopyMode.NEW, is_shared=bool(others))
    if others and not target_table.identity:
        names = ", ".join(map(str, others))
        what = f"rows of {names} go to the same target table, and without a key they cannot be distinguished"
        return replace(fit, problem=what, fix=_NEEDS_KEY)
    misfits = target.schema.misfits(target_table)
    if misfits:
        return replace(fit, problem="; ".join(misfits), fix=CHANGE if copies else _CHANGE_ONLY)
    if misfits is None:
        if copies:
            return _creatable(target, fit)
        return replace(fit, problem="it does not exist, and task-mode incremental creates no tables", fix=_CREATE)
    if copies and target.read_rows(target_table, limit=1).num_rows:
        fit = replace(fit, has_rows=True)
        if may_have_rows or any(one.begun for one in others):
            # For each of these reasons, the copy cannot tell which rows have to be removed, so it removes none.
            reasons = {
                OTHER_TABLES: bool(others),
                "a filter may have kept them": rules.keeps_rows(table.name),
                "a mapping changes keys": not rules.keeps_keys(table),
            }
            stay = tuple(why for why, holds in reasons.items() if holds)
            return replace(fit, mode=CopyMode.ADD if stay else CopyMode.REPAIR, stay=stay)
        return replace(fit, problem="it already has rows on the target", fix=_EMPTY)
    return fit


def _creatable(target: TargetSession, fit: TableFit) -> TableFit:
    """Returns the fit of a missing table, with a problem if the target cannot create it (say, a name is too long)."""
    try:
        rendered = target.schema.create_statements(fit.target_table)
    except PidtsError as error:
        return replace(fit, problem=error.what, fix=error.todo)
    return replace(fit, missing=True, notes=rendered.notes)


def fits_of(
    target: TargetSession,
    tables: Iterable[Table],
    rules: Rules,
    *,
    copies: bool,
    may_have_rows: Callable[[TableName], bool] = lambda _: False,
    other_shards: Iterable[Shard],
) -> list[TableFit]:
    """Returns the fit of each of these tables. Several of them may have the same target table."""
    tables = list(tables)
    names = {table.name for table in tables}
    others = [one for one in other_shards if one.source or one.table.name not in names]
    rules, there = with_extracted_keys(target, rules, tables, [*others, *own_shards(rules, tables, begun=False)])
    merged = by_target(there)
    places = ((table, target_name_of(rules, table.name)) for table in tables)
    target.schema.read_ahead(table.renamed(place) for table, place in places if place is not None)
    fits = [
        fit_of(
            target,
            table,
            rules,
            copies=copies,
            may_have_rows=may_have_rows(table.name),
            other_shards=merged.get(target_name_of(rules, table.name), ()),
        )
        for table in tables
    ]
    target.schema.read_ahead(())  # later calls read the structures from the target again
    return fits


def followable(source: Session, fits: Iterable[TableFit]) -> list[TableFit]:
    """Returns the fits, with a problem for each system-versioned table.

    The log shows old versions of such a table's rows as new rows, so a task cannot carry the table.
    """
    versioned = system_versioned(source)
    return [
        replace(fit, problem=fit.problem or _VERSIONED, fix=fit.fix or _LEAVE_OUT) if fit.name in versioned else fit
        for fit in fits
    ]


def create_missing(target: TargetSession, task: str, fits: Iterable[TableFit], *, before_copy: bool) -> None:
    """Creates the missing tables. With `before_copy`, some of their keys are created only at the end of the copy.

    Several sources of a task may create a shared table at the same time. So each source checks under a lock whether the
    table exists. A shared table gets all of its keys now, because nobody knows which source's copy ends last.
    """
    missing = [fit for fit in fits if fit.missing]
    if not missing:
        return
    with target.meta.ddl_lock(task, "creation of tables"):
        for fit in missing:
            if fit.is_shared and (misfits := target.schema.misfits(fit.target_table)) is not None:
                demand_fit([replace(fit, problem="; ".join(misfits), fix=CHANGE)])
            else:
                _create(target, fit, before_copy=before_copy and not fit.is_shared)


def _create(target: TargetSession, fit: TableFit, *, before_copy: bool) -> None:
    rendered = target.schema.create_statements(fit.made or fit.target_table, before_copy=before_copy)
    for note in rendered.notes:
        _log.info("note on a created table", table=str(fit), note=note)
    if target.schema.transactional_ddl:
        target.begin()
    for statement in rendered.statements:
        target.execute(statement)
    if before_copy:
        target.meta.leave_unfinished(fit.target_table.name)
    if target.schema.transactional_ddl:
        target.commit()


def demand_fit(fits: Iterable[TableFit], *, is_first: bool = False) -> None:
    """Raises one error for all tables that do not fit. `is_first`: nothing has been written yet."""
    unfit = [fit for fit in fits if fit.problem]
    if not unfit:
        return
    what = "tables on the target do not fit: " + "; ".join(f"{fit}: {fit.problem}" for fit in unfit)
    todo = "\n".join(dict.fromkeys(fit.fix for fit in unfit))
    if is_first:
        raise PrecheckFailed("target-shape", what, todo=todo)
    raise Halted("target-shape", what, todo=todo)
