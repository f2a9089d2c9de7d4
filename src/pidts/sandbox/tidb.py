"""Starts TiDB on loopback, in one process that also stores the rows; the account root has no password.

No package has TiDB's server for all machines. So the environment variable TIDB_SERVER names the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pidts.sandbox import programs
from pidts.sandbox.server import HOST, Server, ServerStart, directory_for, greets, start_on_free_port


def start_tidb(directory: Path | None = None, options: Sequence[str] = (), *, port: int | None = None) -> Server:
    """Starts TiDB. `directory` and `port` are as for `start_mariadb`."""
    program = programs.tidb()
    with directory_for("tidb", directory) as folder:

        def make(port: int) -> Server:
            command = [
                *program.command,
                f"-host={HOST}",
                f"-P={port}",
                "-store=unistore",
                f"-path={folder / 'data'}",
                f"-temp-dir={folder / 'tmp'}",
                "-socket=",
                "-report-status=false",
                "-L=warn",
                *options,
            ]
            launch = ServerStart(
                command,
                program.environment,
                folder / "log",
                lambda pid: _is_ready(pid, port),
                owns_directory=directory is None,
            )
            return Server("tidb", port, "root", folder, launch)

        return start_on_free_port(make, port)


def _is_ready(pid: int, port: int) -> bool:
    """Whether this process, and no other, greets on the port."""
    return _listens(pid, port) and greets(port)


def _listens(pid: int, port: int) -> bool:
    """Whether a socket of the process listens on the port."""
    listening = {
        f"socket:[{fields[9]}]"
        for fields in map(str.split, Path("/proc/net/tcp").read_text("utf-8").splitlines()[1:])
        if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port
    }
    try:
        return any(str(file.readlink()) in listening for file in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
