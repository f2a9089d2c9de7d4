"""Records the address from which each part of a relay's log was received, and where each ended part has ended.

A part's number is the number of times that the source was replaced before. The replicator adds a part's line to a file
before it writes the part's first event, together with a line about the end of the part before it. After a crash in
between, both lines are written again: the last line about a part is valid. The segments of an ended part are purged
when they are applied, but its lines stay.

A relay of an earlier version of PiDTS lacks this file, or the lines about ends. If a part has no line, its address or
its end is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from pidts.durable_folder import replace_file
from pidts.model import Position
from pidts.relay.permissions import private_opener

_FILE = "servers"
_ENDED = "ended"


@dataclass(frozen=True, slots=True)
class EndedLog:
    """The log of a former source server."""

    server: str
    """The server's identity, as in `Origin`."""
    end: Position
    """The place up to which the log was received."""


def add_server(folder: Path, change_no: int, address: str, before: EndedLog | None = None) -> None:
    """Adds the address of the server whose log begins now; `change_no` is the number of this part of the log.

    `before` is the part before it, if that has ended. On a full disk no line is added, and readers use the address in
    the task file.
    """
    ended = f"{_ENDED} {change_no - 1} {before.end}\t{before.server}\n" if before is not None else ""
    with suppress(OSError), open(folder / _FILE, "a", encoding="utf-8", opener=private_opener) as file:
        file.write(f"{ended}{change_no} {address}\n")


def replace_servers(folder: Path, text: str) -> None:
    """Replaces all addresses in a copied relay with the addresses in the original relay."""
    path = folder / _FILE
    with suppress(OSError):
        if text and (not path.exists() or path.read_text("utf-8") != text):
            replace_file(path, text, durable=True)


def servers_read(folder: Path) -> Mapping[int, str]:
    """Returns the address (`host:port`) of each part of the log whose address is known, by the part's number."""
    found: dict[int, str] = {}
    for line in _lines(folder):
        number, _, address = line.partition(" ")
        if number.isdigit() and address:
            found[int(number)] = address
    return MappingProxyType(found)


def ended_log(folder: Path, change_no: int) -> EndedLog | None:
    """Returns where a part of the log has ended; None if this is not known."""
    begin = f"{_ENDED} {change_no} "
    for line in reversed(_lines(folder)):
        place, _, server = line.removeprefix(begin).partition("\t")
        if line.startswith(begin) and server:
            with suppress(ValueError):  # a crash may have cut off a line
                return EndedLog(server, Position.parse(place))
    return None


def _lines(folder: Path) -> list[str]:
    try:
        return (folder / _FILE).read_text("utf-8").splitlines()
    except OSError:
        return []
