"""Cuts a worker's changes into parts that fit into memory; each part is reduced and written by itself.

The result is the same wherever the log is cut, as long as its parts are written in the order of the log. So each part
has the changes of all tables between two places, and tables are never written one after the other. A commit could be
made at each cut. The exception is a row that moves between members of one merged table: its two changes in one
transaction need each other (`lagging_merge`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Lsn, byte_size

PART_BYTES = 32 << 20
"""The size of one part, in bytes of Arrow data. Reducing and writing a part takes several times as much memory."""


@dataclass(frozen=True, slots=True)
class LogPart:
    """All changes of one worker between two places in the log. The next part begins at the second place."""

    changes: Sequence[ChangeBatch]
    inside: Lsn | None = None
    """The place where a large transaction begins, if the part is a piece of it. None: the part ends a transaction."""
    after_cut: bool = False
    """Whether this part or an earlier part of the batch has a piece of a large transaction."""

    @property
    def size(self) -> int:
        """Returns the size of the changes in bytes."""
        return sum(byte_size(batch.rows) for batch in self.changes)

    def __len__(self) -> int:
        return sum(map(len, self.changes))

    @property
    def end(self) -> Lsn:
        """Returns the Lsn of the last change of the part."""
        return max(Lsn.from_bytes(batch.rows["lsn"][-1].as_py()) for batch in self.changes)


def parts(log_parts: Iterable[LogPart], most_bytes: int, most_rows: int | None = None) -> Iterator[LogPart]:
    """Joins neighbouring parts of the log up to the size limit. A single part above the limit is not cut.

    A piece of a large transaction is joined only with pieces of the same transaction. With `most_rows`, such a
    transaction is cut between rows.
    """
    if most_rows is None and isinstance(log_parts, list) and len(log_parts) == 1:
        # Most small batches have only one part. The code below would yield the same part, but more slowly.
        (whole,) = log_parts
        if changes := [batch for batch in whole.changes if len(batch)]:
            yield LogPart(changes, whole.inside, after_cut=whole.inside is not None)
        return
    waiting: list[ChangeBatch] = []
    size = rows = 0
    inside: Lsn | None = None
    cut = False
    for log_part in log_parts:
        for piece in _pieces(log_part, most_rows):
            full = size + piece.size > most_bytes or (most_rows is not None and rows + len(piece) > most_rows)
            if waiting and (full or log_part.inside != inside):
                done, waiting, size, rows = LogPart(waiting, inside, after_cut=cut), [], 0, 0
                yield done
                del done  # otherwise written changes would stay in memory while the next part is read
            inside = log_part.inside
            cut = cut or inside is not None
            waiting += piece.changes
            size, rows = size + piece.size, rows + len(piece)
        cut = cut or log_part.inside is not None  # even if the cut log part has no changes for this worker
    if waiting:
        yield LogPart(waiting, inside, after_cut=cut)


def _pieces(log_part: LogPart, most_rows: int | None) -> Iterator[LogPart]:
    rest = [batch for batch in log_part.changes if len(batch)]
    while log_part.inside is not None and most_rows is not None and sum(map(len, rest)) > most_rows:
        lsns = pa.concat_arrays([_lsns(batch) for batch in rest])
        last = lsns[pc.sort_indices(lsns)[most_rows - 1].as_py()]
        counts = [pc.sum(pc.less_equal(_lsns(batch), last)).as_py() for batch in rest]
        halves = list(zip(rest, counts, strict=True))
        yield LogPart([_slice(batch, 0, count) for batch, count in halves if count])
        rest = [_slice(batch, count, len(batch) - count) for batch, count in halves if count < len(batch)]
    if rest:
        yield LogPart(rest)


def _slice(batch: ChangeBatch, first: int, count: int) -> ChangeBatch:
    return replace(batch, rows=batch.rows.slice(first, count))


def _lsns(batch: ChangeBatch) -> pa.Array:
    return batch.rows["lsn"].cast(pa.binary())
