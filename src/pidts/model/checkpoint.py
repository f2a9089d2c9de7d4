"""The checkpoint that a target keeps for a task: how far it is, and which schema change it is in the middle of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pidts.model.lsn import Lsn


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One worker's row. It commits in the same transaction as its rows, so it is never ahead or behind."""

    task: str
    source: str
    worker: int
    batch: int = 0
    """Number of the batch it belongs to. It grows within a run; where batches move no Lsn it tells their order."""
    lsn: Lsn
    """Everything at or below it is in the target."""
    gtid: str = ""
    position: str = ""
    """The source's own name of the same place, `bin.000001:42`."""
    epoch: int = 0
    """Counts how often the task was taken over; a run with an older epoch may not write."""
    copy: str = ""
    """Progress of the full copy, and the places of tables held behind `lsn`, as JSON; empty where nothing is."""
    saved_at: float = field(default=0.0, compare=False)
    """The time when the target stored it, by its own clock, in seconds since 1970; 0 where that was not asked."""
    altered: str = field(default="", compare=False)
    """Why the stored row is not as a task has written it; empty where it is, or where nobody can tell."""


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
    """The target's statements, in order; fixed when the change begins, so that a restart continues the same list."""
    step: int
    """Index into `rendered`."""
    before: Mapping[str, str | None] = field(default_factory=dict)
    """Fingerprint of each table involved, taken before this step ran; None where there was no table."""
    state: DdlState = DdlState.INTENT
    epoch: int = 0
    saved_at: float = field(default=0.0, compare=False)
    """The time when the target stored it, by its own clock, in seconds since 1970; 0 where nobody knows."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A schema change in a target's own words, and what of it could not be said there."""

    statements: tuple[str, ...]
    notes: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    """The statements that nobody has to wait for, each by itself, when the others are committed."""
