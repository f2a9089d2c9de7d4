"""Runs the replicator as a separate process, so that it receives the log even while Spark dies and restarts.

The child process reads the task file itself, so its arguments contain no secret. The kernel ends the child when its
parent ends. The relay's lock prevents two replicators from writing at the same time. If the child ends because of an
error, it prints this error as its last line.

The parent is the run, or a process that forks replicators for the run (`fork_replicators`). The kernel ends the forking
process when the run ends. If only the forking process is killed, its replicators end with it. The run then starts
replicators as programs.
"""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

import structlog

from pidts.follow.follower import Follower, FollowerConfig
from pidts.follow.served_relay import ServedSource
from pidts.forked import ForkedProcess, Forker, end_with_parent, fork_forker
from pidts.hidden_modules import hide_modules
from pidts.model import Checkpoint, Halted, LogFile, Lsn, PidtsError, Position, Transient, Where
from pidts.process_end import end_process
from pidts.relay.lock import RELAY_IN_USE
from pidts.relay.permissions import make_folder, private_files, private_opener
from pidts.replicate import (
    AppliedPlace,
    HeartbeatConfig,
    ReceiveProblem,
    Replicator,
    ReplicatorConfig,
    is_silent,
    not_receiving,
    read_status,
    run_receiver,
)
from pidts.task.config.task_file import TaskConfig, load_part
from pidts.task.run.relay_refetch import RelayRefetch
from pidts.task.threads_per_source import side_by_side

if TYPE_CHECKING:
    from pidts.follow.server import RelayEndpoint

_log = structlog.get_logger(__name__)

_PROGRAM = "pidts.task.run.replicator_process"
_HEALTHY_SECONDS = 30.0
_SERVED = "another task's replicator writes this relay"
_MOST_FAULTS = 5
_CONNECT_SECONDS = 20.0
_LOOK_SECONDS = 1.0
"""The interval at which a wait for the connection reads the replicator's status."""
_FIRST_STATUS_SECONDS = 300.0
"""The time after its start that a replicator may need to write its first status, on a busy machine."""


def replicator_config(config: TaskConfig, start: Position | str | AppliedPlace | None) -> ReplicatorConfig:
    """Returns the configuration of a task's replicator; `start` is for an empty relay."""
    begin = config.source.start if start is None else start
    heartbeat = HeartbeatConfig(config.heartbeat, config.heartbeat_schema, config.name) if config.heartbeat else None
    return ReplicatorConfig(
        config.source.server, config.relay, begin, config.source.use_gtid, written_heartbeat=heartbeat
    )


def receiver(
    config: TaskConfig, start: Position | str | AppliedPlace | None = None
) -> Callable[[threading.Event], None]:
    """Returns the function that receives a source's log into the relay, as a replicator or as a follower."""
    if config.relay_from is None:
        return Replicator(replicator_config(config, start)).run
    begin = config.source.start if start is None else start
    if isinstance(begin, str):
        raise Halted(
            "relay-start",
            "a relay server needs a position of the log as the start, and this start is a GTID set",
            where=Where(source=config.source.source_id, file=str(config.path)),
            todo="Give the start as meta: {binlog-name, binlog-pos}",
        )
    origin, source_id = config.relay_from, config.source.source_id
    return Follower(FollowerConfig(origin.address, source_id, config.relay, origin.name, begin)).run


def replicate(parts: Sequence[TaskConfig], stop: threading.Event, listening: RelayEndpoint | None = None) -> None:
    """Runs the receivers in this process until `stop` is set. Serves their relays if an address is given."""
    with private_files(), ExitStack() as cleanup:
        if listening is not None:
            from pidts.follow.server import relay_server  # loads a web server, which most replicators do not need

            served = [
                ServedSource(part.source.server, part.relay, part.relay_keep, RelayRefetch(part)) for part in parts
            ]
            url = cleanup.enter_context(relay_server(served, listening))
            print(f"note: the relay is served at {url}", file=sys.stderr, flush=True)  # noqa: T201 - for whoever started it
        side_by_side({part.source.source_id: receiver(part) for part in parts}, stop)


