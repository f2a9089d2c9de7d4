"""Compares the end of each source's log with the position up to which the target has this log.

The source knows where its log ends. The relay knows which part of the log has changes for the task, and since when. If
the target has the whole log, the lag is 0. Otherwise only the machine with the relay may know the lag: the relay has to
contain a change that the target lacks, or the whole log.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial

from pidts.model import PidtsError, Position, TableName
from pidts.plan import PlanState, UnappliedSearch
from pidts.relay import RelayReader
from pidts.relay.receive_times import ReceiveTimes
from pidts.source import connect
from pidts.source.position import binary_logs, log_end
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.backlog import task_classifier

_ANSWER_SECONDS = 3.0
"""The time for a source's answer: a user waits for the status."""
_THREADS = 32


@dataclass(frozen=True, slots=True)
class LogEnd:
    """A source's answer to the question where its log ends."""

    position: Position | None = None
    """The end of the log; None if the source has not answered."""
    files: tuple[tuple[str, int], ...] = ()
    """The existing files of the log with their sizes, oldest first; empty if they are not known."""
    error: PidtsError | None = None
    """The reason why the end is not known."""

    def bytes_after(self, place: Position) -> int | None:
        """Returns the bytes of log after a position; None if the position or the log's end is not in known files."""
        names, end = [name for name, _ in self.files], self.position
        if end is None or place.file not in names or end.file not in names:
            return None
        first, last = names.index(place.file), names.index(end.file)
        between = sum(size for _, size in self.files[first:last])
        return between + end.offset - place.offset if (first, place.offset) <= (last, end.offset) else None


@dataclass(frozen=True, slots=True)
class SourceLog:
    """The end of a source's log, and what the target lacks of the log."""

    end: LogEnd
    unapplied_bytes: int | None = None
    """The bytes of log after the applied position, also those without changes for the task; None if not known."""
    lag_seconds: float | None = None
    """The age of the oldest change that the target lacks, without waiting tables; None if it is not known."""


def ask_for_ends(parts: Sequence[TaskConfig]) -> Mapping[str, Future[LogEnd]]:
    """Begins to ask the sources where their logs end, except sources whose log another machine receives."""
    asked = [part for part in parts if part.relay_from is None]
    if not asked:
        return {}
    threads = ThreadPoolExecutor(min(_THREADS, len(asked)), thread_name_prefix="log end")
    found = {part.source.source_id: threads.submit(_log_end, part) for part in asked}
    threads.shutdown(wait=False)
    return found


def _log_end(config: TaskConfig) -> LogEnd:
    try:
        server = replace(config.source.server, connect_timeout=_ANSWER_SECONDS)
        with closing(connect(server, answer_within=_ANSWER_SECONDS)) as session:
            end, files = log_end(session), tuple[tuple[str, int], ...]()
            with suppress(PidtsError):
                files = tuple(binary_logs(session))
            return LogEnd(end, files)
    except PidtsError as error:
        return LogEnd(error=error)


def source_log(
    config: TaskConfig, end: LogEnd, state: PlanState, applied: Position | None, waiting: Mapping[TableName, object]
) -> SourceLog:
    """Compares the end of the log with the task's state on the target, which has the log up to `applied`."""
    unapplied = end.bytes_after(applied) if applied is not None else None
    if state.copying:
        return SourceLog(end, unapplied)  # the target lacks rows of any age
    if unapplied == 0 and not state.exceptions:
        return SourceLog(end, 0, 0.0)
    return SourceLog(end, unapplied, _lag(config, end, state, waiting))


def _lag(config: TaskConfig, end: LogEnd, state: PlanState, waiting: Mapping[TableName, object]) -> float | None:
    try:
        with closing(RelayReader(config.relay, config.source.source_id)) as relay:
            received = relay.received
            if received is None:
                return None
            log = partial(relay.entries, joined=True)
            entry = UnappliedSearch(task_classifier(config)).first(state, log, received, waiting.keys())
            if entry is not None:
                with closing(ReceiveTimes(relay.folder)) as times:
                    committed = times.committed_at(entry)
                return max(0.0, time.time() - committed) if committed else None
            place = relay.position(received)
            return 0.0 if place is not None and end.bytes_after(place) == 0 else None
    except PidtsError:
        return None
