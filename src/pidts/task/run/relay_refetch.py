"""Repairs a damaged relay: the source sends the log again from the damaged place on, once for each place.

Damage is found in one of two ways: an entry of the relay's index is missing or out of order, or an event's bytes differ
from the source's. At that time everything before the damage is applied, and nothing after it.
The relay is cut back to the last sound entry, and the source sends its log from there. If the same place is damaged
again, the disk or the memory is probably faulty, and a person has to check them.

The relay is not cut if the source cannot send the log again: the source has purged this log, or another server has
replaced the source. In that server's log, the same changes have other positions.
"""

from __future__ import annotations

import time
from contextlib import closing

import structlog

from pidts.model import DecodeError, Halted, Lsn, Where
from pidts.plan.continuity import Discontinuity
from pidts.relay import RelayReader
from pidts.relay.breaks import first_break
from pidts.relay.refetch import ask_to_refetch, read_refetches
from pidts.source import binary_logs, connect, server_info
from pidts.task.config.task_file import TaskConfig

_log = structlog.get_logger(__name__)

_CORRUPT = "relay-corrupt"
"""The code of errors that report damage and are no `Discontinuity`, for example those of the replicator's process."""
_PASSING = 5
"""The most times in a row that the check may find no damage, because another task of this relay has repaired it. After
that, the error is raised.
"""
_JUST = 60.0


class RelayRefetch:
    """Requests the repairs of one relay during a run."""

    def __init__(self, config: TaskConfig) -> None:
        self._config = config
        self._tried: set[Lsn] = set()
        self._passed = 0
        self.refetches = 0
        """The number of log parts that were fetched again."""

    def applied(self) -> None:
        """Notes that a batch was committed."""
        self._passed = 0

    def __call__(self, error: Halted, since: Lsn | None) -> str:
        """Requests the cut and returns a message. `since`: the place up to which the log is applied.

        Raises the error if the relay is not damaged, or if the damage cannot be repaired.
        """
        if not isinstance(error, Discontinuity | DecodeError) and error.code != _CORRUPT:
            raise error
        with closing(RelayReader(self._config.relay, self._config.source.source_id)) as reader:
            since = since or reader.first
            found = first_break(reader, since) if since is not None else None
            if since is None or found is None or found.after is None:
                self._passed += 1
                if self._passed > _PASSING or (isinstance(error, DecodeError) and not _was_cut_requested(reader)):
                    raise error
                return "the relay was broken and is repaired"
            after = found.after
            if after in self._tried:
                raise self._in_vain(found) from error
            self._check_source(reader, found, after)
            to = max(reader.received or after, since, after)
            self._tried.add(after)
            ask_to_refetch(reader.folder, after, to, found.code)
        self.refetches += 1
        _log.warning(
            "the relay is broken, its log is fetched again",
            code=found.code,
            what=found.what,
            file=found.where.file,
            after=str(after),
            to=str(to),
            is_retry=True,
        )
        return f"the relay is broken after {after}; its log is fetched again from the source"

    def _check_source(self, reader: RelayReader, found: Discontinuity, after: Lsn) -> None:
        if self._config.relay_from is not None:
            return  # The relay server sends the log again, and checks its own relay first.
        origin = reader.origin
        if origin is None or after.change_no != origin.change_no:
            raise self._incurable(found, "another server has replaced the source since then")
        place = after.position(origin.log_base)
        with closing(connect(self._config.source.server)) as session:
            if server_info(session).identity != origin.server:
                raise self._incurable(found, f"the log came from {origin.server}, and the source is now another server")
            names = [name for name, _ in binary_logs(session)]
        if place.file not in names and not self._config.source.use_gtid:
            raise self._incurable(found, f"the source has purged its log from {place} on")

    def _in_vain(self, found: Discontinuity) -> Halted:
        todo = (
            "The source has sent this part of the log again, and it is broken at the same place. Check disk and memory "
            "of this machine, then empty the relay's folder and start again from the target's checkpoint"
        )
        return self._alert(found, Halted(found.code, f"{found.what}, again", where=found.where, todo=todo))

    def _incurable(self, found: Discontinuity, reason: str) -> Halted:
        todo = "The missing log cannot be fetched: restore the files of this relay if they exist elsewhere"
        return self._alert(found, Halted(found.code, f"{found.what}; {reason}", where=found.where, todo=todo))

    def _alert(self, found: Discontinuity, error: Halted) -> Halted:
        where: Where = error.where
        _log.error(
            "the relay is broken, and nothing after the break is applied",
            alert=True,
            code=error.code,
            what=error.what,
            source=where.source,
            file=where.file,
            after=str(found.after),
            todo=error.todo,
        )
        return error


def _was_cut_requested(reader: RelayReader) -> bool:
    """Whether a task has requested a cut in the last minute. Then the bytes may have changed while they were read."""
    known = read_refetches(reader.folder)
    return any(time.time() - one.asked_at < _JUST for one in (known.pending, *known.done) if one is not None)
