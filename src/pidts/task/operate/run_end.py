"""The error that the last run on this machine ended with, in a file beside the relay, for `pidts status`.

The target may not be able to record it: a damaged warehouse, or a database that is gone. The next run removes the file
at its start.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pidts.model import Fenced, Halted, PidtsError
from pidts.relay.permissions import private_opener
from pidts.task.config.task_file import TaskConfig

_CLOCKS_DIFFER = 60.0
"""The most seconds that two machines' clocks are expected to differ."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What a run has ended with."""

    at: float
    """Seconds since 1970."""
    error: dict[str, Any]
    """The error as `PidtsError.to_json` has it."""
    exit_code: int
    text: str
    """What happened, and where."""
    epochs: dict[str, int]
    """The epoch of the run's last claim of the task, by source."""

    @property
    def needs_operator(self) -> bool:
        """Whether another start would end in the same way."""
        return self.exit_code == Halted.exit_code

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {"at": self.at, "exit_code": self.exit_code, **self.error}

    def is_over(self, moved_at: float, epochs: Mapping[str, int]) -> bool:
        """Whether another run has gone on since, by the epochs of the checkpoints that the target has now.

        A run that its checks refuse has claimed nothing: then the time of the last commit says so.
        """
        if self.epochs:
            return any(epochs.get(source, 0) > epoch for source, epoch in self.epochs.items())
        return moved_at > self.at + _CLOCKS_DIFFER


@contextmanager
def remembered_end(config: TaskConfig) -> Iterator[dict[str, int]]:
    """Forgets the end of the run before, and remembers an error that ends this one.

    The run enters the epochs of its claims into what this yields. A run that was taken over has not ended the task:
    another one carries it on.
    """
    epochs: dict[str, int] = {}
    path = _path(config)
    with suppress(OSError):
        path.unlink(missing_ok=True)
    try:
        yield epochs
    except Fenced:
        raise
    except PidtsError as error:
        end = RunEnd(time.time(), error.to_json(), error.exit_code, f"[{error.code}] {_what(error)}", epochs)
        with suppress(OSError):  # of a full disk: only this is missing then
            _write(path, end)
        raise


def last_end(config: TaskConfig, moved_at: float, epochs: Mapping[str, int]) -> RunEnd | None:
    """Returns what the last run here ended with; None if it ended well, or if a run elsewhere has gone on since."""
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


def _what(error: PidtsError) -> str:
    where = str(error.where)
    return f"{error.what} ({where})" if where else error.what


def _write(path: Path, end: RunEnd) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    with open(draft, "w", encoding="utf-8", opener=private_opener) as file:
        json.dump(asdict(end), file, ensure_ascii=False)
    draft.replace(path)
