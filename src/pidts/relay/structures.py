"""Finds the structure of every table at any place in a relay, from stored structures and the log between them.

The *stored structures* are the structures of all tables at one place in the log, as the server's information_schema
showed them. The replicator stores them when a relay begins. After a statement that could not be parsed, it reads the
structures from the server and stores them again. The structure of a table at any other place is computed from the
schema changes in the relay's index: forward from the last file of structures before the place. If that file lacks the
table, backward from the first file after the place.

Files: `structures/<lsn>.json` in the source's folder, each complete or missing (written under another name, flushed,
renamed).

Crash points of storing or removing such a file:

1. The relay has begun, and there is no file yet: `history_at` raises `Transient`. The replicator stores the structures
   when it follows the source again. They are from a later place. If a table was changed in between, its structure
   before its last change is not known.
2. While a file is written: the draft has another name; no process reads it, and a later purge removes it.
3. During a purge, after the file for the first remaining segment was written, before any file was removed: two files
   agree at that place. For places after that place, readers use the later file.
4. During a purge, after some segments were removed: no reader uses the older file any more, since its place is before
   the relay's new beginning. The new file exists: it was durable before the first segment was removed.
5. If the disk is too full even for this small file, a purge removes segments first. If the process is killed before it
   has stored the structures, the relay has no structures for its beginning, as in 1.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_right
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pidts.durable_folder import replace_file
from pidts.model import Halted, Lsn, Transient, Where
from pidts.relay.folder import Folder
from pidts.relay.permissions import make_folder
from pidts.relay.reader import RelayReader
from pidts.schema import Dialect
from pidts.schema.evolve.known_structures import KnownStructures, RelearnedStructures

_NAME = re.compile(r"\d{4}\.\d{10}\.\d{12}\.\d{10}\.json", re.ASCII)
_TRIES = 3
_DRAFT_SECONDS = 3600
"""The age, in seconds, from which a draft is removed: its writer must have ended."""


@dataclass(frozen=True, slots=True)
class StoredStructures:
    """The structures of all tables at one place in the log."""

    lsn: Lsn
    history: KnownStructures
    dialect: Dialect
    """The dialect in which the server reads its statements."""


def history_at(reader: RelayReader, lsn: Lsn) -> KnownStructures:
    """Returns all known structures at `lsn`, the end of a transaction. `KnownStructures.after` adds later changes."""
    for _ in range(_TRIES):
        first = reader.first
        try:
            return _known_at(reader, lsn, first).history
        except (Halted, FileNotFoundError):
            # If a purge has removed the relay's beginning meanwhile, it has stored the needed structures.
            if reader.first == first:
                raise
    raise missing(reader)


def dialect_at(reader: RelayReader, lsn: Lsn) -> Dialect:
    """Returns the dialect in which the source of the relay read its statements at a place."""
    stored = stored_places(reader.folder)
    usable = [place for place in stored if place <= lsn] or stored[:1]
    if not usable:
        raise missing(reader)
    return load_structures(reader.folder, usable[-1]).dialect


def store_structures(folder: Folder, stored: StoredStructures) -> None:
    """Stores structures durably."""
    directory = _directory(folder)
    make_folder(directory)
    replace_file(directory / f"{stored.lsn}.json", structures_text(stored), durable=True)


def structures_text(stored: StoredStructures) -> str:
    """Returns the text of a file of structures."""
    data = {"lsn": str(stored.lsn), "dialect": asdict(stored.dialect), "history": stored.history.to_json()}
    return json.dumps(data, separators=(",", ":")) + "\n"


def parse_structures(text: str) -> StoredStructures:
    """Returns the structures in the text of a file. For any other text, raises ValueError, KeyError or TypeError."""
    data = json.loads(text)
    dialect = Dialect(**{**data["dialect"], "version": tuple(data["dialect"]["version"])})
    return StoredStructures(Lsn.parse(data["lsn"]), KnownStructures.from_json(data["history"]), dialect)


def load_structures(folder: Folder, lsn: Lsn) -> StoredStructures:
    """Loads the structures that are stored for this place; raises FileNotFoundError if there are none."""
    path = _directory(folder) / f"{lsn}.json"
    text = path.read_text(encoding="utf-8")
    try:
        return parse_structures(text)
    except (ValueError, KeyError, TypeError) as error:
        what = f"stored structures cannot be read ({error})"
        todo = "Remove this file while the replicator runs: the replicator then stores the tables' structures anew."
        where = Where(source=folder.source_id, file=str(path))
        raise Halted("relay-corrupt", what, where=where, todo=todo) from error


def stored_places(folder: Folder) -> list[Lsn]:
    """Returns the places for which structures are stored, in order."""
    try:
        names = [path.name for path in _directory(folder).iterdir()]
    except FileNotFoundError:
        return []
    return sorted(Lsn.parse(name.removesuffix(".json")) for name in names if _NAME.fullmatch(name))


def is_stored(reader: RelayReader) -> bool:
    """Whether the relay has structures that are valid for a place within the relay."""
    first = reader.first
    return first is not None and any(place >= first for place in stored_places(reader.folder))


def structures_before_purge(relay: Path | str, source_id: str, start: Lsn) -> StoredStructures | None:
    """Returns the structures to store before the log up to `start` is removed; None if no file is needed."""
    with closing(RelayReader(relay, source_id)) as reader:
        folder, first = reader.folder, reader.first
        usable = [place for place in stored_places(folder) if first is not None and first <= place <= start]
        if not usable or usable[-1] == start:
            return None
        return _followed(reader, load_structures(folder, usable[-1]), start)


def drop_old_structures(relay: Path | str, source_id: str) -> None:
    """Removes structures from before the relay's first entry, and unfinished drafts."""
    reader = RelayReader(relay, source_id)
    folder, first = reader.folder, reader.first
    if first is None:
        return
    for place in stored_places(folder):
        if place < first:
            (_directory(folder) / f"{place}.json").unlink(missing_ok=True)
    for draft in _directory(folder).glob("*.part"):
        with suppress(FileNotFoundError):
            if draft.stat().st_mtime < time.time() - _DRAFT_SECONDS:
                draft.unlink()


