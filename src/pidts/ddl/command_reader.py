"""Reads the ddl commands for one schema change. The thread that makes the change uses this."""

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
"""The longest time for which a thread waits for another thread's reading."""


class SharedCommands:
    """The ddl commands of one source, which all of its waiting changes read together.

    A thousand shards may wait. If each of them connected to the target every second, the target could do nothing else.
    """

    def __init__(self) -> None:
        self.records = SharedSession()
        """The session with which all waiting changes read and write records."""
        self._found: tuple[float, Mapping[Lsn, DdlCommand]] = float("-inf"), {}
        """The time at which the last reading began, and its result."""
        self._reading = threading.Lock()
        """Held while one thread reads. The other threads wait for the result of this thread."""

    def find(self, context: JobContext, lsn: Lsn, since: float) -> DdlCommand | None:
        """Returns the command for the change at `lsn`, as the target had it after `since`; None if there was none.

        If another thread has to wait long for the target's answer, the result of the last reading is returned. The
        caller will ask again.
        """
        if self._reading.acquire(timeout=_ANSWER_SECONDS):
            try:
                if self._found[0] <= since:
                    began = time.monotonic()
                    source = context.source.source_id
                    read = self.records.ask(
                        context.target, lambda one: one.meta.ddl_commands.read(context.task, source)
                    )
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
        """Returns the ddl command that is in force; None if there is none. Retries until it can be read.

        With `since`, a time of `time.monotonic`, uses what the source's other changes have read after this time.
        """
        while True:
            try:
                return self._read() if since is None else self.shared.find(self.context, self.lsn, since)
            except Transient as error:
                _log.warning("ddl commands cannot be read", at=str(self.lsn), error=str(error))
                self.pause(self.seconds)

    def is_newer(self, tried: DdlCommand | None, since: float) -> bool:
        """Whether a ddl command other than `tried` was in force after `since`; retries until this can be read."""
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
        return records.ask(
            context.target, lambda session: session.meta.ddl_commands.find(context.task, source, self.lsn)
        )


def _is_newer(command: DdlCommand, tried: DdlCommand | None) -> bool:
    return command.number > (tried.number if tried is not None else 0) and not command.taken
