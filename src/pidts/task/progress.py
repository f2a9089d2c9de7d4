"""What a running task tells about itself: the snapshots that the command line and the dashboard draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pidts.model import Lsn, PidtsError, Position

Stage = Literal["starting", "copy", "sync", "paused", "synced", "stopped"]
"""`copy` also carries log changes; `sync` means that every existing row has been copied; `paused` waits for what the
message names, and goes on by itself.

A run ends as `synced` where it was to end by itself and did, as `paused` where it was stopped while it waited, else as
`stopped`."""


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
    refetched: int = 0
    """Stretches of the relay that were broken and fetched again from the source, in this run."""

    def to_json(self) -> dict[str, Any]:
        """The object that `pidts run --json` ends with."""
        return {
            "task": self.task,
            "stage": self.stage,
            "applied": {
                "lsn": str(self.applied_lsn) if self.applied_lsn else None,
                "gtid": self.gtid,
                "file": self.position.file if self.position else None,
                "position": self.position.offset if self.position else None,
            },
            "rows": dict(self.rows),
            "batches": self.batches,
            "seconds": round(self.seconds, 3),
            "locked_rows": 0,
            "refetched": self.refetched,
            "cause": self.cause.to_json() if self.cause else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Progress):
    """The last snapshot of a run that ended as it was asked to."""
