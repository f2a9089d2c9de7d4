"""Records every second up to which place each standby has the source's log, for a failover without GTIDs.

`pidts.relay.standby_samples` describes a sample. A separate thread takes one sample of each standby every second, on
open connections. If the source or a standby does not answer, no sample is taken. The longer this lasts, the more
changes arrive twice after a failover; no change is lost.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress
from dataclasses import replace

from pidts.model import PidtsError
from pidts.relay import Origin, RelayReader
from pidts.relay.folder import Folder
from pidts.relay.standby_samples import Sample, Samples, read_samples, write_samples
from pidts.source import Session, SourceConfig, connect, log_end, server_info
from pidts.task.config.current_server import address_of
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.standbys import writes_what_it_replicates

_BETWEEN_SAMPLES = 1.0
_CONNECT_SECONDS, _ANSWER_SECONDS = 3.0, 10.0


class StandbySampling:
    """The thread that takes the samples. The thread runs only if there are standbys and no GTIDs."""

    def __init__(self, config: TaskConfig) -> None:
        self._config = config
        self._folder = Folder.of(config.relay, config.source.source_id).path
        self._closed = threading.Event()
        self._sessions: dict[SourceConfig, Session] = {}
        self._taken: dict[SourceConfig, Samples] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        if config.source.standbys and not config.source.use_gtid and config.relay_from is None:
            self._thread.start()

    def close(self) -> None:
        """Ends the thread without waiting for a server that does not answer."""
        self._closed.set()

    def _run(self) -> None:
        with closing(RelayReader(self._config.relay, self._config.source.source_id)) as relay:
            while not self._closed.is_set():
                for standby in self._config.source.standbys:
                    if self._closed.is_set():
                        break
                    # After any error, even a full disk or a relay that is being cut back, the next sample tries again.
                    with suppress(PidtsError, OSError):
                        self._sample(relay, standby)
                self._closed.wait(_BETWEEN_SAMPLES)
        for session in self._sessions.values():
            session.close()

    def _sample(self, relay: RelayReader, standby: SourceConfig) -> None:
        source = self._config.source.server
        try:
            there, here = self._session(standby), self._session(source)
            # The standby's place is read first: everything before this place is then also before the source's place.
            place = log_end(there)
            sample = Sample(time.time(), log_end(here), place)
            identity, origin = server_info(there).identity, relay.origin
            if origin is None or server_info(here).identity != origin.server or not writes_what_it_replicates(there):
                return
        except PidtsError:
            for server in (standby, source):
                if (session := self._sessions.pop(server, None)) is not None:
                    session.close()
            raise
        known = self._known(standby, origin, identity)
        last = known.samples[-1] if known.samples else None
        if last is not None and (last.source, last.standby) == (sample.source, sample.standby):
            return
        self._taken[standby] = known.with_sample(sample)
        write_samples(self._folder, address_of(standby), self._taken[standby])

    def _session(self, server: SourceConfig) -> Session:
        if server not in self._sessions:
            asked = replace(server, connect_timeout=_CONNECT_SECONDS)
            self._sessions[server] = connect(asked, answer_within=_ANSWER_SECONDS)
        return self._sessions[server]

    def _known(self, standby: SourceConfig, origin: Origin, identity: str) -> Samples:
        """Returns the samples so far; none of them if the source or the standby has another log now."""
        found = self._taken.get(standby) or read_samples(self._folder, address_of(standby))
        if found is None or (found.source, found.standby) != (origin, identity):
            return Samples(origin, identity)
        return found
