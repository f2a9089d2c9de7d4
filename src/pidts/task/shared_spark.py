"""One Spark session for all parts of a task, made when the first asks for it, and again when it has died.

A JVM that was killed takes the streams of all parts along. Each of them finds out by itself, and all ask for another
session; the first that does makes it. Whoever finds out late still holds the old session: it must not end the new one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pidts.model import PidtsError, Transient
from pidts.spark.failures import restored
from pidts.spark.session import Session, build_session, forget_session, is_alive
from pidts.task.config import TaskConfig


class SharedSpark:
    """Lives as long as a run."""

    def __init__(self, config: TaskConfig, scratch: Path) -> None:
        self._config, self._scratch = config, scratch
        self._session: Session | None = None
        self._lock = threading.Lock()

    def session(self, on_start: Callable[[], None]) -> Session:
        """The one that lives; `on_start` is told where one has to be waited for."""
        if self._session is None:
            on_start()
        with self._lock:
            if self._session is None:
                config = self._config
                self._session = build_session(
                    config.name, config.spark_master, self._scratch, config.relay / "spark.log", config.spark_conf
                )
            return self._session

    @contextmanager
    def losing_is_transient(self, session: Session) -> Iterator[None]:
        """A killed JVM takes its session along, and calls into it fail in many ways; the next attempt has another."""
        try:
            yield
        except Exception as error:
            alive = self._is_alive(session)
            if isinstance(error, PidtsError):
                raise
            if not alive:
                raise Transient("spark-died", "Spark's JVM is gone") from error
            found = restored(error)
            if found is error:
                raise
            raise found from error

    def _is_alive(self, session: Session) -> bool:
        """Of one that is not, no trace is left, so that the next may begin."""
        with self._lock:
            if is_alive(session):
                return True
            if session is self._session:
                forget_session()
                self._session = None
            return False

    def close(self) -> None:
        """End it."""
        if self._session is not None:
            with suppress(Exception):  # a JVM that was killed cannot be asked to end
                self._session.stop()
