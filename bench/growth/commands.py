"""Runs PiDTS's commands, and measures the CPU time and memory of all their processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

import beside  # noqa: F401 - makes the next imports possible
from curves import Spent
from idle import TICKS, below, kind

_PIDTS = [sys.executable, "-m", "pidts"]
_SAMPLE_SECONDS = 0.25
_MEMORY_EVERY = 2
"""One of this number of samples also measures the memory, which takes the kernel longer."""
_ASK_SECONDS = 0.02
_PATIENCE = 3600.0


class Meter:
    """Samples processes and all their descendants while its block lasts.

    For a process that has ended, the last sample counts.
    """

    def __init__(self, roots: Mapping[str, int]) -> None:
        """`roots` has process ids by name.

        `driver` and its descendants are counted by kind of process, all others under their root's name.
        """
        self._roots = roots
        self._used: dict[tuple[int, str], tuple[str, int]] = {}
        self._highest = 0.0
        self._samples = 0
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def spent(self) -> Spent:
        """Returns the CPU time, time and memory used since the start."""
        self._sample()
        with self._lock:
            processes: dict[str, float] = {}
            for name, ticks in self._used.values():
                processes[name] = processes.get(name, 0.0) + ticks / TICKS
            seconds = time.monotonic() - self._begun
            return Spent(sum(processes.values()), seconds, round(self._highest), processes)

    def since(self, before: Spent) -> Spent:
        """Returns the CPU time and time used since the reading `before`, and the highest memory since the start."""
        now = self.spent()
        processes = {name: cpu - before.processes.get(name, 0.0) for name, cpu in now.processes.items()}
        return replace(now, cpu=now.cpu - before.cpu, seconds=now.seconds - before.seconds, processes=processes)

    def _work(self) -> None:
        while not self._is_over.wait(_SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        with self._lock:
            self._samples += 1
            mb = 0.0
            for name, root in self._roots.items():
                for pid in below(root):
                    with suppress(OSError, ValueError, IndexError):
                        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                        ticks, started = int(fields[11]) + int(fields[12]), fields[19]
                        what = kind(pid, root) if name == "driver" else name
                        before = self._used.get((pid, started), (what, 0))[0]
                        # A process that has just ended has no command line any more.
                        self._used[pid, started] = before if what == "other" else what, ticks
                        mb += _pss(pid) if self._samples % _MEMORY_EVERY == 0 else 0.0
            self._highest = max(self._highest, mb)


def _pss(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def until_synced(task: Path, *, amount: int = 0) -> Spent:
    """Runs the task until the target has all changes that the source has now.

    Returns the CPU time, time and memory of the whole run, with its start and its end.
    """
    with _running(task, "--until-synced") as (run, meter, log):
        deadline = time.monotonic() + _PATIENCE
        while run.poll() is None:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not synced within {_PATIENCE:.0f} seconds\n{_end_of(log)}")
            time.sleep(_ASK_SECONDS)
        if run.returncode:
            raise RuntimeError(_end_of(log))
        return replace(meter.spent(), amount=amount)


@contextmanager
def following(
    task: Path, roots: Mapping[str, int] | None = None
) -> Iterator[tuple[Meter, Callable[[Callable[[], bool]], None]]]:
    """Runs the task while the block lasts. Yields the task's meter, and a function that waits for a condition."""
    with _running(task, roots=roots) as (run, meter, log):

        def wait_until(is_there: Callable[[], bool]) -> None:
            deadline = time.monotonic() + _PATIENCE
            while not is_there():
                if run.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the changes have not arrived on the target\n{_end_of(log)}")
                time.sleep(_ASK_SECONDS)

        yield meter, wait_until


def status(task: Path) -> Spent:
    """Returns the CPU time, time and memory of `pidts status` for the task."""
    with _running(task, "--json", command="status") as (run, meter, log):
        if run.wait(_PATIENCE):
            raise RuntimeError(_end_of(log))
        return meter.spent()


@contextmanager
def _running(
    task: Path, *options: str, command: str = "run", roots: Mapping[str, int] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], Meter, Path]]:
    log = task.with_suffix(".log")
    with log.open("wb") as output:
        run = subprocess.Popen(
            [*_PIDTS, command, str(task), *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "TMPDIR": str(task.parent)},
        )
    try:
        with Meter({"driver": run.pid, **(roots or {})}) as meter:
            yield run, meter, log
    finally:
        run.send_signal(signal.SIGTERM)
        try:
            run.wait(120)
        finally:
            run.kill()


def _end_of(log: Path) -> str:
    return log.read_text()[-3000:]
