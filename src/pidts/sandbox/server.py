"""One private server: its process, its folder, its end.

A server must not outlive us, not even when we are killed: the kernel ends it when the *thread* that started it is gone
(PR_SET_PDEATHSIG), hence one thread that starts them all and lives as long as the process. A server has a session of
its own, so that Ctrl-C in a terminal reaches us alone and we can stop using the server before it goes.
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

_START_SECONDS = 90.0
_STOP_SECONDS = 30.0
# Below the range of outgoing connections: a port stays free from its choice to its use, and over a restart.
_PORTS = range(15000, 32000)

_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox")


@dataclass(frozen=True, slots=True)
class Launch:
    """How a server is started, each time in the same way."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    # Asked with the process's id: what answers on the port may be a stranger.
    is_ready: Callable[[int], bool]
    stop_signal: signal.Signals = signal.SIGTERM
    as_user: str | None = None
    owns_directory: bool = False


@dataclass(slots=True)
class Server:
    """A running server. Also a context manager that stops it at the end."""

    kind: str
    port: int
    user: str
    directory: Path
    launch: Launch = field(repr=False)
    password: str = field(default="", repr=False)
    host: str = HOST
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    @property
    def pid(self) -> int | None:
        """The process, None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> Self:
        """Start it and come back when it takes connections."""
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
        """End it for good; a folder that was made for it goes too. Harmless when it has ended already."""
        self._end(self.launch.stop_signal)
        if self.launch.owns_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """As a crash would: no shutdown, the data stays for `restart`."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Down, if it runs, and up again on the same data and the same port."""
        self._end(self.launch.stop_signal)
        self.start()

    def __enter__(self) -> Self:
        """Already running."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        try:
            # Popen knows when the process is gone: a signal can never reach a stranger with the same id.
            self._process.send_signal(how)
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            # Also when Ctrl-C came while waiting.
            self._process.kill()
            self._process.wait()
            self._process = None


def start_on_free_port(make: Callable[[int], Server], port: int | None) -> Server:
    """Start what `make` gives for a port; another port is tried when somebody took the first one in the meantime."""
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
    """A port of loopback that nobody listens on."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


@contextmanager
def directory_for(kind: str, wanted: Path | None) -> Iterator[Path]:
    """The server's folder: the one that was asked for, else a new one, which goes again if the start fails."""
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
    """Run a program that prepares a server's data."""
    launch = Launch(command, environment, log, lambda _: True, as_user=as_user)
    process = _starter.submit(_spawn, launch).result()
    try:
        if process.wait() != 0:
            raise failed(what, log)
    finally:
        process.kill()
        process.wait()


def failed(what: str, log: Path) -> PidtsError:
    """The error with what the log says about it."""
    return PidtsError("sandbox-failed", f"{what}; its log says:\n{_reasons(log)}\n", todo="Cure that and start again")


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a file."""
    return "\n".join(_read(log)[-lines:])


def _reasons(log: Path) -> str:
    """The lines that name an error: MariaDB puts a page of good advice behind them."""
    named = [line for line in _read(log) if re.search(r"\b(?:ERROR|FATAL|error)\b", line)]
    return "\n".join(named[-15:]) or tail(log)


def _read(log: Path) -> list[str]:
    try:
        return log.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ["(no log)"]


def _spawn(launch: Launch) -> subprocess.Popen[bytes]:
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
