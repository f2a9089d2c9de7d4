"""What a replicator says about itself: a value, and a small file for those who cannot ask."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, time
from typing import Any

from pidts.model import Lsn, PidtsError

_INTERVAL = 1.0
_SIGN_OF_LIFE_SECONDS = 30.0
"""It says something each second, and pauses for less than this between two tries to connect."""


@dataclass(frozen=True, slots=True)
class ReplicatorState:
    """One moment."""

    source_id: str
    connected: bool = False
    reconnects: int = 0
    received: Lsn | None = None
    """The last entry that is durable in the relay."""
    position: str = ""
    """The same as the source names it."""
    source_time: int = 0
    """When the source executed the event that came last, in seconds since 1970 UTC; 0 before the first."""
    events: int = 0
    bytes: int = 0
    """Both since this process started."""
    behind_bytes: int | None = None
    """What the source had logged and the relay had not, when it was last looked at; None before that."""
    warning: str = ""
    """What may end in the loss of the position unless somebody acts; empty where all is well."""
    error: PidtsError | None = None
    """Why it is not connected, or why it stopped."""
    pid: int = field(default_factory=os.getpid)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "source_id": self.source_id,
            "connected": self.connected,
            "reconnects": self.reconnects,
            "received": str(self.received) if self.received else None,
            "position": self.position,
            "source_time": self.source_time,
            "events": self.events,
            "bytes": self.bytes,
            "behind_bytes": self.behind_bytes,
            "warning": self.warning,
            "error": self.error.to_json() if self.error else None,
            "pid": self.pid,
            "time": time(),
        }


class StatusFile:
    """Replaced as a whole, at most once a second unless something changed that people wait for."""

    def __init__(self, path: Path, source_id: str) -> None:
        self._path = path
        self._written_at = -_INTERVAL
        self.state = ReplicatorState(source_id)

    def update(self, **changes: Any) -> None:
        """Change the state; write it when it is time or when connection or error changed."""
        before, self.state = self.state, replace(self.state, **changes)
        urgent = _news(before) != _news(self.state)
        if urgent or monotonic() - self._written_at >= _INTERVAL:
            self.write()

    def write(self) -> None:
        """Write it now."""
        self._written_at = monotonic()
        draft = self._path.with_suffix(".part")
        # A disk that is full must not end what would go on when there is room; the relay's own writes report it.
        with suppress(OSError):
            draft.write_text(json.dumps(self.state.to_json()) + "\n", encoding="utf-8")
            draft.replace(self._path)


def _news(state: ReplicatorState) -> tuple[bool, PidtsError | None, str]:
    return state.connected, state.error, state.warning


def read_status(relay: Path | str, source_id: str) -> dict[str, Any] | None:
    """The last status of a source's replicator, from any process; None if there never was one."""
    path = Path(relay) / source_id / "status.json"
    try:
        status: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return status


def silent_since(relay: Path | str, source_id: str) -> float:
    """When a source's replicator was heard of last, where it is silent; 0 where it is not, or nobody here knows."""
    try:
        status = read_status(relay, source_id)
    except (OSError, ValueError):
        return 0.0
    return float(status["time"]) if status is not None and is_silent(status) else 0.0


def is_silent(status: Mapping[str, Any]) -> bool:
    """Whether the replicator that wrote it ought to have written again by now."""
    return abs(time() - float(status["time"])) >= _SIGN_OF_LIFE_SECONDS
