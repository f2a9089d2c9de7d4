"""Signals the state of schema changes to the planner. The changes are made in separate threads.

A signal is a file in the staging folder, like the result of a chunk. It is valid only within this run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from pidts.durable_folder import replace_file
from pidts.model import Lsn, TableName

_FEW = 16
"""If more than 16 schema changes are due, the folder is listed once, and not searched for each signal. A thousand
shards may wait before their changes.
"""


def signal_done(staging: Path, lsn: Lsn) -> None:
    """Signals that the schema change at `lsn` is done."""
    _touch(_signal(staging, lsn, "done"))


def signal_halted(staging: Path, lsn: Lsn) -> None:
    """Signals that the schema change at `lsn` is halted. The signal is valid until the change is done."""
    _touch(_signal(staging, lsn, "halted"))


class Signals:
    """Reads the signals of one run repeatedly. It parses each file's name once: no file is removed during the run."""

    def __init__(self, staging: Path, parse: Callable[[str], Lsn] = Lsn.parse) -> None:
        self._staging, self._parse = staging, parse
        self._read: set[str] = set()
        self._found: dict[str, set[Lsn]] = {"done": set(), "halted": set()}

    def done(self, due: Collection[Lsn]) -> frozenset[Lsn]:
        """Returns the changes that are done."""
        return self._signalled(due, "done")

    def halted(self, due: Collection[Lsn]) -> frozenset[Lsn]:
        """Returns the changes that are halted."""
        return self._signalled(due, "halted") - self._signalled(due, "done")

    def _signalled(self, due: Collection[Lsn], what: str) -> frozenset[Lsn]:
        if len(due) <= _FEW:
            return frozenset(lsn for lsn in due if _signal(self._staging, lsn, what).exists())
        for name in _names(self._staging) - self._read:
            lsn, _, kind = name.rpartition(".")
            if kind in self._found:
                self._found[kind].add(self._parse(lsn))
            self._read.add(name)
        return frozenset(self._found[what].intersection(due))


def signal_kept(staging: Path, tables: Collection[TableName]) -> None:
    """Signals which tables must wait at present."""
    path = staging / "ddl" / "kept"
    if not tables and not path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps([[name.schema, name.name] for name in sorted(tables)]), durable=False)


def kept_of(staging: Path) -> frozenset[TableName]:
    """Returns the tables that must wait at present."""
    with suppress(FileNotFoundError):
        return frozenset(TableName(*name) for name in json.loads((staging / "ddl" / "kept").read_text()))
    return frozenset()


def stamp_of(staging: Path) -> int:
    """Returns a number that changes with each signal. Two signals within milliseconds may change it only once."""
    try:
        return os.stat(_signals(staging)).st_mtime_ns  # noqa: PTH116 - in every poll
    except FileNotFoundError:
        return 0


@lru_cache(maxsize=256)
def _signals(staging: Path) -> str:
    return str(staging / "ddl")


def _names(staging: Path) -> set[str]:
    try:
        return set(os.listdir(_signals(staging)))  # noqa: PTH208 - a path for each name would take longer
    except FileNotFoundError:
        return set()


def _touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def _signal(staging: Path, lsn: Lsn, what: str) -> Path:
    return staging / "ddl" / f"{lsn}.{what}"
