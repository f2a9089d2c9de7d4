"""Chooses the server id and the uuid under which we register as a replica, which nobody else uses.

If the server lists its replicas, the id is stable from run to run. An older MySQL is not asked, and we do not register
there. It keeps the entry of a replica whose connection broke between registering and asking for the log. If a client
(we or a monitor) then asks for the list, the server reads freed memory and crashes (bug 29915479; seen on 5.6.24). It
sends its log without registration. There our id is chosen at random.
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
"""The upper half of the range, since people number their servers from below."""
_LISTS = (8, 0, 22)
"""The first MySQL with SHOW REPLICAS; it forgets replicas that have disconnected."""
_TELLS = (5, 7, 0)
"""The first MySQL that sends a replica the reason for the end of its dump."""
_PROCESS = secrets.token_hex(8)


def lists_replicas(server: ServerInfo) -> bool:
    """Whether replicas may register on this server, and the server lists them."""
    return server.is_mariadb or server.number >= _LISTS


def replica_id(connection: Session, name: str, server: ServerInfo) -> int:
    """Derives the id from the reader's name and this host; takes the next free one if it is used."""
    if not lists_replicas(server):
        return free_id(secrets.randbelow(_COUNT), {server.server_id})
    return free_id(zlib.crc32(f"{name}@{socket.gethostname()}".encode()), replica_ids(connection, server))


def replica_uuid(server_id: int, source_id: str, server: ServerInfo) -> uuid.UUID:
    """Returns the same uuid for the same id, so that a server ends the dump of a crashed run of ours.

    This is not done if the server does not send the reason: two readers with one id would end each other's dump again
    and again, and would only see a lost connection. There, only earlier dumps of this process for this source are
    ended.
    """
    is_told = server.is_mariadb or server.number >= _TELLS
    # A forked process has the same number in `_PROCESS` as its parent, but another process id.
    name = f"pidts:{server_id}" if is_told else f"pidts:{server_id}:{source_id}:{_PROCESS}:{os.getpid()}"
    return uuid.uuid5(uuid.NAMESPACE_URL, name)


def reader_name(source_id: str) -> str:
    """Returns the name for the id of a process that reads a part of the log; a task's replicator has another id.

    MariaDB shows other replicas' ids only to accounts with REPLICATION MASTER ADMIN, so equal ids would not be noticed.
    """
    return f"{source_id} reader {os.getpid()}"


def free_id(seed: int, taken: set[int]) -> int:
    """Returns the first free id from the seed on."""
    offset = seed % _COUNT
    while _FIRST + offset in taken:
        offset = (offset + 1) % _COUNT
    return _FIRST + offset


def replica_ids(connection: Session, server: ServerInfo) -> set[int]:
    """Returns the server's own id and those of registered replicas, as far as the account may see them.

    MariaDB requires REPLICATION MASTER ADMIN for this.
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
