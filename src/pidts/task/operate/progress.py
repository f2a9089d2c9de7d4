"""The progress of a running task: the snapshots that the command line and the service show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pidts.model import Halt, Lsn, PidtsError, Position
from pidts.plan import Phase
from pidts.replicate import ReceiveProblem
from pidts.task.operate.pause import Pause
from pidts.task.operate.stage_report import StageReport

Stage = Literal["paused", "starting", "stopped", "copy", "sync", "halted", "synced"]
"""The stage of a run with one source. The stage of a task is the first one in this list that one of its sources has.

- `paused`: the run waits until the cause in the message is over, and then continues by itself. A run that is stopped
  meanwhile ends in this stage.
- `starting`: the run checks the servers, or an attempt begins.
- `stopped`: the run was stopped.
- `copy`: the run copies existing rows, and also applies changes of the log.
- `sync`: all existing rows are copied, and the run applies changes of the log.
- `halted`, `synced`: the run has ended by itself, with or without tables that need an operator.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProgress:
    """The progress of copying one table's existing rows."""

    name: str
    copied: int = 0
    estimate: int = 0
    """The server's estimate of the number of rows; 0 if there is none."""
    done: bool = False
    phase: Phase = Phase.ROWS
    looked_up: int = 0
    """The number of the target's rows that this run has looked up on the source, to find extra rows."""
    rate: float = 0.0
    """Rows per second over the last seconds."""
    source: str = ""
    """The source of the table, if the task has several sources."""

    def __str__(self) -> str:
        return f"{self.source}: {self.name}" if self.source else self.name

    @property
    def eta_seconds(self) -> float | None:
        """The estimated seconds for the remaining rows; None if they cannot be estimated."""
        if self.done:
            return 0.0
        if self.phase is not Phase.ROWS or not self.rate or self.copied >= self.estimate:
            return None
        return (self.estimate - self.copied) / self.rate

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            **({"source": self.source} if self.source else {}),
            "name": self.name,
            "copied": self.copied,
            "estimate": self.estimate,
            "done": self.done,
            "phase": self.phase.value,
        }


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes that a run has applied to one target table, copied rows included."""

    name: str
    """The table's name on the target."""
    rows: int = 0
    rate: float = 0.0
    """Rows per second over the last seconds."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {"name": self.name, "rows": self.rows, "rate": round(self.rate, 1)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """The progress of a task with one of its sources."""

    source: str
    stage: Stage
    applied_lsn: Lsn | None = None
    gtid: str = ""
    position: Position | None = None
    lag_seconds: float | None = None
    """The lag without waiting tables; None if it is not known."""
    held_lag_seconds: float | None = None
    """The age of the oldest change of a waiting table; None if no change waits with its table."""
    held_tables: int = 0
    """The number of waiting tables."""
    halted: tuple[Halt, ...] = ()
    locked: Mapping[str, int] = field(default_factory=dict)
    """The number of locked rows of each target table with locked rows."""
    catalog_lag_seconds: float | None = None
    """The lag of a server's catalog after the warehouse; None if there is no such catalog, or if it is not known."""
    lack: ReceiveProblem | None = None
    """The reason why the source's log is not received; None if it is received."""
    pause: Pause | None = None
    """The pause after an error of the last attempt; None if the source's changes are applied."""
    relay_bytes: int | None = None
    """The size of the source's log in the relay; None if it was not read yet."""
    log_warning: str = ""
    """The reason why the source may remove log that was not received; empty if there is no such danger."""
    disk_warning: str = ""
    """A warning about the free space of the relay's disk; empty while there is enough."""
    stage_report: StageReport | None = None
    """The stages between source and target, and which one is slow; None before the run has measured them."""

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        return {
            "source": self.source,
            "stage": self.stage,
            "applied": applied_json(self.applied_lsn, self.gtid, self.position),
            "lag_seconds": None if self.lag_seconds is None else round(self.lag_seconds, 3),
            "held_lag_seconds": None if self.held_lag_seconds is None else round(self.held_lag_seconds, 3),
            "not_receiving": self.lack.to_json() if self.lack else None,
            "relay_bytes": self.relay_bytes,
            "warnings": [*filter(None, (self.log_warning, self.disk_warning))],
        }


