"""Publishes the tables of a warehouse every `pidts.hive.refresh`, while a task runs, and at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import structlog

from pidts.apply import TargetSession
from pidts.model import PidtsError, Transient
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.warehouse import change_tables, publications

_LOOK_SECONDS, _AGAIN_SECONDS = 2.0, 30.0

_log = structlog.get_logger(__name__)


class PublishingTurns:
    """Decides when the next publication of a run is due. Only one part of the task at a time publishes."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held by the part that publishes."""
        self.last = 0.0
        """The time at which the last publication of this run began."""
        self.failed_at: float | None = None
        """The time at which the last publication failed, by the monotonic clock; None if it has not failed."""

    def is_due(self, config: TaskConfig, session: TargetSession) -> bool:
        """Whether a publication is due: the last publication, of this or an earlier run, was long ago or has failed."""
        if self.failed_at is not None:
            return time.monotonic() - self.failed_at >= _AGAIN_SECONDS
        # Published change tables also count, even before the first table is copied. Otherwise changes would be
        # published at once, again and again, in many small files.
        known = [one.read_at for one in publications(session).of(config.name).values()]
        known += [one.read_at for one in change_tables(session).of(config.name).values()]
        now, last = time.time(), max(known, default=0.0)
        pause = config.hive_refresh if known else 0.0  # the first publication is made at once
        return not (0 <= now - last < pause or 0 <= now - self.last < pause)


class Publications:
    """Publishes the tables of all parts in a separate thread until it is closed. Each part has its own object."""

    def __init__(self, config: TaskConfig, parts: Callable[[], Sequence[TaskConfig]], turns: PublishingTurns) -> None:
        self._config, self._parts, self._turns = config, parts, turns
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="publish", daemon=True)
        self._is_wanted = config.target.type == "hive"
        if self._is_wanted:
            self._thread.start()

    def close(self) -> None:
        """Ends the thread without waiting for a publication. A publication may be interrupted at any point."""
        self._closed.set()

    def finish(self, stop: threading.Event) -> None:
        """Publishes the final state of a run that ends by itself. Waits for the metastore until `stop` is set."""
        if not self._is_wanted:
            return None
        self.close()
        self._thread.join()
        while True:
            try:
                if self._turns.lock.acquire(timeout=_LOOK_SECONDS):
                    try:
                        with closing(self._config.target.server.connect()) as session:
                            return _publish(self._parts(), session)
                    finally:
                        self._turns.lock.release()
            except Transient as error:
                _log.warning("the tables are published later", cause=str(error))
            if stop.wait(_LOOK_SECONDS):
                return None

    def _run(self) -> None:
        turns = self._turns
        while not self._closed.wait(_LOOK_SECONDS):
            if not turns.lock.acquire(blocking=False):
                continue  # another part publishes; try again later
            try:
                with closing(self._config.target.server.connect()) as session:
                    if turns.is_due(self._config, session):
                        turns.last, turns.failed_at = time.time(), None
                        _publish(self._parts(), session)
            except Exception as error:  # noqa: BLE001 - without this thread, readers would see old tables for ever
                turns.failed_at = time.monotonic()
                is_known = isinstance(error, PidtsError)
                _log.warning("the tables are published later", cause=str(error), exc_info=not is_known)
            finally:
                turns.lock.release()


def _publish(parts: Sequence[TaskConfig], session: TargetSession) -> None:
    from pidts.target.hive.session import HiveSession  # loads pyiceberg, which other targets do not need
    from pidts.task.operate.publication import publish

    assert isinstance(session, HiveSession)  # noqa: S101 - that is its type
    publish(parts, session)
