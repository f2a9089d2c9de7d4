"""Computes a table's structure after an ALTER TABLE. The clauses are applied in the order that servers use.

The clauses of one statement do not take effect one after the other. `CHANGE a b int, CHANGE b a int` swaps two columns,
and `DROP COLUMN a, ADD COLUMN a text` replaces a column. First, columns are dropped and changed: these clauses contain
the old names of columns. Then columns are added and moved, and keys are created: these clauses contain the new names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

import pidts.schema.actions as alter
from pidts.model.advice import REPLACE
from pidts.model.errors import Halted, Where
from pidts.model.table import Column, Table
from pidts.model.types import LOB_BYTES, Kind
from pidts.schema.altered_keys import KeptColumn, does_not_fit, keeps_keys, keys_after
from pidts.schema.charset_rules import Charset, closed, completed, converted, text_for_old
from pidts.schema.charsets import charset_of
from pidts.schema.computed import mentions
from pidts.schema.defaults import in_primary_key, with_implicit_defaults, with_stored_digits
from pidts.schema.dialect import Dialect
from pidts.schema.stored_default import in_utc

_A = TypeVar("_A")


@dataclass(frozen=True, slots=True)
class _Slot:
    """A column of the new table, and its name in the old table (None for a new column)."""

    old: str | None
    column: Column
    place: str = ""
    """The name, in lower case, of the old column whose keys a new column takes over; empty if the names are equal."""


def altered(table: Table, actions: Sequence[alter.Action], dialect: Dialect, inherited: Charset | None = None) -> Table:
    """Returns the structure after ALTER TABLE. `inherited`: the database's charset; None: unset charsets stay unset."""
    slots = _columns(table, actions, dialect.time_zone)
    changed = _charset(table, slots, actions, dialect, inherited)
    keys = keys_after(table, _kept(table, slots, changed.columns), changed.columns, actions, dialect)
    primary = {_fold(name) for key in keys if key.primary for name in key.columns}
    columns = with_implicit_defaults(
        [in_primary_key(column, dialect) if _fold(column.name) in primary else column for column in changed.columns],
        {
            item.column.name
            for item in actions
            if isinstance(item, alter.AddColumn | alter.ModifyColumn | alter.ChangeColumn)
        },
        dialect,
    )
    for action in actions:
        if isinstance(action, alter.SetComment):
            changed = replace(changed, comment=action.text)
        elif isinstance(action, alter.RenameTo):
            changed = changed.renamed(action.name)
    after = replace(changed, columns=columns, keys=keys)
    is_about_keys = all(isinstance(action, alter.AddKey | alter.DropKey | alter.DropConstraint) for action in actions)
    if is_about_keys and columns == table.columns and keeps_keys(table, keys, actions, dialect):
        return table
    return after


def keys_there(table: Table, actions: Sequence[alter.Action]) -> list[str]:
    """Returns the names that the statement gives to new or renamed keys, and that keys of the table already have.

    Usually a server refuses to add a key whose name exists. But if the server made the existing key for a foreign key,
    the new key replaces it. `altered` cannot distinguish the two cases, and accepts both.
    """
    added = {_fold(item.column.name) for item in _of(alter.AddColumn, actions)}
    dropped = {_fold(item.name) for item in _of(alter.DropColumn, actions)} - added
    gone = {_fold(item.name) for item in actions if isinstance(item, alter.DropKey | alter.DropConstraint)}
    gone |= {_fold(key.name) for key in table.keys if dropped.issuperset(map(_fold, key.columns))}
    had = {_fold(key.name) for key in table.keys}
    renamed = [item for item in _of(alter.RenameKey, actions) if _fold(item.old) in had]
    made = [
        item.key.name for item in _of(alter.AddKey, actions) if not (item.if_not_exists or item.supports_foreign_key)
    ]
    taken = had - gone - {_fold(item.old) for item in renamed}
    return [name for name in (*made, *(item.new for item in renamed)) if _fold(name) in taken]


def _fold(name: str) -> str:
    return name.lower()


def _of(kind: type[_A], actions: Sequence[alter.Action]) -> list[_A]:
    return [action for action in actions if isinstance(action, kind)]


