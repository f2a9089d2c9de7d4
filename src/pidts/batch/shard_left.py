"""What of a statement is not run, since others have rows in the table of the target that it speaks of.

A shard's `TRUNCATE`, `DROP TABLE`, `DROP DATABASE`, `CREATE OR REPLACE`, and a `RENAME` by which it leaves, would take
the other shards' rows with it. They are followed, so rows behind them are read as what they are; on the target the
shard's own rows stay.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pidts.batch.shard_groups import ShardGroups
from pidts.model import Halted, Member, Table, TableName, Where
from pidts.plan import Work
from pidts.rules import Rules
from pidts.schema import (
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    RenameTable,
    RenameTo,
    Statement,
    TruncateTable,
)


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which tables others have, too, as one source sees it."""

    groups: ShardGroups
    source: str
    rules: Rules
    left: list[str] = field(default_factory=list)
    """What was not run of statements that were looked at."""
    kept: set[TableName] = field(default_factory=set)
    """Tables of the source that were found to land where others do, or may."""

    def shared(self, table: TableName) -> bool:
        """Whether the table lands where others do; where the task is one of shards, one that is the only one so far."""
        routes = self.rules.routes
        is_declared = self.groups.is_declared and routes.may_merge(table)
        if not (is_declared or self.groups.is_shared(routes.landing(table).name, Member(self.source, table))):
            return False
        self.kept.add(table)
        return True

    def new_records(self, known: Mapping[TableName, Table]) -> dict[TableName, Table]:
        """Tables of the target in which rows stay, and of which the record does not say yet that they are shared."""
        if not self.left:
            return {}
        staying = [self.rules.landed(known[name]) for name in sorted(self.kept) if name in known]
        return {table.name: table for table in staying if not self.groups.is_recorded(table.name)}

    def leaves_rows(
        self, statement: Statement, structures: Mapping[TableName, Table | None], known: Mapping[TableName, Table]
    ) -> dict[TableName, Table]:
        """Tables that are gone or empty behind this, and of which rows stay on the target, or may.

        What an operator has ordered instead of a statement need not have removed any row.
        """
        emptied = statement.tables if isinstance(statement, TruncateTable) else ()
        gone = [name for name, table in structures.items() if table is None]
        merged = filter(self.rules.routes.may_leave_rows, (*emptied, *gone))
        return {name: known[name] for name in sorted({*merged, *(self.kept if self.left else ())}) if name in known}

    def looks_at(self, statement: Statement) -> bool:
        """Whether it matters for what is run of it who else is there."""
        match statement:
            case TruncateTable() | DropTable() | DropDatabase() | RenameTable():
                return True
            case AlterTable(actions=actions):
                return any(isinstance(action, RenameTo) for action in actions)
            case CreateDatabase() | CreateTable() | CreateTableLike():
                return statement.or_replace
            case _:
                return False

    def absent(self, statement: Statement) -> tuple[str, ...]:
        """Parts of which nobody knows yet whether they have rows where it would touch some."""
        if isinstance(statement, DropDatabase | CreateDatabase):
            return self.groups.absent
        targets = {self.rules.landed_name(table) for table in statement.tables}
        return tuple(sorted({source for target in targets for source in self.groups.absent_for(target)}))

    def runs(self, statement: Statement, work: Work, where: Where, known: Collection[TableName]) -> Statement | None:
        """What of it is run; None: nothing, it is only put on record."""
        match statement:
            case TruncateTable(table=table) if self.shared(table):
                self.left.append(f"{table} was emptied")
                return None
            case DropTable(tables=tables):
                return self._dropping(statement, tables)
            case DropDatabase(name=name) | CreateDatabase(name=name, or_replace=True):
                return self._dropping_schema(statement, name, known)
            case CreateTable(table=table) | CreateTableLike(table=table) if statement.or_replace and self.shared(table):
                self.left.append(f"{table} was made anew")
                return replace(statement, or_replace=False)
            case RenameTable(pairs=pairs):
                leaving = self._leaving(work, where, known)
                kept = tuple(_without(pairs, leaving))
                return replace(statement, pairs=kept) if kept else None
            case AlterTable(table=table, actions=actions) if any(isinstance(one, RenameTo) for one in actions):
                return None if table in self._leaving(work, where, known) else statement
            case _:
                return statement

    def _dropping(self, statement: DropTable, tables: Iterable[TableName]) -> Statement | None:
        left = frozenset(filter(self.shared, tables))
        self.left.extend(f"{table} was dropped" for table in sorted(left))
        kept = tuple(table for table in tables if table not in left)
        return replace(statement, tables=kept) if kept else None

    def _dropping_schema(
        self, statement: DropDatabase | CreateDatabase, name: str, known: Collection[TableName]
    ) -> Statement | None:
        tables = sorted(table for table in known if table.schema == name)
        there = self.rules.routes.schema(name)
        if not any(map(self.shared, tables)) and not self.groups.shares_schema(self.source, name, there):
            return statement
        self.left.append(f"schema {name} was dropped, whose target {there} others share")
        alone = tuple(table for table in tables if not self.shared(table))
        return DropTable(alone, if_exists=True) if alone else None

    def _leaving(self, work: Work, where: Where, known: Collection[TableName]) -> frozenset[TableName]:
        """Tables whose new name lands elsewhere than where they share a table; rows do not go with a name."""
        for old, new in work.renamed:
            if old in known and self.groups.keeps_columns(Member(self.source, old)):
                raise Halted(
                    "rename-moves-rows",
                    f"{old} was renamed to {new}, and the target still has values of columns that it has dropped",
                    where=replace(where, table=str(old)),
                    todo="Have all shards drop them, then: pidts ddl retry; or clear them in its rows on the target, "
                    "then: pidts ddl skip",
                )
            moves = old in known and self.rules.landed_name(old) != self.rules.landed_name(new)
            if moves and (self.shared(old) or self.shared(new)):
                raise Halted(
                    "rename-moves-rows",
                    f"{old} was renamed to {new}, and its rows are in {self.rules.landed_name(old)}, not in "
                    f"{self.rules.landed_name(new)}; others have rows there, too",
                    where=replace(where, table=str(old)),
                    todo="Move the target's rows, and say pidts ddl skip",
                )
        leaving = frozenset(name for name in work.gone if name in known and self.shared(name))
        for name in sorted(leaving):
            self.left.append(f"{name} was renamed to what the task does not take")
        return leaving


def _without(
    pairs: Iterable[tuple[TableName, TableName]], leaving: Collection[TableName]
) -> list[tuple[TableName, TableName]]:
    """The steps of all other tables; names are handed on from step to step."""
    first: dict[TableName, TableName] = {}
    kept = []
    for old, new in pairs:
        first[new] = first.pop(old, old)
        if first[new] not in leaving:
            kept.append((old, new))
    return kept
