"""Compares a table before and after an ALTER TABLE column by column; each dialect only renders the difference."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from pidts.model import Column, ColumnType, Halted, Key, Kind, Table, ValuesGenerated, Where
from pidts.model.advice import REPLACE, RESYNC, SKIP
from pidts.model.errors import named
from pidts.model.types import BLOBS, INTEGERS, TEXTS, WITH_FSP
from pidts.schema import (
    Action,
    AddKey,
    AlterOption,
    AlterTable,
    ChangeColumn,
    CreateTable,
    ModifyColumn,
    Statement,
)
from pidts.schema.kept_names import kept_names
from pidts.schema.literals import CurrentTime, Expression, Number, TextLiteral, parse_default
from pidts.schema.statement_time import StatementTime
from pidts.schema.stored_default import has_bytes_of_session, stored_default

_FLOATING = frozenset({Kind.FLOAT, Kind.DOUBLE})
_WITH_DAY = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.YEAR})
_WITHOUT_FRACTION = frozenset({*INTEGERS, Kind.BIT, Kind.DATE, Kind.YEAR})
_OFFSET = re.compile(r"[+-]\d\d?:\d\d$")
_GROWING = (
    INTEGERS,
    (Kind.VARCHAR, *TEXTS),
    (Kind.VARBINARY, *BLOBS),
)
"""Lists of column types. In each list, a type can store every value of the types before it unchanged."""


@dataclass(frozen=True, slots=True)
class StructureDifference:
    """The columns and keys that an ALTER TABLE changes.

    Keys are compared by definition, not by name. The columns of dropped keys are given with their old names.
    """

    added: tuple[Column, ...]
    dropped: tuple[Column, ...]
    kept: tuple[tuple[Column, Column], ...]
    """Each column that stays, as it is before the change and after it. Its name may change."""
    keys_added: tuple[Key, ...]
    keys_dropped: tuple[Key, ...]
    comment: str | None
    """The table's new comment; None if it does not change."""

    @property
    def renamed(self) -> tuple[tuple[str, str], ...]:
        """Returns the old and the new name of each renamed column."""
        return tuple((old.name, new.name) for old, new in self.kept if old.name != new.name)


def difference(statement: AlterTable, before: Table, after: Table) -> StructureDifference:
    """Returns what an ALTER TABLE changes. The statement `RENAME a TO b, RENAME b TO a` swaps the two names."""
    origin = kept_names(statement, before, after)
    kept = tuple((before.column(old), after.column(new)) for new, old in origin.items())
    stayed = set(origin.values())
    new_name = {old: new for new, old in origin.items()}
    keys_before = {_meaning(_renamed(key, new_name)): key for key in before.keys}
    keys_after = {_meaning(key): key for key in after.keys}
    return StructureDifference(
        added=tuple(column for column in after.columns if column.name not in origin),
        dropped=tuple(column for column in before.columns if column.name not in stayed),
        kept=kept,
        keys_added=tuple(key for meaning, key in keys_after.items() if meaning not in keys_before),
        keys_dropped=tuple(key for meaning, key in keys_before.items() if meaning not in keys_after),
        comment=after.comment if after.comment != before.comment else None,
    )


def _renamed(key: Key, new_name: dict[str, str]) -> Key:
    return replace(key, columns=tuple(new_name.get(name, f"\0{name}") for name in key.columns))


def _meaning(key: Key) -> tuple[bool, bool, tuple[str, ...]]:
    return key.primary, key.unique, key.columns


def unfillable(
    statement: AlterTable,
    before: Table,
    after: Table,
    executed_at: StatementTime,
    computed: Collection[str] = (),
    *,
    reads_alike: bool = False,
) -> list[str]:
    """Returns the columns whose values in existing rows only the source knows.

    `computed`: the new generated columns that the target computes, so they are not returned.

    `reads_alike`: the target is the same kind of server as the source, and reads literals in the same way.
    """
    change = difference(statement, before, after)
    said = {
        action.column.name.lower() for action in statement.actions if isinstance(action, ModifyColumn | ChangeColumn)
    }
    added = [
        column.name
        for column in change.added
        if column.name.lower() not in computed
        and (column.auto_increment or column.generated or not _fills_alike(column, executed_at, alike=reads_alike))
    ]
    return added + [new.name for _, new in change.kept if new.generated and new.name.lower() in said]


