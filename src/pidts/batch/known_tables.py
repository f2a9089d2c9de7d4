"""Checks that the task has the structure of every table with rows in a batch."""

from __future__ import annotations

import structlog

from pidts.batch.context import JobContext
from pidts.batch.sequences import SequencesOfRelay
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.model import Halted, TableName, Where
from pidts.plan import BatchPlan
from pidts.relay import RelayReader

_log = structlog.get_logger(__name__)


class KnownTables:
    """Checks every batch, so that no rows of a table are left out silently because its structure is missing.

    Rows of MariaDB's sequences are left out, and a log line names each sequence once.
    """

    def __init__(self, relay: RelayReader, classifier: TransactionClassifier, todo: str) -> None:
        """`todo` says what an operator can do about a table without a structure."""
        self._sequences, self._classifier, self._todo = SequencesOfRelay(relay), classifier, todo
        self._left_out: set[TableName] = set()

    def demand(self, context: JobContext, plan: BatchPlan) -> None:
        """Raises if the batch has rows of a table whose structure the task does not have."""
        for name in sorted(plan.tables):
            if name in context.structures or not self._classifier.allow(name) or self._is_sequence(name, context, plan):
                continue
            raise Halted(
                "structure-unknown",
                "the log has rows of a table whose structure the task does not have",
                where=Where(source=context.source.source_id, position=str(plan.start.lsn), table=str(name)),
                todo=self._todo,
            )

    def _is_sequence(self, name: TableName, context: JobContext, plan: BatchPlan) -> bool:
        if not context.dialect.mariadb or not self._sequences.is_sequence(name, plan.start.at(name), plan.end.at(name)):
            return False
        if name not in self._left_out:
            self._left_out.add(name)
            _log.info("a SEQUENCE is not carried: its rows in the log are left out", sequence=str(name))
        return True
