"""Reads the log of a task: its last lines, and new lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

_BLOCK: Final = 1 << 16
_LONGEST_LINE: Final = 1 << 20
_MOST_READ: Final = 8 << 20
"""The largest number of bytes that are searched in a task's logs."""
CHANGES: Final = 20
"""The largest number of schema changes that are shown for a task: the newest ones."""
_LINES: Final = 2000
_MOST_NEW: Final = 100
_SCHEMA_CHANGE: Final = "schema change"
LEVELS: Final = ("debug", "info", "warning", "error", "critical")


def last_lines(log: Path, *, limit: int, level: str = "", before: str = "") -> list[dict[str, Any]]:
    """Returns the last lines of a log and of its older files, in the order in which they were written.

    With `level`, lines of lower levels are left out. With `before`, only lines with an earlier `ts` are returned.
    """
    found: list[dict[str, Any]] = []
    lowest = LEVELS.index(level) if level in LEVELS else 0
    for text in _backwards([log, *(log.with_name(f"{log.name}.{number}") for number in (1, 2, 3))]):
        line = as_line(text)
        if line is None or _grade(line) < lowest or (before and str(line["ts"]) >= before):
            continue
        found.append(line)
        if len(found) >= limit:
            break
    return found[::-1]


def schema_change(line: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the completed schema change that a line of a log reports; None if it reports something else."""
    event, statement = str(line.get("event", "")), line.get("statement")
    if not event.startswith(_SCHEMA_CHANGE) or not isinstance(statement, str):
        return None
    try:
        at = datetime.fromisoformat(str(line["ts"])).timestamp()
    except ValueError:
        return None
    return {"at": at, "table": "", "statement": statement, "result": event.removeprefix(_SCHEMA_CHANGE).strip()}


def schema_changes(log: Path) -> list[dict[str, Any]]:
    """Returns the last schema changes in a log, the newest first."""
    return [change for line in reversed(last_lines(log, limit=_LINES)) if (change := schema_change(line))][:CHANGES]


def as_line(text: bytes) -> dict[str, Any] | None:
    """Returns the values of a log's line, with the names that programs know; None if the line is incomplete."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    return {"ts": value.pop("timestamp", ""), "level": value.pop("level", "info"), **value}


def _grade(line: dict[str, Any]) -> int:
    return LEVELS.index(line["level"]) if line["level"] in LEVELS else 1


def _backwards(logs: list[Path]) -> Iterator[bytes]:
    """Yields the lines of these logs, the newest log first, and each log from its last line to its first."""
    left = _MOST_READ
    for log in logs:
        try:
            with log.open("rb") as file:
                at, tail = file.seek(0, 2), b""
                while at and left > 0:
                    size = min(_BLOCK, at)
                    at, left = at - size, left - size
                    file.seek(at)
                    tail = file.read(size) + tail
                    first, *lines = tail.split(b"\n")
                    yield from filter(None, reversed(lines))
                    tail = first if len(first) < _LONGEST_LINE else b""
                if tail and not at:
                    yield tail
        except OSError:
            continue


@dataclass(slots=True)
class LogTail:
    """Reads the new lines of a log, even after the file was replaced."""

    log: Path
    _file: int = 0
    _at: int = 0
    _begun: bool = False

    def new_lines(self) -> list[dict[str, Any]]:
        """Returns the lines since the last call, at most the last `_MOST_NEW`. The first call returns no line."""
        try:
            state = self.log.stat()
        except OSError:
            self._begun = True
            return []
        if not self._begun:
            self._begun, self._file, self._at = True, state.st_ino, state.st_size
            return []
        if state.st_ino != self._file or state.st_size < self._at:
            self._file, self._at = state.st_ino, 0
        self._at = max(self._at, state.st_size - _LONGEST_LINE)
        with self.log.open("rb") as file:
            file.seek(self._at)
            whole, newline, _ = file.read(_LONGEST_LINE).rpartition(b"\n")
        self._at += len(whole) + len(newline)
        return [line for text in whole.split(b"\n")[-_MOST_NEW:] if (line := as_line(text)) is not None]
