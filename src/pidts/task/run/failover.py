"""Lets a run continue at a standby when its source is lost, or when an operator has chosen another server.

The order of events:

1. The choice is recorded beside the relay.
2. The replicator is stopped.
3. Another attempt begins with the new server. The replicator requests the log by GTID, or from a sampled place, and
   checks again that the server has executed all transactions that the relay contains.

Crash points: before step 1, nothing has happened. After step 1, every process that reads the task file continues at the
chosen server; so does the next run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from pidts.apply import TargetSession
from pidts.model import GtidSet, Lsn, PidtsError, Transient
from pidts.relay.folder import Folder
from pidts.relay.repeats import repeated_until
from pidts.relay.servers_read import servers_read
from pidts.replicate import Looked
from pidts.source import SOURCE_BUSY
from pidts.task.config.current_server import address_of, choose_server, chosen_address, with_current_server
from pidts.task.config.servers import SourceSpec
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.standbys import find_standby, received_gtids, state_of, surplus
from pidts.task.run.read_structures import StartStopped
from pidts.task.run.replicator_process import ReplicatorProcess

_log = structlog.get_logger(__name__)

_BETWEEN_LOOKS = 1.0
_BEGIN_SECONDS = 60.0
"""The time in which the replicator must find its place in a standby's log. A standby that lags delays this."""
_COMPARE_SECONDS = 10.0
"""The interval at which the standbys are compared with the source."""


class Failover:
    """Watches the servers of one source."""

    def __init__(
        self, say: Callable[[str], None], received_of: Callable[[TaskConfig], GtidSet | None] = received_gtids
    ) -> None:
        """`say` shows a text to the user of the run; `received_of` returns the GTIDs that the relay has received."""
        self._show, self._received_of = say, received_of
        self._failures, self._next_look = 0, 0.0
        self._said: set[str] = set()

    def look(self, config: TaskConfig, *, is_failing: bool) -> SourceSpec | None:
        """Returns the source with the server at which to continue; None if that is the current one.

        `is_failing`: the current server may be lost. Only then does the method connect to it.
        """
        if time.monotonic() < self._next_look:
            return None
        self._report_unknown(config)
        if not config.source.standbys:
            self._next_look = time.monotonic() + _BETWEEN_LOOKS
            return None
        chosen = with_current_server(config.source, config.relay)
        if chosen != config.source:
            self._report(f"the source is now read from {address_of(chosen.server)}: this server was chosen")
            return chosen
        if not is_failing or self._answers(config):
            self._failures = 0
            self._next_look = time.monotonic() + _BETWEEN_LOOKS
            return None
        self._failures += 1
        moved = self._moved(config) if self._failures >= config.source.failover_after else None
        self._next_look = time.monotonic() + _BETWEEN_LOOKS
        return moved

    def _answers(self, config: TaskConfig) -> bool:
        """Whether the source answers.

        Only a lost connection counts as no answer. On any other error an operator has to act. A server with too many
        connections is alive, and a standby may also have too many.
        """
        try:
            state_of(config.source.server)
        except Transient as error:
            return error.code == SOURCE_BUSY
        except PidtsError:
            return True
        return True

    def _moved(self, config: TaskConfig) -> SourceSpec | None:
        lost, source = address_of(config.source.server), None
        try:
            found, refusals = find_standby(config, config.source.standbys, received_of=self._received_of)
            if found is not None:
                source = choose_server(config.source, config.relay, address_of(found))
        except PidtsError as error:
            # The relay's disk may be full: the run waits for room or for the source.
            refusals = [str(error)]
        if source is None:
            self._report(f"{lost} does not answer, and no standby can take over: {'; '.join(refusals)}")
            return None
        self._failures = 0
        self._report(f"{lost} does not answer, and the task goes on at the standby {address_of(source.server)}")
        return source

    def _report_unknown(self, config: TaskConfig) -> None:
        """Reports that a server was chosen that the task file did not name when the run began."""
        chosen = chosen_address(config.relay, config.source.source_id)
        if chosen and chosen not in map(address_of, (config.source.server, *config.source.servers)):
            self._report(
                f"{chosen} was chosen as the source, but the task file did not name it when this run began. "
                "The next start reads its log, if the task file names it then"
            )

    def _report(self, text: str) -> None:
        """Shows a text once, since a standby that cannot take over is checked again and again."""
        if text not in self._said:
            self._said.add(text)
            _log.warning(text)
            self._show(text)


def until_no_repeat(
    config: TaskConfig,
    target: TargetSession,
    replicator: ReplicatorProcess,
    safe_until: Lsn | None,
    stop: threading.Event,
) -> Lsn | None:
    """Returns the place up to which rows are written in safe mode, and records it on the target; None if there is none.

    After a failover without GTIDs, the new server's log may repeat changes that the relay already has. The replicator
    reports the new server, and where the repeated changes end, before it writes the first of them. The function waits
    for this report.
    """
    source = config.source
    if not source.standbys or source.use_gtid or config.relay_from is not None:
        return safe_until
    folder, now = Folder.of(config.relay, source.source_id).path, address_of(source.server)
    deadline = time.monotonic() + _BEGIN_SECONDS
    while chosen_address(config.relay, source.source_id) == now:
        known = servers_read(folder)
        if known and known[max(known)] == now:
            break
        replicator.watch()
        if stop.wait(0.05):
            raise StartStopped
        if time.monotonic() > deadline:
            what = f"the replicator has not begun to read the log of {now}"
            raise Transient("relay-stuck", what, where=source.server.where, todo="If this lasts, read replicator.log")
    repeated = repeated_until(folder)
    if repeated is None or (safe_until is not None and safe_until >= repeated):
        return safe_until
    target.begin()
    try:
        target.meta.safe_range.save(config.name, source.source_id, repeated)
        target.commit()
    except BaseException:
        target.rollback()
        raise
    _log.warning("changes may come twice and are applied in safe mode", source=source.source_id, until=str(repeated))
    return repeated


class StandbyWatch:
    """Compares the standbys with the source while the source is read, in a separate thread.

    The comparison finds a standby that must not take over although it has all received transactions:

    1. Primary A is lost with a transaction that no other server has. Standby B takes over.
    2. A comes back, and replicates from B. A now has all transactions of B, and the additional transaction.
    3. B is lost. A has all received transactions, but its rows differ from B's, and so from the target's.
    """

    def __init__(self, config: TaskConfig, say: Callable[[str], None]) -> None:
        self._config, self._report = config, say
        self._closed = threading.Event()
        self._said: set[str] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        if config.source.standbys:
            self._thread.start()

    def close(self) -> None:
        """Ends the thread without waiting for a server that does not answer."""
        self._closed.set()

    def _run(self) -> None:
        looked: Looked = {}
        while not self._closed.is_set():
            for standby in self._config.source.standbys:
                if self._closed.is_set():
                    return
                try:
                    text = surplus(self._config, standby, looked)
                except PidtsError:
                    continue
                if not text:
                    self._said.discard(address_of(standby))
                elif address_of(standby) not in self._said:
                    self._said.add(address_of(standby))
                    _log.warning(text, source=self._config.source.source_id)
                    self._report(text)
            self._closed.wait(_COMPARE_SECONDS)