def _columns(table: Table, actions: Sequence[alter.Action], zone: str) -> list[_Slot]:
    known = {_fold(column.name) for column in table.columns}
    new = {_fold(item.column.name) for item in _of(alter.AddColumn, actions)}

    def fits(name: str, *, lenient: bool) -> bool:
        if _fold(name) not in known and not lenient:
            raise (
                _defined_twice(table, name) if _fold(name) in new else does_not_fit(table, f"there is no column {name}")
            )
        return _fold(name) in known

    dropped = {_fold(item.name) for item in _of(alter.DropColumn, actions) if fits(item.name, lenient=item.if_exists)}
    changes: dict[str, list[Callable[[Column], Column]]] = {}

    def change(name: str, how: Callable[[Column], Column], *, lenient: bool) -> None:
        if fits(name, lenient=lenient):
            changes.setdefault(_fold(name), []).append(how)

    for item in _of(alter.ChangeColumn, actions):
        change(item.old, _replacement(item.column), lenient=item.if_exists)
    for redefined in _of(alter.ModifyColumn, actions):
        change(redefined.column.name, _replacement(redefined.column), lenient=redefined.if_exists)
    for rename in _of(alter.RenameColumn, actions):
        change(rename.old, _renaming(rename.new), lenient=rename.if_exists)
    for default in _of(alter.SetDefault, actions):
        change(default.column, _defaulting(default.default, zone), lenient=default.if_exists)
    renamed = [item.old for item in actions if isinstance(item, alter.ChangeColumn | alter.RenameColumn)]
    slots = [
        _Slot(column.name, reduce(_applied, changes.get(_fold(column.name), ()), _by_new_names(column, renamed)))
        for column in table.columns
        if _fold(column.name) not in dropped
    ]
    # In `ADD b int, DROP a, CHANGE a b text`, which MariaDB accepts, `b` is a new column, and replaces `a` in keys.
    places = {_fold(item.column.name): _fold(item.old) for item in _of(alter.ChangeColumn, actions)}
    named = set(known)
    for action in actions:
        if isinstance(action, alter.AddColumn):
            # In `DROP a, ADD a int, ALTER a SET DEFAULT 3`, which MariaDB accepts, ALTER changes the new column.
            place = places.get(_fold(action.column.name), _fold(action.column.name))
            again = changes.get(place, ()) if place in dropped else ()
            added = replace(action, column=reduce(_applied, again, action.column))
            slots = _add(table, slots, added, named, place if again else "")
        elif isinstance(action, alter.ModifyColumn | alter.ChangeColumn):
            if isinstance(action, alter.ModifyColumn) and _fold(action.column.name) in dropped:
                slots = _new_one_last(slots, action.column.name)
            slots = _move(table, slots, action)
        if isinstance(action, alter.AddColumn | alter.ModifyColumn | alter.ChangeColumn):
            named.add(_fold(action.column.name))
    names = [_fold(slot.column.name) for slot in slots]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise does_not_fit(table, f"column {twice} would exist twice")
    return slots


def _by_new_names(column: Column, renamed: Sequence[str]) -> Column:
    """Returns the column, without its expression if this contains the old name of a renamed column.

    MariaDB has put the new name into the expression, so the old text is wrong, and the new text is not known here.
    """
    return replace(column, computed="") if any(mentions(column.computed, name) for name in renamed) else column


def _defined_twice(table: Table, name: str) -> Halted:
    return Halted(
        "ddl-not-understood",
        f"the statement adds column {name}, and then changes it",
        where=Where(table=str(table.name)),
        todo=f"Give the statements for the target, with one definition of the column: {REPLACE}",
    )


def _applied(column: Column, change: Callable[[Column], Column]) -> Column:
    return change(column)


def _replacement(new: Column) -> Callable[[Column], Column]:
    return lambda _: new


def _renaming(name: str) -> Callable[[Column], Column]:
    return lambda column: replace(column, name=name)


def _defaulting(default: str | None, zone: str) -> Callable[[Column], Column]:
    def changed(column: Column) -> Column:
        stored = with_stored_digits(default, column.type)
        is_moment = column.type.kind is Kind.TIMESTAMP
        return replace(column, default=in_utc(stored, column.type, zone) if is_moment else stored)

    return changed


