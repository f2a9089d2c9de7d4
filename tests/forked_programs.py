"""Forks PiDTS's programs from a process that has loaded them, as a service forks its tasks (`pidts.forked`).

Loading `pidts` takes a second of processor time, loading a run three seconds, and its replicator three more; the tests
start hundreds of these programs. A forked program is an ordinary process: it can be killed, and it gets arguments,
environment and folder from its caller. Other tests show that the programs also start by themselves: those of
`tests/cli` and `tests/docs`, the demo, and every replicator of a run.
"""

from __future__ import annotations

import atexit
import gc
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO

from pidts.forked import ForkedProcess, Forker, channel, serve_forks

LOADING_SECONDS = 300.0
"""The timeout for loading, in seconds: a first run on a machine compiles the decoder."""


@cache
def loaded_programs() -> LoadedPrograms:
    """Returns the loaded programs that all tests of this process share."""
    loaded = LoadedPrograms()
    atexit.register(loaded.close)
    return loaded


class LoadedPrograms:
    """A process that has loaded the programs and forks them. If it dies, the next test that uses it fails."""

    def __init__(self) -> None:
        ours, theirs = channel()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        ours.settimeout(LOADING_SECONDS)
        assert ours.recv(16) == b"ready"
        self._forker = Forker(ours)
        self.replicators = _Replicators(self._forker)

    def close(self) -> None:
        self._forker.close()
        self._process.wait(30)

    def start(
        self,
        words: Sequence[str],
        output: IO[bytes],
        errors: IO[bytes],
        more: Mapping[str, str] | None = None,
        before: str = "",
    ) -> ForkedProcess:
        """Starts `pidts` with these arguments. `more`: further environment variables. `before`: statements that the
        program runs first.
        """
        environment = {**os.environ, **(more or {})}
        begun = json.dumps({"environment": environment, "folder": str(Path.cwd()), "before": before})
        process = self._forker.fork("pidts", ["pidts", begun, *words], output.fileno(), errors.fileno())
        assert process is not None, "the process that forks has ended"
        return process

    def run(self, words: Sequence[str], timeout: float) -> subprocess.CompletedProcess[bytes]:
        """Runs `pidts` with these arguments to its end, as `subprocess.run` does."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            process = self.start(words, output, errors)
            try:
                code = process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(["pidts", *words], code, output.read(), errors.read())

    def text(self, words: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        """Runs `pidts` like `run`, and returns its output as text."""
        done = self.run(words, timeout)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


class _Replicators(Forker):
    """The process of `LoadedPrograms`, from which the replicators of tasks are forked."""

    def __init__(self, forker: Forker) -> None:
        self._forker = forker

    def fork(self, name: str, arguments: Sequence[str], output: int, errors: int) -> ForkedProcess | None:
        return self._forker.fork(name, ["replicator", *arguments], output, errors)


def _serve(descriptor: int) -> None:
    from pidts.hidden_modules import hide_modules

    hide_modules()
    import pidts.cli.app
    import pidts.cli.serve
    import pidts.cli.service.task_process
    import pidts.service.task_report
    import pidts.target.mysql
    import pidts.target.postgres
    import pidts.task.run.replicator_process
    import pidts.task.run.task_run
    import pidts.web.server
    from pidts.binlog.machine_code import compiled

    with suppress(ImportError):  # The packages of Hive targets are optional.
        import pidts.target.hive.session

    pidts.cli.app.parser(pidts.cli.app.app)
    del pidts
    if compiled():
        from pidts.batch.compile_ahead import compile_once
        from pidts.replicate.warm import warm

        compile_once()
        warm()
    gc.collect()
    gc.freeze()  # Otherwise, the garbage collector would write to pages that are shared with the forked processes.
    forker = os.getpid()
    with socket.socket(fileno=descriptor) as requests:
        requests.sendall(b"ready")
        serve_forks(requests, lambda arguments: _become(forker, *arguments))


def _become(forker: int, program: str, *words: str) -> int:
    if program == "replicator":
        from pidts.task.run.replicator_process import main as replicate

        return replicate([*words, "--parent", str(forker)])
    from pidts.cli.app import run_command

    signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = json.loads(words[0])
    os.environ.clear()
    os.environ.update(begun["environment"])
    os.chdir(begun["folder"])
    sys.argv = ["pidts", *words[1:]]
    exec(begun["before"], {})
    if words[1] == "serve":
        _fork_spawner()
    return run_command(words[1:])


def _fork_spawner() -> None:
    """Forks the process from which a service forks its tasks.

    By itself, the service would start a program that loads for seconds. It does so when it has lost this process.
    """
    from pidts.cli.service import spawner
    from pidts.service.spawned import Spawner
    from pidts.task.config.section import IN_SERVICE

    ours, theirs = channel()
    child = os.fork()
    if child == 0:
        ours.close()
        os.setsid()
        os.chdir("/")
        os.environ |= {IN_SERVICE: "1", "OPENBLAS_NUM_THREADS": "1"}
        theirs.sendall(b"ready")
        serve_forks(theirs, spawner._run_forked_task)
        os._exit(0)
    theirs.close()
    usual = Spawner._begin

    def begin(self: Spawner) -> None:
        Spawner._begin = usual  # type: ignore[method-assign]
        self._began, self._ours, self._process = time.monotonic(), ours, _Child(child)  # type: ignore[assignment]

    Spawner._begin = begin  # type: ignore[method-assign]


class _Child:
    """The forked process, in the form of a program that the service has started."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def wait(self, timeout: float = math.inf) -> None:
        until = time.monotonic() + timeout
        while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("spawner", timeout)
            time.sleep(0.01)

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.path[0] = ""  # This folder has modules with the same names as modules of PiDTS.
    _serve(int(sys.argv[1]))
