"""Lists the sources' objects that concern a cutover: tables with counters, foreign keys, and objects left behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from hashlib import sha256

from pidts.apply import TargetSession
from pidts.model import CheckConstraint, ExpressionKey, ForeignKey, Kind, OnUpdate, SourceTablesKey, Table, TableName
from pidts.source import connect
from pidts.source.connection import server_info
from pidts.source.counters import next_values
from pidts.source.uncarried_objects import (
    DECLARED,
    GENERATED,
    HiddenObjects,
    UncarriedObject,
    foreign_keys,
    left_behind,
    unseen,
)
from pidts.target.mysql import MySqlSession
from pidts.target.mysql.cutover import constraints as mysql_constraints
from pidts.target.mysql.cutover import remade_columns, remade_tables
from pidts.target.mysql.cutover.remade_columns import DeclaredType, RemadeColumn
from pidts.target.mysql.cutover.remade_tables import Partitions, SpecialKey
from pidts.target.mysql.dialect import MAX_NAME
from pidts.target.postgres import PostgresSession
from pidts.target.postgres.cutover import on_update
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.constraints import (
    UncarriedForeignKey,
    fitting_check,
    fitting_expression_key,
    fitting_key,
    fitting_on_update,
    merged_targets,
    on_update_of,
    remade_column,
    remade_statement,
    remade_table,
    special_part,
)
from pidts.task.tables.lost_defaults import lost_default_objects

_DIGITS = 8
"""The length of the digest in a name."""


@dataclass(frozen=True, slots=True)
class CounterTable:
    """A target table whose counters the cutover sets."""

    table: Table
    source_next: int
    """The highest next value of the counters of the source tables; 1 if no source table has a counter."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The objects that concern a cutover, with their names on the target."""

    counted: Sequence[CounterTable]
    foreign_keys: Sequence[ForeignKey]
    """The foreign keys that the target can have."""
    unfit: Sequence[UncarriedForeignKey]
    checks: Sequence[CheckConstraint]
    """The checks that the target can have."""
    expression_keys: Sequence[ExpressionKey]
    """The keys over expressions that the target can have."""
    automatic: Sequence[OnUpdate]
    """The automatic timestamps that the target can have."""
    remade: Sequence[RemadeColumn]
    """The columns to which the target can give the source's definition: generated columns, and columns with ZEROFILL or
    for one kind of geometry.
    """
    special_keys: Sequence[SpecialKey]
    """The FULLTEXT and SPATIAL keys that the target can have."""
    partitions: Sequence[Partitions]
    """The partitions that the target can have."""
    left: Sequence[UncarriedObject]
    unseen: Sequence[HiddenObjects]
    """Kinds of objects that may also be left behind, but are hidden from the accounts."""


@dataclass(slots=True)
class _Sources:
    tables: dict[str, Mapping[TableName, Table]] = field(default_factory=dict)
    """The tables of each source."""
    nexts: dict[str, Mapping[TableName, int]] = field(default_factory=dict)
    """The next values of each source's counters."""
    products: dict[str, str] = field(default_factory=dict)
    keys: list[tuple[TaskConfig, ForeignKey]] = field(default_factory=list)
    besides: list[tuple[TaskConfig, UncarriedObject]] = field(default_factory=list)
    """All other objects that a task does not carry."""
    hidden: dict[HiddenObjects, None] = field(default_factory=dict)


def read_inventory(parts: Sequence[TaskConfig], target: TargetSession, *, texts: bool = True) -> Inventory:
    """Reads the sources' catalogs. The tables' structures come from the task's records on the target.

    Without `texts`, reads neither the texts of objects nor the kinds of objects that are hidden from the account.
    """
    sources = _read_sources(parts, target, texts=texts)
    merged = merged_targets(parts, sources.tables)
    found = [fitting_key(part, key, sources.tables[part.source.source_id], merged) for part, key in sources.keys]
    fitting = [key for key in found if isinstance(key, ForeignKey)]
    # On MySQL, a foreign key and a check may have the same name. On MariaDB and PostgreSQL, they may not.
    there = _product(target)
    taken = {(key.table, key.name) for key in fitting if there != "mysql"}
    names: set[tuple[str, str]] = set()  # of checks on MySQL, by schema
    made: list[CheckConstraint | ExpressionKey] = []
    automatic: list[OnUpdate] = []
    remade: list[RemadeColumn] = []
    special: list[SpecialKey | Partitions] = []
    left: list[UncarriedObject] = []
    for part, one in sources.besides:
        if _is_there(part, one, target):
            continue
        source = part.source.source_id
        alike = sources.products[source] == there
        if (timestamp := on_update_of(part, one, target)) is not None:
            fits = fitting_on_update(timestamp, target, fitting, merged)
            automatic += [fits] if fits is not None else []
            left += [] if fits is not None else [_with_suggestion(one, timestamp, target)]
        elif one.kind in {GENERATED, DECLARED}:
            column = remade_column(part, one, target, merged, alike=alike)
            remade += [column] if column is not None else []
            left += [] if column is not None else [_with_statement(part, one, target)]
        elif one.is_of_family:
            part_of_table = remade_table(part, one, target, merged, alike=alike)
            special += [part_of_table] if part_of_table is not None else []
            left += [] if part_of_table is not None else [_with_statement(part, one, target)]
        else:
            wanted = _made(part, one, sources.tables[source], merged, alike=alike)
            if there == "mysql" and isinstance(target, MySqlSession) and isinstance(wanted, CheckConstraint):
                wanted = _named_uniquely(wanted, names, target)
            if wanted is None or (isinstance(wanted, CheckConstraint) and (wanted.table, wanted.name) in taken):
                left.append(one)
                continue
            made.append(wanted)
            taken |= {(wanted.table, wanted.name)} if isinstance(wanted, CheckConstraint) else set()
    if texts:
        for part in parts:
            left += lost_default_objects(part, target, sources.tables[part.source.source_id], merged)
    return Inventory(
        _counted(parts, sources.tables, sources.nexts),
        fitting,
        [key for key in found if isinstance(key, UncarriedForeignKey)],
        [one for one in made if isinstance(one, CheckConstraint)],
        [one for one in made if isinstance(one, ExpressionKey)],
        automatic,
        remade,
        [one for one in special if isinstance(one, SpecialKey)],
        [one for one in special if isinstance(one, Partitions)],
        left,
        list(sources.hidden),
    )


