"""Finds the servers that a cutover has made read-only, since a source may have another server after a failover."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing

from pidts.model import CutoverServer, PidtsError
from pidts.source import Session, SourceConfig, connect, read_only
from pidts.source.connection import PLACE_OF_MARIADB, server_info
from pidts.task.config.current_server import address_of
from pidts.task.config.servers import SourceSpec


def server_of(config: SourceConfig, session: Session) -> CutoverServer:
    """Returns the server to which the session is connected."""
    return CutoverServer(address_of(config), server_info(session).identity)


def is_same(one: CutoverServer, other: CutoverServer) -> bool:
    """Whether both are the same server.

    A UUID proves it, even at another address. The server id of MariaDB does so only at the same address: two servers
    may have the same server id, and a new container of one server has another unique id.
    """
    plain, other_plain = (each.identity.partition(PLACE_OF_MARIADB)[0] for each in (one, other))
    has_proof = PLACE_OF_MARIADB in one.identity or " server-id " not in one.identity
    return (has_proof and one.identity == other.identity) or (plain == other_plain and one.address == other.address)


def restore(
    source: SourceSpec, made: CutoverServer | None, before: Mapping[str, str], demand_own: Callable[[], None]
) -> str:
    """Restores the earlier variables of the server that a cutover has made read-only.

    The cutover was recorded by an earlier version if `made` is None; then this is the source's current server.
    Otherwise it may also be a standby. `demand_own` raises if another command has taken the cutover over.

    Returns a text for the operator if no server of the task file is this server; otherwise an empty text. Raises if the
    current server does not answer.
    """
    lost: PidtsError | None = None
    for server in (source.server, *(source.standbys if made is not None else ())):
        try:
            session = connect(server)
        except PidtsError as error:
            lost = error if server == source.server else lost
            continue
        with closing(session):
            if made is None or is_same(made, server_of(server, session)):
                demand_own()
                read_only.restore(session, before)
                return ""
    if lost is not None:
        todo = (
            f"{lost.todo}. If this server is gone for good, name the server that replaces it in the task file, and "
            "undo the cutover again"
        )
        raise type(lost)(lost.code, lost.what, where=lost.where, todo=todo) from lost
    return (
        f"source {source.source_id} is another server now, which the cutover has not changed. The cutover has made "
        f"{made} read-only. If programs are to write there again: run SET GLOBAL read_only = OFF there (MySQL also: "
        "super_read_only = OFF)"
    )
