"""How long each test file takes, printed behind a run; a file over its budget is named.

A file's budget follows from what its tests need: nothing, a server, or Spark. A busy machine takes longer, so a file
over its budget is a warning, never a failure.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

BUDGETS = {"spark": 90.0, "server": 45.0, "": 20.0}
"""Seconds for all tests of one file, by the most expensive thing that one of them needs."""
SHOWN = 10.0
"""Files that take less are left out of the list."""


class FileTimes:
    """Adds up the durations that workers report."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._needs: defaultdict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._seconds[file] += report.duration
        self._needs[file] |= {need for need in BUDGETS if need in report.keywords}

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        slow = sorted(
            (file for file, took in self._seconds.items() if took >= SHOWN), key=lambda file: -self._seconds[file]
        )
        if not slow:
            return
        terminalreporter.section("time per file")
        for file in slow:
            budget = next(limit for need, limit in BUDGETS.items() if need in self._needs[file] or not need)
            over = f"  over its budget of {budget:.0f} s" if self._seconds[file] > budget else ""
            terminalreporter.line(f"{self._seconds[file]:7.1f} s  {file}{over}", yellow=bool(over))
