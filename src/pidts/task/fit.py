"""Whether the target's tables are what a task can write to, and how their copy begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import structlog

from pidts.apply import TargetSession
from pidts.model import Halted, PidtsError, PrecheckFailed, Table, TableName
from pidts.plan import Way
from pidts.rules import Rules
from pidts.source import Session
from pidts.source.structures import system_versioned
from pidts.task.shards import Shard, own_shards, with_keys

_log = structlog.get_logger(__name__)

_CHANGE = "Change or drop the table on the target, or leave it out by block-allow-list"
_CREATE = "Create it, or use task-mode: all"
_VERSIONED = "it is system-versioned on the source: the log tells old versions of its rows as new rows"
_LEAVE_OUT = "Leave the table out by block-allow-list"
_APART = "Leave all but one of them out by block-allow-list, or write routes that keep them apart"
_EMPTY = "Empty the table (TRUNCATE), or follow changes only with task-mode: incremental"


@dataclass(frozen=True, slots=True)
class Fit:
    """One table of the source, and what there is of it on the target."""

    name: TableName
    """The source's."""
    landed: Table
    """What the target needs."""
    way: Way = Way.NEW
    missing: bool = False
    """It has to be created."""
    has_rows: bool = False
    """And they are going to be copied."""
    is_shared: bool = False
    """Others of the task land there, too."""
    made: Table | None = None
    """What is created; None: `landed`."""
    problem: str = ""
    """Why it cannot be used; empty where it can."""
    fix: str = ""

    def __str__(self) -> str:
        return str(self.name) if self.landed.name == self.name else f"{self.name} -> {self.landed.name}"


def fit_of(
    target: TargetSession,
    table: Table,
    rules: Rules,
    *,
    copies: bool,
    may_have_rows: bool = False,
    beside: Iterable[Shard] = (),
) -> Fit:
    """`copies`: existing rows are going to be copied; with `may_have_rows` those that are there are put right.

    Without that they are refused: a row that the source does not have would stay for ever, and may hold a unique value
    that another needs. `beside` are the task's tables, of which others may land in the same table: where one of them
    has begun, rows that are there are taken for its own. Of such a table no row is ever removed unless its own source
    says so.
    """
    try:
        rules.check(table)
    except PidtsError as error:
        return Fit(table.name, table, problem=error.what, fix=error.todo)
    landed = rules.landed(table)
    others = [one for one in beside if one.lands == landed.name and (one.source or one.table.name != table.name)]
    fit = Fit(table.name, landed, Way.ADD if others else Way.NEW, is_shared=bool(others))
    if others and not landed.identity:
        what = f"{', '.join(map(str, others))} land there, too, and it has no key by which their rows are told apart"
        return replace(fit, problem=what, fix=_APART)
    misfits = target.misfits(landed)
    if misfits:
        return replace(fit, problem="; ".join(misfits), fix=_CHANGE)
    if misfits is None:
        if copies:
            return _creatable(target, fit)
        return replace(fit, problem="it does not exist, and task-mode incremental creates no tables", fix=_CREATE)
    if copies and target.read_rows(landed, limit=1).num_rows:
        fit = replace(fit, has_rows=True)
        if may_have_rows or any(one.begun for one in others):
            # What a filter has kept on the target is not looked for on the source, nor what has another key there.
            is_alike = rules.keeps_keys(table) and not rules.keeps_rows(table.name)
            return replace(fit, way=Way.REPAIR if is_alike and not others else Way.ADD)
        return replace(fit, problem="it has rows on the target already", fix=_EMPTY)
    return fit


def _creatable(target: TargetSession, fit: Fit) -> Fit:
    """Some tables can be said on the source alone: a name may be too long for the target."""
    try:
        target.create_statements(fit.landed)
    except PidtsError as error:
        return replace(fit, problem=error.what, fix=error.todo)
    return replace(fit, missing=True)


def fits_of(
    target: TargetSession,
    tables: Iterable[Table],
    rules: Rules,
    *,
    copies: bool,
    may_have_rows: Callable[[TableName], bool] = lambda _: False,
    beside: Iterable[Shard] = (),
) -> list[Fit]:
    """Each of these tables, which stand beside one another, too."""
    tables = list(tables)
    names = {table.name for table in tables}
    others = [one for one in beside if one.source or one.table.name not in names]
    rules, there = with_keys(target, rules, tables, [*others, *own_shards(rules, tables, begun=False)])
    return [
        fit_of(target, table, rules, copies=copies, may_have_rows=may_have_rows(table.name), beside=there)
        for table in tables
    ]


def followable(source: Session, fits: Iterable[Fit]) -> list[Fit]:
    """The same, with those refused whose rows the source's log does not tell as rows."""
    versioned = system_versioned(source)
    return [
        replace(fit, problem=fit.problem or _VERSIONED, fix=fit.fix or _LEAVE_OUT) if fit.name in versioned else fit
        for fit in fits
    ]


def create_missing(target: TargetSession, task: str, fits: Iterable[Fit], *, before_copy: bool) -> None:
    """Those that are not there; `before_copy` leaves to the end of the copy what is better made then.

    Several sources of a task may come to this at once, and for the same table: each of them looks again when it is its
    turn. A table that several make gets all of its keys now, for nobody knows whose copy is the last to end.
    """
    missing = [fit for fit in fits if fit.missing]
    if not missing:
        return
    with target.ddl_lock(task, "creation of tables"):
        for fit in missing:
            if fit.is_shared and (misfits := target.misfits(fit.landed)) is not None:
                demand_fit([replace(fit, problem="; ".join(misfits), fix=_CHANGE)])
            else:
                _create(target, fit, before_copy=before_copy and not fit.is_shared)


def _create(target: TargetSession, fit: Fit, *, before_copy: bool) -> None:
    rendered = target.create_statements(fit.made or fit.landed, before_copy=before_copy)
    for note in rendered.notes:
        _log.info("note on a created table", table=str(fit), note=note)
    if target.transactional_ddl:
        target.begin()
    for statement in rendered.statements:
        target.execute(statement)
    if before_copy:
        target.leave_unfinished(fit.landed.name)
    if target.transactional_ddl:
        target.commit()


def demand_fit(fits: Iterable[Fit], *, is_first: bool = False) -> None:
    """Raise for all that cannot be used, at once; at a first start nothing was written yet."""
    unfit = [fit for fit in fits if fit.problem]
    if not unfit:
        return
    what = "tables on the target do not fit: " + "; ".join(f"{fit}: {fit.problem}" for fit in unfit)
    todo = "\n".join(dict.fromkeys(fit.fix for fit in unfit))
    if is_first:
        raise PrecheckFailed("target-shape", what, todo=todo)
    raise Halted("target-shape", what, todo=todo)