def _at(slots: list[_Slot], name: str) -> int | None:
    return next((at for at, slot in enumerate(slots) if _fold(slot.column.name) == _fold(name)), None)


def _new_one_last(slots: list[_Slot], name: str) -> list[_Slot]:
    """Moves the new column `name` to the end: in `DROP a, ADD a int FIRST, MODIFY a text`, MariaDB ignores FIRST."""
    return sorted(slots, key=lambda slot: slot.old is None and _fold(slot.column.name) == _fold(name))


def _add(table: Table, slots: list[_Slot], action: alter.AddColumn, named: set[str], place: str) -> list[_Slot]:
    """Adds a column. With IF NOT EXISTS, a column whose name is in `named` is not added.

    `named` has the names of the old columns, and of the columns in earlier clauses.
    """
    if action.if_not_exists and _fold(action.column.name) in named:
        return slots
    return _move(table, [*slots, _Slot(None, action.column, place)], action)


def _move(
    table: Table, slots: list[_Slot], action: alter.AddColumn | alter.ModifyColumn | alter.ChangeColumn
) -> list[_Slot]:
    name = _fold(action.column.name)
    at = max((at for at, slot in enumerate(slots) if _fold(slot.column.name) == name), default=None)
    if at is None or not (action.first or action.after):
        return slots
    slot, rest = slots[at], slots[:at] + slots[at + 1 :]
    if action.first:
        return [slot, *rest]
    place = _at(rest, action.after or "")
    if place is None:
        raise does_not_fit(table, f"there is no column {action.after}")
    return [*rest[: place + 1], slot, *rest[place + 1 :]]


def _kept(table: Table, slots: Sequence[_Slot], columns: Sequence[Column]) -> dict[str, KeptColumn]:
    """Returns, for each old column's name, the column that replaces the old column in keys.

    In `CHANGE h i int, ADD h int`, both `i` and the new `h` could replace the old `h`. The column that comes first in
    the new table replaces it.
    """
    before = {_fold(column.name): column for column in table.columns}
    kept: dict[str, KeptColumn] = {}
    for slot, column in zip(slots, columns, strict=True):
        name = _fold(slot.place or (column.name if slot.old is None else slot.old))
        if name in before:
            kept.setdefault(name, KeptColumn(before[name], column, is_new=slot.old is None))
    return kept


def _charset(
    table: Table, slots: list[_Slot], actions: Sequence[alter.Action], dialect: Dialect, inherited: Charset | None
) -> Table:
    """Returns the table with its new default charset, and its columns as the charset clauses change them."""
    before = {column.name: column for column in table.columns}
    table = replace(table, columns=(), keys=())
    convert = _convert(actions, dialect)
    charset, collation = _asked(table, actions, dialect, inherited)
    own = _own(charset, collation, inherited, dialect)
    columns = [slot.column for slot in slots]
    if own is None:
        return replace(table, charset=charset, collation=collation, columns=tuple(columns))
    if convert is None:
        columns = [closed(column, own, dialect) for column in columns]
    else:
        meant = _meant(convert.charset, inherited, dialect)
        every = _own(meant, convert.collation, inherited, dialect) or own
        if _changes_nothing(actions, columns, every, dialect):
            return replace(table, columns=tuple(columns))
        redefined = {
            _fold(item.column.name) for item in actions if isinstance(item, alter.ModifyColumn | alter.ChangeColumn)
        }
        columns = [
            _redefined(slot.column, before.get(slot.old or ""), own, every, dialect)
            if slot.old is None or _fold(slot.column.name) in redefined
            else converted(closed(slot.column, every, dialect), every, dialect)
            for slot in slots
        ]
    return replace(table, charset=own[0], collation=own[1], columns=tuple(columns))


def _convert(actions: Sequence[alter.Action], dialect: Dialect) -> alter.ConvertCharset | None:
    """Returns the statement's last CONVERT, or None.

    On MariaDB, this CONVERT has the collation of the last CONVERT that names a collation.
    """
    several = _of(alter.ConvertCharset, actions)
    if not several:
        return None
    named = next((one.collation for one in reversed(several) if one.collation is not None), None)
    return replace(several[-1], collation=named) if dialect.mariadb else several[-1]


