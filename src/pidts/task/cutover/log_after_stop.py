"""Looks in a source's own log for changes that programs have made after the step `stop` of a cutover.

An example: the source's machine restarts, its server is writable for some minutes, programs write, and an operator
makes the server read-only again. Since no run begins after `stop`, neither the relay nor the target gets these changes.
A later end of the log does not prove them: each start of a server begins a new log file.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from pidts.rules import AllowList
from pidts.schema import Dialect
from pidts.source import SourceConfig, connect, log_end, source_dialect
from pidts.task.config.task_file import TaskConfig

_LONGEST_STATEMENT = 120


def demand_unchanged(part: TaskConfig, place: str, todo: str) -> None:
    """Raises if the source's log after `place` has changes for the task, or is unreadable. `todo`: the advice."""
    with closing(connect(part.source.server)) as session:
        if str(log_end(session)) == place:
            return
        dialect = source_dialect(session)
    try:
        found = next(changes_after(part.source.server, Position.parse(place), part.allow, dialect), None)
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


def changes_after(server: SourceConfig, place: Position, allow: AllowList, dialect: Dialect) -> Iterator[Transaction]:
    """Yields the transactions in a server's log after `place` that may have changed the tables of `allow`."""
    wanted = LogSelection(allow, dialect, statements=True)
    side_effects = SideEffects(allow, dialect, lambda: closing(connect(server)))
    classifier = TransactionClassifier(allow, dialect, side_effects=side_effects)
    # A replicator may still use the configured server id. If this reader also used it, the server would disconnect one.
    reader = replace(server, server_id=None)
    store = ServerStore(reader)
    for piece, _ in pieces(server_blocks(reader, place)):
        found, logged = piece.transaction, partial(store.statements, piece.span)
        if wanted.rows(found) or classifier.of_schema_change(found, logged).kind is RelevanceKind.DDL:
            yield found


def _changed(part: TaskConfig, transaction: Transaction) -> str:
    if transaction.ddl is None:
        return listed(name for name in transaction.tables if part.allow(name)) or "tables"
    return f"tables ({shortened(transaction.ddl)})"


def shortened(statement: str) -> str:
    """Returns the beginning of a statement in one line, for messages."""
    line = " ".join(statement.split())
    return line[:_LONGEST_STATEMENT] + ("…" if len(line) > _LONGEST_STATEMENT else "")
