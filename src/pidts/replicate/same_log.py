"""Asks the source whether its log is still the one in the relay, and where that log ends.

A task asks this before it reports completion. It does not rely on its replicator, which may not have connected yet, may
be frozen, or may belong to another task.

The order matters. The relay's last event is noted first, then the end of the source's log is read, then the source is
asked for the event at the noted place. If both events are the same, the end that was read belongs to the same log.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace

from pidts.model import Lsn
from pidts.model.errors import Transient
from pidts.relay import RelayReader, RelayState
from pidts.replicate.proof import has_last_event
from pidts.replicate.resume import SOURCE_BEHIND, Server, is_same_log
from pidts.source import SourceConfig, binary_logs, connect, log_end, server_info
from pidts.source.replica import replica_id

_ANSWER_SECONDS = 60.0


def end_of_same_log(source: SourceConfig, reader: RelayReader) -> Lsn | None:
    """Returns the end of the source's log; None if the source is another server, or does not have that log yet.

    The replicator decides about another server. Raises `source-went-back` if the source's log does not have what the
    relay received.
    """
    origin, received = reader.origin, reader.received
    if origin is None or received is None:
        return None
    state = RelayState(received, origin, None, b"", 0, received)
    with closing(connect(source, answer_within=_ANSWER_SECONDS)) as session:
        info, end = server_info(session), log_end(session)
        server = Server(info.identity, info.is_mariadb, info.gtid_mode, tuple(binary_logs(session)))
        if not server.wrote(origin):
            return None
        # A different server id: a server ends the dump of a replica when another replica connects with the same id.
        server_id = replica_id(session, f"{source.source_id} proof {os.getpid()}", info)
    server = replace(server, has_last_event=has_last_event(source, reader, state, server, server_id))
    try:
        return Lsn.at(end, origin.change_no) if is_same_log(state, server, source.where) else None
    except Transient as error:
        if error.code != SOURCE_BEHIND:
            raise
        return None
