"""Finds out by the relay's index whether the log has a change of a table between two Lsns."""

from __future__ import annotations

import time
from contextlib import closing

from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.model import Lsn, PidtsError, TableName
from pidts.plan import RelevanceKind
from pidts.relay import RelayReader
from pidts.schema import Dialect
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.presence import is_received_here

_RELAY_SECONDS = 2.0
"""The longest wait for log that the relay does not have yet."""


class RelayedChanges:
    """The changes in the relay of one source, as far as the task carries them. Only one thread may use it.

    The reader of the relay is kept. A new reader finds the relay's end only by reading the whole index of the last
    segment, which may have hundreds of thousands of transactions.
    """

    def __init__(self, config: TaskConfig, dialect: Dialect) -> None:
        self._config = config
        self._folder = config.relay / config.source.source_id
        self._classifier = TransactionClassifier(
            config.allow, dialect, marks_in=config.marks_in, forwards=frozenset(config.zones.forwards)
        )
        self._reader: RelayReader | None = None

    def untouched(self, table: TableName, after: Lsn, upto: Lsn) -> bool:
        """Whether the relay's index proves that the log has no change of a table between two Lsns.

        If the relay does not have the log up to `upto`, waits a moment for it, unless no replicator runs here.
        """
        if after >= upto:
            return True
        if not self._folder.is_dir():
            return False
        self._reader = self._reader or RelayReader(self._config.relay, self._config.source.source_id)
        try:
            # `closing` closes the files: the reader can be used again.
            with closing(self._reader) as relay:
                return self._has(relay, after, upto) and not self._touches(relay, table, after, upto)
        except (PidtsError, OSError):
            self._reader = None
            return False  # The relay was purged, cut back or damaged meanwhile, so this is not known.

    def _has(self, relay: RelayReader, after: Lsn, upto: Lsn) -> bool:
        first = relay.first
        if first is None or first > after:
            return False
        deadline = time.monotonic() + (_RELAY_SECONDS if is_received_here(self._config) else 0.0)
        received = relay.received
        while received is None or received < upto:
            if not relay.wait(received, max(deadline - time.monotonic(), 0)):
                return False
            received = relay.received
        return True

    def _touches(self, relay: RelayReader, table: TableName, after: Lsn, upto: Lsn) -> bool:
        for entry in relay.entries(after):
            if entry.transaction.prev_lsn >= upto:
                break
            relevance = self._classifier(entry)
            if relevance.kind is not RelevanceKind.NOTHING and (relevance.tables is None or table in relevance.tables):
                return True
            if entry.lacks_rows:
                return True
        return False
