"""Whether the target's tables are what a task can write to, and how their copy begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import structlog

from pidts.apply import TargetSession
from pidts.model import Halted, Table, TableName
from pidts.plan import Way
from pidts.source import Session
from pidts.source.structures import system_versioned

_log = structlog.get_logger(__name__)

_CHANGE = "Change or drop the table on the target, or leave it out by block-allow-list"
_CREATE = "Create it, or use task-mode: all"
_VERSIONED = "it is system-versioned on the source: the log tells old versions of its rows as new rows"
_LEAVE_OUT = "Leave the table out by block-allow-list"
_EMPTY = "Empty the table (TRUNCATE), or follow changes only with task-mode: incremental"


@dataclass(frozen=True, slots=True)
class Fit:
    """One table, as it is on the target."""

    table: Table
    way: Way = Way.NEW
    missing: bool = False
    """It has to be created."""
    problem: str = ""
    """Why it cannot be used; empty where it can."""
    fix: str = ""

    @property
    def name(self) -> TableName:
        """The table's."""
        return self.table.name


def fit_of(target: TargetSession, table: Table, *, copies: bool, may_have_rows: bool = False) -> Fit:
    """`copies`: existing rows are going to be copied; with `may_have_rows` those that are there are put right.

    Without that they are refused: a row that the source does not have would stay for ever, and may hold a unique value
    that another needs.
    """
    misfits = target.misfits(table)
    if misfits:
        return Fit(table, problem="; ".join(misfits), fix=_CHANGE)
    if misfits is None:
        if copies:
            return Fit(table, missing=True)
        return Fit(table, problem="it does not exist, and task-mode incremental creates no tables", fix=_CREATE)
    if copies and target.read_rows(table, limit=1).num_rows:
        if may_have_rows:
            return Fit(table, Way.REPAIR)
        return Fit(table, problem="it has rows on the target already", fix=_EMPTY)
    return Fit(table)


def fits_of(
    target: TargetSession,
    tables: Iterable[Table],
    *,
    copies: bool,
    may_have_rows: Callable[[TableName], bool] = lambda _: False,
) -> list[Fit]:
    """Each of these tables."""
    return [fit_of(target, table, copies=copies, may_have_rows=may_have_rows(table.name)) for table in tables]


def followable(source: Session, fits: Iterable[Fit]) -> list[Fit]:
    """The same, with those refused whose rows the source's log does not tell as rows."""
    versioned = system_versioned(source)
    return [
        replace(fit, problem=fit.problem or _VERSIONED, fix=fit.fix or _LEAVE_OUT) if fit.name in versioned else fit
        for fit in fits
    ]


def create_missing(target: TargetSession, fits: Iterable[Fit], *, before_copy: bool) -> None:
    """Those that are not there; `before_copy` leaves to the end of the copy what is better made then."""
    for fit in fits:
        if not fit.missing:
            continue
        rendered = target.create_statements(fit.table, before_copy=before_copy)
        for note in rendered.notes:
            _log.info("note on a created table", table=str(fit.name), note=note)
        if target.transactional_ddl:
            target.begin()
        for statement in rendered.statements:
            target.execute(statement)
        if before_copy:
            target.leave_unfinished(fit.name)
        if target.transactional_ddl:
            target.commit()


def demand_fit(fits: Iterable[Fit]) -> None:
    """Raise for all that cannot be used, at once."""
    unfit = [fit for fit in fits if fit.problem]
    if unfit:
        raise Halted(
            "target-shape",
            "tables on the target do not fit: " + "; ".join(f"{fit.name}: {fit.problem}" for fit in unfit),
            todo="\n".join(dict.fromkeys(fit.fix for fit in unfit)),
        )
