"""Reads the block `pidts.relay-from`: the relay server that receives the log, if this machine only applies the log."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from pidts.follow.client import RelayServerAddress
from pidts.model import ConfigError
from pidts.task.config.section import Section

_NAME = re.compile(r"\w[\w. -]{0,99}")


@dataclass(frozen=True, slots=True)
class RelayOrigin:
    """A relay server, and the name of this machine there."""

    address: RelayServerAddress
    name: str
    """The name of this machine. On the relay server, this machine's task has the name `TASK@NAME`."""


def read_relay_origin(section: Section) -> RelayOrigin | None:
    """Reads the block, and checks the files that the block names; None if the block names no server."""
    url = section.text("url", "")
    token_file = section.file("token-file") if section.text("token-file", "") else None
    ca = section.file("ca") if section.text("ca", "") else None
    name = section.text("name", "")
    section.finish()
    if not url:
        if token_file or ca or name:
            raise section.error("url", "missing-key", "these keys mean nothing without the relay server's address")
        return None
    if token_file is None:
        raise section.error("token-file", "missing-key", "a relay server needs a token")
    name = name or re.sub(r"[^\w.-]", "-", socket.gethostname()) or "unnamed"
    if not _NAME.fullmatch(name):
        raise section.error("name", "bad-value", f"expected letters, digits, '.', '_', '-' or spaces, not {name!r}")
    address = RelayServerAddress(url, token_file, ca)
    try:
        address.demand_safe()
    except ConfigError as error:
        key = "token-file" if error.code == "relay-token" else "ca" if error.where.file else "url"
        raise section.error(
            key, error.code, f"{error.where.file}: {error.what}".removeprefix(": "), error.todo
        ) from None
    return RelayOrigin(address, name)
