"""A schema change that has to be run, and the halts that report it while it cannot be run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from pidts.batch.context import JobContext
from pidts.batch.relay_events import ddl_event
from pidts.batch.sequences import sequences_of
from pidts.batch.transaction_classifier import TransactionClassifier, is_judged, written_by
from pidts.binlog import Query
from pidts.ddl.outcome import ChangeWaits
from pidts.ddl.shards.halt_messages import waiting_code, waiting_halt
from pidts.model import Halt, Halted, LogEntry, Lsn, TableName, Where
from pidts.model.zone import statement_origin
from pidts.plan import Relevance
from pidts.relay import RelayReader
from pidts.schema import Dialect, Statement, classify

Concerns: TypeAlias = Callable[[TableName], bool]


@dataclass(frozen=True)
class DueChange:
    """A schema change in the log. The statement is read and parsed once for all attempts at the change."""

    context: JobContext
    classifier: TransactionClassifier
    relay: RelayReader
    entry: LogEntry
    concerns: Concerns = lambda _: True
    """Returns whether the statement concerns a table: False if the table joined the task after the statement."""
    filling: Collection[TableName] = ()
    """Tables whose copy is not complete and began with an empty target table. If the copy has to begin again, the
    target table is emptied.
    """

    @property
    def lsn(self) -> Lsn:
        """The place of the statement in the log."""
        return self.entry.transaction.lsn

    @property
    def source(self) -> str:
        """The id of the source."""
        return self.context.source.source_id

    @cached_property
    def position(self) -> str:
        """The place of the statement as log file and byte; empty if it is not known."""
        return str(self.relay.position(self.lsn) or "")

    @property
    def where(self) -> Where:
        """The place of the statement, for errors."""
        return Where(source=self.source, position=self.position or str(self.lsn))

    @cached_property
    def planned(self) -> Relevance:
        """The statement's relevance as the planner computes it: without the SQL modes under which the statement ran."""
        return self.classifier(self.entry)

    @cached_property
    def query(self) -> Query:
        """The statement as the source ran it, with its SQL modes."""
        return ddl_event(self.relay, self.entry)

    @cached_property
    def dialect(self) -> Dialect:
        """The source's dialect in the statement's session."""
        query = self.query
        return self.context.dialect.under(query.sql_mode, query.time_zone, utf8_literals=query.utf8_literals)

    @cached_property
    def statement(self) -> Statement:
        """The parsed statement."""
        return classify(self.query.sql, self.query.schema, dialect=self.dialect)

    @cached_property
    def relevance(self) -> Relevance:
        """The statement's relevance for the task, with the SQL modes under which it ran."""
        return TransactionClassifier(self.classifier.allow, self.dialect).of_statement(self.statement)

    @property
    def may_have_side_effects(self) -> bool:
        """Whether the statement names only tables outside the task, but may change the task's tables."""
        return is_judged(self.relevance) and self.classifier.side_effects is not None

    def side_effect(self) -> str:
        """Returns why a statement on other tables may have changed the task's tables. Asks the source now."""
        effects = self.classifier.side_effects
        return effects.reason(self.entry, written_by(self.statement)) if effects is not None else ""

    @cached_property
    def origin(self) -> str:
        """Returns the other zone from which a task brought the statement to the source; empty if there is none."""
        schema = self.classifier.marks_in
        return statement_origin(schema, self.query.sql, self.statement.tables) if schema else ""

    @property
    def comes_back(self) -> bool:
        """Whether the statement came from a zone whose changes the task does not pass on."""
        return bool(self.origin) and self.origin not in self.classifier.forwards

    @cached_property
    def _sequences(self) -> frozenset[TableName]:
        context, dialect = self.context, self.context.dialect
        return sequences_of(self.relay, self.entry.transaction, self.statement, context.structures, dialect)

    def is_ours(self, name: TableName) -> bool:
        """Whether the task has a table of this name at the statement's place in the log."""
        return self.classifier.allow(name) and self.concerns(name) and name not in self._sequences

    def waiting_halt(self, waits: ChangeWaits) -> Halt:
        """Returns the halt that reports that the change waits for other shards."""
        arrival = waits.arrival
        return waiting_halt(
            waits.wait,
            source=self.source,
            lsn=self.lsn,
            tables=self._halted([arrival.member.table] if arrival is not None else self.planned.tables or ()),
            position=self.position,
            statement=self.entry.transaction.ddl or "",
            arrival=arrival,
            agreed=waits.agreed,
        )

    def waiting_code(self, waits: ChangeWaits) -> str:
        """Returns the code of the halt that reports this wait."""
        return waiting_code(waits.wait, waits.arrival, waits.agreed)

    def failed_halt(self, error: Halted) -> Halt:
        """Returns the halt that reports that the change fails.

        The halt names no table, and so concerns all tables, in two cases: the statement's tables are not known, or the
        error names no table, since the statement was not the reason.
        """
        tables = self.planned.tables if error.where.table else None
        statement = self.entry.transaction.ddl or ""
        halted = self._halted(tables or ())
        return Halt.of(
            error,
            halted,
            self.lsn,
            source=self.source,
            position=self.position,
            statement=statement,
            into_zone=self.context.writing.into_zone,
        )

    def _halted(self, tables: Collection[TableName]) -> tuple[TableName, ...]:
        return tuple(sorted(filter(self.concerns, tables)))
