"""Determines how a DDL in the log changes the recorded structures of the source, and which statement the target runs.

The target may have to run another statement than the source, for four reasons:

1. The statement belongs to an online schema change (`online_ddl`).
2. A ddl command replaces it.
3. Other shards have rows in the target table (`protected_rows`).
4. The task's filters leave out parts of the statement, and the target has other names (`target_statement`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace

from pidts.apply import SchemaChange
from pidts.batch.context import JobContext
from pidts.batch.online_ddl import followed, made_of, online_of
from pidts.ddl.due_change import DueChange
from pidts.ddl.outcome import ChangeWaits
from pidts.ddl.shards.protected_rows import SharedTables
from pidts.ddl.target_statement import routed_statement, taken
from pidts.model import (
    CommandKind,
    ConfigError,
    DdlCommand,
    Halted,
    LoggedStatement,
    Shadow,
    Table,
    TableName,
    Where,
)
from pidts.model.advice import REPLACE, RESYNC, SKIP
from pidts.plan import Relevance, RelevanceKind
from pidts.rules import Rules
from pidts.schema import (
    AlterTable,
    CreateDatabase,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTable,
    IgnoredStatement,
    PartitionRows,
    Statement,
    StatementDml,
    TruncateTable,
    Unknown,
    apply,
    classify,
)
from pidts.schema.online.swap import renames, untranslated
from pidts.schema.statement_time import UNKNOWN_TIME, StatementTime
from pidts.shards.decide import Wait


@dataclass(frozen=True, slots=True)
class DueStatement:
    """A schema change that the target has to make, or only to record."""

    change: SchemaChange
    statement: Statement | None = None
    """The statement, translated by `online_ddl`; None if it is only recorded or cannot be parsed."""
    keyed: frozenset[TableName] = frozenset()
    """The target table of a table that this statement creates, if the target table's key has extracted columns, which
    separate the rows of several source tables; otherwise empty.
    """

    @property
    def table(self) -> TableName | None:
        """Returns the source table that the statement alters or creates; None unless it is exactly one table."""
        return _one_table(self.statement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """Interprets a statement of the log for one attempt to make its change."""

    due: DueChange
    command: DdlCommand | None
    shared_tables: SharedTables
    shadows: Callable[[], Mapping[TableName, Shadow]]
    """Returns the online schema changes that are recorded on the target."""
    keyed_by: Callable[[Table], frozenset[TableName]]
    """Returns a new source table's target table, if that table exists and its key has extracted columns; else none."""

    def found(self) -> DueStatement | ChangeWaits | None:
        """Returns the change that the statement makes for the task; None if it does not concern the task."""
        try:
            return self._found()
        except ConfigError as error:  # a name or a type in the log contradicts a rule of the task file
            named = error.where.table or ", ".join(map(str, self.due.statement.tables))
            raise Halted(error.code, error.what, where=replace(self.due.where, table=named), todo=error.todo) from None

    @property
    def _context(self) -> JobContext:
        return self.due.context

    def _found(self) -> DueStatement | ChangeWaits | None:
        due, command, query = self.due, self.command, self.due.query
        statement, allow = due.statement, due.classifier.allow
        is_passed = isinstance(statement, StatementDml | Unknown) or due.may_have_side_effects
        if command is not None and overrides(command) and is_passed:
            return DueStatement(self._commanded_change(command))
        if due.may_have_side_effects:
            _demand_no_side_effect(due)
            return None
        online = online_of(allow)
        if isinstance(statement, Unknown) and self._taken(statement, query.sql) is None:
            return None
        if online.split(statement).rest is not None:
            _demand_understood(statement, query.sql, due.where)
        relevance = due.relevance
        if relevance.kind is RelevanceKind.NOTHING or (
            relevance.tables is not None and not any(map(due.is_ours, relevance.tables))
        ):
            return None
        remembered = self.shadows() if online.is_on else {}
        logged = LoggedStatement(query.sql, query.schema, query.sql_mode, query.time_zone, query.utf8_literals)
        try:
            result = followed(self._context, allow, statement, logged, remembered, due.is_ours)
        except Halted:
            if command is None or not overrides(command):
                raise
            swapped, forgotten = untranslated(online, statement, remembered)
            change = self._commanded_change(command)
            structures = {**change.structures, **swapped}
            return DueStatement(
                replace(change, structures=structures, shadows=forgotten, renamed=self._renamed(relevance))
            )
        # If the statement came from a zone whose changes this task does not pass on, another task brings it to the
        # target. This task only records the source's new structures.
        runs = None if due.comes_back else result.statement
        if not overrides(command):
            self._demand_owned(runs)
            if runs is not None and self.shared_tables.looks_at(runs):
                targets = self.shared_tables.targets(runs)
                if absent := self.shared_tables.groups.absent_for(targets):
                    return ChangeWaits(wait=Wait(absent=absent), targets=targets)
                runs = self.shared_tables.runs(runs, relevance, due.where, self._context.structures)
            self._demand_same_rows(relevance.renamed)
            runs = self._taken(runs, result.text) if runs is not None else None
        known, name = self._context.structures, _one_table(result.statement)
        joining = result.structures.get(name) if name is not None and name not in known else None
        keyed = self.keyed_by(joining) if joining is not None else frozenset[TableName]()
        rules = self._context.rules.with_keyed(keyed)
        change = self._change(rules, result.statement, runs, result.structures, result.shadows)
        return DueStatement(replace(change, renamed=self._renamed(relevance)), result.statement, keyed)

    def _demand_owned(self, statement: Statement | None) -> None:
        """Halts if a statement removes or replaces all rows of a table that the statement's zone does not own alone."""
        owners, writer = self._context.writing.owners, self.due.origin or self._context.writing.zone
        if not owners:
            return
        named = [name for pair in renames(statement) for name in pair]
        left = {old for old, _ in renames(statement)}
        # If the new name has no owner, no zone owns rows under this name, so no zone loses rows.
        renamed = {name for name in named if name in left or owners.of(name)}
        for name in sorted(filter(self.due.is_ours, renamed | _emptied(statement, self._context.structures))):
            if (owner := owners.sole(name)) != writer:
                whose = f"zone {owner} owns" if owner else f"zone {writer} does not own alone"
                what = f"removed rows of {name}"
                todo = f"To keep the rows on this target: run {SKIP}"
                if name in renamed:
                    what = f"renamed {name}" if name in left else f"renamed another table to {name}"
                    todo = f"Rename the table back in that zone, and skip both statements. For this one: run {SKIP}"
                raise Halted(
                    "foreign-write",
                    f"a statement of zone {writer} has {what}, which {whose}",
                    where=replace(self.due.where, table=str(name)),
                    todo=f"{todo}. To do the same on this target, give the statement: run {REPLACE}",
                )

    def _renamed(self, relevance: Relevance) -> dict[TableName, TableName]:
        return {old: new for old, new in relevance.renamed if old in self._context.structures}

    def _demand_same_rows(self, renamed: Iterable[tuple[TableName, TableName]]) -> None:
        """Halts if the rules would give a renamed table's rows other values on the target than before."""
        rules, structures = self._context.rules, self._context.structures
        for old, new in renamed:
            # A row of a table without a key is found by all its values, including the extracted values.
            extracts_alike = rules.routes.destination(old).extracted == rules.routes.destination(new).extracted
            has_key = old in structures and bool(structures[old].identity)
            if old in structures and not (rules.maps_alike(old, new) and (has_key or extracts_alike)):
                raise Halted(
                    "rename-moves-rows",
                    f"{old} was renamed to {new}, and under the new name its rows would have other values on the "
                    "target",
                    where=replace(self.due.where, table=str(old)),
                    todo="Give SQL that changes the target's rows to the values that rows of the new name get. If the "
                    f"name of the target's table changes, the SQL also has to rename the table. Run {REPLACE}",
                )

    def _taken(self, statement: Statement, text: str) -> Statement | None:
        due, context = self.due, self._context
        return taken(statement, text, context.rules, due.where, due.dialect, context.structures)

    def _commanded_change(self, command: DdlCommand) -> SchemaChange:
        """Returns the change that a ddl command makes in place of a statement that cannot be interpreted.

        If the target has the source's SQL dialect, the command's statements also change the recorded structures for
        later rows. Otherwise these structures stay as they are.
        """
        context, due, text = self._context, self.due, self.due.query.sql
        with closing(context.target.connect()) as session:
            same_language = not session.schema.transactional_ddl
        structures = self._followed(command.statements) if same_language else {}
        return SchemaChange(
            statement=None, text=text, before={}, after={}, structures=structures, command=command, origin=due.origin
        )

    def _followed(self, statements: tuple[str, ...]) -> dict[TableName, Table | None]:
        context, due = self._context, self.due
        changed: dict[TableName, Table | None] = {}
        for sql in statements:
            statement = classify(sql, due.query.schema, dialect=due.dialect)
            if isinstance(statement, IgnoredStatement | StatementDml | Unknown):
                continue
            known = {name: table for name, table in {**context.structures, **changed}.items() if table is not None}
            with suppress(Halted):  # the statement may concern tables that only the target has
                after = apply(statement, known, context.charsets, dialect=due.dialect)
                changed |= {name: table for name, table in after.items() if due.is_ours(name)}
        return changed

    def _change(
        self,
        rules: Rules,
        statement: Statement | None,
        runs: Statement | None,
        structures: Mapping[TableName, Table | None],
        shadows: Mapping[TableName, Shadow | None],
    ) -> SchemaChange:
        """Returns the change. `structures` are the source's structures after it; the target executes `runs`."""
        context, due = self._context, self.due
        there: Mapping[TableName, Table | None] = {}
        if runs is not None:
            makes = isinstance(runs, CreateTable | CreateTableLike)
            there = structures if runs is statement or makes else made_of(context, runs, due.dialect, due.is_ours)
        return SchemaChange(
            statement=None if runs is None else routed_statement(runs, rules),
            text=due.query.sql,
            before=_target_tables({name: context.structures.get(name) for name in there}, rules),
            after=self._after(there, rules),
            structures=structures,
            shadows=shadows,
            command=self.command,
            origin=due.origin,
            between_zones=bool(due.classifier.marks_in),
            executed_at=UNKNOWN_TIME if statement is None else self._executed_at,
        )

    def _after(self, tables: Mapping[TableName, Table | None], rules: Rules) -> dict[TableName, Table | None]:
        """Returns the new structures on the target.

        With several sources, the structures lack ZEROFILL and the expressions of generated columns, which may differ.
        """
        found = _target_tables(tables, rules)
        if len(self.shared_tables.groups.known.sources) > 1:
            found = {name: None if table is None else table.of_any_shard for name, table in found.items()}
        return found

    @property
    def _executed_at(self) -> StatementTime:
        query = self.due.query
        return StatementTime(query.seconds, query.micros, self.due.dialect.is_in_utc)


