"""A session on the target that several threads use one after another for the task's records."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

from pidts.apply.port import Target, TargetSession
from pidts.model import Transient
from pidts.model.errors import TARGET_LOST

_Answer = TypeVar("_Answer")

_IDLE_SECONDS = 5.0
"""A session that was not used for this time is replaced."""


class SharedSession:
    """Reads and writes records for many threads on one connection.

    A thousand shards may wait before a schema change, and each of them reads and writes a few records. Connecting each
    time would take longer than all other work for the change.
    """

    def __init__(self, busy_seconds: float = 1.0) -> None:
        """`busy_seconds`: how long a thread waits while one other thread uses the session."""
        self._busy_seconds = busy_seconds
        self._session: TargetSession | None = None
        self._used, self._uses = 0.0, 0
        """The time of the last use, and the number of uses so far."""
        self._using = threading.Lock()

    def ask(self, target: Target, work: Callable[[TargetSession], _Answer]) -> _Answer:
        """Returns what `work` returns. `work` may be called twice, and leaves no transaction open.

        If a connection that was used before is lost, `work` is called again on a new one: the server may have closed
        the former one while nobody used it. After any other error, `work` is not called again: a second call could, for
        example, wait once more for a record's lock. If another thread uses the session for long, since a record is
        locked, this call makes a session of its own.
        """
        if not self._acquired():
            with closing(target.connect()) as session:
                return work(session)
        try:
            if self._session is not None and time.monotonic() < self._used + _IDLE_SECONDS:
                try:
                    return work(self._session)
                except Transient as error:
                    if error.code != TARGET_LOST:
                        raise
            self._drop()
            self._session = target.connect()
            return work(self._session)
        except BaseException:
            self._drop()
            raise
        finally:
            self._used, self._uses = time.monotonic(), self._uses + 1
            self._using.release()

    def close(self) -> None:
        """Closes the session, unless a thread uses it; a later call of `ask` makes another one."""
        if self._using.acquire(timeout=self._busy_seconds):
            try:
                self._drop()
            finally:
                self._using.release()

    def _acquired(self) -> bool:
        """Waits for the session; returns False if one thread uses it for too long."""
        while True:
            uses = self._uses
            if self._using.acquire(timeout=self._busy_seconds):
                return True
            if uses == self._uses:
                return False

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()
