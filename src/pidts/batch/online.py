"""What a schema change does to the task's own tables, where tools for online schema changes keep others beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pidts.batch.context import JobContext
from pidts.model import Shadow, Spoken, Table, TableName
from pidts.rules import AllowList
from pidts.schema import Dialect, DropTable, RenameTable, Statement, apply
from pidts.schema.online_ddl import OnlineDdl
from pidts.schema.online_swap import translate

IsOurs = Callable[[TableName], bool]


@dataclass(frozen=True, slots=True)
class Followed:
    """A statement as the task follows it."""

    statement: Statement | None
    """None: something is remembered, and nothing else happens."""
    text: str
    """What filters judge: of a swap, what was said of the shadow."""
    structures: Mapping[TableName, Table | None]
    shadows: Mapping[TableName, Shadow | None]


def online_of(allow: AllowList) -> OnlineDdl:
    """The allow-list knows their names, and nothing of statements."""
    return OnlineDdl(allow.shadow, allow.trash, allow.case_sensitive)


def followed(
    context: JobContext,
    allow: AllowList,
    statement: Statement,
    spoken: Spoken,
    shadows: Mapping[TableName, Shadow],
    is_ours: IsOurs,
) -> Followed:
    """`shadows` is what the target remembers."""
    known, dialect = context.structures, context.dialect
    heard = translate(
        online_of(allow),
        statement,
        spoken,
        shadows=shadows,
        structures=known,
        charsets=context.charsets,
        dialect=dialect,
    )
    if heard.statement is None:
        return Followed(None, spoken.sql, {}, heard.shadows)
    runs = _only(heard.statement, is_ours)
    structures = heard.structures
    if structures is None:
        structures = made_of(context, runs, dialect.under(spoken.sql_mode), is_ours)
    return Followed(runs, heard.text or spoken.sql, structures, heard.shadows)


def made_of(
    context: JobContext, statement: Statement, dialect: Dialect, is_ours: IsOurs
) -> dict[TableName, Table | None]:
    """The task's tables behind it."""
    after = apply(statement, context.structures, context.charsets, dialect=dialect)
    return {name: table for name, table in after.items() if is_ours(name)}


def _only(statement: Statement, is_ours: IsOurs) -> Statement:
    """One statement can name the task's tables and others, which the target may have for its own reasons."""
    if isinstance(statement, DropTable):
        return replace(statement, tables=tuple(filter(is_ours, statement.tables)))
    if isinstance(statement, RenameTable):
        return replace(statement, pairs=tuple(_moving(statement.pairs, is_ours)))
    return statement


def _moving(pairs: Sequence[tuple[TableName, TableName]], is_ours: IsOurs) -> Iterator[tuple[TableName, TableName]]:
    """The steps of tables that are ours before the statement or behind it; names in between belong to nobody."""
    first: dict[TableName, TableName] = {}
    steps = []
    for old, new in pairs:
        first[new] = first.pop(old, old)
        steps.append((first[new], (old, new)))
    last = {begun: ends for ends, begun in first.items()}
    return (pair for begun, pair in steps if is_ours(begun) or is_ours(last[begun]))
