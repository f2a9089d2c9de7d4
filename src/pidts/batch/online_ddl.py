"""Translates the statements of online schema change tools into their effect on the task's own tables.

These tools work on additional tables: shadow tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pidts.batch.context import JobContext
from pidts.model import LoggedStatement, Shadow, Table, TableName
from pidts.rules import AllowList
from pidts.schema import Dialect, DropTable, RenameTable, Statement, apply
from pidts.schema.online.names import OnlineDdl
from pidts.schema.online.swap import translate

IsOurs = Callable[[TableName], bool]


@dataclass(frozen=True, slots=True)
class TranslatedStatement:
    """A statement of the log, translated into its effect on the task's own tables."""

    statement: Statement | None
    """The translated statement; None: the statement is only recorded (`shadows`), and has no other effect."""
    text: str
    """The text to which filters apply; if a shadow table replaces a table, the text of the shadow's statements."""
    structures: Mapping[TableName, Table | None]
    shadows: Mapping[TableName, Shadow | None]


def online_of(allow: AllowList) -> OnlineDdl:
    """Returns the rules of an allow-list by which shadow tables are recognized."""
    return OnlineDdl(allow.shadow, allow.trash, allow.case_sensitive)


def followed(
    context: JobContext,
    allow: AllowList,
    statement: Statement,
    logged: LoggedStatement,
    shadows: Mapping[TableName, Shadow],
    is_ours: IsOurs,
) -> TranslatedStatement:
    """Returns the translated statement; `shadows` are the target's records of shadow tables."""
    known, dialect = context.structures, context.dialect
    translation = translate(
        online_of(allow),
        statement,
        logged,
        shadows=shadows,
        structures=known,
        charsets=context.charsets,
        dialect=dialect,
    )
    if translation.statement is None:
        return TranslatedStatement(None, logged.sql, {}, translation.shadows)
    runs = _only(translation.statement, is_ours)
    structures = translation.structures
    if structures is None:
        structures = made_of(context, runs, dialect.of_session(logged), is_ours)
    return TranslatedStatement(runs, translation.text or logged.sql, structures, translation.shadows)


def made_of(
    context: JobContext, statement: Statement, dialect: Dialect, is_ours: IsOurs
) -> dict[TableName, Table | None]:
    """Returns the structures that the task's tables have after the statement."""
    after = apply(statement, context.structures, context.charsets, dialect=dialect)
    return {name: table for name, table in after.items() if is_ours(name)}


def _only(statement: Statement, is_ours: IsOurs) -> Statement:
    """Returns the statement with only the task's tables. The target may have tables of its own with the other names."""
    if isinstance(statement, DropTable):
        return replace(statement, tables=tuple(filter(is_ours, statement.tables)))
    if isinstance(statement, RenameTable):
        return replace(statement, pairs=tuple(_moving(statement.pairs, is_ours)))
    return statement


def _moving(pairs: Sequence[tuple[TableName, TableName]], is_ours: IsOurs) -> Iterator[tuple[TableName, TableName]]:
    """Yields the renames of each table whose name before or after the whole statement is one of the task's.

    A name in between does not count: `tmp` in `RENAME TABLE a TO tmp, b TO a, tmp TO b`.
    """
    first: dict[TableName, TableName] = {}
    steps = []
    for old, new in pairs:
        first[new] = first.pop(old, old)
        steps.append((first[new], (old, new)))
    last = {begun: ends for ends, begun in first.items()}
    return (pair for begun, pair in steps if is_ours(begun) or is_ours(last[begun]))
