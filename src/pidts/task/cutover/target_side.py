"""Calls the functions of the target's kind for a cutover: for counters, foreign keys, checks and keys."""

from __future__ import annotations

from collections.abc import Iterable

from pidts.apply import TargetSession
from pidts.model import Constraint, ConstraintKind, ForeignKey, Halted, Table, TableName
from pidts.target.mysql import MySqlSession, privileges
from pidts.target.mysql.cutover import constraints as mysql_constraints
from pidts.target.mysql.cutover import counters as mysql_counters
from pidts.target.mysql.cutover import remade_columns, remade_tables
from pidts.target.mysql.cutover.remade_columns import DeclaredType, GeneratedColumn, RemadeColumn
from pidts.target.mysql.cutover.remade_tables import RemadeTable
from pidts.target.postgres import PostgresSession
from pidts.target.postgres.cutover import constraints as postgres_constraints
from pidts.target.postgres.cutover import counters as postgres_counters

_PLANNER = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")


def prepare(target: TargetSession) -> None:
    """Switches on PostgreSQL's sequential scans, hash joins and merge joins.

    Sessions that write rows switch these off. But the check of a foreign key joins whole tables.
    """
    if isinstance(target, PostgresSession):
        for name in _PLANNER:
            target.execute(f"SET {name} = on")


def makes_writable(target: TargetSession) -> str:
    """Returns the statement after which applications may write to a read-only target; empty if they may write now."""
    return privileges.makes_writable(target) if isinstance(target, MySqlSession) else ""


def low_counters(target: TargetSession, table: Table, source_next: int) -> list[str]:
    """Returns a line for each counter of the target table that has to be set."""
    if isinstance(target, PostgresSession):
        return postgres_counters.low_counters(target, table, source_next)
    if isinstance(target, MySqlSession):
        return mysql_counters.low_counters(target, table, source_next)
    raise TypeError(target)


def uncounted(target: TargetSession, table: Table) -> list[str]:
    """Returns the columns for which a sequence will be created."""
    return postgres_counters.uncounted(target, table) if isinstance(target, PostgresSession) else []


def move_counters(target: TargetSession, table: Table, source_next: int) -> list[str]:
    """Sets the counters of a target table; returns a line for each counter that was set."""
    if isinstance(target, PostgresSession):
        return postgres_counters.move(target, table, source_next)
    if isinstance(target, MySqlSession):
        return mysql_counters.move(target, table, source_next)
    raise TypeError(target)


def lacks(target: TargetSession, constraint: Constraint) -> bool:
    """Whether the target has no constraint of this kind and name on the table."""
    if isinstance(target, PostgresSession):
        return postgres_constraints.missing(target, constraint)
    if isinstance(target, MySqlSession):
        return mysql_constraints.missing(target, constraint)
    raise TypeError(target)


def statements(target: TargetSession, constraint: Constraint) -> list[str]:
    """Returns the statements that create the constraint and check the existing rows."""
    if isinstance(target, PostgresSession):
        return postgres_constraints.statements(target, constraint)
    if isinstance(target, MySqlSession):
        return mysql_constraints.statements(target, constraint)
    raise TypeError(target)


def statements_or_problem(target: TargetSession, constraint: Constraint) -> tuple[list[str], str]:
    """Returns the result of `statements`; or why the target cannot have the constraint, such as a refused name."""
    try:
        needed = statements(target, constraint)
        problem = _obstacle(target, constraint) if needed and isinstance(constraint, ForeignKey) else ""
        return ([], f"{constraint}: {problem}") if problem else (needed, "")
    except Halted as error:
        return [], f"{constraint}: {error.what}"


def _obstacle(target: TargetSession, key: ForeignKey) -> str:
    if isinstance(target, PostgresSession):
        return postgres_constraints.obstacle(target, key)
    if isinstance(target, MySqlSession):
        return mysql_constraints.obstacle(target, key)
    raise TypeError(target)


def remakes(target: TargetSession) -> bool:
    """Whether a cutover to this kind of target changes columns and creates FULLTEXT and SPATIAL keys and partitions."""
    return isinstance(target, MySqlSession)


def remake(target: TargetSession, wanted: RemadeColumn | RemadeTable) -> str:
    """Gives a column, a key or partitions the source's definition. Returns why the target refuses this, or nothing."""
    if not isinstance(target, MySqlSession):
        raise TypeError(target)
    if isinstance(wanted, GeneratedColumn | DeclaredType):
        return remade_columns.make(target, wanted)
    return remade_tables.make(target, wanted)


def drop_second_columns(target: TargetSession, tables: Iterable[TableName]) -> None:
    """Drops the temporary second columns that an interrupted step has left."""
    if isinstance(target, MySqlSession):
        remade_columns.drop_second_columns(target, tables)


def drop(target: TargetSession, kind: ConstraintKind, table: TableName, name: str) -> None:
    """Removes a constraint, if it exists."""
    if isinstance(target, PostgresSession):
        statements = postgres_constraints.drops(target, kind, table, name)
    elif isinstance(target, MySqlSession):
        statements = mysql_constraints.drops(target, kind, table, name)
    else:
        raise TypeError(target)
    for statement in statements:
        target.execute(statement)
