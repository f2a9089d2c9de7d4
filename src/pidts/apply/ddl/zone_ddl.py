"""Finds out whether programs of the target's zone have made a schema change themselves.

All zones may run the same migration at the same time. Then each zone gets the statements of all other zones, although
its own programs have made this change:

    a    ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7        task ba finds c
    b    ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7        task ab finds c

Only the columns and keys that the statement changes are compared. The change counts as made if the target has each of
them as the statement leaves it. A comparison of the rest would prove no more, and servers of different kinds write many
attributes differently.

    ADD COLUMN c ... DEFAULT CURRENT_TIMESTAMP    does not count as made: each zone's rows have their own times
    ADD COLUMN c, ADD COLUMN d; only c exists     is not made: the server refuses the statement; a person has to look
    MODIFY c, where the types are not the same    is not made: the statement is run, and changes nothing if it was made
    ADD COLUMN c ... AS (a + b)                   does not count as made: servers write one expression in several ways
    DROP c, ADD c                                 does not count as made: the structure does not show the values
    DROP PARTITION, CONVERT TO CHARACTER SET      does not count as made: the structure does not show it
    RENAME a TO x, b TO a, x TO b                 does not count as made if a and b are alike: no structure changes

**At the same moment.** The zone may run its own statement after this check. Then the server refuses the task's
statement, and the check is repeated. **Crash points:** no statement runs here. The commit that ends a change records
that the change is done. After a crash before this commit, the next attempt checks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog

from pidts.apply.ddl.change import SchemaChange
from pidts.apply.port import TargetSession
from pidts.model import Column, ColumnType, Key, Kind, Table
from pidts.schema import AddColumn, AlterTable, RenameTable
from pidts.schema.actions import ConvertCharset, PartitionRows, SetCharset
from pidts.schema.column_defaults import default_value
from pidts.schema.literals import CurrentTime, Expression, parse_default

_log = structlog.get_logger(__name__)

_NOT_SHOWN = (ConvertCharset, PartitionRows, SetCharset)


def is_made_by_zone(session: TargetSession, change: SchemaChange) -> bool:
    """Whether the target already has the change, since a program of its zone has made it."""
    statement = change.statement
    if not change.between_zones or change.command is not None or not isinstance(statement, AlterTable | RenameTable):
        return False
    if isinstance(statement, AlterTable) and not _is_shown(statement, change.before.get(statement.table)):
        return False
    names = {*change.before, *change.after}
    changed = {name for name in names if change.before.get(name) != change.after.get(name)}
    found = bool(changed) and all(
        _is_after(session, change.before.get(name), change.after.get(name), session.schema.declared(name))
        for name in changed
    )
    if found:
        _log.info("the zone has made a schema change itself", tables=sorted(map(str, changed)), statement=change.text)
    return found


def warn_if_not_shown(change: SchemaChange) -> None:
    """Warns if no structure shows whether programs of the zone have run the statement: then it may run twice."""
    statement = change.statement
    if not change.between_zones or change.command is not None:
        return
    exchanges = isinstance(statement, RenameTable) and change.before == change.after
    if exchanges or (isinstance(statement, AlterTable) and _makes_anew(statement, change.before.get(statement.table))):
        _log.warning(
            "the table's structure does not show whether programs of this zone have also made this schema change. If "
            "they have, it is now made a second time. Compare the zones (pidts verify TASK)",
            statement=change.text,
        )


def _is_shown(statement: AlterTable, before: Table | None) -> bool:
    """Whether a table's structure can show that the statement was run. Some statements change only rows."""
    return not (_makes_anew(statement, before) or any(isinstance(action, _NOT_SHOWN) for action in statement.actions))


def _makes_anew(statement: AlterTable, before: Table | None) -> bool:
    """Whether the statement drops a column and adds another column with the same name."""
    names = {column.name.lower() for column in before.columns} if before is not None else set()
    return any(isinstance(action, AddColumn) and action.column.name.lower() in names for action in statement.actions)


def _is_after(session: TargetSession, old: Table | None, new: Table | None, there: Table | None) -> bool:
    """Whether the target has each column and key that the change alters as the change leaves it."""
    if new is None or there is None:
        return new is there
    if session.schema.misfits(new):
        return False
    if old is None:
        return True
    columns, keys = _columns(old), _keys(old)
    altered = {name for name in {*columns, *_columns(new)} if columns.get(name) != _columns(new).get(name)}
    moved = {name for name in {*keys, *_keys(new)} if keys.get(name) != _keys(new).get(name)}
    if not altered and not moved:
        return False
    added = {name for name in altered if name not in columns}
    alike = all(_is_column(_columns(new).get(name), _columns(there).get(name), added=name in added) for name in altered)
    if not alike or any(_keys(new).get(name) != _keys(there).get(name) for name in moved):
        return False
    own = [name for name in added if _differs_by_row(_columns(new)[name])]
    return not own or not session.read_rows(there, limit=1).num_rows


def _is_column(new: Column | None, there: Column | None, *, added: bool) -> bool:
    if new is None or there is None:
        return new is there
    if new.generated or there.generated:
        return False
    if (new.nullable, new.auto_increment) != (there.nullable, there.auto_increment):
        return False
    return _same_default(new, there) and (new.type == there.type or (added and _plain(new.type) == _plain(there.type)))


def _plain(kind: ColumnType) -> ColumnType:
    """Returns a type without the parts that servers write differently or that change no values."""
    same = Kind.LONGTEXT if kind.kind is Kind.JSON else kind.kind
    return replace(kind, kind=same, charset=None, collation=None, length=None if kind.is_integer else kind.length)


def _same_default(one: Column, other: Column) -> bool:
    mine, its = default_value(one), default_value(other)
    if mine is None or its is None:
        return parse_default(one.default) == parse_default(other.default)
    return bool(mine.equals(its)) or one.default == other.default


def _differs_by_row(column: Column) -> bool:
    """Whether each zone gives the rows other values in this column when it adds the column."""
    return column.auto_increment or isinstance(parse_default(column.default), CurrentTime | Expression)


def _columns(table: Table) -> Mapping[str, Column]:
    return {column.name.lower(): column for column in table.columns}


def _keys(table: Table) -> Mapping[str, tuple[Any, ...]]:
    return {key.name.lower(): _definition(key) for key in table.keys}


def _definition(key: Key) -> tuple[Any, ...]:
    """Returns the parts of a key that decide which rows the key accepts. `==` of keys does not compare all of them."""
    prefixes = key.prefixes if any(key.prefixes) else ()
    return tuple(name.lower() for name in key.columns), key.declared_unique, key.primary, prefixes, key.fulltext
