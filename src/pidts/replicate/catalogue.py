"""Reads the source's catalogue beside the stream, and finds the place of the log at which it holds.

Nothing is locked: the position is read, then the structures, then the position again. Once the relay has received the
log between the two positions, it tells which tables were changed meanwhile. Reading again may help. Tables that change
all the time are recorded as unknown, and a later look finds them.
"""

from __future__ import annotations

import time
from contextlib import closing
from threading import Event as StopEvent

from pidts.model import Lsn
from pidts.relay import RelayReader
from pidts.relay.structures import Catalogue
from pidts.source import SourceConfig, connect, server_info
from pidts.source.catalogue import look_at_tables

_TRIES = 5
_RECEIVE_SECONDS = 30.0
_POLL = 0.05


def read_catalogue(source: SourceConfig, reader: RelayReader, stop: StopEvent) -> Catalogue | None:
    """Reads the catalogue at a place near the end of the relay; None if it cannot be read now."""
    for last in (*[False] * (_TRIES - 1), True):
        origin, received = reader.origin, reader.received
        with closing(connect(source)) as session:
            info = server_info(session)
            if origin is None or info.identity != origin.server:
                return None
            seen = look_at_tables(session, lambda _: True, stop.wait)
        after, to = Lsn.at(seen.began, origin.change_no), Lsn.at(seen.ended, origin.change_no)
        first = reader.first
        if first is None or received is None or not max(first, received) <= after <= to:
            return None  # The log was reset, so the two positions belong to different logs.
        if not _received(reader, to, stop):
            return None
        changes = list(reader.schema_changes(after, to))
        history = seen.history.doubting(changes, seen.dialect)
        if history is seen.history:
            return Catalogue(after, history, seen.dialect)
        if last:
            return Catalogue(to, history, seen.dialect)
    return None


def _received(reader: RelayReader, lsn: Lsn, stop: StopEvent) -> bool:
    deadline = time.monotonic() + _RECEIVE_SECONDS
    while (received := reader.received) is None or received < lsn:
        if time.monotonic() > deadline or stop.wait(_POLL):
            return False
    return True
