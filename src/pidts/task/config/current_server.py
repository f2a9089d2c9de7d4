"""Stores which server of a source with standbys is read, and which of its servers must not take over.

The files are beside the source's relay. If they are lost, the task begins with the server of `from:` again. GTIDs then
decide whether this server's log continues where the relay or the target ends (`pidts.replicate.resume`).

A server may have transactions that the source lacks. This server must not become the source: its log would write these
old transactions over newer rows. After the source is lost, its GTIDs can no longer be compared with the server's. So
each change of the source *bars* all other servers until they were compared with the new source. Each barred server has
a file of its own, so that no two processes write the same file.

Crash points: the other servers are barred before the chosen server is written. After a crash between these two steps,
servers are barred, and the next comparison with the source lifts these bars.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from pidts.durable_folder import replace_file, sync_folder
from pidts.relay.folder import Folder
from pidts.relay.permissions import make_folder
from pidts.relay.task_needs import refused
from pidts.source import SourceConfig
from pidts.task.config.servers import SourceSpec

_FILE = "server.json"


def address_of(server: SourceConfig) -> str:
    """Returns a server's `host:port`."""
    return f"{server.host}:{server.port}"


def with_current_server(source: SourceSpec, relay: Path) -> SourceSpec:
    """Returns the source with the server that was chosen last; a chosen server that the task file lacks is ignored."""
    return source if not source.standbys else source.at(chosen_address(relay, source.source_id))


def choose_server(source: SourceSpec, relay: Path, address: str) -> SourceSpec:
    """Records durably that the source is read from the server at `address`; returns the source with this server.

    All other servers are barred until they are compared with this one.
    """
    others = [other for other in map(address_of, source.servers) if other != address]
    for other in others:
        bar(relay, source.source_id, other, f"it was not compared with {address} after {address} became the source")
    _write(Folder.of(relay, source.source_id), _FILE, {"server": address})
    return source.at(address)


def bar(relay: Path, source_id: str, address: str, why: str) -> None:
    """Records durably that a server must not take over."""
    _write(Folder.of(relay, source_id), _bar_name(address), {"server": address, "why": why})


def unbar(relay: Path, source_id: str, address: str) -> None:
    """Records durably that a server may take over again."""
    folder = Folder.of(relay, source_id)
    path = folder.path / _bar_name(address)
    try:
        if path.exists():
            path.unlink(missing_ok=True)
            sync_folder(folder.path)
    except OSError as error:
        raise refused(folder, error) from error


def barred(relay: Path, source_id: str, address: str) -> str:
    """Returns the reason why a server must not take over; empty if none is recorded."""
    folder = Folder.of(relay, source_id)
    path = folder.path / _bar_name(address)
    try:
        return str(json.loads(path.read_text("utf-8"))["why"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{path} cannot be read: {error}"


def _bar_name(address: str) -> str:
    return f"barred.{quote(address, safe='')}.json"


def _write(folder: Folder, name: str, content: dict[str, str]) -> None:
    path = folder.path / name
    try:
        make_folder(folder.path)
        replace_file(path, json.dumps(content), durable=True)
    except OSError as error:
        error.filename = str(path)  # the error of a full disk has no file name
        raise refused(folder, error) from error


def chosen_address(relay: Path, source_id: str) -> str:
    """Returns the address that was chosen last, even if the task file does not have it; empty if none was chosen."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads((Folder.of(relay, source_id).path / _FILE).read_text("utf-8"))["server"])
    return ""
