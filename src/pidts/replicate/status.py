"""The state of a replicator, and the small file in which other processes can read this state."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic, sleep, time
from typing import Any, Final

from pidts.binlog.jit import is_compiling
from pidts.model import Lsn, PidtsError, Where
from pidts.relay.permissions import private_opener

RELAY_FULL: Final = "relay-full"
REPLICATOR_SILENT = "replicator-silent"

_INTERVAL = 1.0
_RESTING_INTERVAL = 5.0
"""The interval, in seconds, of writing the status while the source has nothing to send."""
_BLOCK = 4096
"""The file is padded to whole blocks of this size, so that a longer status fits into the file even on a full disk."""
_READS, _BETWEEN_READS = 5, 0.02
_SIGN_OF_LIFE_SECONDS = 30.0
"""A replicator counts as silent if it has written no status for this time. It normally writes its status every few
seconds, and its pauses between attempts are shorter than this time.
"""
_COMPUTE_SECONDS = 600.0
"""The longest time in which a starting replicator may compute without receiving anything, or may compile."""


@dataclass(frozen=True, slots=True)
class ReplicatorState:
    """The state of a replicator at one moment."""

    source_id: str
    connected: bool = False
    reconnects: int = 0
    received: Lsn | None = None
    """The Lsn of the last durable entry in the relay; None for an empty relay."""
    position: str = ""
    """The Lsn `received`, as file and offset."""
    source_time: int = 0
    """The time at which the source executed the last received event, in seconds since 1970 UTC; 0 before the first."""
    events: int = 0
    bytes: int = 0
    """The events and the bytes received since this process started."""
    behind_bytes: int | None = None
    """The bytes of the source's log that the relay lacked at the last check; None before the first check."""
    unreceived_bytes: int | None = None
    """The same as `behind_bytes`, but at the last check by `LogWatch`, which checks more often."""
    lag_seconds: float | None = None
    """The seconds that the source's log takes to reach the relay; None before the first measurement."""
    waiting: float | None = None
    """The share of the time since the previous status in which the replicator waited for the source; None: unknown."""
    cpu: float | None = None
    """The share of the time since the previous status in which the replicator computed; None: unknown."""
    bytes_a_second: float | None = None
    """The bytes received per second, since the previous status; None: unknown."""
    round_trip_seconds: float | None = None
    """The round trip of a query that reads no table; None: unknown."""
    clock_ahead_seconds: float | None = None
    """The seconds by which the source's clock is ahead, exact to half a round trip; None: unknown."""
    warning: str = ""
    """The warning that the source may soon purge log that the relay lacks; empty if there is none."""
    error: PidtsError | None = None
    """The reason why the replicator is not connected, or why it stopped; None if there is none."""
    failing_since: float = 0.0
    """The time since which every attempt has failed, in seconds since 1970; 0 if attempts succeed."""
    pid: int = field(default_factory=os.getpid)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as plain values for JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self)} | {
            "received": str(self.received) if self.received else None,
            "error": self.error.to_json() if self.error else None,
            "failing_since": self.failing_since or None,
            "time": time(),
        }


class StatusFile:
    """Writes the state to a file every second, or less often while idle.

    A change of connection, error or warning is written at once.
    """

    def __init__(self, path: Path, source_id: str) -> None:
        self._path = path
        self._written_at = -_RESTING_INTERVAL
        self._written_events = 0
        self._writing = Lock()
        self.state = ReplicatorState(source_id)

    def update(self, **changes: Any) -> None:
        """Changes the state. Writes it if a write is due, or if `connected`, `error` or `warning` has changed."""
        before = self.state
        fails = changes.get("error", before.error) is not None
        self.state = replace(before, **changes, failing_since=(before.failing_since or time()) if fails else 0.0)
        urgent = _news(before) != _news(self.state)
        if urgent or self.is_due:
            self.write()

    @property
    def is_due(self) -> bool:
        """Whether enough time has passed since the last write for the next one."""
        rests = self.state.connected and self.state.events == self._written_events and not self.state.unreceived_bytes
        return monotonic() - self._written_at >= (_RESTING_INTERVAL if rests else _INTERVAL)

    def write(self) -> None:
        """Writes the state now."""
        with self._writing:
            self._write()

    def _write(self) -> None:
        self._written_at, self._written_events = monotonic(), self.state.events
        text = json.dumps(self.state.to_json()).encode()
        data = text + b" " * (-(len(text) + 1) % _BLOCK) + b"\n"
        draft = self._path.with_suffix(".part")
        try:
            with open(draft, "wb", opener=private_opener) as file:
                file.write(data)
            draft.replace(self._path)
        except OSError:
            # On a full disk there is no space for a draft, so the new status overwrites the blocks of the old one.
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            with suppress(OSError), self._path.open("r+b") as file:
                file.write(data)
                file.truncate()