def _fills_alike(column: Column, executed_at: StatementTime, *, alike: bool) -> bool:
    """Whether adding a column with this default gives existing rows the same value on both servers.

    `alike`: the two are servers of the same kind, and read literals in the same way.
    """
    parsed = parse_default(column.default)
    if isinstance(parsed, CurrentTime):
        return executed_at.filling(column) is not None
    if parsed is None or isinstance(parsed, Expression):
        return parsed is None
    if stored_default(column.default, column.type) is not None:
        return True
    is_place = column.type.labels and isinstance(parsed, Number)
    is_shifted = isinstance(parsed, TextLiteral) and column.type.kind in WITH_FSP and _OFFSET.search(parsed.value)
    if is_place or is_shifted:  # MySQL 5.6 and 9.7 store different values for such a default
        return False
    return alike and not has_bytes_of_session(column.default, column.type)


def recomputed(statement: AlterTable, before: Table, after: Table) -> list[str]:
    """Returns the generated columns that stay, and whose values the source may have computed again.

    For example, `MODIFY a DECIMAL(9,1)` changes `g` if `g` is `a * 2`. The source does not write the new values to the
    log. A structure does not contain the expressions, so any generated column may depend on a changed column.
    """
    kept = difference(statement, before, after).kept
    if not any(_changes_values(old.type, new.type) for old, new in kept if not new.generated):
        return []
    return [new.name for old, new in kept if old.generated and new.generated]


def _changes_values(old: ColumnType, new: ColumnType) -> bool:
    """Whether a column's values, or the results of expressions that read them, may change with its type."""
    for family in _GROWING:
        if old.kind in family and new.kind in family and old.kind is not new.kind:
            return old.unsigned != new.unsigned or family.index(new.kind) < family.index(old.kind)
    if old.kind is not new.kind or old.unsigned != new.unsigned or new.fsp < old.fsp:
        return True
    if (old.scale or 0) != (new.scale or 0) or (new.precision or 10) < (old.precision or 10):
        return True
    if old.labels != new.labels[: len(old.labels)]:
        return True
    has_size = not old.is_integer and old.length is not None and new.length is not None
    return has_size and (new.length != old.length if old.kind is Kind.BINARY else (new.length or 0) < (old.length or 0))


def shortened(statement: AlterTable, before: Table, after: Table) -> list[tuple[Column, Column]]:
    """Returns the columns that keep fewer digits of a second than before, as they are before the change and after it.

    MariaDB cuts off the other digits, and MySQL rounds them; settings can make each of them do the opposite. PostgreSQL
    rounds halves before the year 2000 in the other direction.
    """
    kept = difference(statement, before, after).kept
    return [(old, new) for old, new in kept if new.type.fsp < old.type.fsp and new.type.kind in WITH_FSP]


def refuse_shortened(column: str, table: Table, instead: tuple[str, ...] = ()) -> Halted:
    """Returns the halt of an ALTER after which a column has fewer digits of a second than some of its values."""
    what = "gets fewer digits of a second than some rows have, and servers round these rows in different ways"
    return _copied_again(column, what, table, instead)


def shortened_by_kind(statement: AlterTable, before: Table, after: Table) -> list[tuple[Column, Column]]:
    """Returns the columns that get a type of another kind, and whose old values may have digits of a second too many.

    Servers cut or round these digits, too, as in `shortened`: a `DATETIME(6)` may become a DATE or a number, and a text
    or a number with a fraction may become a DATETIME.
    """
    kept = difference(statement, before, after).kept
    return [
        (old, new)
        for old, new in kept
        if (old.type.kind in WITH_FSP and old.type.fsp and new.type.kind in _WITHOUT_FRACTION)
        or (old.type.kind not in WITH_FSP | _WITHOUT_FRACTION and new.type.kind in WITH_FSP | {Kind.DATE})
    ]


def of_session(statement: AlterTable, before: Table, after: Table) -> Iterator[tuple[str, str]]:
    """Yields the old names of columns whose new values depend on the source's session, each with the reason.

    A TIMESTAMP is a moment. If it becomes another type, or another type becomes a TIMESTAMP, the server converts
    between the moment and the session's local time. Sessions of PiDTS are in UTC. A TIME that becomes a date gets the
    day on which the statement runs.
    """
    for old, new in difference(statement, before, after).kept:
        if old.type.kind is Kind.TIME and new.type.kind in _WITH_DAY:
            yield old.name, "the day on which the source has run the statement"
        elif not statement.is_in_utc and (old.type.kind is Kind.TIMESTAMP) is not (new.type.kind is Kind.TIMESTAMP):
            yield old.name, "the time zone of the source's session, which is not UTC, or not known"


