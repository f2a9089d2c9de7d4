"""Decoding a stretch of log that is larger than memory should be: piece by piece, batches handed out as they fill.

A transaction may take back what it did before, to a savepoint or altogether; rows that have been handed out cannot be.
So a long stretch is looked through first, by the types of its events alone. Nearly always nothing in it is taken back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from pidts.binlog.decode import Structures, new_decoder
from pidts.binlog.events import EventType, Format
from pidts.binlog.walk import LogWalker, iter_raw
from pidts.model.batch import ChangeBatch
from pidts.model.lsn import Lsn

_AT_TYPE = 4
_STREAM_BATCH_BYTES = 64 << 20

Pieces = Callable[[], Iterable[bytes | memoryview]]
"""Begins a reading of the stretch; each piece ends with a whole event."""

_ROLLBACK = re.compile(rb"ROLLBACK", re.IGNORECASE)
_HEAD = frozenset({EventType.ROTATE, EventType.FORMAT_DESCRIPTION})
_DOUBTFUL = frozenset(
    {
        EventType.QUERY_COMPRESSED,
        EventType.XA_PREPARE,
        EventType.TRANSACTION_PAYLOAD,
        EventType.ROTATE,
        EventType.STOP,
        EventType.FORMAT_DESCRIPTION,
    }
)


def decode_stream(
    pieces: Pieces,
    *,
    format: Format,  # noqa: A002
    log_file: str,
    change_no: int,
    structures: Structures,
    after: Lsn | None = None,
    offset: int = 4,
    commit: Lsn | None = None,
) -> Iterator[ChangeBatch]:
    """As `decode_slice`, in memory that does not grow with the stretch; a table may have many batches, in log order."""
    is_final = not _takes_back(pieces(), commit)
    decoder = new_decoder(
        structures,
        change_no,
        after,
        commit,
        mariadb=format.is_mariadb,
        batch_bytes=_STREAM_BATCH_BYTES if is_final else None,
        is_final=is_final,
    )
    walker = LogWalker(log_file, offset, format)
    for piece in pieces():
        decoder.follow(walker, piece)
        yield from decoder.take_full()
    yield from decoder.take()


def _takes_back(pieces: Iterable[bytes | memoryview], commit: Lsn | None) -> bool:
    """Whether something may be taken back. A statement only has to look like it; few stand between rows."""
    doubtful = _DOUBTFUL - {EventType.XA_PREPARE} if commit else _DOUBTFUL
    has_begun = False
    for piece in pieces:
        for raw in iter_raw(piece):
            kind = raw[_AT_TYPE]
            if kind in _HEAD and not has_begun:
                continue
            has_begun = True
            if kind in doubtful or (kind == EventType.QUERY and _ROLLBACK.search(raw)):
                return True
    return False
