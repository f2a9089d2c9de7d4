"""Decodes a part of the log that is too large for memory, piece by piece, and returns the rows of each piece.

A transaction may roll back its earlier changes, to a savepoint or completely, but rows that were returned cannot be
taken back. So `decode_stream` first searches all events for types that may roll changes back. If it finds such an
event, which is rare, it keeps all rows until the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Unpack

from pidts.binlog.compressed import payload_pieces
from pidts.binlog.decode import LogFacts, new_decoder, times_of, walker_of
from pidts.binlog.events import CHECKSUM_SIZE, HEADER_SIZE, EventType, Format
from pidts.binlog.walk import iter_raw
from pidts.model.batch import ChangeBatch
from pidts.model.lsn import Lsn

_AT_TYPE = 4
_STEP_BYTES = 4 << 20

Pieces = Callable[[], Iterable[bytes | memoryview]]
"""Reads the part of the log from its first byte, in pieces of whole events."""

_ROLLBACK = re.compile(rb"ROLLBACK", re.IGNORECASE)
_HEAD = frozenset({EventType.ROTATE, EventType.FORMAT_DESCRIPTION})
_DOUBTFUL = frozenset(
    {EventType.QUERY_COMPRESSED, EventType.XA_PREPARE, EventType.ROTATE, EventType.STOP, EventType.FORMAT_DESCRIPTION}
)


def decode_stream(pieces: Pieces, **facts: Unpack[LogFacts]) -> Iterator[list[ChangeBatch]]:
    """Decodes as `decode_slice` does, in memory that does not depend on the size of the log.

    Each list contains changes of all tables. These changes come later in the log than the changes of the previous list.
    """
    is_final = not _takes_back(pieces(), facts.get("commit"), facts["format"])
    decoder, walker, times = new_decoder(facts, is_final=is_final), walker_of(facts), times_of(facts)
    for piece in pieces():
        times.add(piece)
        for _ in decoder.steps(walker, piece):
            if is_final and decoder.size >= _STEP_BYTES:
                yield decoder.take(times.of)
        if is_final and decoder.size >= _STEP_BYTES:
            yield decoder.take(times.of)
            times.forget()
    if rest := decoder.take(times.of):
        yield rest


def _takes_back(pieces: Iterable[bytes | memoryview], commit: Lsn | None, form: Format) -> bool:
    """Whether an event may roll back earlier changes.

    `commit`: the Lsn at which the source committed these prepared changes. With it, an XA_PREPARE rolls back nothing.
    """
    doubtful = _DOUBTFUL - {EventType.XA_PREPARE} if commit else _DOUBTFUL
    has_begun = False
    for piece in pieces:
        for raw in iter_raw(piece):
            kind = raw[_AT_TYPE]
            if kind in _HEAD and not has_begun:
                continue
            has_begun = True
            if kind == EventType.TRANSACTION_PAYLOAD:
                body = raw[HEADER_SIZE : len(raw) - CHECKSUM_SIZE * bool(form.checksum)]
                if _takes_back(payload_pieces(body), commit, form):
                    return True
            elif kind in doubtful or (kind == EventType.QUERY and _ROLLBACK.search(raw)):
                return True
    return False
