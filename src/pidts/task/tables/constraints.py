"""Decides which foreign keys, checks, special keys, automatic timestamps and generated columns the target can have."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pidts.apply import TargetSession
from pidts.model import CheckConstraint, ExpressionKey, ForeignKey, Halted, OnUpdate, Table, TableName
from pidts.rules import mapping_of
from pidts.source.uncarried_objects import PARTITIONS, SPECIAL_KEYS, UncarriedObject
from pidts.target.mysql import MySqlSession
from pidts.target.mysql.cutover import remade_columns, remade_tables
from pidts.target.mysql.cutover.remade_columns import DeclaredType, GeneratedColumn, RemadeColumn
from pidts.target.mysql.cutover.remade_tables import Partitions, RemadeTable, SpecialKey
from pidts.target.postgres import PostgresSession
from pidts.target.postgres.cutover import on_update
from pidts.target.postgres.dialect import MAX_NAME
from pidts.target.postgres.expressions import condition, key_parts
from pidts.task.config.task_file import TaskConfig

_KEEP = frozenset({"NO ACTION", "RESTRICT"})
_KEEP_OR_REMOVE = _KEEP | {"CASCADE"}
_REGULAR = re.compile(r"\b(?:regexp|rlike)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UncarriedForeignKey:
    """A foreign key that the target does not get, with the reason."""

    key: ForeignKey
    why: str

    def __str__(self) -> str:
        return f"{self.key}: {self.why}"


def merged_targets(parts: Sequence[TaskConfig], tables: Mapping[str, Collection[TableName]]) -> frozenset[TableName]:
    """Returns the target tables that several source tables share; `tables` maps a source's id to its tables."""
    counts = Counter(part.rules.target_name(name) for part in parts for name in tables[part.source.source_id])
    return frozenset(name for name, count in counts.items() if count > 1)


def fitting_key(
    part: TaskConfig, key: ForeignKey, tables: Collection[TableName], merged: Collection[TableName]
) -> ForeignKey | UncarriedForeignKey:
    """Returns the foreign key with the target's table names; `tables` are the task's tables of the same source."""
    if key.parent not in tables:
        return UncarriedForeignKey(key, f"{key.parent} is not part of the task")
    there = replace(key, table=part.rules.target_name(key.table), parent=part.rules.target_name(key.parent))
    if _is_too_long(part, key.name):
        return UncarriedForeignKey(there, f"PostgreSQL takes names of at most {MAX_NAME} bytes")
    shared = [name for name in (there.table, there.parent) if name in merged]
    return UncarriedForeignKey(there, f"{shared[0]} is merged from several tables") if shared else there


def fitting_check(
    part: TaskConfig, found: UncarriedObject, table: Table, merged: Collection[TableName], *, alike: bool
) -> CheckConstraint | None:
    """Returns the check as the target can create it; None if the target cannot, or might evaluate it differently.

    `alike`: source and target are both MySQL, or both MariaDB. If not, a check with a regular expression is left out:
    MySQL, MariaDB and TiDB use different libraries for regular expressions. A server gives any other expression the
    same meaning, or refuses it.
    """
    there = part.rules.target_name(table.name)
    if not found.clause or there in merged or _is_too_long(part, found.name):
        return None
    if not alike and _REGULAR.search(found.clause):
        return None
    typed = part.target.types.of(table.renamed(there))
    wanted = condition(typed, found.clause) if part.target.type == "postgresql" else found.clause
    return None if wanted is None else CheckConstraint(found.name, there, wanted)


def fitting_expression_key(
    part: TaskConfig, found: UncarriedObject, table: Table, merged: Collection[TableName], *, alike: bool
) -> ExpressionKey | None:
    """Returns the key as the target can create it; None if the target cannot, or might evaluate it differently.

    On PostgreSQL the name of a key must be unique in its schema, so the name also contains the table's name.
    """
    there = part.rules.target_name(table.name)
    if not found.parts or there in merged:
        return None
    if part.target.type != "postgresql":
        return ExpressionKey(found.name, there, found.parts, found.unique) if alike else None
    name = f"{there.name}_{found.name}"
    parts = key_parts(part.target.types.of(table.renamed(there)), found.parts, unique=found.unique)
    return None if parts is None or _is_too_long(part, name) else ExpressionKey(name, there, parts, found.unique)