def missing(reader: RelayReader) -> Transient:
    """Returns the error for a relay that has stored structures for none of its places."""
    folder = reader.folder
    where = Where(source=folder.source_id, file=str(_directory(folder)))
    todo = (
        "The replicator stores them soon after it begins to receive the source's log. If this message stays, read "
        "replicator.log in the relay's folder."
    )
    return Transient(
        "structures-not-stored", "the tables' structures are not stored in the relay", where=where, todo=todo
    )


def _known_at(reader: RelayReader, lsn: Lsn, first: Lsn | None) -> StoredStructures:
    folder = reader.folder
    places = [place for place in stored_places(folder) if first is not None and place >= first]
    if not places:
        raise missing(reader)
    *earlier, last = places[max(0, bisect_right(places, lsn) - 1) :]
    known = load_structures(folder, last)
    for place in reversed(earlier):
        known = _joined(load_structures(folder, place), _seen_from(reader, known, place))
    return _seen_from(reader, known, lsn) if known.lsn > lsn else _followed(reader, known, lsn)


def _followed(reader: RelayReader, stored: StoredStructures, lsn: Lsn) -> StoredStructures:
    history = stored.history
    for transaction in reader.schema_changes(stored.lsn, lsn):
        history = history.after(transaction, stored.dialect)
    return replace(stored, lsn=lsn, history=history)


def _seen_from(reader: RelayReader, stored: StoredStructures, lsn: Lsn) -> StoredStructures:
    """Returns the structures at `lsn`, which is before the place of `stored`."""
    changes = reader.schema_changes(lsn, stored.lsn)
    return replace(stored, lsn=lsn, history=stored.history.before(changes, stored.dialect))


def _joined(known: StoredStructures, later: StoredStructures) -> StoredStructures:
    """Joins two files for one place: structures that `known` lacks are taken from `later`."""
    first, second = known.history, later.history
    tables = {**second.tables, **first.tables}
    tables |= {name: table for name, table in second.tables.items() if tables[name].has_unknown_charset}
    turns = {turn.lsn: turn for turn in first.turns}
    for turn in second.turns:
        both = turns.get(turn.lsn, RelearnedStructures(turn.lsn))
        charsets = {**both.charsets, **turn.charsets}
        sequences = both.sequences if turn.sequences is None else turn.sequences
        turns[turn.lsn] = RelearnedStructures(turn.lsn, {**both.tables, **turn.tables}, charsets, sequences)
    history = replace(
        first,
        tables=tables,
        charsets={**second.charsets, **first.charsets},
        unknown={name: text for name, text in first.unknown.items() if name not in tables},
        turns=tuple(turns[lsn] for lsn in sorted(turns)),
        sequences=(first.sequences | second.sequences) - {*tables},
    )
    return replace(known, history=history)


def _directory(folder: Folder) -> Path:
    return folder.path / "structures"
