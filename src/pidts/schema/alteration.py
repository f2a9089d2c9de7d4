"""A table after an ALTER TABLE, clause by clause, in the order in which servers do it.

The clauses of one statement do not happen one after the other: `CHANGE a b int, CHANGE b a int` swaps two columns, and
`DROP COLUMN a, ADD COLUMN a text` replaces one. Dropped and changed names are looked up in the old table; only then
are columns added and moved, and keys made, by the new names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

from pidts.model.errors import Halted, Where
from pidts.model.table import Column, Key, Table
from pidts.model.types import Kind
from pidts.schema.actions import (
    Action,
    AddColumn,
    AddKey,
    ChangeColumn,
    ConvertCharset,
    DropColumn,
    DropConstraint,
    DropKey,
    ModifyColumn,
    RenameColumn,
    RenameKey,
    RenameTo,
    SetCharset,
    SetComment,
    SetDefault,
)
from pidts.schema.charset_rules import Charset, closed, completed, converted
from pidts.schema.charsets import charset_of
from pidts.schema.dialect import Dialect
from pidts.schema.key_clause import PRIMARY
from pidts.schema.timestamps import with_implicit_defaults

_A = TypeVar("_A")


@dataclass(frozen=True, slots=True)
class _Slot:
    """A column of the new table and the name it had before; None for a new one."""

    old: str | None
    column: Column


def does_not_fit(table: Table, what: str) -> Halted:
    """A statement that the source ran cannot fail here, unless the structure on record is not the source's."""
    return Halted(
        "ddl-does-not-fit",
        f"the structure on record does not fit the statement: {what}",
        where=Where(table=str(table.name)),
        todo="The target's record and the source have parted: copy again with a new task, or leave the table out.",
    )


def altered(table: Table, actions: Sequence[Action], dialect: Dialect, inherited: Charset | None = None) -> Table:
    """The new structure; `inherited` is the database's charset, without which an open table stays open."""
    slots = _columns(table, actions)
    keys = _keys(table, slots, actions)
    changed = _charset(replace(table, columns=(), keys=()), slots, actions, dialect, inherited)
    primary = {_fold(name) for key in keys if key.primary for name in key.columns}
    columns = with_implicit_defaults(
        [replace(column, nullable=False) if _fold(column.name) in primary else column for column in changed.columns],
        {item.column.name for item in actions if isinstance(item, AddColumn | ModifyColumn | ChangeColumn)},
        dialect,
    )
    for action in actions:
        if isinstance(action, SetComment):
            changed = replace(changed, comment=action.text)
        elif isinstance(action, RenameTo):
            changed = changed.renamed(action.name)
    return replace(changed, columns=columns, keys=ordered(keys))


def ordered(keys: Sequence[Key]) -> tuple[Key, ...]:
    """Primary key, unique keys, others, each by name: an order that does not depend on a table's history."""
    return tuple(sorted(keys, key=lambda key: (not key.primary, not key.unique, _fold(key.name), key.name)))


def _fold(name: str) -> str:
    return name.lower()


def _of(kind: type[_A], actions: Sequence[Action]) -> list[_A]:
    return [action for action in actions if isinstance(action, kind)]


def _columns(table: Table, actions: Sequence[Action]) -> list[_Slot]:
    known = {_fold(column.name) for column in table.columns}

    def fits(name: str, *, lenient: bool) -> bool:
        if _fold(name) not in known and not lenient:
            raise does_not_fit(table, f"there is no column {name}")
        return _fold(name) in known

    dropped = {_fold(item.name) for item in _of(DropColumn, actions) if fits(item.name, lenient=item.if_exists)}
    changes: dict[str, list[Callable[[Column], Column]]] = {}

    def change(name: str, how: Callable[[Column], Column], *, lenient: bool) -> None:
        if fits(name, lenient=lenient):
            changes.setdefault(_fold(name), []).append(how)

    for item in _of(ChangeColumn, actions):
        change(item.old, _replacement(item.column), lenient=item.if_exists)
    for redefined in _of(ModifyColumn, actions):
        change(redefined.column.name, _replacement(redefined.column), lenient=redefined.if_exists)
    for rename in _of(RenameColumn, actions):
        change(rename.old, _renaming(rename.new), lenient=rename.if_exists)
    for default in _of(SetDefault, actions):
        change(default.column, _defaulting(default.default), lenient=default.if_exists)
    slots = [
        _Slot(column.name, reduce(_applied, changes.get(_fold(column.name), ()), column))
        for column in table.columns
        if _fold(column.name) not in dropped
    ]
    for action in actions:
        if isinstance(action, AddColumn):
            slots = _add(table, slots, action)
        elif isinstance(action, ModifyColumn | ChangeColumn):
            slots = _move(table, slots, action)
    names = [_fold(slot.column.name) for slot in slots]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise does_not_fit(table, f"column {twice} would exist twice")
    return slots


def _applied(column: Column, change: Callable[[Column], Column]) -> Column:
    return change(column)


def _replacement(new: Column) -> Callable[[Column], Column]:
    return lambda _: new


def _renaming(name: str) -> Callable[[Column], Column]:
    return lambda column: replace(column, name=name)


def _defaulting(default: str | None) -> Callable[[Column], Column]:
    return lambda column: replace(column, default=default)


def _at(slots: list[_Slot], name: str) -> int | None:
    return next((at for at, slot in enumerate(slots) if _fold(slot.column.name) == _fold(name)), None)


def _add(table: Table, slots: list[_Slot], action: AddColumn) -> list[_Slot]:
    if action.if_not_exists and _at(slots, action.column.name) is not None:
        return slots
    return _move(table, [*slots, _Slot(None, action.column)], action)


