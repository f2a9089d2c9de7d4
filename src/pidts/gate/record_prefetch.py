"""Makes the records of the next log part in a thread, while the previous records are written.

Records get their numbers later. So records that are made in advance do not depend on the last commit: they are the same
after a crash or a repeated attempt. If the records were made for another place, or with other structures, the caller
discards them. An error in this thread is not raised: the caller makes the records again in its own thread, where the
error is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from pidts.batch.context import JobContext
from pidts.gate.record_batch import Records, TransactionRange
from pidts.model import Lsn
from pidts.plan import BatchPlan


@dataclass(frozen=True, slots=True)
class PreparedRecords:
    """A log part, its plan and its records."""

    transactions: TransactionRange
    plan: BatchPlan
    records: Records


class RecordPrefetch:
    """Makes the records of at most one log part in advance, in a thread of its own. One thread calls the methods."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="records-ahead")
        self._begun: tuple[Lsn, Future[PreparedRecords | None]] | None = None

    def begin(self, place: Lsn, make: Callable[[], PreparedRecords | None]) -> None:
        """Begins to make the records of the log part after a place."""
        self._begun = place, self._thread.submit(make)

    def take(self, place: Lsn, context: JobContext) -> PreparedRecords | None:
        """Returns and forgets the log part that `begin` has made for a place.

        Returns None if nothing was made for this place, if making it failed, or if it was made with another context.
        """
        begun, self._begun = self._begun, None
        if begun is None:
            return None
        try:
            made = begun[1].result()
        except Exception:  # noqa: BLE001 - the caller makes the log part again, and gets the error
            return None
        return made if made is not None and begun[0] == place and made.records.context is context else None

    def close(self) -> None:
        """Waits for the log part that the thread is making, and ends the thread."""
        self._thread.shutdown(cancel_futures=True)
