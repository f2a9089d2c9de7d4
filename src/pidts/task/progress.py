"""What a running task tells about itself: the snapshots that the command line and the dashboard draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pidts.model import Halt, Lsn, PidtsError, Position
from pidts.plan import Phase

Stage = Literal["starting", "copy", "sync", "paused", "synced", "halted", "stopped"]
"""`copy` also carries log changes; `sync` means that every existing row has been copied; `paused` waits for what the
message names, and goes on by itself.

A run ends as `synced` where it was to end by itself and did, as `halted` where it did but for tables that wait for an
operator, as `paused` where it was stopped while it waited, else as `stopped`."""


def no_rows() -> dict[str, int]:
    """Counters of source changes at the start."""
    return {"inserted": 0, "updated": 0, "deleted": 0, "copied": 0, "stale": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    """How far the copy of one table's existing rows is."""

    name: str
    copied: int = 0
    estimate: int = 0
    """The server's guess of the rows in all; 0 where it has none."""
    done: bool = False
    phase: Phase = Phase.ROWS
    rate: float = 0.0
    """Rows a second, lately."""
    source: str = ""
    """Whose table it is, where the task has several sources."""

    def __str__(self) -> str:
        return f"{self.source}: {self.name}" if self.source else self.name

    @property
    def eta_seconds(self) -> float | None:
        """How long its rows will take; None where nobody can tell."""
        if self.done:
            return 0.0
        if self.phase is not Phase.ROWS or not self.rate or self.copied >= self.estimate:
            return None
        return (self.estimate - self.copied) / self.rate

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            **({"source": self.source} if self.source else {}),
            "name": self.name,
            "copied": self.copied,
            "estimate": self.estimate,
            "done": self.done,
            "phase": self.phase.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """How far a task is with one of its sources."""

    source: str
    stage: Stage
    applied_lsn: Lsn | None = None
    gtid: str = ""
    position: Position | None = None
    lag_seconds: float | None = None
    halted: tuple[Halt, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "source": self.source,
            "stage": self.stage,
            "applied": applied_json(self.applied_lsn, self.gtid, self.position),
            "lag_seconds": None if self.lag_seconds is None else round(self.lag_seconds, 3),
        }


def applied_json(lsn: Lsn | None, gtid: str, position: Position | None) -> dict[str, Any]:
    """The last place of a source's log that is on the target, under each of its names."""
    return {
        "lsn": str(lsn) if lsn else None,
        "gtid": gtid,
        "file": position.file if position else None,
        "position": position.offset if position else None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A moment in the life of a run."""

    stage: Stage
    task: str
    applied_lsn: Lsn | None = None
    gtid: str = ""
    position: Position | None = None
    rows: Mapping[str, int] = field(default_factory=no_rows)
    """Changes of the source since this run began, by what they did: inserted, updated, deleted, copied."""
    batches: int = 0
    seconds: float = 0.0
    lag_seconds: float | None = None
    rate: float = 0.0
    """Rows a second, lately."""
    tables: tuple[TableProgress, ...] = ()
    message: str = ""
    cause: PidtsError | None = None
    """What a paused run waits for the end of."""
    halted: tuple[Halt, ...] = ()
    """Tables that wait for an operator, while all others go on."""
    refetched: int = 0
    """Stretches of the relay that were broken and fetched again from the source, in this run."""
    sources: tuple[SourceProgress, ...] = ()

    @property
    def copy_rate(self) -> float:
        """Rows a second that the copy brings, lately."""
        return sum(table.rate for table in self.tables)

    @property
    def eta_seconds(self) -> float | None:
        """How long it will be until all rows are copied; 0 where they are, None where nobody can tell."""
        waiting = [table for table in self.tables if not table.done]
        left = sum(max(table.estimate - table.copied, 0) for table in waiting if table.phase is Phase.ROWS)
        if not waiting:
            return 0.0
        return left / self.copy_rate if left and self.copy_rate else None

    def to_json(self) -> dict[str, Any]:
        """The object that `pidts run --json` ends with."""
        eta = self.eta_seconds
        return {
            "task": self.task,
            "stage": self.stage,
            "applied": applied_json(self.applied_lsn, self.gtid, self.position),
            "rows": dict(self.rows),
            "tables": [table.to_json() for table in self.tables],
            "eta_seconds": None if eta is None else round(eta, 1),
            "batches": self.batches,
            "seconds": round(self.seconds, 3),
            "locked_rows": 0,
            "refetched": self.refetched,
            "halted": self._halted_json(),
            "cause": self.cause.to_json() if self.cause else None,
            "sources": [source.to_json() for source in self.sources],
        }

    def _halted_json(self) -> list[dict[str, Any]]:
        if len(self.sources) <= 1:
            return [halt.to_json() for halt in self.halted]
        return [{"source": source.source, **halt.to_json()} for source in self.sources for halt in source.halted]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Progress):
    """The last snapshot of a run that ended as it was asked to."""