def _move(table: Table, slots: list[_Slot], action: AddColumn | ModifyColumn | ChangeColumn) -> list[_Slot]:
    name = _fold(action.column.name)
    at = max((at for at, slot in enumerate(slots) if _fold(slot.column.name) == name), default=None)
    if at is None or not (action.first or action.after):
        return slots
    slot, rest = slots[at], slots[:at] + slots[at + 1 :]
    if action.first:
        return [slot, *rest]
    behind = _at(rest, action.after or "")
    if behind is None:
        raise does_not_fit(table, f"there is no column {action.after}")
    return [*rest[: behind + 1], slot, *rest[behind + 1 :]]


def _keys(table: Table, slots: list[_Slot], actions: Sequence[Action]) -> list[Key]:
    keys = _remaining_keys(table, slots, actions)
    added = [item for item in _of(AddKey, actions) if not (item.if_not_exists and _key(keys, item.key.name))]
    for item in added:
        if not item.supports_foreign_key or _is_needed(item, keys, added):
            key = _named(_spelled(table, slots, item), keys)
            if (present := _key(keys, key.name)) is not None:
                if present.unique or present.primary:
                    raise does_not_fit(table, f"key {key.name} exists already")
                keys.remove(present)  # made for a foreign key, and replaced by this one without a word in the log
            keys.append(key)
    return keys


def _remaining_keys(table: Table, slots: list[_Slot], actions: Sequence[Action]) -> list[Key]:
    # `DROP h, ADD h int` in one statement leaves the keys of the old `h` to the new one.
    names = {_fold(slot.column.name): slot.column.name for slot in slots if slot.old is None}
    names |= {_fold(slot.old): slot.column.name for slot in slots if slot.old is not None}
    dropped = {_fold(item.name) for item in _of(DropConstraint, actions)}
    gone = {_fold(item.name) for item in _of(DropKey, actions)}
    renamed = {_fold(rename.old): rename.new for rename in _of(RenameKey, actions)}
    keys = []
    for key in table.keys:
        columns = tuple(names[_fold(name)] for name in key.columns if _fold(name) in names)
        if _fold(key.name) in gone or (key.unique and _fold(key.name) in dropped) or not columns:
            continue
        keys.append(replace(key, name=renamed.get(_fold(key.name), key.name), columns=columns))
    return keys


def _key(keys: Sequence[Key], name: str) -> Key | None:
    return next((key for key in keys if _fold(key.name) == _fold(name)), None)


def _spelled(table: Table, slots: list[_Slot], item: AddKey) -> Key:
    """The key with its columns as their definitions spell them.

    Unique prefixes are not called unique: they refuse rows whose columns as a whole differ, which no key over the whole
    columns does. As primary key they name a row all the better.
    """
    columns, whole = [], True
    for at, name in enumerate(item.key.columns):
        found = _at(slots, name)
        if found is None:
            raise does_not_fit(table, f"there is no column {name} for key {item.key.name}")
        column = slots[found].column
        columns.append(column.name)
        prefix = item.prefixes[at] if item.prefixes else None
        whole = whole and (prefix is None or (column.type.kind in _SIZED and prefix == column.type.length))
    return replace(item.key, columns=tuple(columns), unique=item.key.unique and (whole or item.key.primary))


_SIZED = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.BINARY, Kind.VARBINARY})


def _named(key: Key, keys: Sequence[Key]) -> Key:
    """A key without a name is called after its first column: `a`, `a_2`, `a_3`."""
    if key.name:
        return key
    name, number = key.columns[0], 2
    while _key(keys, name) is not None or _fold(name) == _fold(PRIMARY):
        name, number = f"{key.columns[0]}_{number}", number + 1
    return replace(key, name=name)


def _is_needed(item: AddKey, keys: Sequence[Key], added: Sequence[AddKey]) -> bool:
    """Whether a key for a foreign key appears: not if another begins with its columns; of two equal ones the last."""
    wanted = tuple(map(_fold, item.key.columns))
    if any(_begins(key, wanted) for key in keys):
        return False
    here = next(at for at, other in enumerate(added) if other is item)
    for at, other in enumerate(added):
        if at == here or not _begins(other.key, wanted):
            continue
        if not other.supports_foreign_key or len(other.key.columns) > len(wanted) or at > here:
            return False
    return True


def _begins(key: Key, wanted: tuple[str, ...]) -> bool:
    return tuple(map(_fold, key.columns[: len(wanted)])) == wanted


def _charset(
    table: Table, slots: list[_Slot], actions: Sequence[Action], dialect: Dialect, inherited: Charset | None
) -> Table:
    """The new default, and the columns under it."""
    convert = next(iter(reversed(_of(ConvertCharset, actions))), None)
    charset, collation = _asked(table, actions, convert)
    own = _own(charset, collation, inherited, dialect)
    columns = [slot.column for slot in slots]
    if own is not None:
        charset, collation = own
        columns = [closed(column, own, dialect) for column in columns]
        if convert is not None:
            columns = [converted(column, own, dialect) for column in columns]
    return replace(table, charset=charset, collation=collation, columns=tuple(columns))


def _asked(table: Table, actions: Sequence[Action], convert: ConvertCharset | None) -> tuple[str | None, str | None]:
    charset, collation = table.charset, table.collation
    for action in _of(SetCharset, actions):
        if action.charset is None and action.collation is not None:
            named = charset_of(action.collation)
            charset, collation = named or charset, action.collation
        else:
            charset, collation = action.charset, None
    return (charset, collation) if convert is None else (convert.charset, convert.collation)


def _own(charset: str | None, collation: str | None, inherited: Charset | None, dialect: Dialect) -> Charset | None:
    if inherited is not None:
        return completed(charset, collation, inherited, dialect)
    if charset is None:
        return None
    return completed(charset, collation, (charset, dialect.collation_of(charset)), dialect)
