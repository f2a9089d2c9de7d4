"""Finds the servers that a cutover has made read-only. After a failover, a source may have another server."""

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
    """Whether `one` and `other` name the same server.

    A server's UUID proves this, even at another address. MariaDB has no UUID: its unique id changes with each new
    container, and two servers may have the same server id. So equal server ids prove it only at the same address.
    """
    plain, other_plain = (each.identity.partition(PLACE_OF_MARIADB)[0] for each in (one, other))
    has_proof = PLACE_OF_MARIADB in one.identity or " server-id " not in one.identity
    return (has_proof and one.identity == other.identity) or (plain == other_plain and one.address == other.address)


def restore(
    source: SourceSpec, made: CutoverServer | None, before: Mapping[str, str], demand_own: Callable[[], None]
) -> str:
    """Restores the earlier variables of the source's server, if this is the server that a cutover has made read-only.

    If the source has another server now, changes nothing and returns a text for the operator; otherwise returns an
    empty text. The former server stays read-only, since it may be a replica now, which must not be written. Raises if
    the source's server does not answer.

    `made` is the server that the cutover has made read-only. `made` is None if an earlier version has recorded the
    cutover: then the server is not compared. `demand_own` raises if another command has taken over the cutover.
    """
    try:
        session = connect(source.server)
    except PidtsError as error:
        todo = (
            f"{error.todo}. If this server is gone for good, name the server that replaces it in the task file, and "
            "undo the cutover again"
        )
        raise type(error)(error.code, error.what, where=error.where, todo=todo) from error
    with closing(session):
        if made is None or is_same(made, server_of(source.server, session)):
            demand_own()
            read_only.restore(session, before)
            return ""
    return (
        f"source {source.source_id} is another server now, which the cutover has not changed. The cutover has made "
        f"{made} read-only, and it stays so. If it is not a replica now, and programs are to write there again: run "
        "SET GLOBAL read_only = OFF there (MySQL also: super_read_only = OFF)"
    )