def _emptied(statement: Statement | None, known: Iterable[TableName]) -> set[TableName]:
    """Returns the tables whose rows a statement removes without row events."""
    match statement:
        case DropTable() | TruncateTable():
            return set(statement.tables)
        case CreateTable(or_replace=True) | CreateTableLike(or_replace=True):
            return {statement.table}
        case AlterTable() if any(isinstance(action, PartitionRows) for action in statement.actions):
            return set(statement.tables)
        case DropDatabase(name=schema) | CreateDatabase(name=schema, or_replace=True):
            return {name for name in known if name.schema.lower() == schema.lower()}
        case _:
            return set()


def _one_table(statement: Statement | None) -> TableName | None:
    return statement.table if isinstance(statement, AlterTable | CreateTable | CreateTableLike) else None


def _target_tables(tables: Mapping[TableName, Table | None], rules: Rules) -> dict[TableName, Table | None]:
    """Returns the structures by the target's names; None for a table that the target lacks after the change.

    A renamed table may keep its name on the target: then the result has the structure under the new name, and not None.
    """
    found: dict[TableName, Table | None] = {rules.target_name(name): None for name in tables}
    return found | {
        rules.target_name(table.name): rules.target_table(table) for table in tables.values() if table is not None
    }


def _demand_understood(statement: Statement, text: str, where: Where) -> None:
    where = replace(where, table=", ".join(map(str, statement.tables)))
    if isinstance(statement, Unknown):
        raise Halted(
            "ddl-not-understood",
            f"a statement in the log cannot be interpreted ({statement.reason}): {text[:200]}",
            where=where,
            todo=f"Do on the target by hand what the statement does, then run {SKIP}. Or give other statements: run "
            f"{REPLACE}",
        )
    if isinstance(statement, StatementDml):
        raise Halted(
            "statement-format",
            f"the log has a statement that has changed rows, and no row events for it: {text[:200]}",
            where=where,
            todo="Run SET GLOBAL binlog_format = 'ROW' on the source, and let its sessions reconnect. Then skip the "
            f"statement: run {SKIP}; and copy the table again: run {RESYNC}",
        )


def _demand_no_side_effect(due: DueChange) -> None:
    if why := due.side_effect():
        raise Halted(
            "statement-format",
            "a statement on other tables is in the log instead of row events, and it may have changed tables of the "
            f"task, too: {why}. The statement is: {due.query.sql[:200]}",
            where=replace(due.where, table=", ".join(map(str, due.statement.tables))),
            todo="Run SET GLOBAL binlog_format = 'ROW' on the source, and let its sessions reconnect. If the account "
            "lacks a privilege, grant it, and run the task again. Otherwise skip the statement: run "
            f"{SKIP}; and copy again the tables that the statement has changed: run {RESYNC}",
        )


def overrides(command: DdlCommand | None) -> bool:
    """Whether a ddl command replaces the statement: then the statement is not run."""
    return command is not None and command.kind in {CommandKind.SKIP, CommandKind.REPLACE}
