"""One Spark session for all parts of a task. The first part that needs a session creates it, also after it has died.

When the last part has given the session back, the session and its JVM end. An idle Spark would cost more memory than
the rest of a task.

When a JVM is killed, the streams of all parts end, but the parts notice this at different times. The first part creates
another session. A part that still has the dead session must not end the new session.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pidts.model import PidtsError, Transient
from pidts.spark.failures import restored
from pidts.task.config.task_file import TaskConfig

if TYPE_CHECKING:
    from pidts.spark.session import Session

_START_SECONDS = 20.0
"""The time for which a run that ends waits for a session that is starting."""


class SharedSpark:
    """The Spark session of a run."""

    def __init__(self, config: TaskConfig, scratch: Path) -> None:
        self._config, self._scratch = config, scratch
        self._session: Session | None = None
        self._users: set[str] = set()
        self._lock = threading.Lock()

    def session(self, user: str) -> Session:
        """Returns the session for one part; creates it if there is none."""
        from pidts.spark.session import build_session

        with self._lock:
            self._users.add(user)
            if self._session is None:
                config = self._config
                self._session = build_session(
                    config.name, config.spark_master, self._scratch, config.relay / "spark.log", config.spark_conf
                )
            return self._session

    def give_back(self, user: str) -> None:
        """Notes that the part needs no session now. Ends the session if no other part needs it."""
        with self._lock:
            self._users.discard(user)
            session = self._session
            if session is None or self._users:
                return
            from pidts.spark.session import end_session

            self._session = None
            end_session(session)

    @contextmanager
    def losing_is_transient(self, used: Callable[[], Session | None]) -> Iterator[None]:
        """If the JVM was killed, raises `spark-died` instead of an error of Spark, so that another attempt begins.

        PiDTS's own errors are unchanged. `used` returns the session that was used; None if none was.
        """
        try:
            yield
        except Exception as error:
            session = used()
            alive = session is None or self._is_alive(session)
            if isinstance(error, PidtsError):
                raise
            if not alive:
                raise Transient("spark-died", "Spark's JVM has ended") from error
            found = restored(error)
            if found is error:
                raise
            raise found from error

    def _is_alive(self, session: Session) -> bool:
        """Whether the session lives; a dead session is dropped, so that another session can begin."""
        from pidts.spark.session import forget_session, is_alive

        with self._lock:
            if is_alive(session):
                return True
            if session is self._session:
                forget_session()
                self._session = None
            return False

    def close(self) -> None:
        """Ends the session, even if it is still starting. If its start hangs, the session ends with the process."""
        if not self._lock.acquire(timeout=_START_SECONDS):
            return
        try:
            if self._session is not None:
                from pidts.spark.session import stop_session

                stop_session(self._session)
        finally:
            self._lock.release()
