"""Checks every few seconds, on a separate connection, whether the log that is read is still the source's log.

The check notices RESET MASTER on the source. After RESET MASTER, the server writes every commit to a new file, but the
replica's dump is still of a file that no longer exists. The server sends only heartbeats for this dump. So the stream
looks as if no program wrote to the source.

Two observations are suspicious:

1. The log ends before the received place. In a log that only grows, this is impossible: the received place is noted
   before the log's end is read.
2. The log grows and no event arrives. This is normal for a short time.

Neither observation is a proof. So a second check is made on a new connection, and then the replicator compares the
logs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Event as StopEvent
from threading import Thread
from time import monotonic, time
from typing import Self

from pidts.model import Lsn, PidtsError, Position
from pidts.model.errors import Transient
from pidts.relay import Origin
from pidts.replicate.heartbeat import Heartbeat
from pidts.replicate.receive_lag import SourceLogEnd
from pidts.replicate.status import ReplicatorState
from pidts.source import Session, SourceConfig, binary_logs, connect, query, server_info
from pidts.source.connection import where_of

_EVERY = 2.0
_CONFIRM = 0.5
_AFTER_FAILURE = 10.0
_AFTER_FALSE_ALARM = 60.0
"""For this many seconds after a false alarm, observation 2 raises no new doubt: the stream may only be slow."""
_SHARE = 50
"""Checks take at most one fiftieth of the time. With ten thousand files, a server answers slowly."""
_ANSWER_SECONDS = 10.0
_END_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class StreamCheck:
    """The state of a stream at one moment, and the state of the source's log shortly after."""

    reading: Position
    """The end of the relay at the moment of the check."""
    bytes: int
    """The bytes that were received up to the moment of the check."""
    logs: tuple[tuple[str, int], ...]
    """The source's log files and their sizes, oldest first; never empty."""


def ends_before(logs: Sequence[tuple[str, int]], reading: Position) -> bool:
    """Whether a log ends before `reading`; its files were listed after `reading` was received."""
    newest = Position(logs[-1][0], 4)
    size = dict(logs).get(reading.file)
    # A server that cannot open a file reports a size of 0.
    return newest.log_index < reading.log_index or (size is not None and 0 < size < reading.offset)


def is_stalled(before: StreamCheck, now: StreamCheck) -> bool:
    """Whether there was more to read at the check `before`, and nothing has arrived until the check `now`."""
    newest, size = before.logs[-1]
    end = Position(newest, size)
    more = (end.log_index, end.offset) > (before.reading.log_index, before.reading.offset)
    return more and (before.reading, before.bytes) == (now.reading, now.bytes)


class LogWatch:
    """Watches the log of one stream, in its own thread."""

    def __init__(
        self,
        source: SourceConfig,
        origin: Origin,
        state: Callable[[], ReplicatorState],
        heartbeat: Heartbeat | None,
    ) -> None:
        """`state` returns the replicator's state. With `heartbeat`, the log's end is read after each heartbeat."""
        self._source, self._origin, self._state, self._heartbeat = source, origin, state, heartbeat
        self._every = min(_EVERY, heartbeat.seconds) if heartbeat is not None else _EVERY
        self._session: Session | None = None
        self._before: StreamCheck | None = None
        self._before_at = 0.0
        self._quiet_until = 0.0
        self._dismissed: tuple[tuple[str, int], ...] = ()
        self._took = 0.0
        self._end = StopEvent()
        self._thread = Thread(target=self._run, name="log-watch", daemon=True)
        self.doubt = False
        """Whether the stream may be of a log that no longer exists. The replicator clears this after a comparison."""
        self.end: SourceLogEnd | None = None
        """The end of the log at the last check; the replicator's thread reads it."""
        self.unreceived_bytes: int | None = None
        """The bytes of the log that the relay did not have at the last check."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops the thread; does not wait for a query that hangs on a dead connection."""
        self._end.set()
        self._thread.join(_END_SECONDS)

    def dismiss(self) -> None:
        """Clears the doubt after the logs were compared and found equal.

        A server may count bytes that it does not send. For example, MySQL counts the header of an encrypted file, so
        there always seems to be more to read. So the same file sizes do not raise a doubt again.
        """
        self._dismissed = self._before.logs if self._before is not None else ()
        self._quiet_until = monotonic() + _AFTER_FALSE_ALARM
        self.doubt = False

    def _run(self) -> None:
        doubts, pause = 0, self._every
        while not self._end.wait(pause):
            try:
                odd = self._look()
            except PidtsError:  # Errors of this connection are ignored here; the stream and the observer report them.
                doubts, pause = 0, _AFTER_FAILURE
                self._disconnect()
                continue
            doubts = doubts + 1 if odd else 0
            pause = max(_CONFIRM if odd else self._every, self._took * _SHARE)
            if doubts == 1:
                self._disconnect()
            elif doubts:
                self.doubt = True
        self._disconnect()

    def _look(self) -> bool:
        """Makes one check; returns whether it is suspicious."""
        state, before = self._state(), self._before
        self._before = None
        if not state.connected or state.received is None or state.received.change_no != self._origin.change_no:
            return False
        reading = state.received.position(self._origin.log_base)
        if self._session is None:
            self._session = connect(self._source, answer_within=_ANSWER_SECONDS)
            if server_info(self._session).identity != self._origin.server:
                what = "the address now leads to another server"
                raise Transient("source-changed", what, where=where_of(self._session))
        asked_at = monotonic()
        if self._heartbeat is not None and not self._heartbeat.write(self._session):
            asked_at = monotonic()
        began = monotonic()
        logs = tuple(binary_logs(self._session))
        self._took = monotonic() - began
        if not logs or Position(logs[-1][0], 4).base != self._origin.log_base:
            return False
        now = self._before = StreamCheck(reading, state.bytes, logs)
        self._measure(logs, reading, asked_at)
        if ends_before(logs, reading):
            return True
        if before is not None and asked_at < self._before_at + _CONFIRM:
            # Every stream pauses between two frequent heartbeats, so this check is too early: `before` is kept for a
            # later check.
            self._before = before
            return False
        self._before_at = asked_at
        if before is None or logs == self._dismissed or asked_at < self._quiet_until:
            return False
        return is_stalled(before, now)

    def _measure(self, logs: Sequence[tuple[str, int]], reading: Position, asked_at: float) -> None:
        """Notes how many bytes the relay lacks, and the difference of the clocks, for measuring the lag."""
        assert self._session is not None, "_look() has connected"  # noqa: S101
        began, here = monotonic(), time()
        there = float(query(self._session, "SELECT UNIX_TIMESTAMP(NOW(6))")[0][0])
        trip = monotonic() - began
        end = Position(*logs[-1])
        later = [(name, size) for name, size in logs if Position(name, 4).log_index >= reading.log_index]
        read = reading.offset if later and later[0][0] == reading.file else 0
        self.unreceived_bytes = max(0, sum(size for _, size in later) - read)
        self.end = SourceLogEnd(Lsn.at(end, self._origin.change_no), asked_at, trip, there - here - trip / 2)

    def _disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):  # the connection may be closed already
                session.close()
