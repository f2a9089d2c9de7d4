"""Cuts a worker's changes into parts that fit into memory, each of which is reduced and written by itself.

Any cut of a history gives the same end, as long as its parts are written in the order of the log. So parts follow each
other for all tables at once, never one table after the other. All changes before the last one of a part are in this
part or in an earlier one, so a commit could be made at each cut. Rows that move between tables of one merged table are
the exception: there the halves of one transaction need each other, see `lagging_merge`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import ChangeBatch, Lsn

PART_BYTES = 32 << 20
"""The bytes of Arrow data in one part; reducing and writing it takes several times as much."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """All changes of one worker between two places of the log; the next stretch follows it."""

    changes: Sequence[ChangeBatch]
    inside: bool = False
    """Whether it is a piece of one large transaction. Else it ends where a transaction does."""
    behind_cut: bool = False
    """Whether a part contains such a piece, or follows one."""

    @property
    def size(self) -> int:
        """Returns its size in bytes."""
        return sum(batch.rows.nbytes for batch in self.changes)

    def __len__(self) -> int:
        return sum(map(len, self.changes))

    @property
    def end(self) -> Lsn:
        """Returns the place of its last change."""
        return max(Lsn.from_bytes(batch.rows["lsn"][-1].as_py()) for batch in self.changes)


def parts(stretches: Iterable[Stretch], most_bytes: int, most_rows: int | None = None) -> Iterator[Stretch]:
    """Joins neighbours until they are as large as they may be; a stretch that is larger by itself stays what it is.

    With `most_rows` a large transaction is cut at the row.
    """
    waiting: list[ChangeBatch] = []
    size = rows = 0
    cut = False
    for stretch in stretches:
        for piece in _pieces(stretch, most_rows):
            full = size + piece.size > most_bytes or (most_rows is not None and rows + len(piece) > most_rows)
            if waiting and full:
                done, waiting, size, rows = Stretch(waiting, behind_cut=cut), [], 0, 0
                yield done
                del done  # written changes need not stay in memory while the next part is read
            cut = cut or stretch.inside
            waiting += piece.changes
            size, rows = size + piece.size, rows + len(piece)
        cut = cut or stretch.inside  # also where nothing of it is left
    if waiting:
        yield Stretch(waiting, behind_cut=cut)


def _pieces(stretch: Stretch, most_rows: int | None) -> Iterator[Stretch]:
    rest = [batch for batch in stretch.changes if len(batch)]
    while stretch.inside and most_rows is not None and sum(map(len, rest)) > most_rows:
        lsns = pa.concat_arrays([_lsns(batch) for batch in rest])
        last = lsns[pc.sort_indices(lsns)[most_rows - 1].as_py()]
        counts = [pc.sum(pc.less_equal(_lsns(batch), last)).as_py() for batch in rest]
        halves = list(zip(rest, counts, strict=True))
        yield Stretch([_slice(batch, 0, count) for batch, count in halves if count])
        rest = [_slice(batch, count, len(batch) - count) for batch, count in halves if count < len(batch)]
    if rest:
        yield Stretch(rest)


def _slice(batch: ChangeBatch, first: int, count: int) -> ChangeBatch:
    return replace(batch, rows=batch.rows.slice(first, count))


def _lsns(batch: ChangeBatch) -> pa.Array:
    return batch.rows["lsn"].cast(pa.binary())