def _read_sources(parts: Sequence[TaskConfig], target: TargetSession, *, texts: bool) -> _Sources:
    found = _Sources()
    for part in parts:
        source = part.source.source_id
        stored = target.meta.structures.load(part.name, SourceTablesKey(source))
        tables = found.tables[source] = {name: table for name, table in stored.items() if part.allow(name)}
        schemas = {name.schema for name in tables}
        with closing(connect(part.source.server)) as session:
            found.products[source] = server_info(session).product
            found.nexts[source] = next_values(session, tables)
            found.keys += ((part, key) for key in foreign_keys(session, tables.__contains__, schemas))
            found.besides += ((part, one) for one in left_behind(session, tables.__contains__, schemas, texts=texts))
            found.hidden |= dict.fromkeys(unseen(session, tables, schemas)) if texts else {}
    return found


def _with_suggestion(left: UncarriedObject, wanted: OnUpdate, target: TargetSession) -> UncarriedObject:
    """Adds triggers that may replace an automatic timestamp on PostgreSQL, for the user to create."""
    if not isinstance(target, PostgresSession) or not on_update.fits(wanted):
        return left
    return replace(left, text=f"{left.text}\nOn PostgreSQL, if it fits:\n{on_update.text(wanted)};")


def _with_statement(part: TaskConfig, left: UncarriedObject, target: TargetSession) -> UncarriedObject:
    statement = remade_statement(part, left, target)
    return replace(left, text=f"{left.text}\nOn the target, if it fits:\n{statement};") if statement else left


def _is_there(part: TaskConfig, one: UncarriedObject, target: TargetSession) -> bool:
    """Whether the target already has the source's column definition, key or partitions (`one`).

    A target column of the type JSON does not need the constraint `CHECK (json_valid(...))` of MariaDB's JSON columns.
    """
    if isinstance(target, MySqlSession) and (special := special_part(part, one, target)) is not None:
        return not remade_tables.is_needed(target, special)
    if one.table_name is None or not (one.kind in {GENERATED, DECLARED} or one.is_of_json):
        return False
    name = part.rules.target_name(one.table_name)
    if one.kind == DECLARED:
        wanted = DeclaredType(name, one.name, one.declared, one.srid)
        return isinstance(target, MySqlSession) and not remade_columns.is_needed(target, wanted)
    found = target.schema.structure(name)
    return found is not None and any(
        (column.type.kind is Kind.JSON if one.is_of_json else column.generated)
        for column in found.columns
        if column.name.lower() == one.name.lower()
    )


def _named_uniquely(check: CheckConstraint, names: set[tuple[str, str]], target: MySqlSession) -> CheckConstraint:
    """Returns the check. If another check of the schema has its name, its new name begins with its table's name.

    If the new name is also in use, it ends with a digest. MySQL demands unique names in a schema, MariaDB only in a
    table. `names` has the names of the inventory's checks, and gets the name of the result. A check that its own table
    already has keeps its name, so that a repeated step finds it.
    """
    schema = check.table.schema.casefold()
    for name in (check.name, _name_with_table(check), _name_with_table(check, is_taken=True)):
        named = replace(check, name=name)
        if (schema, name.casefold()) not in names and not mysql_constraints.is_name_of_other(target, named):
            break
    names.add((schema, named.name.casefold()))
    return named


def _name_with_table(check: CheckConstraint, *, is_taken: bool = False) -> str:
    """Returns the table's name and the check's name. If both are in use or too long for MySQL, adds a digest."""
    name = f"{check.table.name}_{check.name}"
    if len(name) <= MAX_NAME and not is_taken:
        return name
    digest = sha256(f"{check.table.name}\0{check.name}".encode()).hexdigest()[:_DIGITS]
    return f"{name[: MAX_NAME - 1 - _DIGITS]}_{digest}"


def _made(
    part: TaskConfig,
    found: UncarriedObject,
    tables: Mapping[TableName, Table],
    merged: Collection[TableName],
    *,
    alike: bool,
) -> CheckConstraint | ExpressionKey | None:
    name = found.table_name
    if name is None or not found.may_be_made:
        return None
    fitting = fitting_expression_key if found.parts else fitting_check
    return fitting(part, found, tables[name], merged, alike=alike)


def _counted(
    parts: Sequence[TaskConfig],
    tables: Mapping[str, Mapping[TableName, Table]],
    nexts: Mapping[str, Mapping[TableName, int]],
) -> list[CounterTable]:
    found: dict[TableName, CounterTable] = {}
    for part in parts:
        source = part.source.source_id
        for name, table in sorted(tables[source].items()):
            there = part.rules.target_table(table)
            known = found.get(there.name)
            source_next = max(nexts[source].get(name, 1), known.source_next if known is not None else 1)
            found[there.name] = CounterTable(there if known is None else known.table, source_next)
    return list(found.values())


def _product(target: TargetSession) -> str:
    if isinstance(target, MySqlSession):
        return "tidb" if target.server.tidb else "mariadb" if target.server.dialect.mariadb else "mysql"
    return "postgresql"
