"""The reason of a pause. The run stores the reason in a file beside the relay, for `pidts status`.

The reason is not stored on the target, since the target may be the cause of the pause. The file names the process that
wrote it. So a file that a killed run has left does not count for a later run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pidts.durable_folder import replace_file
from pidts.model import PidtsError, Where
from pidts.model.errors import sentence
from pidts.task.config.task_file import TaskConfig


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause after a failed attempt. A pause ends when a later attempt commits a batch, or has nothing to commit."""

    error: PidtsError
    """The error of the last attempt."""
    since: float
    """The time of the first error of the pause, in seconds since 1970."""
    next_attempt: float
    """The time at which the next attempt begins, or has begun."""

    def __str__(self) -> str:
        again = datetime.fromtimestamp(self.next_attempt, UTC).strftime("%H:%M:%S")
        return f"{sentence(str(self.error))} The task tries again by itself at {again} UTC"

    def to_json(self) -> dict[str, Any]:
        """Returns plain values for JSON, which `of` reads."""
        return {**self.error.to_json(), "since": self.since, "next_attempt": self.next_attempt}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Pause:
        """Reads the values of `to_json`."""
        error = PidtsError(data["code"], data["what"], where=Where(**data["where"]), todo=data["todo"])
        return cls(error, float(data["since"]), float(data["next_attempt"]))


class PauseFile:
    """The file in which a run stores its present pauses. The file exists only while a source is paused.

    The run also removes this file at its start: in a container, the run may have the process id of an earlier run that
    was killed.
    """

    def __init__(self, config: TaskConfig) -> None:
        self._path, self._stored = _path(config), dict[str, Pause]()

    def __enter__(self) -> Self:
        self._remove()
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def store(self, pauses: Mapping[str, Pause]) -> None:
        """Stores the pause of each source that has one, if they have changed."""
        if pauses == self._stored:
            return
        self._remove()
        self._stored = dict(pauses)
        if pauses:
            sources = {source: pause.to_json() for source, pause in pauses.items()}
            text = json.dumps({"process": os.getpid(), "sources": sources}, ensure_ascii=False)
            with suppress(OSError):  # if the disk is full, only this record is missing
                replace_file(self._path, text, durable=False)

    def _remove(self) -> None:
        self._stored = {}
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def stored_pauses(config: TaskConfig, process: int) -> dict[str, Pause]:
    """Returns the pause of each source, as the process that runs the task on this machine has stored it."""
    try:
        found = json.loads(_path(config).read_text("utf-8"))
        if found["process"] != process:
            return {}
        return {str(source): Pause.of(pause) for source, pause in found["sources"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _path(config: TaskConfig) -> Path:
    return config.relay / f"{config.name}.paused"
