"""Records which lines plain code has executed, and in which order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from tests.binlog.logs.twins import Outcome

import pidts.binlog

_PLAIN_CODE = str(Path(pidts.binlog.__file__).parent)
_COMPILED_CODE = str(Path(pidts.binlog.__file__).parent / "kernel")


class Coverage:
    """The steps from line to line that plain code has executed."""

    def __init__(self) -> None:
        self.steps: set[tuple[str, int, int]] = set()
        self._found: set[tuple[str, int, int]] = set()

    def run(self, work: Callable[[], Outcome | str]) -> tuple[Outcome | str, int]:
        """Returns the result of the code, and the number of steps that are new."""
        self._found = set()
        sys.settrace(self._call)
        try:
            outcome = work()
        finally:
            sys.settrace(None)
        new = self._found - self.steps
        self.steps |= new
        return outcome, len(new)

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_PLAIN_CODE) or file.startswith(_COMPILED_CODE):
            return None
        found, last = self._found, frame.f_lineno

        def line(frame: FrameType, _event: str, _argument: Any) -> Any:
            nonlocal last
            found.add((file, last, frame.f_lineno))
            last = frame.f_lineno
            return line

        return line
