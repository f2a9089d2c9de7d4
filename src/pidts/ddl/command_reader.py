"""Reads the ddl commands for one schema change, for the thread that makes the change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from pidts.apply import SharedSession
from pidts.batch.context import JobContext
from pidts.model import DdlCommand, Lsn, Transient

_log = structlog.get_logger(__name__)

_ANSWER_SECONDS = 1.0
"""The longest wait of a thread while another thread reads."""
_FIRST_REPEAT, _LONGEST_REPEAT = 10.0, 600.0
"""The first and the longest time, in seconds, between two log lines about one failure. The time doubles each time."""


class ReadFailures:
    """Logs failures to read ddl commands, ever less often, and the first success after them. Any thread may call it."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """`now` returns the seconds of a clock that is never set back."""
        self._now, self._lock = now, threading.Lock()
        self._since, self._due, self._distance = 0.0, 0.0, 0.0

    def failed(self, lsn: Lsn, error: Transient) -> None:
        """Logs the failure if a log line is due."""
        with self._lock:
            now = self._now()
            if not self._distance:
                self._since, self._due, self._distance = now, now, _FIRST_REPEAT
            if now < self._due:
                return
            seconds, self._due = round(now - self._since), now + self._distance
            self._distance = min(2 * self._distance, _LONGEST_REPEAT)
        _log.warning("ddl commands cannot be read", at=str(lsn), error=str(error), seconds=seconds)

    def succeeded(self) -> None:
        """Logs that ddl commands can be read again, if the last reading has failed."""
        with self._lock:
            if not self._distance:
                return
            seconds, self._distance = round(self._now() - self._since), 0.0
        _log.info("ddl commands can be read again", seconds=seconds)


class SharedCommands:
    """The ddl commands of one source, which all of its waiting changes read together.

    A thousand shards may wait. If each of them connected to the target every second, the target could do nothing else.
    """

    def __init__(self) -> None:
        self.records = SharedSession()
        """The session with which all waiting changes read and write records."""
        self._found: tuple[float, Mapping[Lsn, DdlCommand]] = float("-inf"), {}
        """The time at which the last reading of ddl commands began, and the ddl commands that it found."""
        self.failures = ReadFailures()
        self._reading = threading.Lock()
        """Held by the thread that reads the ddl commands. The other threads wait for the ddl commands that it finds."""

    def find(self, context: JobContext, lsn: Lsn, since: float) -> DdlCommand | None:
        """Returns the command for the change at `lsn`, read after `since`; None if the target has none.

        One reading after `since` serves all changes of the source. If another thread is reading, and the target does
        not answer for long, the previous result is returned. This is safe: the caller asks again later.
        """
        if self._reading.acquire(timeout=_ANSWER_SECONDS):
            try:
                if self._found[0] <= since:
                    began = time.monotonic()
                    source = context.source.source_id
                    read = self.records.ask(
                        context.target, lambda one: one.meta.ddl_commands.read(context.task, source)
                    )
                    self.failures.succeeded()
                    self._found = began, {command.lsn: command for command in read}
            finally:
                self._reading.release()
        return self._found[1].get(lsn)


@dataclass(frozen=True, slots=True)
class CommandReader:
    """Reads the ddl commands from the target, which may be unreachable for a while."""

    context: JobContext
    lsn: Lsn
    pause: Callable[[float], None]
    """Sleeps; raises if the run has ended."""
    seconds: float
    """The seconds between two attempts to read a ddl command."""
    shared: SharedCommands

    def read(self, since: float | None = None) -> DdlCommand | None:
        """Returns the ddl command for the change; None if there is none. Retries until the target answers.

        If `since`, a time of `time.monotonic`, is given, one reading after this time serves all changes of the source.
        """
        while True:
            try:
                return self._read() if since is None else self.shared.find(self.context, self.lsn, since)
            except Transient as error:
                self.shared.failures.failed(self.lsn, error)
                self.pause(self.seconds)

    def is_newer(self, tried: DdlCommand | None, since: float) -> bool:
        """Whether a newer ddl command than `tried` was found after `since`. Retries until the target answers."""
        command = self.read(since)
        if command is None or not _is_newer(command, tried):
            return False
        _log.info("an operator has decided about a schema change", at=str(self.lsn), order=command.kind.value)
        return True

    def is_superseded(self, tried: DdlCommand | None) -> bool:
        """Whether a newer ddl command than `tried` can be read now; False if the target does not answer."""
        try:
            command = self._read()
        except Transient:
            return False
        return command is not None and _is_newer(command, tried)

    def _read(self) -> DdlCommand | None:
        context = self.context
        source, records = context.source.source_id, self.shared.records
        found = records.ask(
            context.target, lambda session: session.meta.ddl_commands.find(context.task, source, self.lsn)
        )
        self.shared.failures.succeeded()
        return found


def _is_newer(command: DdlCommand, tried: DdlCommand | None) -> bool:
    return command.number > (tried.number if tried is not None else 0) and not command.taken
