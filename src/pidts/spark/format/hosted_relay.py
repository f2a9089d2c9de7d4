"""Runs a replicator in the process that plans a streaming query. The replicator fills the relay that the query reads.

The relay is a folder that the user gives, or a temporary folder that is removed with the query. With a temporary
folder, a restarted query begins with a new folder, at the place of its offset: only Spark's checkpoint decides where a
query continues.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

from pidts.model import Halted, Lsn, PidtsError, Position, Where
from pidts.owned_folder import process_folder
from pidts.relay import RelayReader, purge
from pidts.replicate import Replicator, ReplicatorConfig
from pidts.schema import Dialect
from pidts.source import SourceConfig, binary_logs, connect, log_end, server_info, source_dialect

_SEGMENT_BYTES = 32 << 20
_END_SECONDS = 10.0
_ASK_SECONDS = 1.0


class HostedRelay:
    """The relay of one source. This process fills the relay; if no server is given, another process fills it."""

    def __init__(self, server: SourceConfig | None, relay: Path | None, source_id: str) -> None:
        self.server = server
        self._given, self._source_id = relay, source_id
        self._private: Path | None = None
        self._thread: Thread | None = None
        self._stop = Event()
        self._error: BaseException | None = None
        self._reader: RelayReader | None = None
        self._asked = 0.0
        self._source_end: dict[str, str | int] = {}

    @property
    def relay(self) -> Path:
        """The folder of all sources' relays."""
        found = self._given or self._private
        if found is None:
            raise AssertionError("the relay is used before begin was called")
        return found

    @property
    def reader(self) -> RelayReader:
        """Returns the reader of the planner's thread."""
        if self._reader is None:
            self._reader = RelayReader(self.relay, self._source_id)
        return self._reader

    def begin(self, start: Position | str | None) -> None:
        """Begins to receive at `start`, or at the end of the user's relay if that already has log."""
        if self.server is None or self._thread is not None:
            return
        if self._given is None:
            self._private = Path(tempfile.mkdtemp(prefix="binlog-", dir=process_folder().path))
            atexit.register(self.close)
        config = ReplicatorConfig(self.server, self.relay, start, segment_bytes=_SEGMENT_BYTES)
        self._thread = Thread(target=self._receive, args=(config,), name="replicator", daemon=True)
        self._thread.start()

    def _receive(self, config: ReplicatorConfig) -> None:
        try:
            Replicator(config).run(self._stop)
        except BaseException as error:  # noqa: BLE001 - raised again by the planner's thread
            self._error = error

    def check(self) -> None:
        """If receiving has ended with an error, raises this error."""
        if self._error is not None:
            raise self._error

    def wait(self, lsn: Lsn | None, seconds: float) -> bool:
        """Waits up to `seconds` for log after `lsn`; returns whether the relay has such log."""
        self.check()
        return self.reader.wait(lsn, seconds)

    def end_of_log(self) -> Position | None:
        """Returns the current end of the server's log; None without a server."""
        if self.server is None:
            return None
        with closing(connect(self.server)) as session:
            return log_end(session)

    def identity(self) -> str:
        """Returns the identity of the server that wrote this log."""
        if self.server is None:
            origin = self.reader.origin
            return origin.server if origin else ""
        with closing(connect(self.server)) as session:
            return server_info(session).identity

    def dialect(self) -> Dialect | None:
        """Returns the dialect in which the server reads its own statements; None without a server."""
        if self.server is None:
            return None
        with closing(connect(self.server)) as session:
            return source_dialect(session)

    def release(self, lsn: Lsn) -> None:
        """Removes log that the query no longer needs, but only from a temporary folder."""
        if self._private is not None:
            purge(self._private, self._source_id, lsn)

    def lag(self, at: Lsn | None) -> dict[str, str | int]:
        """Returns what the query's progress shows about the backlog.

        The progress shows the end of the received log. If there is a server and `at` is given, the progress also shows
        the end of the source's log, and the number of bytes from `at` to there. If asking the source for this end
        fails, the progress shows that error instead.
        """
        received = self.reader.received if self._thread or self._given else None
        lag: dict[str, str | int] = {"received": str(received or "")}
        if self.server is None or at is None:
            return lag
        if time.monotonic() - self._asked >= _ASK_SECONDS:
            self._asked = time.monotonic()
            try:
                with closing(connect(self.server)) as session:
                    end, logs = log_end(session), binary_logs(session)
            except PidtsError as error:
                self._source_end = {"error": f"{error.code}: {error.what}"}
            else:
                self._source_end = {"sourceEnd": str(end), "behindBytes": _between(at, end, logs)}
        return lag | self._source_end

    def close(self) -> None:
        """Stops receiving, and removes a temporary folder."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
        if self._reader is not None:
            self._reader.close()
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)


def _between(at: Lsn, end: Position, logs: list[tuple[str, int]]) -> int:
    """Returns the number of bytes of log from an Lsn to the end of the server's log."""
    if at.log_index == end.log_index:
        return max(0, end.offset - at.offset)
    sizes = {Position(name, 0).log_index: size for name, size in logs}
    between = sum(size for index, size in sizes.items() if at.log_index < index < end.log_index)
    return max(0, sizes.get(at.log_index, at.offset) - at.offset) + between + end.offset


def check_server(expected: str, present: str, where: Where) -> None:
    """Raises if the server is not the expected one, since a position in one server's log has no meaning on another."""
    if expected and present and expected != present:
        what = f"the query was reading the log of {expected}, but the server at its `url` is now {present}"
        todo = "Set `url` to the former server. Or begin a new query, with a new checkpoint, in this server's log"
        raise Halted("other-source", what, where=where, todo=todo)
