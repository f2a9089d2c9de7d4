"""`pidts run` in a process of its own, so that a test can kill each of its processes, and other commands with its task
file.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.forked_programs import LoadedPrograms
from tests.running import PIDTS

from pidts.forked import ForkedProcess

MAIN = "from pidts.cli.app import main; main()"


@dataclass
class Run:
    """One `pidts run`, and all processes that it has started."""

    process: subprocess.Popen[bytes] | ForkedProcess
    log: Path

    def pids(self, *words: str) -> list[int]:
        """Returns the processes below this run whose command line has all of these words."""
        found = []
        for pid in below(self.process.pid):
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                if all(word in command for word in words):
                    found.append(pid)
        return found

    def replicator(self) -> list[int]:
        return self.pids("pidts-replicate")

    def forker(self) -> list[int]:
        """Returns the process that forks the run's replicators."""
        return self.pids("pidts-forker")

    def jvm(self) -> list[int]:
        return self.pids("org.apache.spark.deploy.SparkSubmit")

    def workers(self) -> list[int]:
        """Returns Spark's Python workers: the children of its daemon."""
        daemons = self.pids("pyspark.daemon")
        return [pid for pid in daemons if _parent(pid) in daemons]

    def kill(self) -> None:
        """Kills the driver, as the kernel does when memory runs out."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout: float = 60) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def wait_until(self, claim: Callable[[], bool], what: str, seconds: float = 240) -> None:
        """Waits for a condition, as long as the run has not ended."""
        deadline = time.monotonic() + seconds
        while not claim():
            assert self.process.poll() is None, f"ended before this: {what}\n{self.log.read_text()[-8000:]}"
            assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{self.log.read_text()[-8000:]}"
            time.sleep(0.1)

    def summary(self) -> dict[str, Any]:
        """Stops the run. Returns what it prints at its end if it was started with `--json`."""
        assert self.stop() == 0, self.log.read_text()[-8000:]
        said: dict[str, Any] = json.loads(self.log.read_text().splitlines()[-1])
        return said


def below(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            children.setdefault(_parent(int(entry.name)), []).append(int(entry.name))
    found, open_pids = [], [root]
    while open_pids:
        below = children.get(open_pids.pop(), [])
        found += below
        open_pids += below
    return found


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


@dataclass
class Task:
    """A task file, and the commands that use it."""

    path: Path
    programs: LoadedPrograms | None = None
    """The process that forks the task's commands; without it, each command is a new program."""
    runs: list[Run] = field(default_factory=list)

    def start(
        self,
        *options: str,
        environment: Mapping[str, str] | None = None,
        before: str = "",
        command: str = "run",
    ) -> Run:
        """Starts a command. `before`: statements that its program runs first."""
        log = self.path.with_suffix(f".{len(self.runs)}.log")
        with log.open("wb") as output:
            words = [command, str(self.path), *options]
            if self.programs is not None and environment is None:
                run = Run(self.programs.start(words, output, output, before=before), log)
            else:
                program = [sys.executable, "-c", f"{before}\n{MAIN}"] if before else PIDTS
                process = subprocess.Popen(
                    [*program, *words],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                )
                run = Run(process, log)
        self.runs.append(run)
        return run

    def sync(self, timeout: float = 120) -> dict[str, Any]:
        """Runs until the target has all rows that the source has now.

        Returns the JSON that the command prints at its end.
        """
        run = self.start("--until-synced", "--json")
        try:
            code = run.process.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"not synced within {timeout} s:\n{self.logs()}")
        assert code == 0, self.logs()
        last: dict[str, Any] = json.loads(run.log.read_text().splitlines()[-1])
        for source in last["sources"]:
            self.check_mark(source["source"], source["applied"]["lsn"])
        return last

    def check_mark(self, source: str, applied: str) -> None:
        """Checks the need that an ended task has left in a shared relay: other tasks use it for purges."""
        for path in self.path.parent.glob(f"relay/{source}/needs/*.json"):
            assert applied in path.read_text()

    def command(
        self, *words: str, timeout: float = 120, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        if self.programs is not None and environment is None:
            return self.programs.run(words, timeout)
        return subprocess.run(
            [*PIDTS, *words],
            capture_output=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
            env=environment,
        )

    def logs(self) -> str:
        replicator = [path.read_text() for path in self.path.parent.glob("relay/*/replicator.log")]
        return "\n".join([run.log.read_text() for run in self.runs] + replicator)[-8000:]
