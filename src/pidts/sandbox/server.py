"""Starts and stops one private server in its own folder.

A server must not outlive this process, even if the process is killed. The kernel ends a server when the *thread* that
started it ends (PR_SET_PDEATHSIG). So one thread, which runs as long as the process, starts all servers.

A server runs in its own terminal session, so Ctrl-C reaches only this process, which can stop using the server
before it ends the server.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from pidts.model.errors import PidtsError
from pidts.sandbox.programs import missing, which

HOST = "127.0.0.1"

_START_SECONDS = 600.0
"""The longest time for a start on a busy machine. If the server's process ends, the start fails at once."""
_STOP_SECONDS = 30.0
# The kernel gives outgoing connections higher ports. So a chosen port stays free until the server uses it, and during
# a restart.
_PORTS = range(15000, 32000)

_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox")


@dataclass(frozen=True, slots=True)
class ServerStart:
    """The command, environment and log of a server's start."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    # The function gets the server's process id. The port alone proves nothing: another program may answer there.
    is_ready: Callable[[int], bool]
    stop_signal: signal.Signals = signal.SIGTERM
    quick_signal: signal.Signals = signal.SIGKILL
    """The signal that ends a server at once. After it, nothing but the server's folder may remain."""
    as_user: str | None = None
    owns_directory: bool = False


@dataclass(slots=True)
class Server:
    """A server. As a context manager, it is stopped at the end of the block."""

    kind: str
    port: int
    user: str
    directory: Path
    launch: ServerStart = field(repr=False)
    password: str = field(default="", repr=False)
    host: str = HOST
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def pid(self) -> int | None:
        """Returns the process id; None while the server does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> Self:
        """Starts the server and returns when it accepts connections."""
        launch = self.launch
        try:
            self._process = _starter.submit(_spawn, launch).result()
            deadline = time.monotonic() + _START_SECONDS
            while not launch.is_ready(self._process.pid):
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise failed(f"{self.kind} did not start", launch.log)  # noqa: TRY301 - one way out: it is killed
                time.sleep(0.02)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stops the server if it runs, and removes its folder if the folder was created for it.

        A server whose folder is removed gets the quick signal, since an orderly stop would take seconds.
        """
        self._end(self.launch.quick_signal if self.launch.owns_directory else self.launch.stop_signal)
        if self.launch.owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """Kills the server as a crash would; the data stays for `restart`."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Restarts the server with the same data and port."""
        self._end(self.launch.stop_signal)
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        try:
            # Popen sends no signal to a process that has ended, so no other process with the same id gets it.
            self._process.send_signal(how)
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # The process is also killed if Ctrl-C was pressed during the wait.
            self._process.kill()
            self._process.wait()
            self._process = None


def start_on_free_port(make: Callable[[int], Server], port: int | None) -> Server:
    """Starts the server that `make` returns for a port. If a chosen port was taken meanwhile, tries another port."""
    attempts = 1 if port is not None else 3
    while True:
        attempts -= 1
        server = make(port if port is not None else free_port())
        try:
            return server.start()
        except PidtsError as error:
            if attempts == 0 or "in use" not in error.what:
                raise


def free_port() -> int:
    """Returns a free port on loopback."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def greets(port: int) -> bool:
    """Whether a server on this port greets as servers with MySQL's protocol do."""
    try:
        with socket.create_connection((HOST, port), timeout=1) as connection:
            return connection.recv(5)[4:] == b"\x0a"
    except OSError:
        return False


@contextmanager
def directory_for(kind: str, wanted: Path | None) -> Iterator[Path]:
    """Yields the wanted folder or a new folder. The new folder is removed if the block raises."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted.resolve()
        return
    made = Path(tempfile.mkdtemp(prefix=f"pidts-{kind}-"))
    try:
        yield made
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def run_once(
    command: Sequence[str], log: Path, environment: Mapping[str, str], what: str, as_user: str | None = None
) -> None:
    """Runs a program that prepares a server's data."""
    launch = ServerStart(command, environment, log, lambda _: True, as_user=as_user)
    process = _starter.submit(_spawn, launch).result()
    try:
        if process.wait() != 0:
            raise failed(what, log)
    finally:
        process.kill()
        process.wait()


def failed(what: str, log: Path) -> PidtsError:
    """Returns the error with the reasons from the log."""
    return PidtsError("sandbox-failed", f"{what}; its log says:\n{_reasons(log)}\n", todo="Fix that and start again")


def _reasons(log: Path) -> str:
    """Returns the last lines that mention an error, or the log's last lines if there are none.

    After an error, MariaDB prints a page of advice, so the log's last lines would not show the error.
    """
    lines = _read(log)
    errors = [line for line in lines if re.search(r"\b(?:ERROR|FATAL|error)\b", line)]
    return "\n".join((errors or lines)[-15:])


def _read(log: Path) -> list[str]:
    try:
        return log.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ["(no log)"]


def _spawn(launch: ServerStart) -> subprocess.Popen[bytes]:
    setpriv = which("setpriv")
    if setpriv is None:
        raise missing("setpriv", "apt-get install util-linux")
    guard = [setpriv, "--pdeathsig", "KILL"]
    if launch.as_user is not None:
        guard += ["--reuid", launch.as_user, "--regid", launch.as_user, "--clear-groups"]
    with launch.log.open("ab") as log:
        return subprocess.Popen(
            [*guard, "--", *launch.command],
            env={**os.environ, "LC_ALL": "C.UTF-8", **launch.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=launch.log.parent,
            start_new_session=True,
        )
