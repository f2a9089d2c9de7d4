"""Prints after a run how much processor time each test file took, and names each file over its budget.

This is the time of the worker and of all processes below it: servers, JVMs, PiDTS's own programs. Unlike the elapsed
time, it hardly depends on other work of the machine. If several files share a server, each file is charged with the
work that the server does for this file. A file's budget depends on what its tests need: nothing, a server, or Spark.
The last line shows for how long each worker had no test to run at the end. If this is long, a long file began too late.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

BUDGETS = {"spark": 60.0, "server": 45.0, "": 30.0}
"""The budget for all tests of one file in seconds, by the most expensive resource that one of them needs."""
SHOWN = 5.0
"""Files that take less time are not listed."""
PROPERTY = "processor-seconds"
_TICKS = os.sysconf("SC_CLK_TCK")


class FileClock:
    """Measures the files of this worker. The last test of a file reports the file's time."""

    def __init__(self) -> None:
        self._file: Path | None = None
        self._began = 0.0
        self._is_last = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        if item.path != self._file:
            self._file, self._began = item.path, processor_seconds()
        self._is_last = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Iterator[None]:
        report: pytest.TestReport = yield
        if call.when == "teardown" and self._is_last:
            report.user_properties.append((PROPERTY, processor_seconds() - self._began))
        return report


class FileTimes:
    """Adds up the times that workers report."""

    def __init__(self) -> None:
        self._waited: defaultdict[str, float] = defaultdict(float)
        self._processor: defaultdict[str, float] = defaultdict(float)
        self._needs: defaultdict[str, set[str]] = defaultdict(set)
        self._ended: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._waited[file] += report.duration
        self._processor[file] += sum(value for name, value in report.user_properties if name == PROPERTY)
        self._needs[file] |= {need for need in BUDGETS if need in report.keywords}
        if worker := getattr(report, "worker_id", ""):
            self._ended[worker] = time.monotonic()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        times = self._processor
        slow = sorted((file for file, took in times.items() if took >= SHOWN), key=lambda file: -times[file])
        if not slow:
            return
        terminalreporter.section("processor time per file, and time on the clock")
        for file in slow:
            budget = self._budget(file)
            over = f"  over its budget of {budget:.0f} s" if times[file] > budget else ""
            terminalreporter.line(f"{times[file]:7.1f} s {self._waited[file]:7.1f} s  {file}{over}", yellow=bool(over))
        terminalreporter.line(f"{sum(times.values()):7.1f} s {sum(self._waited.values()):7.1f} s  all files")
        if self._ended:
            last = max(self._ended.values())
            idle = ", ".join(f"{worker} {last - ended:.0f} s" for worker, ended in sorted(self._ended.items()))
            terminalreporter.line(f"without tests before the end: {idle}")

    def _budget(self, file: str) -> float:
        return next(limit for need, limit in BUDGETS.items() if need in self._needs[file] or not need)


def processor_seconds() -> float:
    """Returns the processor time so far of this process and of all below it.

    Ended processes count if their parents still exist.
    """
    ticks: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # The process has ended.
            fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
            ticks[int(folder.name)] = sum(map(int, fields[11:15]))
            children[int(fields[1])].append(int(folder.name))
    total, left = 0, [os.getpid()]
    while left:
        process = left.pop()
        total += ticks.get(process, 0)
        left += children[process]
    return total / _TICKS
