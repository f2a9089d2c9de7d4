"""Records the address from which each part of a relay's log was received.

A part's number is the number of times that the source was replaced before. The replicator adds a part's line to a file
before it writes the part's first event. A relay of an earlier version of PiDTS lacks this file. If a part has no line,
its address is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from pidts.durable_folder import replace_file
from pidts.relay.permissions import private_opener

_FILE = "servers"


def add_server(folder: Path, change_no: int, address: str) -> None:
    """Adds the address of the server whose log begins now; `change_no` is the number of this part of the log.

    If a part has several lines, the last line is valid. On a full disk no line is added, and readers use the address in
    the task file.
    """
    with suppress(OSError), open(folder / _FILE, "a", encoding="utf-8", opener=private_opener) as file:
        file.write(f"{change_no} {address}\n")


def replace_servers(folder: Path, text: str) -> None:
    """Replaces all addresses in a copied relay with the addresses in the original relay."""
    path = folder / _FILE
    with suppress(OSError):
        if text and (not path.exists() or path.read_text("utf-8") != text):
            replace_file(path, text, durable=True)


def servers_read(folder: Path) -> Mapping[int, str]:
    """Returns the address (`host:port`) of each part of the log whose address is known, by the part's number."""
    found: dict[int, str] = {}
    with suppress(OSError):
        for line in (folder / _FILE).read_text("utf-8").splitlines():
            number, _, address = line.partition(" ")
            if number.isdigit() and address:
                found[int(number)] = address
    return MappingProxyType(found)
