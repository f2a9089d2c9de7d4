"""Provides Spark for one run.

Spark starts when a copy or a job first needs it, and is released after a time without use.

Small batches and small copies need no Spark. A JVM needs more memory, and more time at the start, than everything else
in a task. So a thread starts Spark only when it is needed. A copy needs only the session. A job also needs a call of
the streaming query, since only such a call has the job's partitions (`pidts.spark.stream`).

The session is shared with other parts of the task, see `pidts.task.run.shared_spark`, and ends when no part has used it
for a while. The session keeps no state of batches: each query begins a new checkpoint directory, and no other query
reads this directory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from pidts.model import Transient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = structlog.get_logger(__name__)

_ASK_SECONDS = 1.0
"""The interval at which Spark is asked whether its query still runs."""
_LOOK_SECONDS = 0.02


class SparkOnDemand:
    """The Spark session and the query of one run. One thread requests them; another thread starts and ends them."""

    quiet_seconds = 120.0
    """The time without use after which Spark is released."""

    def __init__(
        self,
        get: Callable[[], SparkSession],
        give_back: Callable[[], None],
        name: str,
        scratch: Path,
        slices: Path,
        on_call: Callable[[DataFrame, Path, int], None],
        prepare: Callable[[SparkSession], None],
    ) -> None:
        """`get` returns the shared session, which `give_back` releases.

        `slices` is the file with the options of the slices; `on_call` receives each call with the query's directory.

        `prepare` starts Spark's processes for the first job; a separate thread calls `prepare`.
        """
        self._get, self._give_back, self._name = get, give_back, name
        self._scratch, self._slices, self._on_call, self._prepare = scratch, slices, on_call, prepare
        self._preparing: threading.Thread | None = None
        self._session: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._queries = 0
        self._wants_session = self._wants_calls = False
        self._is_called = self._is_ending = self._is_closing = False
        self._is_given_back = False
        """Whether this run has given back the session. At first this is False, even if this run has no session: the
        previous run's session may still exist, and this run gives it back.
        """
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._quiet_at = time.monotonic() + self.quiet_seconds
        self._ask_at = 0.0

    @property
    def session(self) -> SparkSession | None:
        """Returns the session; None if it has not started."""
        return self._session

    @property
    def is_prepared(self) -> bool:
        """Whether a job could begin at once."""
        preparing = self._preparing
        return self._session is not None and (preparing is None or not preparing.is_alive())

    @property
    def is_called(self) -> bool:
        """Whether the query runs and has made a call."""
        return self._is_called

    @property
    def is_ending(self) -> bool:
        """Whether the query waits for its call to return, because it is being ended."""
        return self._is_ending

    def begin(self, *, calls: bool = False) -> None:
        """Starts the session, and with `calls` also the query, if they have not started yet. Does not wait for them."""
        self.used()
        with self._lock:
            self._wants_session, self._wants_calls = True, self._wants_calls or calls
        self._carry_on()

    def wait(self, is_over: Callable[[], bool]) -> SparkSession | None:
        """Waits until the session has started, and returns it; None if it does not start or the run ends."""
        while self._session is None and self._failure is None and not is_over():
            time.sleep(_LOOK_SECONDS)
        return self._session

    def failure(self) -> Exception | None:
        """Returns the error because of which Spark did not start, or with which its query ended; otherwise None."""
        query = self._query
        if self._failure is not None or query is None or time.monotonic() < self._ask_at:
            return self._failure
        try:
            error = None if query.isActive else query.exception() or _ended_itself()
        except Exception:
            if query is self._query:
                raise
            return None
        if query is not self._query:  # another thread has ended the query, perhaps during the call above
            return None
        if error is None:
            self._ask_at = time.monotonic() + _ASK_SECONDS
        return error

    def used(self) -> None:
        """Notes that Spark was in use until now, so that the time of the use does not count as time without use."""
        self._quiet_at = time.monotonic() + self.quiet_seconds

    def rest(self) -> None:
        """Releases Spark if it was not used for a while. A thread that has no job for Spark calls this method."""
        if time.monotonic() < self._quiet_at:
            return
        self._quiet_at = float("inf")
        with self._lock:
            self._wants_session = self._wants_calls = False
            self._is_ending = self._query is not None
        self._carry_on()

    def close(self, is_over: Callable[[], bool]) -> None:
        """Starts nothing more. Waits until a present start or release has ended, or `is_over` is true."""
        with self._lock:
            self._is_closing = True
            thread = self._thread
        while thread is not None and thread.is_alive() and not is_over():
            thread.join(_LOOK_SECONDS)

    def end(self) -> None:
        """Ends the query; the session stays for the next run."""
        query, self._query, self._is_called = self._query, None, False
        if query is not None:
            with suppress(Exception):  # a query whose JVM is dead has stopped
                query.stop()

    def _carry_on(self) -> None:
        with self._lock:
            if self._thread is None and not self._is_closing and self._failure is None:
                self._thread = threading.Thread(target=copy_context().run, args=(self._work,), daemon=True)
                self._thread.start()

    def _work(self) -> None:
        """Carries out one step after the other, until everything that was requested has started."""
        while True:
            with self._lock:
                step = None if self._is_closing or self._failure is not None else self._next()
                if step is None:
                    self._thread = None
                    return
            try:
                step()
            except Exception as error:  # noqa: BLE001 - `failure` returns the error
                self._failure = error

    def _next(self) -> Callable[[], None] | None:
        if self._is_ending:
            return self._end_query
        if not self._wants_session:
            # From here on, a caller that requests a session does not get this session.
            was_there, self._session = self._session is not None, None
            return None if self._is_given_back else partial(self._end_session, was_there=was_there)
        if self._session is None:
            return self._begin_session
        return self._begin_query if self._wants_calls and self._query is None else None

    def _begin_session(self) -> None:
        self._is_given_back = False
        self._session = session = self._get()
        if not self._is_closing:
            self._preparing = threading.Thread(target=self._prepare, args=(session,), name="prepare", daemon=True)
            self._preparing.start()

    def _begin_query(self) -> None:
        from pidts.spark.slices import SliceSource

        assert self._session is not None, "it is begun first"  # noqa: S101 - `_next` has checked this
        self._queries += 1
        folder = self._scratch / f"query-{self._queries}"
        self._session.dataSource.register(SliceSource)
        stream = self._session.readStream.format(SliceSource.name()).option("options", str(self._slices)).load()
        self._query = (
            stream.writeStream.queryName(f"{self._name}-{self._queries}")
            .option("checkpointLocation", str(folder))
            .foreachBatch(lambda slices, number: self._call(slices, folder, number))
            .start()
        )

    def _call(self, slices: DataFrame, folder: Path, number: int) -> None:
        if not self._is_ending:
            self._is_called = True
            self._on_call(slices, folder, number)

    def _end_query(self) -> None:
        self.end()
        self._is_ending = False

    def _end_session(self, *, was_there: bool) -> None:
        self._give_back()
        self._is_given_back = True
        if was_there:
            _log.debug("Spark has had no work for a while, and is released")


def _ended_itself() -> Transient:
    todo = "A running task tries again by itself. spark.log may have the reason (docs/operate/state-and-logs.md)"
    return Transient("spark-failed", "Spark ended the query without saying why", todo=todo)
