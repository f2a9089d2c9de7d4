"""Starts a Python process of Spark that answers Spark first and loads its modules afterwards.

Spark waits ten seconds for a planner's process to connect. Normally the process connects only after it has loaded
pyspark, pandas and Arrow. On a busy machine this takes more than ten seconds, and the query fails. So this file runs
first, with only the standard library: it connects and sends Spark's secret. Then the same process becomes the
interpreter that Spark has requested, and keeps the connection.

Workers of jobs are forks of one process, Spark's daemon, and normally load their modules themselves. In a session that
PiDTS has started, the daemon loads them before it forks: all workers share that memory, and only one process spends the
time. Spark has four more Python processes, which only plan queries. They do not load these modules, since this would
take seconds in each process.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path

_SOCKET = "PIDTS_WORKER_SOCKET"
"""The environment variable with the number of the connection's file descriptor."""
_OWN = "PIDTS_OWN_SPARK"
"""The environment variable that is set if PiDTS has started the Spark session."""
_DAEMON, _WORKER = "pyspark.daemon", "pyspark.worker"
"""The modules of Spark's processes for the tasks of a job. A planner's daemon has another module."""
_RESUME = "from pidts.spark.worker_start import resume; resume()"


def launcher(folder: Path, *, own: bool = False) -> Path:
    """Writes the program that Spark starts in place of Python, and returns its path.

    `own`: whether PiDTS has started the session. No process of such a session needs pandas, and its workers need the
    modules of PiDTS's jobs.

    Many machines forbid running programs in their temporary folder (`noexec`). On such a machine, the path of Python
    itself is returned, and Spark starts as it does without this program.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "python"
    words = " ".join("'" + word.replace("'", "'\\''") + "'" for word in (sys.executable, "-I", "-S", __file__))
    path.write_text(f'#!/bin/sh\n{f"{_OWN}=1 " if own else ""}exec {words} "$@"\n')
    path.chmod(0o700)
    return path if os.access(path, os.X_OK) else Path(sys.executable)


def start() -> None:
    """Connects to Spark if Spark waits for a connection.

    At the end, replaces this process with the Python interpreter, which runs the request directly or by `resume`.
    """
    arguments = sys.argv[1:]
    if arguments[:1] == ["-m"]:
        if (place := _awaited()) is not None:
            connection = _connected(place)
            connection.settimeout(None)
            connection.set_inheritable(True)
            os.environ[_SOCKET] = str(connection.detach())
        if place is not None or _OWN in os.environ:
            arguments = ["-c", _RESUME, *arguments[1:]]
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - this process becomes that interpreter


def resume() -> None:
    """Runs the module that Spark has requested. The module then uses the existing connection."""
    import runpy

    sys.argv = sys.argv[1:]
    module = sys.argv[0]
    if _SOCKET in os.environ:
        _hand_over(socket.socket(fileno=int(os.environ.pop(_SOCKET))))
    if os.environ.pop(_OWN, ""):
        from pidts.hidden_modules import hide_modules

        hide_modules()
        if sys.argv == [_DAEMON, _WORKER]:
            _load()
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _hand_over(connection: socket.socket) -> None:
    """Makes pyspark use this connection instead of opening another."""
    import pyspark.util

    def connected(conn_info: object, auth_secret: object) -> tuple[object, socket.socket]:  # noqa: ARG001 - as pyspark calls it
        size = int(os.environ.get("SPARK_BUFFER_SIZE", "65536"))
        return connection.makefile("rwb", size), connection

    pyspark.util.local_connect_and_auth = connected


def _load() -> None:
    """Loads the modules for the Spark tasks of PiDTS's jobs.

    An error is ignored here: it occurs again in a Spark task, which can report it.
    """
    with suppress(Exception):
        for module in ("pidts.spark.job", "pidts.spark.copy_job"):
            import_module(module)
        from pidts.binlog.machine_code import compiled
        from pidts.replicate.warm import warm
        from pidts.spark.worker_memory import keep_what_is_loaded

        if compiled():
            warm()
        keep_what_is_loaded()


def _awaited() -> str | int | None:
    """Returns the socket's path or the port at which Spark waits for this process; None if Spark does not wait."""
    path, port = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH"), os.environ.get("PYTHON_WORKER_FACTORY_PORT")
    return path or (int(port) if port else None)


def _connected(place: str | int) -> socket.socket:
    seconds = int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15"))
    if isinstance(place, str):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(seconds)
        connection.connect(place)
        return connection
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "false").lower() == "true" else "127.0.0.1"
    connection = socket.create_connection((host, place), timeout=seconds)
    secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
    connection.sendall(struct.pack("!i", len(secret)) + secret)
    (size,) = struct.unpack("!i", _exactly(connection, 4))
    if _exactly(connection, size) != b"ok":
        raise SystemExit("Spark refused the secret that it gave this process")
    return connection


def _exactly(connection: socket.socket, size: int) -> bytes:
    """Returns the next `size` bytes that Spark sends, and reads no later bytes."""
    read = b""
    while len(read) < size:
        piece = connection.recv(size - len(read))
        if not piece:
            raise SystemExit("Spark closed the connection before it accepted the secret")
        read += piece
    return read


if __name__ == "__main__":
    start()
