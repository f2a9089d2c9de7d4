"""Leaves out the parts of a statement that would remove rows of other shards from a target table.

A shard's `TRUNCATE`, `DROP TABLE`, `DROP DATABASE`, `CREATE OR REPLACE`, or a `RENAME` by which it leaves, would also
remove the other shards' rows. So the target does not run these parts of a statement, and the shard's own rows also
stay. But the whole statement changes the recorded structures of the source, so later rows are read correctly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from pidts.ddl.shards.coordinator import ShardGroups
from pidts.model import Halted, Member, Table, TableName, Where
from pidts.model.advice import RETRY, SKIP
from pidts.plan import Relevance
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
class SharedTables:
    """The tables of one source whose target tables also have rows of other source tables."""

    groups: ShardGroups
    source: str
    rules: Rules
    left: list[str] = field(default_factory=list)
    """The parts of the checked statements that were left out."""
    kept: set[TableName] = field(default_factory=set)
    """Tables of the source that map, or may map, to a merged table."""

    def shared(self, table: TableName) -> bool:
        """Whether other tables map, or in a sharding task may map, to the same target table."""
        routes = self.rules.routes
        is_declared = self.groups.is_declared and routes.may_merge(table)
        if not (is_declared or self.groups.is_shared(routes.destination(table).name, Member(self.source, table))):
            return False
        self.kept.add(table)
        return True

    def new_records(self, known: Mapping[TableName, Table]) -> dict[TableName, Table]:
        """Returns the merged target tables that keep rows of a source table which the statement drops or empties.

        Tables that are already recorded as shared are left out.
        """
        if not self.left:
            return {}
        staying = [self.rules.target_table(known[name]) for name in sorted(self.kept) if name in known]
        return {table.name: table for table in staying if not self.groups.is_recorded(table.name)}

    def leaves_rows(
        self, statement: Statement, structures: Mapping[TableName, Table | None], known: Mapping[TableName, Table]
    ) -> dict[TableName, Table]:
        """Returns tables that the statement drops or empties, if their rows stay on the target, or may stay there.

        The rows may stay if a ddl command has replaced the statement: the command's SQL may not have removed them.
        """
        emptied = statement.tables if isinstance(statement, TruncateTable) else ()
        gone = [name for name, table in structures.items() if table is None]
        merged = filter(self.rules.routes.may_leave_rows, (*emptied, *gone))
        return {name: known[name] for name in sorted({*merged, *(self.kept if self.left else ())}) if name in known}

    def looks_at(self, statement: Statement) -> bool:
        """Whether `runs` has to know the other members to decide which part of the statement is run."""
        match statement:
            case TruncateTable() | DropTable() | DropDatabase() | RenameTable():
                return True
            case AlterTable(actions=actions):
                return any(isinstance(action, RenameTo) for action in actions)
            case CreateDatabase() | CreateTable() | CreateTableLike():
                return statement.or_replace
            case _:
                return False

    def targets(self, statement: Statement) -> frozenset[TableName] | None:
        """Returns the target tables whose shards have to be known before the statement runs. None: all."""
        if isinstance(statement, DropDatabase | CreateDatabase):
            return None
        return frozenset(map(self.rules.target_name, statement.tables))

    def runs(
        self, statement: Statement, relevance: Relevance, where: Where, known: Collection[TableName]
    ) -> Statement | None:
        """Returns the part of the statement that the target runs. None: the statement is only recorded."""
        match statement:
            case TruncateTable(table=table) if self.shared(table):
                self.left.append(f"{table} was emptied")
                return None
            case DropTable(tables=tables):
                return self._dropping(statement, tables)
            case DropDatabase(name=name) | CreateDatabase(name=name, or_replace=True):
                return self._dropping_schema(statement, name, known)
            case CreateTable(table=table) | CreateTableLike(table=table) if statement.or_replace and self.shared(table):
                self.left.append(f"{table} was created again")
                return replace(statement, or_replace=False)
            case RenameTable(pairs=pairs):
                leaving = self._leaving(relevance, where, known)
                kept = tuple(_without(pairs, leaving))
                return replace(statement, pairs=kept) if kept else None
            case AlterTable(table=table, actions=actions) if any(isinstance(one, RenameTo) for one in actions):
                return None if table in self._leaving(relevance, where, known) else statement
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
        self.left.append(f"schema {name} was dropped, and other tables share its target schema {there}")
        alone = tuple(table for table in tables if not self.shared(table))
        return DropTable(alone, if_exists=True) if alone else None

    def _leaving(self, relevance: Relevance, where: Where, known: Collection[TableName]) -> frozenset[TableName]:
        """Returns the tables that leave their merged table by a rename; halts if rows would have to move."""
        target = self.rules.target_name
        moves = {
            (old, new): f"the rows of {old} from {target(old)} to {target(new)}"
            for old, new in relevance.renamed
            if old in known and target(old) != target(new)
        }
        for old, new in relevance.renamed:
            if old in known and self.groups.keeps_columns(Member(self.source, old)):
                raise Halted(
                    "rename-moves-rows",
                    f"{old} was renamed to {new}, and the target still has values in columns that {old} has dropped",
                    where=replace(where, table=str(old)),
                    todo=f"Drop these columns on all shards, then run {RETRY}. Or set them to NULL in this "
                    f"shard's rows on the target, then run {SKIP}",
                )
            if (old, new) in moves and (self.shared(old) or self.shared(new)):
                raise Halted(
                    "rename-moves-rows",
                    f"{old} was renamed to {new}, so its rows belong to {target(new)} now and not to {target(old)}. "
                    "PiDTS moves no rows if other tables share one of these two tables",
                    where=replace(where, table=str(old)),
                    todo=f"On the target, move {'; '.join(moves.values())}. Then run {SKIP}",
                )
        leaving = frozenset(name for name in relevance.gone if name in known and self.shared(name))
        for name in sorted(leaving):
            self.left.append(f"{name} was renamed to a name that the task leaves out")
        return leaving


def _without(
    pairs: Iterable[tuple[TableName, TableName]], leaving: Collection[TableName]
) -> list[tuple[TableName, TableName]]:
    """Returns the rename steps of tables that do not leave. Several tables may have the same name one after another."""
    first: dict[TableName, TableName] = {}
    kept = []
    for old, new in pairs:
        first[new] = first.pop(old, old)
        if first[new] not in leaving:
            kept.append((old, new))
    return kept
