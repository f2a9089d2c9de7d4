"""The error that the last run on this machine ended with, in a file beside the relay, for `pidts status`.

The target may not be able to record it: a damaged warehouse, or a database that is gone. The next run removes the file
at its start.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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

    @property
    def needs_operator(self) -> bool:
        """Whether another start would end in the same way."""
        return self.exit_code == Halted.exit_code

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        return {"at": self.at, "exit_code": self.exit_code, **self.error}


@contextmanager
def remembered_end(config: TaskConfig) -> Iterator[None]:
    """Forgets the end of the run before, and remembers an error that ends this one.

    A run that was taken over has not ended the task: another one carries it on.
    """
    path = _path(config)
    with suppress(OSError):
        path.unlink(missing_ok=True)
    try:
        yield
    except Fenced:
        raise
    except PidtsError as error:
        end = RunEnd(time.time(), error.to_json(), error.exit_code, f"[{error.code}] {_what(error)}")
        with suppress(OSError):  # of a full disk: only this is missing then
            _write(path, end)
        raise


def last_end(config: TaskConfig, moved_at: float) -> RunEnd | None:
    """Returns what the last run here ended with; None if it ended well, or if a run elsewhere has moved on since."""
    try:
        found = json.loads(_path(config).read_text("utf-8"))
        end = RunEnd(float(found["at"]), dict(found["error"]), int(found["exit_code"]), str(found["text"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return end if moved_at <= end.at + _CLOCKS_DIFFER else None


def _path(config: TaskConfig) -> Path:
    return config.relay / f"{config.name}.ended"


def _what(error: PidtsError) -> str:
    where = str(error.where)
    return f"{error.what} ({where})" if where else error.what


def _write(path: Path, end: RunEnd) -> None:
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    value = {"at": end.at, "error": end.error, "exit_code": end.exit_code, "text": end.text}
    with open(draft, "w", encoding="utf-8", opener=private_opener) as file:
        json.dump(value, file, ensure_ascii=False)
    draft.replace(path)
