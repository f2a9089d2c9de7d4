"""Writes the names of the tests that failed to a file. `./test` reads the file to run these tests again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FILE = "PIDTS_FAILED_TESTS"
"""The environment variable that names the file."""


class FailedTests:
    """Collects the results that workers report, and the test in which a worker died."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        # The variable is removed from the environment, because programs that tests start may run tests, too.
        self._file = os.environ.pop(FILE, "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._names[report.nodeid] = None

    def pytest_sessionfinish(self) -> None:
        if self._file:
            Path(self._file).write_text("".join(f"{one}\n" for one in self._names), "utf-8")