@dataclass(frozen=True, slots=True)
class ReplicatorWaits:
    """The pauses before a replicator that has ended is started again, and the wait for the relay's lock, in seconds."""

    first_pause: float = 0.2
    longest_pause: float = 10.0
    lock: float = 15.0


_USUAL_WAITS = ReplicatorWaits()


def because_of(lack: ReceiveProblem | None) -> str:
    """Returns the end of a message about a wait: why no log is received; empty if log is received."""
    return f": {lack.error.what}" if lack is not None else ""


@dataclass(slots=True)
class ReplicatorProcess:
    """Keeps one replicator running, or one follower of a relay server."""

    config: TaskConfig
    start_at: str = ""
    """The position or GTID set at which an empty relay begins; empty for the start in the task file."""
    resume_at: Checkpoint | None = None
    """The target's checkpoint: an empty relay begins there, and continues its Lsns. If None, `start_at` decides."""
    forker: Forker | None = None
    """Forks the replicator, if there is a forker: the replicator then shares the loaded modules."""
    waits: ReplicatorWaits = _USUAL_WAITS
    _child: subprocess.Popen[bytes] | ForkedProcess | None = None
    _output: IO[bytes] | None = None
    _started: float = 0.0
    _started_at: float = 0.0
    """The time of the start in seconds since 1970."""
    _has_connected: bool = False
    """Whether the source's log was received since the child was last started."""
    _pause: float = field(init=False)
    _not_before: float | None = None
    _locked_out_since: float | None = None
    _is_locked_out: bool = False
    """Whether the replicator has last ended because a process that does not respond has the relay's lock."""
    _faults: int = 0
    _lack: str = ""
    """The error code that was logged last as the reason why no log is received; empty if log is received."""
    _served: bool = False
    """Whether the relay is shared, and another task's replicator receives the log. This run's replicator is then
    started again and again, so that it takes over when the other replicator ends.
    """

    def __post_init__(self) -> None:
        self._pause = self.waits.first_pause

    def start(self) -> None:
        """Starts the child process if it does not run; it writes its log lines to a file in the relay's folder."""
        if self._child is not None and self._child.poll() is None:
            return
        folder = self.config.relay / self.config.source.source_id
        make_folder(folder)
        arguments = [str(self.config.path), "--source", self.config.source.source_id]
        if self.resume_at is not None:
            at = self.resume_at
            log_file = at.log_file.dumps() if at.log_file is not None else ""
            arguments += ["--applied", json.dumps([str(at.lsn), at.position, at.gtid, log_file])]
        elif self.start_at:
            arguments += ["--from", self.start_at]
        with open(folder / "replicator.log", "ab", opener=private_opener) as log:
            reading, writing = os.pipe()
            self._output = os.fdopen(reading, "rb")
            try:
                self._child = self._forked(arguments, writing, log.fileno()) or subprocess.Popen(
                    [sys.executable, "-m", _PROGRAM, *arguments, "--parent", str(os.getpid())],
                    stdin=subprocess.DEVNULL,
                    stdout=writing,
                    stderr=log,
                    start_new_session=True,
                )
            finally:
                os.close(writing)
        self._started, self._started_at = time.monotonic(), time.time()
        self._not_before = None
        if not self._served:
            self._has_connected = False

    def _forked(self, arguments: Sequence[str], output: int, errors: int) -> ForkedProcess | None:
        if self.forker is None:
            return None
        title = f"pidts-replicate {self.config.name} {self.config.source.source_id}"
        return self.forker.fork(title, arguments, output, errors)

    def watch(self) -> None:
        """Restarts the child process if it died, with growing pauses; raises its error if a restart cannot help."""
        if self._child is None or self._child.poll() is None:
            return
        now = time.monotonic()
        if self._not_before is None:
            reason = self._reason(now)
            healthy = now - self._started > _HEALTHY_SECONDS
            self._pause = self.waits.first_pause if healthy else min(self._pause * 2, self.waits.longest_pause)
            if reason == _SERVED:
                self._pause = self.waits.longest_pause
            self._not_before = now + self._pause
            if not (self._served and reason == _SERVED):
                _log.warning("replicator ended, starting it again", reason=reason, pause=self._pause)
            self._served = reason == _SERVED
        if now >= self._not_before:
            self.start()

    def _reason(self, now: float) -> str:
        """Returns the reason why the child has ended, or raises a final error. A child without output has crashed."""
        assert self._child is not None, "watch() has looked"  # noqa: S101
        assert self._output is not None, "it comes with the child"  # noqa: S101
        with self._output:
            said = self._output.read().strip()
        if not said:
            self._locked_out_since, self._is_locked_out = None, False
            code = self._child.wait()
            self._faults = self._faults + 1 if code > 0 else 0
            if self._faults > _MOST_FAULTS:
                log = self.config.relay / self.config.source.source_id / "replicator.log"
                raise PidtsError("replicator-failed", "the replicator crashes again and again", todo=f"Read {log}")
            return f"exit code {code}"
        error = json.loads(said.splitlines()[-1])
        if error["code"] == RELAY_IN_USE:
            self._is_locked_out = not self._is_served()
            if not self._is_locked_out:
                self._locked_out_since = None
                return _SERVED
            self._locked_out_since = self._locked_out_since or now
            if now - self._locked_out_since < self.waits.lock:
                return f"[{error['code']}] {error['what']}"
            self._child = self._locked_out_since = None
            todo = (
                "The task tries again by itself as long as that process has the relay. The process does not respond: "
                "if it belongs to a run that was replaced, end that run"
            )
            raise Transient(RELAY_IN_USE, error["what"], where=Where(**error["where"]), todo=todo)
        raise Halted(error["code"], error["what"], where=Where(**error["where"]), todo=error["todo"])

    def await_connection(self, stop: threading.Event, show_step: Callable[[str], None]) -> bool:
        """Waits until a replicator is connected. Raises if it refuses the source, for example because log is lost.

        Returns False if `stop` was set meanwhile, otherwise True. If the connection takes long, for example on a full
        disk, the wait ends, and the run finds a later error. `show_step` receives a text about the wait.
        """
        began = look_at = time.monotonic()
        while not self.has_connected and time.monotonic() < began + _CONNECT_SECONDS:
            self.watch()
            if stop.wait(0.02):
                return False
            if time.monotonic() > look_at + _LOOK_SECONDS:
                look_at = time.monotonic()
                show_step(f"waiting until the replicator is connected to the source{because_of(self.lack())}")
        return True

    def lack(self) -> ReceiveProblem | None:
        """Returns the reason why the source's log is not received; None if it is received.

        Writes a log line of the run when the source's log is no longer received, and when it is received again.
        """
        source = self.config.source.source_id
        found = not_receiving(self.config.relay, source)
        is_new = time.time() - self._started_at < _FIRST_STATUS_SECONDS
        if found is not None and is_new and not self._is_locked_out and found.heard_at < self._started_at:
            found = None  # The previous replicator has written this status.
        before, code = self._lack, found.error.code if found else ""
        if found is not None and code != before:
            what, todo = found.error.what, found.error.todo
            file = {"file": found.error.where.file} if found.error.where.file else {}
            _log.warning(
                "the replicator does not receive the log", source=source, code=code, what=what, **file, todo=todo
            )
        elif code != before:
            _log.info("the replicator receives the log again", source=source, code=before)
        self._lack = code
        return found

    @property
    def has_connected(self) -> bool:
        """Whether a replicator has been connected to the source since the child was last started.

        Before the connection, nobody knows whether the source has log that the relay lacks. The status file of an
        earlier replicator does not count.
        """
        if not self._has_connected:
            status = self.status() or {}
            self._has_connected = bool(status.get("connected")) and float(status["time"]) >= self._started_at
        return self._has_connected

    @property
    def status_stamp(self) -> int:
        """Returns a number that changes whenever the replicator writes its status. The call costs little."""
        try:
            return (self.config.relay / self.config.source.source_id / "status.json").stat().st_mtime_ns
        except OSError:
            return 0

    def status(self) -> Mapping[str, Any] | None:
        """Returns the replicator's last status; None if it cannot be read."""
        try:
            return read_status(self.config.relay, self.config.source.source_id)
        except (OSError, ValueError):
            return None

    def _is_served(self) -> bool:
        """Whether the process that has the relay's lock writes its status regularly."""
        status = read_status(self.config.relay, self.config.source.source_id)
        return status is not None and not is_silent(status)

    def stop(self) -> None:
        """Ends the child process. The relay is valid at any moment, so nothing has to be repaired."""
        if self._child is None:
            return
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        if self._output is not None:
            self._output.close()


