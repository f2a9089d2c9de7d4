"""Cuts a relay back to its last intact entry, so that the source sends the damaged part again.

The reader that finds the damage requests the cut. The relay's writer makes the cut, since only the writer may change
the relay's files. All readers have to notice a cut, because the places in files that they remember may have changed.
For this, writer and readers use one small file, `refetch.json`, which is always replaced as a whole. The file has the
requested cut (`pending`) and the latest cuts (`done`). Readers check the file's inode and time. These change with each
request and each cut, and when a writer opens an empty relay. So readers also notice that the relay's files were
removed, and that the relay is filled again.

The steps:

- (a) *Requested*: `refetch.json` names the last intact place. From now on, readers read no entry after this place.
- (b) The writer opens the relay, and removes the segments after this place, newest first, each index before its events.
- (c) The writer cuts the index of the segment with the place, then this segment's events. If the events stayed, entries
  would be computed from them again.
- (d) *Done*: `refetch.json` is replaced. Then the writer follows the source from the relay's end, as after any start.

Crash points: a refetch can be interrupted by SIGKILL, power loss or a full disk.

1. Before (a) is durable: nothing has happened, and the damage is found again.
2. After (a), before or during (b): segments are removed from the end, so the rest has no new gap. Readers do not read
   past the requested place, so no reader needs the removed part. The next writer that opens the relay completes the
   cut.
3. During (c): the index is cut before the events, so no entry names missing bytes. The next writer completes the cut.
4. Between (c) and (d): the next writer makes the cut a second time, and finds nothing to remove.
5. After (d): the range is recorded as received again (its events get `is_retry`), even if none of its events has
   arrived yet. A reader that has read further than the relay's end waits until the relay has grown past this place.

A purge and a cut never happen at the same time, since both take the lock of the tasks' needs. Together, the purge could
remove the oldest segments and the cut the newest segments, so that no segment would be left.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from pidts.durable_folder import replace_file
from pidts.model import Halted, Lsn, Where
from pidts.relay.folder import Folder
from pidts.relay.segments.index import Header, entry_end, entry_key, key_of, payloads
from pidts.relay.task_needs import needs_locked, refused

_NAME = "refetch.json"
_KEPT = 50
"""The most refetches of each kind that `done` keeps; the oldest are dropped first."""
_REPEATED = "rewind"
"""The value of `why` if the relay was intact, and a task sends a part of the log again."""
_logger: structlog.stdlib.BoundLogger = structlog.get_logger("pidts.relay")

Signature = tuple[int, int] | None
"""A value that changes whenever a cut of the relay is requested or made."""


@dataclass(frozen=True, slots=True)
class Refetch:
    """A part of the log that was received and has to be received again."""

    after: Lsn
    """The end of the last intact entry before the damage."""
    to: Lsn
    """The place up to which the relay had the log when the cut was requested."""
    why: str
    """The code of the error that the damage has caused."""
    asked_at: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as plain values for JSON."""
        return {"after": str(self.after), "to": str(self.to), "why": self.why, "asked_at": self.asked_at}


@dataclass(frozen=True, slots=True)
class Refetches:
    """The refetches of a relay: the pending one and the finished ones."""

    pending: Refetch | None = None
    done: tuple[Refetch, ...] = ()


def read_refetches(folder: Folder) -> Refetches:
    """Reads the pending and the finished refetches; there are none if the file is missing."""
    path = _path(folder)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        pending = data["pending"]
        return Refetches(_parsed(pending) if pending else None, tuple(map(_parsed, data["done"])))
    except FileNotFoundError:
        return Refetches()
    except (ValueError, KeyError, TypeError) as error:
        todo = "Empty this folder; the task continues from the target's checkpoint"
        where = Where(source=folder.source_id, file=str(path))
        what = f"the record of the parts that were received again cannot be read ({error})"
        raise Halted("relay-corrupt", what, where=where, todo=todo) from error


def refetch_signature(folder: Folder) -> Signature:
    """Returns the inode and the time of `refetch.json`. Readers call this fast function before every read."""
    try:
        found = os.stat(f"{folder.path}/{_NAME}")  # noqa: PTH116 - in every poll of every reader
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def ask_to_refetch(folder: Folder, after: Lsn, to: Lsn, why: str) -> None:
    """Requests, durably, that the writer cuts the relay back to `after`, or to an earlier place if one is requested."""
    with needs_locked(folder):
        known = read_refetches(folder)
        if known.pending is not None:
            after, to = min(after, known.pending.after), max(to, known.pending.to)
        _write(folder, Refetches(Refetch(after, to, why, time.time()), known.done))


