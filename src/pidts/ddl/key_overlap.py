"""Checks whether the rows of a new table would overwrite other shards' rows.

A shard that joins by its CREATE TABLE is empty, so no rows can be compared. But if the new table has an AUTO_INCREMENT
column, the numbers of its first rows are known, and another shard may have used one of these numbers. If this column
alone is the key on the target, a new row silently overwrites that shard's row. Such tables are common: a program
creates one table for each month (`CREATE TABLE orders_02 LIKE orders_01`), and the numbers of each table begin with 1.

If the target's key has extracted columns, only rows of tables with the same extracted values can collide. For example,
two servers have a table with the same name, and no extracted column contains the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import structlog

from pidts.batch.context import JobContext
from pidts.ddl.interpreter import DueStatement
from pidts.ddl.shards.coordinator import ShardGroups
from pidts.model import CommandKind, DdlCommand, Halted, Key, Member, Table, Where
from pidts.model.advice import SKIP, START_ANEW
from pidts.rules import Rules
from pidts.schema import CreateTable, CreateTableLike

_log = structlog.get_logger(__name__)

_WAYS = (
    f"If the shards' numbers never overlap (auto_increment_offset): run {SKIP}. Otherwise exclude the table "
    f"in block-allow-list. Or extract a column, put it into the key of the target table, and {START_ANEW}"
)


def demand_apart(
    context: JobContext,
    groups: ShardGroups,
    found: DueStatement,
    where: Where,
    command: DdlCommand | None,
    *,
    again: bool,
) -> None:
    """Halts if a new table's rows will collide with existing rows. Warns if they may collide.

    Checks nothing after a ddl command other than `revert`. `again`: the warning was already logged.
    """
    table = _coming(context, found)
    if table is None or groups.counts_apart or (command is not None and command.kind is not CommandKind.REVERT):
        return
    rules, statement = context.rules, found.statement
    counter = next((name for name in table.identity if table.column(name).auto_increment), None)
    target = rules.target_name(table.name)
    if counter is None or rules.maps_key(table) or not _meets_others(context, groups, table):
        return
    first = statement.first_number if isinstance(statement, CreateTable) else 1
    if len(table.identity) == 1 and _has_from(
        context, rules.target_table(table), counter, first, dict(rules.apart(table.name))
    ):
        raise Halted(
            "shard-keys-meet",
            f"{table.name} numbers its rows from {first} on, and {target} has rows of other shards with numbers from "
            f"{first} on; rows with the same {counter} would overwrite each other there",
            where=replace(where, table=str(table.name)),
            todo=_WAYS,
        )
    if not again:
        _log.warning(
            "a joining table numbers its rows by itself; rows of other shards must not have the same numbers",
            table=str(table.name),
            target=str(target),
            column=counter,
            first=first,
        )


def _coming(context: JobContext, found: DueStatement) -> Table | None:
    if not isinstance(found.statement, CreateTable | CreateTableLike) or found.table in context.structures:
        return None
    return found.change.structures.get(found.statement.table)


def _meets_others(context: JobContext, groups: ShardGroups, table: Table) -> bool:
    """Whether other tables map to the same target table, and their rows may have the same keys there."""
    rules, mine = context.rules, Member(context.source.source_id, table.name)
    target, apart = rules.target_name(table.name), rules.apart(table.name)
    if not apart:
        return groups.is_shared(target, mine)
    return any(
        one != mine and _rules(context, groups, one.source).routes.destination(one.table).extracted == apart
        for one in groups.members(target)
    )


def _rules(context: JobContext, groups: ShardGroups, source: str) -> Rules:
    """Returns the rules of a source; empty rules if this process does not have the source's rules."""
    return context.rules if source == context.source.source_id else groups.rules.get(source, Rules())


def _has_from(context: JobContext, target_table: Table, counter: str, first: int, apart: Mapping[str, str]) -> bool:
    """Whether the target has a row with a number of `first` or more, among rows with the extracted values `apart`."""
    key = Key("PRIMARY", (counter,), unique=True, primary=True)
    narrow = replace(target_table, columns=tuple(map(target_table.column, (counter, *apart))), keys=(key,))
    with closing(context.target.connect()) as session:
        if session.schema.structure(target_table.name) is None:
            return False
        return bool(session.read_rows(narrow, after=[first - 1], limit=1, only=apart).num_rows)
