"""The server id and the uuid under which we register as a replica: nobody else's.

Where the server lists its replicas, the id is stable from run to run. An older MySQL is not asked, and nothing is
registered there: it keeps the entry of a replica whose connection broke between registering and asking for the log, and
a client that asks for the list then, we or a monitor, makes it read what has been freed, and it dies of that (bug
29915479; seen on 5.6.24). It needs no registration to send its log. Our id is chosen at random there.
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
"""The upper half: people number their servers from below."""
_LISTS = (8, 0, 22)
"""The first MySQL that knows SHOW REPLICAS; it forgets replicas that have gone."""
_TELLS = (5, 7, 0)
"""The first MySQL that tells a replica why its dump was ended."""
_PROCESS = secrets.token_hex(8)


def lists_replicas(server: ServerInfo) -> bool:
    """Whether replicas may register there, and the server lists them."""
    return server.is_mariadb or server.number >= _LISTS


def replica_id(connection: Session, name: str, server: ServerInfo) -> int:
    """Derives the id from the name (of what reads the log) and this host; the next free one where it is taken."""
    if not lists_replicas(server):
        return free_id(secrets.randbelow(_COUNT), {server.server_id})
    return free_id(zlib.crc32(f"{name}@{socket.gethostname()}".encode()), replica_ids(connection, server))


def replica_uuid(server_id: int, source_id: str, server: ServerInfo) -> uuid.UUID:
    """The same for the same id: a server ends the dump that a crashed run of ours left behind.

    Not where it does not say why: two readers with one id would end each other's dump again and again, and be told
    only that the line broke. There it ends what this process has left behind for this source.
    """
    is_told = server.is_mariadb or server.number >= _TELLS
    # A process that was forked has the number of its parent, but not its process id.
    name = f"pidts:{server_id}" if is_told else f"pidts:{server_id}:{source_id}:{_PROCESS}:{os.getpid()}"
    return uuid.uuid5(uuid.NAMESPACE_URL, name)


def reader_name(source_id: str) -> str:
    """Returns the name for the id of a process that reads a part of the log: a task's replicator has another id.

    MariaDB shows other replicas' ids only to accounts with REPLICATION MASTER ADMIN, so equal ids would go unseen.
    """
    return f"{source_id} reader {os.getpid()}"


def free_id(seed: int, taken: set[int]) -> int:
    """The first id from the seed's place on that is not taken."""
    offset = seed % _COUNT
    while _FIRST + offset in taken:
        offset = (offset + 1) % _COUNT
    return _FIRST + offset


def replica_ids(connection: Session, server: ServerInfo) -> set[int]:
    """The server's own id and those of registered replicas, as far as we may ask.

    MariaDB wants REPLICATION MASTER ADMIN for it.
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
