"""Keeps a copy of a relay that another machine serves: a follower replaces the replicator on a machine that applies.

The follower requests the log after its copy, writes it (`relay.copy_writer` lists the crash points), and requests the
next part. It reconnects after transient errors, and ends with an error if continuing would join two different logs.
Before the first request, and then every few seconds, the follower reports which log its tasks still need. So the relay
server keeps this log.

If the copy and the serving relay differ, there are three cases:

1. The serving relay lacks records that the copy has, or has other records from some place on. The copy is cut back to
   the last record that both have, and continues from there. All readers of the copy watch the file that requests this
   cut (`relay.refetch`).
2. The two have no record in common: another relay answers, or the serving relay was begun anew. An operator has to
   decide.
3. A task has found damage in the copy and has asked for a cut. Before the follower fetches the bytes again, it asks the
   server whether the server's relay is also damaged at this place. If so, the server asks the source for the bytes.
"""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event as StopEvent
from time import monotonic, time

import structlog

from pidts.follow.client import RelayClient, RelayServerAddress
from pidts.follow.wire import LogResponse
from pidts.model import Halted, Lsn, PidtsError, Position, Transient, Where
from pidts.relay.copy_writer import CopyWriter
from pidts.relay.folder import Folder
from pidts.relay.receive_times import ReceiveTimeWriter
from pidts.relay.refetch import Signature, ask_to_refetch, read_refetches, refetch_signature
from pidts.relay.segments.index import entry_key, payloads
from pidts.relay.servers_read import replace_servers
from pidts.relay.structures import parse_structures, store_structures, stored_places
from pidts.relay.task_needs import read_needs
from pidts.replicate import RELAY_FULL, AppliedPlace, ReplicatorState
from pidts.replicate.status import StatusFile

COPY_DIFFERS = "relay-copy-differs"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_WAIT_SECONDS = 1.0
_REPORT_SECONDS = 5.0
_STRUCTURES_SECONDS = 2.0
"""The interval, in seconds, at which structures that the server did not have yet are requested again."""
_LOOK_FOR_ROOM_SECONDS = 0.5
_log: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.follow")


@dataclass(frozen=True, slots=True)
class FollowerConfig:
    """The settings of one follower."""

    server: RelayServerAddress
    source_id: str
    relay: Path
    """The copy's directory."""
    name: str
    """The name of this machine at the server. The server calls the machine's tasks `TASK@NAME`."""
    start: AppliedPlace | Position | None = None
    """Where an empty copy begins: at a target's checkpoint, a position, or None for the relay's end."""


