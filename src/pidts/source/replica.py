"""The server id under which we register as a replica: stable from run to run, and nobody else's."""

from __future__ import annotations

import socket
import zlib

from pidts.model import PidtsError
from pidts.model.errors import Transient
from pidts.source.connection import ServerInfo, Session, named

_FIRST = 2**31
_COUNT = 2**31 - 2
"""The upper half: people number their servers from below."""


def replica_id(connection: Session, name: str, server: ServerInfo) -> int:
    """Derived from the name (the task's or the source's) and this host; the next free one where it is taken."""
    return free_id(zlib.crc32(f"{name}@{socket.gethostname()}".encode()), replica_ids(connection) | {server.server_id})


def free_id(seed: int, taken: set[int]) -> int:
    """The first id from the seed's place on that is not taken."""
    offset = seed % _COUNT
    while _FIRST + offset in taken:
        offset = (offset + 1) % _COUNT
    return _FIRST + offset


def replica_ids(connection: Session) -> set[int]:
    """The ids of registered replicas; empty where we may not ask (MariaDB wants REPLICATION MASTER ADMIN for it)."""
    for statement in ("SHOW REPLICAS", "SHOW SLAVE HOSTS"):
        try:
            return {int(row["server_id"]) for row in named(connection, statement)}
        except Transient:
            raise
        except PidtsError:
            continue
    return set()
