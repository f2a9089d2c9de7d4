"""Limits the size of a batch, and the number of rows of a copy that are read at once."""

from __future__ import annotations

from dataclasses import dataclass

_LEAST_ROWS = 500


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one batch and of its copy. A batch may exceed them by one entry of the log.

    An entry is one whole transaction of any size, or several small transactions (`joined`). The limits count separately
    for tables that catch up, for each place at which tables are held.
    """

    transactions: int = 50_000
    row_events: int = 80_000
    bytes: int = 56 << 20
    """How many bytes of log a batch may have. A batch may be larger by one entry. So this limit is lower than the size
    up to which the driver applies a batch without a Spark job.
    """
    chunk_rows: int = 20_000
    """How many rows a table's first chunk has; fewer if rows are long, or if their length is not known."""
    most_rows: int = 200_000
    """How many rows a chunk may have."""
    chunks: int = 4
    """How many large tables are copied at the same time."""
    threads: int = 4
    """How many chunks are read at the same time."""
    follows: bool = True
    """Whether somebody waits for changes in the log while a copy is under way."""
    rate: int | None = None
    """How many rows per second are read, for all tables together; None: no limit."""
    idle_entries: int = 10_000
    """The number of other tables' transactions after which the position moves, even if there is nothing to apply."""
    idle_bytes: int = 8 << 20
    """The number of bytes of other tables' log after which the position moves, even if there is nothing to apply. The
    relay keeps this log until the position moves.
    """
    one_origin: bool = False
    """Whether the task carries changes of several zones. If so, a batch has the changes of only one zone."""
    copy_bytes: int = 32 << 20
    """A batch with more bytes of log than this writes no staged rows: it would have to reduce them together with all
    changes of their window.
    """

    @property
    def joined(self) -> tuple[int, int]:
        """Returns how many transactions, and how many row events, one entry of the log may have."""
        return self.transactions, self.row_events

    @property
    def least_rows(self) -> int:
        """Returns how many rows a chunk has at least; a table's last chunk may have fewer."""
        return min(_LEAST_ROWS, self.chunk_rows, self.most_rows)