def applied_json(lsn: Lsn | None, gtid: str, position: Position | None) -> dict[str, Any]:
    """Returns the place up to which the target has a source's log, as Lsn, GTID set and position."""
    return {
        "lsn": str(lsn) if lsn else None,
        "gtid": gtid,
        "file": position.file if position else None,
        "position": position.offset if position else None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A snapshot of a run."""

    task: str
    sources: tuple[SourceProgress, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    """The number of the source's changes that were applied since this run began, by kind, as in `Counts`."""
    batches: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    """Rows per second over the last seconds."""
    tables: tuple[TableProgress, ...] = ()
    changed: tuple[TableChanges, ...] = ()
    """The target tables that this run has changed, sorted by rows per second; a hundred at most."""
    message: str = ""
    is_notice: bool = False
    """Whether the message reports an event instead of a lasting state."""
    cause: PidtsError | None = None
    """The error that has paused the run; None if no error has."""
    refetched: int = 0
    """The number of damaged parts of the relay that this run has fetched again from the source."""

    @property
    def stage(self) -> Stage:
        """The stage of the run."""
        return min((source.stage for source in self.sources), key=get_args(Stage).index, default="starting")

    @property
    def lag_seconds(self) -> float | None:
        """The largest of the sources' lags; None if one of the lags is not known, since this lag may be the largest."""
        lags = [one.lag_seconds for one in self.sources]
        known = [lag for lag in lags if lag is not None]
        return max(known) if known and len(known) == len(lags) else None

    @property
    def held_lag_seconds(self) -> float | None:
        """The age of the oldest change of a waiting table, over all sources; None if no change waits."""
        return max((one.held_lag_seconds for one in self.sources if one.held_lag_seconds is not None), default=None)

    @property
    def held_tables(self) -> int:
        """The number of waiting tables."""
        return sum(one.held_tables for one in self.sources)

    @property
    def stage_report(self) -> StageReport | None:
        """The stages of the source with the largest lag; None before the run has measured any."""
        known = [one for one in self.sources if one.stage_report is not None]
        return max(known, key=lambda one: one.lag_seconds or 0.0).stage_report if known else None

    @property
    def halted(self) -> tuple[Halt, ...]:
        """The halts of tables that need an operator; all other tables continue."""
        return tuple(halt for source in self.sources for halt in source.halted)

    @property
    def locked(self) -> dict[str, int]:
        """The number of locked rows for each target table; tables without locked rows are left out."""
        found: Counter[str] = Counter()
        for source in self.sources:
            found.update(source.locked)
        return dict(found)

    @property
    def copy_rate(self) -> float:
        """The rows per second that the copy writes, over the last seconds."""
        return sum(table.rate for table in self.tables)

    @property
    def eta_seconds(self) -> float | None:
        """The estimated seconds until all rows are copied; 0 if all are copied, None if there is no estimate."""
        waiting = [table for table in self.tables if not table.done]
        left = sum(max(table.estimate - table.copied, 0) for table in waiting if table.phase is Phase.ROWS)
        if not waiting:
            return 0.0
        return left / self.copy_rate if left and self.copy_rate else None

    def to_json(self) -> dict[str, Any]:
        """Returns the object that `pidts run --json` prints at its end."""
        eta, several = self.eta_seconds, len(self.sources) > 1
        sources = [source.to_json() for source in self.sources]
        return {
            "task": self.task,
            "stage": self.stage,
            "applied": applied_json(None, "", None) if several or not sources else sources[0]["applied"],
            "rows": dict(self.rows),
            "tables": [table.to_json() for table in self.tables],
            "changed": [one.to_json() for one in self.changed],
            "eta_seconds": None if eta is None else round(eta, 1),
            "batches": self.batches,
            "seconds": round(self.seconds, 3),
            "locked_rows": sum(self.locked.values()),
            "refetched": self.refetched,
            "halted": [
                ({"source": source.source} if several else {}) | halt.to_json()
                for source in self.sources
                for halt in source.halted
            ],
            "cause": self.cause.to_json() if self.cause else None,
            "road": self.stage_report.to_json() if self.stage_report is not None else None,
            "sources": sources,
        }
