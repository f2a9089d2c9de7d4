"""How large a batch may become, and how much of a copy is read at once."""

from __future__ import annotations

from dataclasses import dataclass

_LEAST_ROWS = 500


@dataclass(frozen=True, slots=True)
class Limits:
    """Transactions are never cut, so a batch may exceed its limits by one transaction.

    Tables that catch up have these limits once more, each group for itself.
    """

    transactions: int = 50_000
    row_events: int = 80_000
    bytes: int = 56 << 20
    """Less than the driver applies by itself: a batch that exceeds it by one entry shall not need a Spark job."""
    chunk_rows: int = 20_000
    """Of a table's first chunk, or fewer where rows are long, or nobody knows how long."""
    most_rows: int = 200_000
    """Of any chunk."""
    chunks: int = 4
    """Large tables that are copied at a time."""
    threads: int = 4
    """Chunks that are read side by side."""
    follows: bool = True
    """Whether anybody waits for what the log brings while a copy goes on."""
    rate: int | None = None
    """Rows that may be read in a second, of all tables together."""
    idle_entries: int = 10_000
    """So many transactions of other tables pass before the position is moved for their sake alone."""
    copy_bytes: int = 32 << 20
    """A batch with more log than this writes no rows that wait: they are reduced together with all of their window."""

    @property
    def least_rows(self) -> int:
        """Of a chunk, but for a table's last one."""
        return min(_LEAST_ROWS, self.chunk_rows, self.most_rows)
