"""Stores when and how the last run on this machine ended, in a file beside the relay, for `pidts status`.

The record is not on the target: if, for example, a database is gone, the target cannot store the error. The next run
removes the file at its start.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pidts.durable_folder import replace_file
from pidts.model import Fenced, Halted, PidtsError
from pidts.task.config.task_file import TaskConfig

CLOCKS_DIFFER = 60.0
"""The largest expected difference of two machines' clocks, in seconds."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """When a run ended, and the error with which it ended."""

    at: float
    """Seconds since 1970."""
    error: dict[str, Any]
    """The error, as `PidtsError.to_json` returns it; empty if the run ended without an error."""
    exit_code: int
    text: str
    """The error and its place, as text."""
    epochs: dict[str, int]
    """The epoch of the run's last claim of the task, for each source."""

    @property
    def is_failure(self) -> bool:
        """Whether the run ended with an error."""
        return bool(self.error)

    @property
    def needs_operator(self) -> bool:
        """Whether an operator has to act before the next start."""
        return self.exit_code == Halted.exit_code

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as plain values for JSON."""
        return {"at": self.at, "exit_code": self.exit_code, **self.error}

    def is_over(self, moved_at: float, epochs: Mapping[str, int]) -> bool:
        """Whether another run has continued the task since this end. The claim of another run has a higher epoch.

        A run that failed in its checks has claimed nothing, so it has no epoch to compare. Then the time of the last
        commit decides.
        """
        if self.epochs:
            return any(epochs.get(source, 0) > epoch for source, epoch in self.epochs.items())
        return moved_at > self.at + CLOCKS_DIFFER


@contextmanager
def remembered_end(config: TaskConfig) -> Iterator[dict[str, int]]:
    """Removes the record of the previous run's end, and records how this run ends.

    The run enters the epochs of its claims into the yielded dictionary. If another run has taken over the task, the
    record is empty, since that run continues the task. If the run is killed, there is no record.
    """
    epochs: dict[str, int] = {}
    path = _path(config)
    with suppress(OSError):
        path.unlink(missing_ok=True)
    try:
        yield epochs
    except Fenced:
        _write(path, {})
        raise
    except Exception as error:
        known = error if isinstance(error, PidtsError) else _unexpected(error)
        _record(path, RunEnd(time.time(), known.to_json(), known.exit_code, f"[{known.code}] {_what(known)}", epochs))
        raise
    else:
        _record(path, RunEnd(time.time(), {}, 0, "", epochs))


def _record(path: Path, end: RunEnd) -> None:
    _write(path, asdict(end))


def _write(path: Path, values: Mapping[str, Any]) -> None:
    with suppress(OSError):  # if the disk is full, only this record is missing
        replace_file(path, json.dumps(values, ensure_ascii=False), durable=False)


def has_recorded_end(config: TaskConfig) -> bool:
    """Whether the last run on this machine has recorded its end."""
    return _path(config).exists()


def last_end(config: TaskConfig, moved_at: float, epochs: Mapping[str, int]) -> RunEnd | None:
    """Returns how the last run on this machine ended; None if it was killed, or if another run continues the task."""
    try:
        found = json.loads(_path(config).read_text("utf-8"))
        end = RunEnd(
            float(found["at"]),
            dict(found["error"]),
            int(found["exit_code"]),
            str(found["text"]),
            {str(source): int(epoch) for source, epoch in dict(found["epochs"]).items()},
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if end.is_over(moved_at, epochs) else end


def _path(config: TaskConfig) -> Path:
    return config.relay / f"{config.name}.ended"


def _unexpected(error: Exception) -> PidtsError:
    what = f"{type(error).__name__}: {error}".partition("\n")[0]
    todo = "This is a bug in pidts; the output of the run has the traceback, or names the file that has it"
    return PidtsError("unexpected", what, todo=todo)


def _what(error: PidtsError) -> str:
    where = str(error.where)
    return f"{error.what} ({where})" if where else error.what
