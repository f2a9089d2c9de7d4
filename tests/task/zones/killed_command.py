"""Runs a command of `pidts` that kills itself with SIGKILL at a chosen point, as if its machine were lost there.

The arguments are a file, a number and the arguments of the command. The file gets a line for each point that the
command reaches. The command is killed at the point with this number; with a number below zero, never.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pidts.cli.app import run_command
from pidts.target.mysql import MySqlSession
from pidts.task.zones import servers


class Points:
    """The points that the command has reached."""

    def __init__(self, file: Path, kills_at: int) -> None:
        self._file, self._kills_at, self._count = file, kills_at, 0

    def at(self, name: str) -> None:
        with self._file.open("a") as seen:
            seen.write(f"{name}\n")
        if self._count == self._kills_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self._count += 1

    def around(self, place: Any, name: str) -> None:
        """Makes two points of a function: before and after it."""
        work: Callable[..., Any] = getattr(place, name)

        def wrapped(*arguments: Any) -> Any:
            self.at(f"before {name}")
            found = work(*arguments)
            self.at(f"behind {name}")
            return found

        setattr(place, name, wrapped)


def main(file: str, kills_at: str, *words: str) -> int:
    points = Points(Path(file), int(kills_at))
    points.around(MySqlSession, "commit")
    points.around(servers, "query")
    points.around(servers, "_await")
    return run_command(words)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
