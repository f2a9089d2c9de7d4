"""The replicator as a process of its own: Spark may die and start again without the stream being cut.

The child reads the task file itself, so that no secret stands in its arguments. It ends with its parent (the kernel
tells it), and the relay's lock keeps an orphan and its successor apart. What made it stop for good is the last that it
prints.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from pidts.model import Checkpoint, Halted, Lsn, PidtsError, Position, Where
from pidts.replicate import Applied, Replicator, ReplicatorConfig, is_silent, read_status, run_process
from pidts.task.compose import source_config
from pidts.task.config import TaskConfig, load_part
from pidts.task.side_by_side import side_by_side

_log = structlog.get_logger(__name__)

_PR_SET_PDEATHSIG = 1
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_HEALTHY_SECONDS = 30.0
_LOCK_WAIT_CODE = "relay-in-use"
"""Not final: a predecessor that was killed may take a moment to go."""
_LOCK_WAIT_SECONDS = 15.0
_SERVED = "another task's replicator fills this relay"
_MOST_FAULTS = 5


def replicator_config(config: TaskConfig, start: Position | str | Applied | None = None) -> ReplicatorConfig:
    """What the replicator of a task does; `start` is for an empty relay."""
    begin = config.source.start if start is None else start
    return ReplicatorConfig(source_config(config), config.relay, begin, config.source.use_gtid)


def replicate(parts: Sequence[TaskConfig], stop: threading.Event) -> None:
    """The replicators in this very process, until told to stop."""
    side_by_side({part.source.source_id: Replicator(replicator_config(part)).run for part in parts}, stop)


@dataclass(slots=True)
class ReplicatorProcess:
    """Keeps one replicator running."""

    config: TaskConfig
    start_at: str = ""
    """Position or GTID set to begin an empty relay with; empty for where the task file says."""
    resume_at: Checkpoint | None = None
    """What the target has: an empty relay begins there, and its Lsns go on."""
    _child: subprocess.Popen[bytes] | None = None
    _started: float = 0.0
    _pause: float = _FIRST_PAUSE
    _not_before: float | None = None
    _locked_out_since: float | None = None
    _faults: int = 0
    _served: bool = False
    """Another task that shares the relay has the replicator; ours is tried again, to take over when that one ends."""

    def start(self) -> None:
        """Start the child unless it runs; its log goes to a file beside the relay."""
        if self._child is not None and self._child.poll() is None:
            return
        folder = self.config.relay / self.config.source.source_id
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pidts.task.replicator_process", str(self.config.path)]
        command += ["--source", self.config.source.source_id]
        if self.resume_at is not None:
            at = self.resume_at
            command += ["--applied", json.dumps([str(at.lsn), at.position, at.gtid])]
        elif self.start_at:
            command += ["--from", self.start_at]
        with (folder / "replicator.log").open("ab") as log:
            self._child = subprocess.Popen(
                [*command, "--parent", str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._started = time.monotonic()
        self._not_before = None

    def watch(self) -> None:
        """Start the child again if it died, not too often; raises what it stopped for where that is final."""
        if self._child is None or self._child.poll() is None:
            return
        now = time.monotonic()
        if self._not_before is None:
            reason = self._reason(now)
            healthy = now - self._started > _HEALTHY_SECONDS
            self._pause = _FIRST_PAUSE if healthy else min(self._pause * 2, _LONGEST_PAUSE)
            if reason == _SERVED:
                self._pause = _LONGEST_PAUSE
            self._not_before = now + self._pause
            if not (self._served and reason == _SERVED):
                _log.warning("replicator ended, starting it again", reason=reason, pause=self._pause)
            self._served = reason == _SERVED
        if now >= self._not_before:
            self.start()

    def _reason(self, now: float) -> str:
        """Why it ended. A killed child has said nothing; one that exits by itself has said why, and may be final."""
        assert self._child is not None, "watch() has looked"  # noqa: S101
        assert self._child.stdout is not None, "it is a pipe"  # noqa: S101
        said = self._child.stdout.read().strip()
        self._child.stdout.close()
        if not said:
            self._locked_out_since = None
            self._faults = self._faults + 1 if self._child.returncode > 0 else 0
            if self._faults > _MOST_FAULTS:
                log = self.config.relay / self.config.source.source_id / "replicator.log"
                raise PidtsError("replicator-failed", "the replicator ends with a fault of its own", todo=f"See {log}")
            return f"exit code {self._child.returncode}"
        error = json.loads(said.splitlines()[-1])
        if error["code"] == _LOCK_WAIT_CODE:
            if self._is_served():
                self._locked_out_since = None
                return _SERVED
            self._locked_out_since = self._locked_out_since or now
            if now - self._locked_out_since < _LOCK_WAIT_SECONDS:
                return f"[{error['code']}] {error['what']}"
        raise Halted(error["code"], error["what"], where=Where(**error["where"]), todo=error["todo"])

    def _is_served(self) -> bool:
        """Whether the one that has the lock is at work, and not only hanging in it."""
        status = read_status(self.config.relay, self.config.source.source_id)
        return status is not None and not is_silent(status)

    def stop(self) -> None:
        """End the child; the relay is whole at any moment, so there is nothing to wait for but the process."""
        if self._child is None:
            return
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        if self._child.stdout is not None:
            self._child.stdout.close()


def _end_with(parent: int) -> None:
    # The relay is whole at every byte, so nothing gentler is needed, and nothing gentler is as sure.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It died before the kernel was asked to tell us.
        sys.exit(0)


def _main() -> int:
    arguments = argparse.ArgumentParser(description="Carry a source's log into the relay of a task.")
    arguments.add_argument("task", type=Path)
    arguments.add_argument("--source", required=True)
    arguments.add_argument("--from", dest="start_at", default="")
    arguments.add_argument("--applied", default="")
    arguments.add_argument("--parent", type=int, required=True)
    given = arguments.parse_args()
    _end_with(given.parent)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    start = _applied(given.applied) if given.applied else _start(given.start_at)
    return run_process(replicator_config(load_part(given.task, given.source), start))


def _applied(text: str) -> Applied:
    lsn, position, gtid_set = json.loads(text)
    return Applied(Lsn.parse(lsn), position, gtid_set)


def _start(text: str) -> Position | str | None:
    """A position has a file name with a dot before its last colon; everything else is a GTID set."""
    if not text:
        return None
    try:
        return Position.parse(text)
    except ValueError:
        return text


if __name__ == "__main__":
    sys.exit(_main())