class NoReplicator(ReplicatorProcess):
    """Represents a replicator on another machine, which writes the relay on a file system that both share."""

    def start(self) -> None:
        """Starts nothing."""

    def watch(self) -> None:
        """Watches nothing; `lack` contains the report of the other machine's replicator."""

    def stop(self) -> None:
        """Stops nothing."""


class _LogLines(io.TextIOBase):
    """Standard error; lines are dropped while the disk is full.

    Standard error is `replicator.log` on the relay's disk. The status and the run's log report that the disk is full.
    """

    def write(self, text: str) -> int:
        try:
            os.write(sys.stderr.fileno(), text.encode("utf-8", "backslashreplace"))
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
        return len(text)


def log_to_stderr() -> None:
    """Makes this process log to standard error (`_LogLines`)."""
    structlog.reset_defaults()  # a forked process has the log options of its parent's command line
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _LogLines())))


def fork_replicators() -> Forker:
    """Forks the process from which replicators will be forked; this process must not have threads yet.

    The replicators share the modules that are loaded now, so load the modules that they need before this call.
    """
    return fork_forker("pidts-forker", lambda forker, arguments: main([*arguments, "--parent", str(forker)]))


def main(words: Sequence[str]) -> int:
    """Runs the program with these arguments and returns its exit code."""
    arguments = argparse.ArgumentParser(description="Carry a source's log into the relay of a task.")
    arguments.add_argument("task", type=Path)
    arguments.add_argument("--source", required=True)
    arguments.add_argument("--from", dest="start_at", default="")
    arguments.add_argument("--applied", default="")
    arguments.add_argument("--parent", type=int, required=True)
    given = arguments.parse_args(words)
    # The relay is valid after every byte, so the kernel may kill the process at any moment.
    end_with_parent(given.parent)
    log_to_stderr()
    with private_files():
        return _replicate(given)


def _replicate(given: argparse.Namespace) -> int:
    start = _applied(given.applied) if given.applied else _start(given.start_at)
    config = load_part(given.task, given.source)

    def receive(stop: threading.Event) -> None:
        receiver(config, start)(stop)

    return run_receiver(receive)


def _applied(text: str) -> AppliedPlace:
    lsn, position, gtid_set, log_file = json.loads(text)
    known = LogFile.load(json.loads(log_file)) if log_file else None
    return AppliedPlace(Lsn.parse(lsn), position, gtid_set, known)


def _start(text: str) -> Position | str | None:
    """Returns the start as a position (its file name has a dot) or a GTID set; None for an empty text."""
    if not text:
        return None
    try:
        return Position.parse(text)
    except ValueError:
        return text


if __name__ == "__main__":
    hide_modules()
    end_process(main(sys.argv[1:]))
