"""Makes the target gather statistics of copied tables after their copy, while everything else continues.

Nothing waits for the statistics, and no row depends on them. If a statement fails, or has not ended when the run ends,
the server gathers the statistics later by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import closing
from queue import SimpleQueue

import structlog

from pidts.apply import Target

_log = structlog.get_logger(__name__)


class Statistics:
    """Runs, one after the other, statements that gather statistics, in a thread that ends with the process."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[Target, str] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def gather(self, target: Target, statements: Iterable[str]) -> None:
        """Adds statements for the thread to run."""
        for statement in statements:
            self._waiting.put((target, statement))
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="statistics", daemon=True)
                self._thread.start()

    def close(self, seconds: float) -> None:
        """Waits for the remaining statements, but not longer than this."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(seconds)

    def _work(self) -> None:
        while (found := self._waiting.get()) is not None:
            target, statement = found
            try:
                with closing(target.connect()) as session:
                    session.execute(statement)
            except Exception as error:  # noqa: BLE001 - the table may be gone by now
                _log.info("the target has no statistics of a copied table yet", statement=statement, cause=str(error))