def _redefined(column: Column, before: Column | None, own: Charset, every: Charset, dialect: Dialect) -> Column:
    """Returns a column after a statement that defines it and also has a CONVERT. `before`: the old column, or None.

    The column keeps the text type of its definition, even if characters of the new charset take more bytes.
    """
    kind = column.type
    if dialect.mariadb and kind.is_text and completed(kind.charset, kind.collation, own, dialect)[0] == "binary":
        return closed(column, own, dialect)  # CONVERT does not change a column of bytes
    after = converted(closed(column, every, dialect), _binary(column, every, dialect), dialect)
    if after.type.kind not in LOB_BYTES:
        return after
    if kind.is_text and kind.charset != "binary":
        kind = replace(kind, charset=every[0], collation=every[1])
    asked = closed(replace(column, type=kind), every, dialect).type.kind
    if before is not None and kind.length is None and not dialect.mariadb and dialect.version >= (8, 0, 0):
        asked = text_for_old(asked, before.type, every[0])
    return replace(after, type=replace(after.type, kind=asked))


def _binary(column: Column, every: Charset, dialect: Dialect) -> Charset:
    """Returns the CONVERT's charset and collation; for a column with BINARY and no charset, the `_bin` collation."""
    is_open = column.type.charset is None or _is_old(dialect)
    if column.type.collation != "bin" or not is_open or every[0] == "binary":
        return every
    return every[0], f"{every[0]}_bin"


def _is_old(dialect: Dialect) -> bool:
    return not dialect.mariadb and dialect.version < (5, 7, 0)


def _changes_nothing(
    actions: Sequence[alter.Action], columns: Sequence[Column], own: Charset, dialect: Dialect
) -> bool:
    """Whether the CONVERT has no effect: MySQL before 5.7 ignores a CONVERT that rewrites no column."""
    if not _is_old(dialect) or not all(isinstance(action, alter.ConvertCharset | alter.RenameTo) for action in actions):
        return False
    return all(converted(column, own, dialect) == column for column in columns)


def _asked(
    table: Table, actions: Sequence[alter.Action], dialect: Dialect, inherited: Charset | None
) -> tuple[str | None, str | None]:
    """Returns the new default charset and its collation; each is None if no clause names it.

    If a statement has both DEFAULT CHARACTER SET and CONVERT, MariaDB uses DEFAULT CHARACTER SET, and MySQL uses the
    clause that comes last.
    """
    asked: Sequence[alter.Action] = _of(alter.SetCharset, actions) if dialect.mariadb else ()
    charset, collation = table.charset, table.collation
    named: str | None = None
    for action in asked or actions:
        if isinstance(action, alter.SetCharset) and action.charset is None and action.collation is not None:
            charset, collation = charset_of(action.collation) or charset, action.collation
            named = collation
        elif isinstance(action, alter.SetCharset):
            # Of `COLLATE latin1_bin CHARSET latin1`, MySQL before 5.7 uses only CHARSET; other servers use both.
            keeps = not _is_old(dialect) and named is not None and charset_of(named) in (action.charset, None)
            charset, collation = _meant(action.charset, inherited, dialect), named if keeps else None
        elif isinstance(action, alter.ConvertCharset):
            named = action.collation or (named if dialect.mariadb else None)
            charset, collation = _meant(action.charset, inherited, dialect), named
    return charset, collation


def _meant(charset: str | None, inherited: Charset | None, dialect: Dialect) -> str | None:
    """Returns the charset that a clause names; `charset` is None for CHARACTER SET DEFAULT.

    On MariaDB, DEFAULT means the database's charset, but not its collation. On MySQL, the result is None: the table
    inherits both.
    """
    return inherited[0] if charset is None and inherited is not None and dialect.mariadb else charset


def _own(charset: str | None, collation: str | None, inherited: Charset | None, dialect: Dialect) -> Charset | None:
    if inherited is not None:
        return completed(charset, collation, inherited, dialect)
    if charset is None:
        return None
    return completed(charset, collation, (charset, dialect.collation_of(charset)), dialect)
