"""Counts the changes that programs, and not tasks, have made in a zone between two places of its log."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.model import LogEntry, Lsn, PidtsError, Position, TableName, Transient, Where
from pidts.model.zone import statement_origin
from pidts.plan import RelevanceKind
from pidts.relay import RelayReader
from pidts.replicate import Replicator, ReplicatorConfig
from pidts.schema import Dialect, classify
from pidts.task.config.task_file import TaskConfig

_PATIENCE_SECONDS, _START_SECONDS = 60.0, 600.0
"""The longest waits, in seconds: for a server that sends nothing new, and for a server that has sent nothing yet.

The second limit is longer: the replicator may first have to compile its decoder, which takes minutes on a busy machine.
If the server does not answer, the replicator reports an error, and the first limit counts.
"""


def own_changes(
    config: TaskConfig,
    start: Position,
    end: Position,
    stop: threading.Event,
    patience_seconds: float = _PATIENCE_SECONDS,
) -> Counter[TableName]:
    """Returns, for each table, how many row events and statements of programs have changed it in the source's log.

    Receives the log into a separate folder, which is removed afterwards. Raises the server's error if the server has
    purged the log.
    """
    found: Counter[TableName] = Counter()
    if (start.log_index, start.offset) >= (end.log_index, end.offset):
        return found
    with tempfile.TemporaryDirectory(prefix="pidts-own-changes-") as folder:
        for entry in _received(config, start, end, Path(folder), stop, patience_seconds):
            for table in _changed(config, entry):
                found[table] += max(1, entry.transaction.row_events)
    return found


def _received(
    config: TaskConfig, start: Position, end: Position, folder: Path, stop: threading.Event, patience_seconds: float
) -> list[LogEntry]:
    server, failures, ended = config.source.server, list[PidtsError](), threading.Event()
    replicator = Replicator(ReplicatorConfig(server, folder, start, look_every=1e9))

    def receive() -> None:
        try:
            replicator.run(ended)
        except PidtsError as error:
            failures.append(error)

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    try:
        with closing(RelayReader(folder, server.source_id)) as relay:
            seen, moved = None, time.monotonic()
            while not failures and not stop.is_set():
                received = relay.received
                if received is not None and received >= Lsn.at(end, received.change_no):
                    return list(relay.entries(to=received))
                if received != seen:
                    seen, moved = received, time.monotonic()
                has_begun = received is not None and received > Lsn.at(start, received.change_no)
                has_begun |= replicator.state().error is not None
                if time.monotonic() - moved > (patience_seconds if has_begun else _START_SECONDS):
                    break
                relay.wait(received, 0.2)
    finally:
        ended.set()
        thread.join(patience_seconds)
    if failures:
        raise failures[0]
    where = Where(source=server.source_id, position=str(start))
    raise Transient("zone-log-not-read", "the zone's log could not be read to its end", where=where, todo="Try again")


def _changed(config: TaskConfig, entry: LogEntry) -> set[TableName]:
    """Returns the tables that a program has changed in a transaction; none if the transaction has a task's mark."""
    classifier = TransactionClassifier(config.allow, Dialect(), config.rules.events, config.marks_in)
    relevance, transaction = classifier(entry), entry.transaction
    if relevance.kind is RelevanceKind.NOTHING:
        return set()
    if relevance.kind is RelevanceKind.DDL and transaction.ddl is not None:
        statement = classify(transaction.ddl, transaction.ddl_schema, dialect=Dialect())
        if statement_origin(config.marks_in, transaction.ddl, statement.tables):
            return set()
    return set(relevance.tables) if relevance.tables is not None else {TableName("", "")}
