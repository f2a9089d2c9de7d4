"""Our own programs, forked from a process that has loaded them, as a service forks its tasks (`pidts.forked`).

`pidts` takes a second of processor time to load, a run of a task three and its replicator three more; the tests start
hundreds of them. A forked one is a process like any other: it is killed like one, and gets its words, its environment and
its folder from whoever asks for it. That the programs also start by themselves is what other tests show: those of
`tests/cli` and `tests/docs`, the demo, and every replicator of a run.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from pidts.forked import ForkedProcess, Forker, channel, serve_forks

LOADING_SECONDS = 300.0
"""A first run on a machine compiles the decoder."""


@cache
def loaded_programs() -> LoadedPrograms:
    """The ones that this process's tests share."""
    loaded = LoadedPrograms()
    atexit.register(loaded.close)
    return loaded


class LoadedPrograms:
    """A process that has loaded our programs and forks them; a lost one is missed by the next test that asks."""

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
        self, words: Sequence[str], output: IO[bytes], errors: IO[bytes], more: Mapping[str, str] | None = None
    ) -> ForkedProcess:
        """Starts `pidts` with these words, and `more` than the environment."""
        begun = json.dumps({"environment": {**os.environ, **(more or {})}, "folder": str(Path.cwd())})
        process = self._forker.fork("pidts", ["pidts", begun, *words], output.fileno(), errors.fileno())
        assert process is not None, "the process that forks has ended"
        return process

    def run(self, words: Sequence[str], timeout: float) -> subprocess.CompletedProcess[bytes]:
        """Runs `pidts` with these words to its end, as `subprocess.run` does."""
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


class _Replicators(Forker):
    """The same process, as a task's replicators are forked from it."""

    def __init__(self, forker: Forker) -> None:
        self._forker = forker

    def fork(self, name: str, arguments: Sequence[str], output: int, errors: int) -> ForkedProcess | None:
        return self._forker.fork(name, ["replicator", *arguments], output, errors)


def _serve(descriptor: int) -> None:
    from pidts.without_pandas import hide_pandas

    hide_pandas()
    import pidts.cli.app
    import pidts.target.mysql
    import pidts.target.postgres
    import pidts.task.run.replicator_process
    import pidts.task.run.task_run
    import pidts.web.server
    from pidts.binlog.choice import compiled

    del pidts
    if compiled():
        from pidts.replicate.warm import warm

        warm()
    gc.collect()
    gc.freeze()  # the collector would write to pages that are shared otherwise
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
    return run_command(words[1:])


if __name__ == "__main__":
    sys.path[0] = ""  # this folder has modules named like ours
    _serve(int(sys.argv[1]))
