"""Chooses the server id and the uuid under which PiDTS registers as a replica.

If the server can list its replicas, the id is the same in each run, and no other replica that the account sees has it.

On an older MySQL, PiDTS neither registers nor asks for the list, and chooses an id at random. The reason is a bug of
these servers (29915479; seen on 5.6.24). If a replica's connection breaks between registering and asking for the log,
the server keeps the replica's entry. When a client (PiDTS or a monitor) then asks for the list, the server reads freed
memory and crashes. These servers send their log even to a replica that is not registered.
"""

from __future__ import annotations

import os
import secrets
import socket
import uuid
import zlib

from pidts.model import PidtsError
from pidts.model.errors import Transient
from pidts.source.connection import ServerInfo, Session, named

_FIRST = 2**31
_COUNT = 2**31 - 2
"""The number of ids to choose from: the upper half of all ids, since operators give their servers low numbers."""
_LISTS = (8, 0, 22)
"""The first MySQL version with SHOW REPLICAS, and the first that forgets replicas that have disconnected."""
_SENDS_REASONS = (5, 7, 0)
"""The first MySQL version that sends a replica the reason why its dump ends."""
_PROCESS = secrets.token_hex(8)


def lists_replicas(server: ServerInfo) -> bool:
    """Whether the server can safely list its replicas. PiDTS registers only at such a server."""
    return server.is_mariadb or server.number >= _LISTS


def replica_id(connection: Session, name: str, server: ServerInfo) -> int:
    """Derives the id from the reader's name and this host. If this id is in use, takes the next free id."""
    if not lists_replicas(server):
        return free_id(secrets.randbelow(_COUNT), {server.server_id})
    return free_id(zlib.crc32(f"{name}@{socket.gethostname()}".encode()), replica_ids(connection, server))


def replica_uuid(server_id: int, source_id: str, server: ServerInfo) -> uuid.UUID:
    """Returns the same uuid for the same id, so that a server ends the dump of an earlier run that has crashed.

    Some servers send no reason when they end a dump. If two readers with the same id ended each other's dumps again and
    again, each reader would only see a lost connection. For these servers, the uuid is also derived from the process
    and the source. So only earlier dumps of this process for this source are ended.
    """
    sends_reason = server.is_mariadb or server.number >= _SENDS_REASONS
    # A forked process has the same value of `_PROCESS` as its parent, but another process id, so both are used.
    name = f"pidts:{server_id}" if sends_reason else f"pidts:{server_id}:{source_id}:{_PROCESS}:{os.getpid()}"
    return uuid.uuid5(uuid.NAMESPACE_URL, name)


def reader_name(source_id: str) -> str:
    """Returns the name from which a reader of a part of the log derives its id: not the replicator's name.

    With the replicator's name, the ids could be equal. PiDTS would not notice this without the privilege REPLICATION
    MASTER ADMIN: MariaDB shows other replicas' ids only to accounts with this privilege.
    """
    return f"{source_id} reader {os.getpid()}"


def free_id(seed: int, taken: set[int]) -> int:
    """Returns the first free id from the seed on."""
    offset = seed % _COUNT
    while _FIRST + offset in taken:
        offset = (offset + 1) % _COUNT
    return _FIRST + offset


def replica_ids(connection: Session, server: ServerInfo) -> set[int]:
    """Returns the server's own id and the ids of registered replicas, as far as the account may see them.

    MariaDB shows the replicas only to accounts with REPLICATION MASTER ADMIN.
    """
    found = {server.server_id}
    if not lists_replicas(server):
        return found
    try:
        rows = named(connection, "SHOW SLAVE HOSTS" if server.is_mariadb else "SHOW REPLICAS")
    except Transient:
        raise
    except PidtsError:
        return found
    return found | {int(row["server_id"]) for row in rows}