class SignsOfLife:
    """Writes the status every second in a separate thread while a replicator starts, or compiles a function.

    The first bytes of a log make the replicator load its compiled functions, or compile them. Later bytes may need
    further functions. On a busy machine, compiling takes longer than the time after which a replicator counts as
    silent. A replicator that writes no status at any other time is stuck. So is a replicator that compiles for ten
    minutes without a pause.
    """

    def __init__(
        self,
        status: StatusFile,
        is_compiling: Callable[[], bool] = is_compiling,
        seconds: float | None = None,
        limit: float = _COMPUTE_SECONDS,
    ) -> None:
        """`seconds` is the interval of the writes. A start or a compilation of more than `limit` seconds is stuck."""
        self._status, self._is_compiling, self._seconds = status, is_compiling, seconds or _INTERVAL
        self._limit = limit
        self._has_started, self._closed = False, Event()
        Thread(target=self._run, name="signs of life", daemon=True).start()

    def end_start(self) -> None:
        """Notes that the replicator has started."""
        self._has_started = True

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()

    def _run(self) -> None:
        starts_until, compiles_until = monotonic() + self._limit, 0.0
        while not self._closed.wait(self._seconds):
            if not self._is_compiling():
                compiles_until = 0.0
            elif not compiles_until:
                compiles_until = monotonic() + self._limit
            if monotonic() < max(compiles_until, 0.0 if self._has_started else starts_until):
                self._status.write()


def _news(state: ReplicatorState) -> tuple[bool, PidtsError | None, str]:
    return state.connected, state.error, state.warning


def read_status(relay: Path | str, source_id: str) -> dict[str, Any] | None:
    """Reads the last status of a source's replicator, from any process; None if there never was one."""
    path = Path(relay) / source_id / "status.json"
    for left in reversed(range(_READS)):
        try:
            status: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            # On a full disk the status is overwritten in place, so a reader may see an incomplete status for a moment.
            if not left:
                raise
            sleep(_BETWEEN_READS)
        else:
            return status
    raise AssertionError("the last read returns or raises")


def _readable_status(relay: Path | str, source_id: str) -> dict[str, Any] | None:
    try:
        return read_status(relay, source_id)
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class ReceiveProblem:
    """Why the replicator does not receive a source's log, and since when."""

    error: PidtsError
    since: float
    """The time since which the log is not received, in seconds since 1970."""
    heard_at: float
    """When the replicator last wrote its status."""

    def __str__(self) -> str:
        return str(self.error)

    @property
    def needs_operator(self) -> bool:
        """Whether an operator must free disk space. For an unreachable source, the replicator only waits."""
        return self.error.code == RELAY_FULL

    def to_json(self) -> dict[str, Any]:
        """Returns the reason and the time as plain values for JSON."""
        return {**self.error.to_json(), "since": self.since}


def not_receiving(relay: Path | str, source_id: str) -> ReceiveProblem | None:
    """Returns why a source's log is not received; None if it is received, or if this machine has no status.

    A replicator that has not written its status for half a minute is stuck or dead.
    """
    status = _readable_status(relay, source_id)
    if status is None:
        return None
    failure, heard_at = status.get("error"), float(status["time"])
    if failure is not None and not status["connected"]:
        error = PidtsError(failure["code"], failure["what"], where=Where(**failure["where"]), todo=failure["todo"])
        # A replicator of an earlier version records no time.
        return ReceiveProblem(error, float(status.get("failing_since") or heard_at), heard_at)
    if is_silent(status):
        error = PidtsError(
            REPLICATOR_SILENT,
            "the replicator has not written its status for more than half a minute",
            where=Where(source=source_id),
            todo="See replicator.log in the relay's folder. Is the replicator's process stopped?",
        )
        return ReceiveProblem(error, heard_at, heard_at)
    return None


def silent_since(relay: Path | str, source_id: str) -> float:
    """Returns when a silent replicator last wrote its status; 0 if it is not silent or has no status here."""
    status = _readable_status(relay, source_id)
    return float(status["time"]) if status is not None and is_silent(status) else 0.0


def heard_at(relay: Path | str, source_id: str) -> float:
    """Returns when a replicator on this machine last wrote its status; 0 if it has no status here."""
    status = _readable_status(relay, source_id)
    return float(status["time"]) if status is not None else 0.0


def is_silent(status: Mapping[str, Any]) -> bool:
    """Whether the replicator should have written its status again by now."""
    return abs(time() - float(status["time"])) >= _SIGN_OF_LIFE_SECONDS
