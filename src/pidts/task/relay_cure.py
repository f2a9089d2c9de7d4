"""What a task does about a relay that is broken: it has the stretch fetched again, once.

Found while entries are followed (something is missing or out of order) or while events are decoded (bytes are not what
the source wrote). Everything before the break is applied by then, nothing behind it. The relay is cut back to the last
sound entry and the source is asked again from there; where it breaks at the same place a second time, the disk or the
memory is to blame, and a person has to look.

It is not cut where the source could not fill it again: its log from there is purged, or another server has taken over
since, in whose log the same changes have other places.
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
from pidts.task.compose import source_config
from pidts.task.config import TaskConfig

_log = structlog.get_logger(__name__)

_CORRUPT = "relay-corrupt"
"""Also told by the replicator, which is a process of its own and cannot say more."""
_PASSING = 5
"""So often in a row a break may be gone when it is looked at: another task of this relay had it mended."""
_JUST = 60.0


class RelayCure:
    """Lives as long as a run."""

    def __init__(self, config: TaskConfig) -> None:
        self._config = config
        self._tried: set[Lsn] = set()
        self._passed = 0
        self.refetches = 0
        """Stretches that were fetched again."""

    def applied(self) -> None:
        """A batch was committed."""
        self._passed = 0

    def __call__(self, error: Halted, since: Lsn | None) -> str:
        """Ask for the cut and say what is done; `since` is applied. Raises what is no break, or cannot be cured."""
        if not isinstance(error, Discontinuity | DecodeError) and error.code != _CORRUPT:
            raise error
        with closing(RelayReader(self._config.relay, self._config.source.source_id)) as reader:
            since = since or reader.first
            found = first_break(reader, since) if since is not None else None
            if since is None or found is None or found.after is None:
                self._passed += 1
                if self._passed > _PASSING or (isinstance(error, DecodeError) and not _was_cut(reader)):
                    raise error
                return "the relay was broken, and is not any more"
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
        return f"the relay is broken behind {after}, fetching its log again"

    def _check_source(self, reader: RelayReader, found: Discontinuity, after: Lsn) -> None:
        origin = reader.origin
        if origin is None or after.change_no != origin.change_no:
            raise self._incurable(found, "the source was replaced by another server since")
        place = after.position(origin.log_base)
        with closing(connect(source_config(self._config))) as session:
            if server_info(session).identity != origin.server:
                raise self._incurable(found, f"the log came from {origin.server}, and the source is another server now")
            names = [name for name, _ in binary_logs(session)]
        if place.file not in names and not self._config.source.use_gtid:
            raise self._incurable(found, f"the source has purged its log from {place} on")

    def _in_vain(self, found: Discontinuity) -> Halted:
        todo = (
            "Its log was fetched again from the source and is broken at the same place: look at disk and memory of "
            "this machine, then empty the relay's folder and start again from the target's checkpoint"
        )
        return self._alert(found, Halted(found.code, f"{found.what}, again", where=found.where, todo=todo))

    def _incurable(self, found: Discontinuity, reason: str) -> Halted:
        todo = "What is missing cannot be fetched: copy the tables again, or restore the files of this relay"
        return self._alert(found, Halted(found.code, f"{found.what}; {reason}", where=found.where, todo=todo))

    def _alert(self, found: Discontinuity, error: Halted) -> Halted:
        where: Where = error.where
        _log.error(
            "the relay is broken, and nothing behind the break is applied",
            alert=True,
            code=error.code,
            what=error.what,
            source=where.source,
            file=where.file,
            after=str(found.after),
            todo=error.todo,
        )
        return error


def _was_cut(reader: RelayReader) -> bool:
    """Whether events may have been read from a place that others had just taken, after another task had it cut back."""
    known = read_refetches(reader.folder)
    return any(time.time() - one.asked_at < _JUST for one in (known.pending, *known.done) if one is not None)