def note_repeated(folder: Folder, after: Lsn, to: Lsn) -> None:
    """Notes that a task sends the events of a part of the log again, with `is_retry`, although the relay is intact."""
    with needs_locked(folder):
        known = read_refetches(folder)
        _write(folder, Refetches(known.pending, _last_of_each_kind((*known.done, Refetch(after, to, _REPEATED)))))


def _last_of_each_kind(done: tuple[Refetch, ...]) -> tuple[Refetch, ...]:
    """Returns the refetches to keep: the last ones of damaged parts, and the last ones of parts that tasks send again.

    The two kinds are counted separately. So many parts of one kind do not remove a part of the other kind.
    """
    is_repeated = [one.why == _REPEATED for one in done]
    return tuple(one for at, one in enumerate(done) if is_repeated[at + 1 :].count(is_repeated[at]) < _KEPT)


def announce_beginning(folder: Folder) -> None:
    """Replaces `refetch.json`, with the same content, for a relay that begins anew: readers then clear their caches.

    The file is replaced before the relay's first segment is created. If the writer is interrupted between these two
    steps, the next writer replaces the file again.
    """
    with needs_locked(folder):
        _write(folder, read_refetches(folder))


def forget_refetches(folder: Folder) -> None:
    """Forgets all refetches, for a relay that begins anew. The relay's readers notice this."""
    with needs_locked(folder):
        _write(folder, Refetches())


def cut_back(folder: Folder) -> None:
    """Cuts the relay back if a cut was requested; the writer calls this function before it reads the relay."""
    if read_refetches(folder).pending is None:
        return
    with needs_locked(folder):
        known = read_refetches(folder)
        if known.pending is None:
            return
        gone = _cut(folder, known.pending.after)
        _write(folder, Refetches(None, _last_of_each_kind((*known.done, known.pending))))
        asked = {**known.pending.to_json(), "source": folder.source_id, "segments_removed": gone}
        del asked["asked_at"]
        _logger.warning("relay cut back, the source is asked again", **asked)


def _cut(folder: Folder, after: Lsn) -> int:
    kept = _kept(folder, after)
    if kept is None:
        return 0
    newer = [number for number in folder.numbers() if number > kept]
    for number in reversed(newer):
        folder.remove(number)
    folder.sync()
    index, log = folder.index(kept), folder.log(kept)
    place, log_end = 0, 0
    for behind, payload in payloads(index.read_bytes()):
        key = entry_key(payload)
        if key is not None:
            if key > key_of(after):
                break
            log_end = entry_end(payload)
        place = behind
    cut_file(index, place)
    # If no entry is left, opening the relay removes all events.
    if log_end and log.exists() and log.stat().st_size > log_end:
        cut_file(log, log_end)
    return len(newer)


def cut_file(path: Path, size: int) -> None:
    """Cuts a file to a size, durably."""
    if path.stat().st_size != size:
        os.truncate(path, size)
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _kept(folder: Folder, after: Lsn) -> int | None:
    """Returns the segment that is the last one after the cut.

    Returns None if no intact segment begins at or before `after`: then nothing is cut.
    """
    headers = list(_sound_headers(folder))
    before = [header.segment for header in headers if header.start < after]
    if before:
        return before[-1]
    return headers[0].segment if headers and headers[0].start == after else None


def _sound_headers(folder: Folder) -> list[Header]:
    found: list[Header] = []
    for number in folder.numbers():
        try:
            header = folder.header(number)
        except Halted:
            break
        if header is None or (found and number != found[-1].segment + 1):
            break
        found.append(header)
    return found


def _write(folder: Folder, refetches: Refetches) -> None:
    pending = refetches.pending.to_json() if refetches.pending else None
    text = json.dumps({"pending": pending, "done": [one.to_json() for one in refetches.done]})
    try:
        replace_file(_path(folder), text + "\n", durable=True)
    except OSError as error:
        raise refused(folder, error) from error


def _parsed(data: dict[str, Any]) -> Refetch:
    return Refetch(Lsn.parse(data["after"]), Lsn.parse(data["to"]), str(data["why"]), float(data["asked_at"]))


def _path(folder: Folder) -> Path:
    return folder.path / _NAME
