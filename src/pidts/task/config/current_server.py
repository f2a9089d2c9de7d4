"""Remembers which of a source's servers is read now, where the task file names standbys.

The file lies beside the source's relay. If it is lost, the task begins with the server of `from:` again; whether that
one may go on where the relay or the target ends is decided by GTIDs, as for any server (`pidts.replicate.resume`).
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from pidts.relay.folder import Folder
from pidts.relay.permissions import make_folder, private_opener
from pidts.source import SourceConfig
from pidts.task.config.servers import SourceSpec

_FILE = "server.json"


def address_of(server: SourceConfig) -> str:
    """Returns `host:port`."""
    return f"{server.host}:{server.port}"


def with_current_server(source: SourceSpec, relay: Path) -> SourceSpec:
    """Returns the source with the server that was chosen last; another choice than a server of the file is void."""
    return source if not source.standbys else source.at(_chosen(relay, source.source_id))


def choose_server(source: SourceSpec, relay: Path, address: str) -> SourceSpec:
    """Remembers the choice, for this run and for all later ones."""
    folder = Folder.of(relay, source.source_id).path
    make_folder(folder)
    draft = folder / f"{_FILE}.part"
    with open(draft, "w", encoding="utf-8", opener=private_opener) as file:
        json.dump({"server": address}, file)
    draft.replace(folder / _FILE)
    return source.at(address)


def _chosen(relay: Path, source_id: str) -> str:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((Folder.of(relay, source_id).path / _FILE).read_text("utf-8"))["server"])
    return ""
