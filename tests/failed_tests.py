"""The names of the tests that failed, in a file that `./test` reads to try them again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FILE = "PIDTS_FAILED_TESTS"
"""The variable of the environment that names the file."""


class FailedTests:
    """Collects what workers report, also of a test in which a worker died."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        # Taken out of the environment, for programs that tests start may run tests as well.
        self._file = os.environ.pop(FILE, "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._names[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        if self._file:
            Path(self._file).write_text("".join(f"{one}\n" for one in self._names), "utf-8")
