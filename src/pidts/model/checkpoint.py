"""The checkpoint of a task on its target, and the journal of the schema change that is being made."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pidts.model.log_file import LogFile
from pidts.model.lsn import Lsn


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The checkpoint of one worker. A checkpoint matches the worker's rows: both are committed in one transaction."""

    task: str
    source: str
    worker: int
    batch: int = 0
    """The number of the worker's last batch in this run. It shows the order of batches that do not move the Lsn."""
    lsn: Lsn
    """The target has everything up to and including this place."""
    gtid: str = ""
    position: str = ""
    """The place of `lsn`, as a log file and a byte in it: `bin.000001:42`."""
    log_file: LogFile | None = None
    """The log file with the last byte before `position`, or the next log file. None: an earlier version stored the
    checkpoint, or a first start could not find out the file.
    """
    epoch: int = 0
    """Each claim of the task raises this number. A run with an older epoch may not write."""
    copy: str = ""
    """JSON with the progress of the copy, and the Lsns of waiting tables, which are before `lsn`; may be empty."""
    saved_at: float = field(default=0.0, compare=False)
    """When the checkpoint was stored, by the target's clock in seconds since 1970; 0 if nobody asked for the time."""
    altered: str = field(default="", compare=False)
    """Says how somebody has changed the checkpoint's row by hand; empty if the row shows no such change."""


def epoch_before_first() -> int:
    """Returns the epoch before a task's first claim: the time in hundredths of a second since 1970.

    Somebody may delete the checkpoint while a run lives, so that another run begins the task anew. If epochs began with
    1, both runs could have the same epoch. Then each would take the other's checkpoint for its own, and could overwrite
    the progress of the other's copy.
    """
    return int(time.time() * 100)


class DdlState(StrEnum):
    """The progress of one statement of a schema change."""

    INTENT = "intent"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlJournal:
    """The schema change that a target without transactional DDL is executing, statement by statement."""

    task: str
    source: str
    lsn: Lsn
    statement: str
    """The statement as the source ran it."""
    rendered: tuple[str, ...]
    """The target's statements, in order. The list is fixed when the change begins, and a restart continues the list."""
    step: int
    """The index of the next statement in `rendered`."""
    before: Mapping[str, str | None] = field(default_factory=dict)
    """The fingerprint of each table involved, taken before this step ran; None if the table did not exist."""
    state: DdlState = DdlState.INTENT
    epoch: int = 0
    saved_at: float = field(default=0.0, compare=False)
    """When the journal was stored, by the target's clock in seconds since 1970; 0 if unknown."""


class KeyNote(str):
    """A note about a key of the source that the target table will lack or have in another form."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class RenderedChange:
    """A schema change as a target's own statements, and notes about the parts that the target cannot do."""

    statements: tuple[str, ...]
    notes: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    """Statements for which no batch has to wait, each executed separately after `statements` are committed."""
    computed: frozenset[str] = frozenset()
    """If the statements create or alter a table: the columns whose values the target computes itself afterwards."""
