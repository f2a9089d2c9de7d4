"""Looks in a source's own log for changes that programs have made after the step `stop` of a cutover.

An example: the source's machine restarts, its server is writable for some minutes, programs write, and an operator
makes the server read-only again. Since no run begins after `stop`, neither the relay nor the target gets these changes.
A later end of the log does not prove them: each start of a server begins a new log file.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import partial

from pidts.batch.side_effects import SideEffects
from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.excerpt.blocks import server_blocks
from pidts.excerpt.cut import LogSelection, pieces
from pidts.excerpt.store import ServerStore
from pidts.model import PidtsError, Position, PrecheckFailed, Transaction, Transient
from pidts.model.errors import listed
from pidts.plan import RelevanceKind
from pidts.schema import Dialect
from pidts.source import connect, log_end, source_dialect
from pidts.task.config.task_file import TaskConfig

_LONGEST_STATEMENT = 120


def demand_unchanged(part: TaskConfig, place: str, todo: str) -> None:
    """Raises if the source's log after `place` has changes for the task, or is unreadable. `todo`: the advice."""
    with closing(connect(part.source.server)) as session:
        if str(log_end(session)) == place:
            return
        dialect = source_dialect(session)
    try:
        found = _first_change(part, Position.parse(place), dialect)
    except (Transient, PrecheckFailed):
        raise
    except PidtsError as error:
        what = (
            f"it is not known whether programs have written to source {part.source.source_id} after the step `stop`: "
            f"its log after {place} cannot be read: {error.what}"
        )
        raise PrecheckFailed("source-writable", what, todo=todo) from error
    if found is not None:
        what = (
            f"a program has changed {_changed(part, found)} on source {part.source.source_id} after the step `stop`, "
            "and the target does not have this change"
        )
        raise PrecheckFailed("source-writable", what, todo=todo)


def _first_change(part: TaskConfig, place: Position, dialect: Dialect) -> Transaction | None:
    wanted = LogSelection(part.allow, dialect, statements=True)
    side_effects = SideEffects(part.allow, dialect, lambda: closing(connect(part.source.server)))
    classifier = TransactionClassifier(part.allow, dialect, side_effects=side_effects)
    # A replicator may still use the configured server id. If this reader also used it, the source would disconnect one.
    reader = replace(part.source.server, server_id=None)
    store = ServerStore(reader)
    for piece, _ in pieces(server_blocks(reader, place)):
        found, logged = piece.transaction, partial(store.statements, piece.span)
        if wanted.rows(found) or classifier.of_schema_change(found, logged).kind is RelevanceKind.DDL:
            return found
    return None


def _changed(part: TaskConfig, transaction: Transaction) -> str:
    if transaction.ddl is None:
        return listed(name for name in transaction.tables if part.allow(name)) or "tables"
    statement = " ".join(transaction.ddl.split())
    is_long = len(statement) > _LONGEST_STATEMENT
    return f"tables ({statement[:_LONGEST_STATEMENT]}{'…' if is_long else ''})"
