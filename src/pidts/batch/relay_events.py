"""Reads raw events from the relay when its index does not have enough information."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import chain

from pidts.binlog import LogWalker, Query, iter_raw, whole_events
from pidts.binlog.statements import logged_statements
from pidts.binlog.walk import format_of
from pidts.model import DecodeError, LogEntry
from pidts.relay import RelayReader

log_format = lru_cache(maxsize=16)(format_of)
"""Returns the format that a segment's FORMAT_DESCRIPTION event describes."""


def ddl_event(relay: RelayReader, entry: LogEntry) -> Query:
    """Returns the statement of an entry as the source wrote it, with the modes under which it ran.

    If the transaction has several statements, the text has all of them, and the modes belong to the first statement.
    """
    for query in statement_events(relay, entry):
        ran = entry.transaction
        return replace(query, sql=ran.ddl or query.sql, schema=ran.ddl_schema if ran.ddl else query.schema)
    raise DecodeError(
        "no-statement", f"the index names a statement that the log does not have: {entry.transaction.ddl}"
    )


def statement_events(relay: RelayReader, entry: LogEntry) -> Iterator[Query]:
    """Yields the statements of an entry, except statements that control the transaction."""
    begin, extent = entry.transaction.begin, entry.extent
    if entry.prepared is not None:
        begin, extent = entry.prepared.begin, entry.prepared
    form = log_format(relay.format(extent.segment))
    walker = LogWalker(begin.position(relay.log_base).file, begin.offset, form)
    # The rows of a LOAD DATA are in the log, too, and may be larger than the memory.
    yield from logged_statements(walker, chain.from_iterable(map(iter_raw, whole_events(relay.chunks(extent)))))