def on_update_of(part: TaskConfig, found: UncarriedObject, target: TargetSession) -> OnUpdate | None:
    """Returns the automatic timestamp with the target's names; None if the target has no such column."""
    table = found.table_name
    if table is None or found.digits is None:
        return None
    there = target.schema.structure(part.rules.target_name(table))
    names = [column.name for column in there.columns] if there is not None else []
    if there is None or found.name not in names:
        return None
    generated = tuple(column.name for column in there.columns if column.generated)
    return OnUpdate(found.name, there.name, found.digits, names.index(found.name) + 1, generated)


def fitting_on_update(
    wanted: OnUpdate, target: TargetSession, keys: Sequence[ForeignKey], merged: Collection[TableName]
) -> OnUpdate | None:
    """Returns the automatic timestamp; None if it would have another effect on the target than on the source.

    On PostgreSQL, a trigger sets the timestamp. A foreign key that changes rows would run this trigger. Other triggers
    of the table may also change the row.
    """
    if wanted.table in merged:
        return None
    if not isinstance(target, PostgresSession):
        return wanted
    cascades = any(
        key.table == wanted.table and (key.on_update not in _KEEP or key.on_delete not in _KEEP_OR_REMOVE)
        for key in keys
    )
    has_room = on_update.fits(wanted) and not on_update.is_taken(target, wanted)
    return None if cascades or not has_room or on_update.has_other_triggers(target, wanted.table) else wanted


def remade_column(
    part: TaskConfig, found: UncarriedObject, target: TargetSession, merged: Collection[TableName], *, alike: bool
) -> RemadeColumn | None:
    """Returns the generated column or declared type to make on a MySQL or MariaDB target; None if it cannot be made.

    `alike`: source and target are both MySQL, or both MariaDB, so they compute an expression in the same way.
    """
    wanted = _remade(part, found, target)
    if wanted is None or wanted.table in merged or not remade_columns.can_be(target, wanted):  # type: ignore[arg-type]
        return None
    if isinstance(wanted, DeclaredType):
        return wanted
    # If the table has a column mapping, the target might compute other values.
    return wanted if alike and mapping_of(part.rules.mappings, found.table_name or wanted.table) is None else None


def remade_statement(part: TaskConfig, found: UncarriedObject, target: TargetSession) -> str:
    """Returns the statement that would create the object on a target of the MySQL family; empty if there is none."""
    if not isinstance(target, MySqlSession):
        return ""
    if (special := special_part(part, found, target)) is not None:
        return remade_tables.statement(target, special)
    wanted = _remade(part, found, target)
    if wanted is None:
        return ""
    try:
        return remade_columns.statement(target, wanted)
    except Halted:  # a foreign key needs the plain column, so no statement can replace it
        return ""


def remade_table(
    part: TaskConfig, found: UncarriedObject, target: TargetSession, merged: Collection[TableName], *, alike: bool
) -> RemadeTable | None:
    """Returns the FULLTEXT key, SPATIAL key or partitions to make on the target; None if there is nothing to make.

    `alike`: source and target are both MySQL, or both MariaDB, so a clause has the same meaning on both.
    """
    wanted = special_part(part, found, target)
    if wanted is None or wanted.table in merged or not alike:
        return None
    return wanted if remade_tables.can_be(target, wanted) else None  # type: ignore[arg-type]


def special_part(part: TaskConfig, found: UncarriedObject, target: TargetSession) -> RemadeTable | None:
    """Returns the FULLTEXT key, SPATIAL key or partitions, with the target's names; None for other objects.

    Also returns None if the object's text was not read, or if the target lacks the table or cannot have such an object.
    """
    if found.table_name is None or not found.definition or not isinstance(target, MySqlSession):
        return None
    there = part.rules.target_name(found.table_name)
    if target.schema.structure(there) is None:
        return None
    if found.kind == PARTITIONS:
        return Partitions(there, found.definition)
    (kind,) = [word for word, name in SPECIAL_KEYS.items() if name == found.kind]
    return SpecialKey(there, found.name, kind, found.columns, found.definition)


def _remade(part: TaskConfig, found: UncarriedObject, target: TargetSession) -> RemadeColumn | None:
    name = found.table_name
    if name is None or not isinstance(target, MySqlSession) or not (found.expression or found.declared):
        return None
    there = target.schema.structure(part.rules.target_name(name))
    if there is None or found.name.lower() not in {column.name.lower() for column in there.columns}:
        return None
    if found.declared:
        return DeclaredType(there.name, found.name, found.declared, found.srid)
    return GeneratedColumn(there.name, found.name, found.expression, found.stored)


def _is_too_long(part: TaskConfig, name: str) -> bool:
    return part.target.type == "postgresql" and len(name.encode()) > MAX_NAME
