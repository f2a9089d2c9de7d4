"""Makes an ALTER TABLE from the difference of two structures, if no other ALTER TABLE makes the same difference.

This module is used if the statements between the two structures are unknown. If one column is gone and another column
is new, the old column was either renamed or dropped. The structures do not show which of the two has happened, so no
ALTER TABLE is returned.
"""

from __future__ import annotations

from pidts.model.table import Column, Key, Table
from pidts.model.types import BLOBS, TEXTS
from pidts.schema.actions import Action, AddColumn, AddKey, DropColumn, DropKey, ModifyColumn, SetCharset, SetComment
from pidts.schema.compare import same_type

_PREFIXED = frozenset({*TEXTS, *BLOBS})
"""Types for which a key contains only a prefix of the value. This module makes no clauses for such keys."""


def actions_between(before: Table, after: Table) -> tuple[Action, ...] | None:
    """Returns the clauses that lead from one structure to the other; None if other clauses are also possible."""
    columns = _columns(before, after)
    keys = _keys(before, after)
    if columns is None or keys is None:
        return None
    options: list[Action] = []
    if (before.charset, before.collation) != (after.charset, after.collation):
        options.append(SetCharset(after.charset, after.collation))
    if before.comment != after.comment:
        options.append(SetComment(after.comment))
    return (*columns, *keys, *options)


def _columns(before: Table, after: Table) -> list[Action] | None:
    old = {column.name.lower(): column for column in before.columns}
    new = {column.name.lower(): column for column in after.columns}
    gone, added = old.keys() - new.keys(), new.keys() - old.keys()
    if gone and added:
        return None
    moved = [name for name in old if name in new] != [name for name in new if name in old]
    actions: list[Action] = [DropColumn(column.name) for name, column in old.items() if name in gone]
    last: str | None = None
    for name, column in new.items():
        if name in added:
            change: Action = AddColumn(column, after=last, first=last is None)
        elif moved:
            change = ModifyColumn(column, after=last, first=last is None)
        else:
            change = ModifyColumn(column)
        if name in added or moved or _differ(old[name], column):
            if column.generated:
                return None  # a structure does not contain the expression
            actions.append(change)
        last = column.name
    return actions


def _differ(old: Column, new: Column) -> bool:
    if not same_type(old.type, new.type):
        return True
    one, other = ((c.name, c.nullable, c.default, c.auto_increment, c.generated, c.comment) for c in (old, new))
    return one != other


def _keys(before: Table, after: Table) -> list[Action] | None:
    there = {column.name.lower() for column in after.columns}
    old = {key.name.lower(): _left(key, there) for key in before.keys if _left(key, there)}
    new = {key.name.lower(): _plain(key) for key in after.keys}
    actions: list[Action] = [DropKey(key.name) for key in before.keys if _is_replaced(key, old, new)]
    for key in after.keys:
        if old.get(key.name.lower()) != _plain(key):
            if any(after.column(name).type.kind in _PREFIXED for name in key.columns):
                return None
            actions.append(AddKey(key))
    return actions


_PlainKey = tuple[tuple[str, ...], bool, bool]


def _plain(key: Key) -> _PlainKey:
    return tuple(name.lower() for name in key.columns), key.unique, key.primary


def _left(key: Key, there: set[str]) -> _PlainKey | None:
    """Returns a key without the dropped columns; None if no column is left."""
    columns, unique, primary = _plain(key)
    kept = tuple(name for name in columns if name in there)
    return (kept, unique, primary) if kept else None


def _is_replaced(key: Key, old: dict[str, _PlainKey | None], new: dict[str, _PlainKey]) -> bool:
    name = key.name.lower()
    return name in old and old[name] != new.get(name)