class Follower:
    """Follows one source's relay, in one thread."""

    def __init__(self, config: FollowerConfig) -> None:
        self._config = config
        self._folder = Folder.of(config.relay, config.source_id)
        self._status = StatusFile(self._folder.status, config.source_id)
        self._log = _log.bind(source=config.source_id)
        self._logged_code = ""
        self._signature: Signature = None
        self._doubts: Lsn | None = None
        """The place after which the copy was damaged; None if there is none, or if the server was asked about it."""
        self._report_at = 0.0
        self._cut = ""
        self._structures: tuple[Lsn, ...] = ()
        self._structures_at = 0.0

    def state(self) -> ReplicatorState:
        """Returns the current state; any thread may call it."""
        return self._status.state

    def run(self, stop: StopEvent) -> None:
        """Follows until `stop` is set. Raises errors that need an operator."""
        while not stop.is_set():
            # The copy is opened again if a cut was requested, since opening it carries out the cut.
            try:
                pending = read_refetches(self._folder).pending
                writer = CopyWriter.open(self._config.relay, self._config.source_id)
            except Transient as error:
                self._report_failure(error)
                stop.wait(_LONGEST_PAUSE)
                continue
            if pending is not None and pending.why != COPY_DIFFERS:
                self._doubts = pending.after
            self._signature = refetch_signature(self._folder)
            self._run(writer, stop)

    def _run(self, writer: CopyWriter, stop: StopEvent) -> None:
        error: PidtsError | None = None
        with closing(writer), closing(ReceiveTimeWriter(self._folder)) as self._arrivals:
            self._status.update(received=writer.lsn, error=None)
            try:
                self._keep_following(writer, stop)
            except PidtsError as caught:
                error = caught
                self._log.error("follower halted", code=error.code, what=error.what, where=str(error.where))
                raise
            finally:
                self._status.update(connected=False, error=error, received=writer.lsn)
                self._status.write()

    def _keep_following(self, writer: CopyWriter, stop: StopEvent) -> None:
        pause = _FIRST_PAUSE
        while not self._is_to_end(stop):
            try:
                with closing(RelayClient(self._config.server, self._config.source_id)) as client:
                    try:
                        self._follow(client, writer, stop)
                    except Halted as error:
                        if error.code != COPY_DIFFERS:
                            raise
                        self._cut_to_common(client, writer, error)
            except Transient as error:
                if self.state().connected:
                    pause, self._logged_code = _FIRST_PAUSE, ""
                    self._status.update(reconnects=self.state().reconnects + 1)
                self._report_failure(error, received=writer.lsn)
                if error.code == RELAY_FULL:
                    while not (self._is_to_end(stop) or writer.has_room()):
                        stop.wait(_LOOK_FOR_ROOM_SECONDS)
                stop.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _report_failure(self, error: Transient, **changes: Lsn | None) -> None:
        if error.code != self._logged_code:
            self._log.warning(
                "following the relay server has failed", code=error.code, what=error.what, todo=error.todo
            )
            self._logged_code = error.code
        self._status.update(connected=False, error=error, **changes)

    def _follow(self, client: RelayClient, writer: CopyWriter, stop: StopEvent) -> None:
        """Follows the relay server on one connection, until the connection ends."""
        self._report_at = 0.0
        self._report(client)
        if self._doubts is not None:
            if client.doubt(self._doubts):
                self._log.warning("the relay server's relay is damaged, too, and receives that part again")
            self._doubts = None
        while not self._is_to_end(stop):
            has = writer.has
            answer = client.begin(self._config.start) if has is None else client.more(has, _WAIT_SECONDS)
            self._take(answer, client, writer)
            self._update_status(answer, writer)
            self._report(client)

    def _take(self, answer: LogResponse, client: RelayClient, writer: CopyWriter) -> None:
        """Writes the received piece, and fetches structures that the server has stored since the last piece."""
        cut = str(answer.state.get("cut"))
        if cut != self._cut:
            self._cut = cut
            if writer.drop_unnamed():
                return
        if answer.piece is None:
            return
        writer.write(answer.piece)
        self._fetch_structures(answer, client)
        replace_servers(self._folder.path, answer.servers)

    def _fetch_structures(self, answer: LogResponse, client: RelayClient) -> None:
        if answer.structures == self._structures and monotonic() < self._structures_at:
            return
        self._structures, self._structures_at = answer.structures, monotonic() + _STRUCTURES_SECONDS
        first = next((header.start for header in self._folder.headers()), None)
        if first is None:
            return
        known = [lsn for lsn in stored_places(self._folder) if lsn >= first]
        wanted = [lsn for lsn in answer.structures if lsn >= first and lsn not in known]
        if not known and first not in wanted:
            # All structures in the server's relay may belong to places before the place where the copy begins. Then the
            # server computes the structures at this place.
            wanted.insert(0, first)
        for lsn in wanted:
            self._store_structures(client, lsn)

    def _store_structures(self, client: RelayClient, lsn: Lsn) -> None:
        if not (text := client.structures(lsn)):
            return
        try:
            found = parse_structures(text)
        except (ValueError, KeyError, TypeError) as error:
            self._log.warning("structures of the relay server are not readable", at=str(lsn), what=str(error))
            return
        with suppress(OSError):  # the disk may be full; a later piece brings the structures again
            store_structures(self._folder, found)

    def _update_status(self, answer: LogResponse, writer: CopyWriter) -> None:
        state, lack, before = answer.state, answer.state.get("lack"), self.state()
        error: PidtsError | None = None
        if lack is not None:
            # The source has failed, and only the server can inform the machine that applies.
            error = Transient(lack["code"], lack["what"], where=Where(**lack["where"]), todo=lack["todo"])
        elif not before.connected:
            self._log.info("following the relay server", address=self._config.server.url)
            self._logged_code = ""
        size = len(answer.piece.log) if answer.piece is not None else 0
        if size and writer.lsn is not None:
            now = time()
            self._arrivals.note(writer.lsn, now, now - float(state.get("lag_seconds") or 0.0))
        self._status.update(
            connected=error is None,
            error=error,
            received=writer.lsn,
            position=str(state.get("position") or ""),
            source_time=int(state.get("source_time") or 0),
            behind_bytes=state.get("behind_bytes"),
            unreceived_bytes=state.get("unreceived_bytes"),
            lag_seconds=state.get("lag_seconds"),
            warning=str(state.get("warning") or ""),
            bytes=before.bytes + size,
        )

    def _report(self, client: RelayClient) -> None:
        """Reports which log the copy's tasks need. The report's age shows whether the follower still runs."""
        if monotonic() < self._report_at:
            return
        client.report({f"{need.task}@{self._config.name}": need.lsn for need in read_needs(self._folder)})
        self._report_at = monotonic() + _REPORT_SECONDS

    def _cut_to_common(self, client: RelayClient, writer: CopyWriter, error: Halted) -> None:
        """Requests a cut of the copy, back to the last record that the serving relay also has."""
        for number in reversed(self._folder.numbers()):
            after = self._last_common(number, client.index(number))
            if after is None:
                continue
            self._log.warning(
                "the relay server's relay has a different log after this place, so this part of the copy is removed",
                after=str(after),
                had=str(writer.lsn),
            )
            ask_to_refetch(self._folder, after, max(after, writer.lsn or after), COPY_DIFFERS)
            return
        todo = (
            "The relay server's relay was begun anew, or belongs to another source. If it is the right relay, empty "
            "the copy's folder: the task continues at the target's checkpoint"
        )
        raise Halted(error.code, error.what, where=error.where, todo=todo) from error

    def _last_common(self, number: int, theirs: bytes) -> Lsn | None:
        """Returns the end of the last record that both indexes have; None if even the headers differ."""
        try:
            ours, header = self._folder.index(number).read_bytes(), self._folder.header(number)
        except FileNotFoundError:
            return None
        begin, after = 0, header.start if header is not None else None
        for end, payload in payloads(ours):
            if theirs[begin:end] != ours[begin:end]:
                break
            key = entry_key(payload)
            after = Lsn(*key) if key is not None else after
            begin = end
        return after if begin else None

    def _is_to_end(self, stop: StopEvent) -> bool:
        """Returns whether to stop receiving: the run ends, or a requested cut needs the copy to be opened again."""
        if stop.is_set():
            return True
        signature = refetch_signature(self._folder)
        if signature == self._signature:
            return False
        if read_refetches(self._folder).pending is not None:
            return True
        self._signature = signature
        return False