def refuse_of_session(column: str, why: str, table: Table, instead: tuple[str, ...] = ()) -> Halted:
    """Returns the halt of an ALTER after which a column's values depend on the source's session."""
    return _copied_again(column, f"gets another type, and its new values depend on {why}", table, instead)


def rounded(statement: AlterTable, before: Table, after: Table) -> list[tuple[Column, ColumnType]]:
    """Returns columns of floating point numbers whose new type fixes the digits after the point, with the new type.

    If `FLOAT(7,4)` becomes `FLOAT(7,2)`, MySQL and MariaDB change only the definition, and a row keeps 0.1234. They
    round a row when it is written again. They round all rows only if they copy the table, for example because of
    another clause or ALGORITHM=COPY. Columns that keep all their digits are not returned.
    """
    kept = difference(statement, before, after).kept
    return [
        (old, new.type)
        for old, new in kept
        if {old.type.kind, new.type.kind} <= _FLOATING
        and new.type.scale is not None
        and not (old.type.kind is new.type.kind and old.type.scale is not None and old.type.scale <= new.type.scale)
    ]


def refuse_rounded(column: str, digits: int, table: Table, instead: tuple[str, ...] = ()) -> Halted:
    """Returns the halt of an ALTER after which a column has fewer digits after the point than some of its numbers."""
    what = (
        "gets fewer digits after the point. MySQL and MariaDB may then change only the definition, and leave existing "
        "rows with more digits"
    )
    first = f"Round the column's values on the source: UPDATE ... SET ... = ROUND(..., {digits}). "
    return _copied_again(column, what, table, instead, first)


def zero_filled(statement: AlterTable, before: Table, after: Table) -> list[str]:
    """Returns the old names of unsigned columns that become texts, and that may have ZEROFILL.

    With ZEROFILL, the source writes 00007 for the number 7. The target has the column without ZEROFILL.
    """
    kept = difference(statement, before, after).kept
    return [old.name for old, new in kept if old.type.may_have_zeros and new.type.is_text]


def refuse_unknown(column: str, table: Table, instead: tuple[str, ...] = ()) -> Halted:
    """Returns the halt of an ALTER after which only the source knows the values of a column."""
    return _copied_again(
        column, "gets another type, and only the source knows which values some rows get", table, instead
    )


def _copied_again(column: str, what: str, table: Table, instead: tuple[str, ...], first: str = "") -> Halted:
    """Returns the halt of an ALTER after which the table has to be copied again; `first` says what to do before."""
    return Halted(
        "ddl-not-translatable",
        f"column {column} {what}",
        where=Where(table=str(table.name)),
        todo=f"{first}Change the column on the target: {REPLACE}. Then copy the table again: {RESYNC}",
        instead=instead,
    )


def refuse_unfillable(
    columns: list[str], table: Table, instead: tuple[str, ...] = (), kind: type[Halted] = Halted
) -> Halted:
    """Returns the halt of an ALTER that adds columns whose values the source computed, for a table that has rows."""
    todo = (
        f"Let the target create the column: run {REPLACE}. Then copy the table again: {RESYNC}. Or add an UPDATE to "
        "the statement, if you know the values of the existing rows"
    )
    if issubclass(kind, ValuesGenerated):
        todo = (
            "Give the target's generated column an expression that computes the source's values, with `pidts ddl "
            f"replace`. Or change the column on the target by hand, and then run: {SKIP}"
        )
    return kind(
        "ddl-not-translatable",
        f"{named('column', columns, 'has', 'have')} values in existing rows that the source computed, and the target "
        "may compute other values",
        where=Where(table=str(table.name)),
        todo=todo,
        instead=instead,
    )


def left_out(statement: Statement) -> tuple[str, ...]:
    """Returns a note on each foreign key and check. The target gets neither, since the source has checked the rows."""
    match statement:
        case CreateTable(constraints=actions) | AlterTable(actions=actions):
            return tuple(_notes(actions))
        case _:
            return ()


def _notes(actions: Iterable[Action]) -> Iterator[str]:
    for action in actions:
        match action:
            case AddKey(key=key, supports_foreign_key=True, rule=rule):
                note = f"foreign key ({', '.join(key.columns)}): not made on the target; the source enforces it"
                drift = f". If the source does not log row changes by {rule}, the target keeps these rows as they are"
                yield note + (drift if rule else "")
            case AlterOption(what="check"):
                yield f"{action.text}: not made on the target; the source enforces it"
            case _:
                pass
