"""Starts MariaDB, MySQL 9.7 and MySQL 5.6, with a full row-format binlog, utf8mb4, and root on loopback.

The data is temporary: a crash of the machine may destroy it, but a crash of the server does not. So no server waits for
a disk, as each schema change would otherwise do several times.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pidts.sandbox import programs
from pidts.sandbox.made_data import data_for
from pidts.sandbox.server import HOST, Server, ServerStart, directory_for, greets, run_once, start_on_free_port

_COMMON = (
    f"--bind-address={HOST}",
    "--binlog-format=ROW",
    "--character-set-server=utf8mb4",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-flush-method=nosync",
    "--sync-binlog=0",
)
_MARIADB = ("--binlog-row-image=FULL", "--gtid-strict-mode=1", "--skip-sync-frm", "--debug-no-sync")
_MYSQL97 = (
    "--binlog-row-image=FULL",
    "--gtid-mode=ON",
    "--enforce-gtid-consistency",
    "--mysqlx=OFF",
    "--secure-file-priv=",
)
_MYSQL56 = (
    "--binlog-row-image=FULL",
    "--gtid-mode=ON",
    "--enforce-gtid-consistency",
    "--log-slave-updates",
    "--explicit-defaults-for-timestamp",
)


def start_mariadb(
    directory: Path | None = None, options: Sequence[str] = (), *, port: int | None = None, password: str = ""
) -> Server:
    """Starts MariaDB with the data of a folder. If the folder has none, new data is made.

    Without `directory`, the folder is new. Without `port`, a free port is chosen.
    """
    program = programs.mariadb()

    def make_data(folder: Path) -> None:
        command = [
            str(programs.which("mariadb-install-db")),
            "--no-defaults",
            f"--datadir={folder / 'data'}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            *_as_root(),
        ]
        run_once(command, folder / "init.log", _alone(program, folder), "MariaDB's data could not be made")

    return _start(
        _ServerSetup("mariadb", program, ("--no-defaults", *_MARIADB), make_data), directory, options, port, password
    )


def start_mysql97(
    directory: Path | None = None, options: Sequence[str] = (), *, port: int | None = None, password: str = ""
) -> Server:
    """Starts MySQL 9.7, with GTIDs and caching_sha2_password."""
    program = programs.mysql97()

    def make_data(folder: Path) -> None:
        command = [
            *program.command,
            "--initialize-insecure",
            f"--basedir={program.home}",
            f"--datadir={folder / 'data'}",
            "--secure-file-priv=",
            *_as_root(),
        ]
        run_once(command, folder / "init.log", _alone(program, folder), "MySQL's data could not be made")

    return _start(_ServerSetup("mysql97", program, _MYSQL97, make_data), directory, options, port, password)


def start_mysql56(
    directory: Path | None = None, options: Sequence[str] = (), *, port: int | None = None, password: str = ""
) -> Server:
    """Starts MySQL 5.6, with GTIDs."""
    program = programs.mysql56()

    def make_data(folder: Path) -> None:
        # A server has used the package's data folder before, and its identity and logs must not be copied.
        leave_out = shutil.ignore_patterns("auto.cnf", "ib_logfile*")
        shutil.copytree(program.home / "data" / "mysql", folder / "data", ignore=leave_out, symlinks=True)

    fixed = (*_MYSQL56, f"--lc-messages-dir={program.home / 'share'}")
    return _start(_ServerSetup("mysql56", program, fixed, make_data), directory, options, port, password)


@dataclass(frozen=True, slots=True)
class _ServerSetup:
    kind: str
    program: programs.Program
    fixed: Sequence[str]
    make_data: Callable[[Path], None]


def _start(
    setup: _ServerSetup, directory: Path | None, options: Sequence[str], port: int | None, password: str
) -> Server:
    with directory_for(setup.kind, directory) as folder:
        _prepare(setup, folder)
        fixed = [*setup.program.command, *setup.fixed, *_COMMON, *_as_root()]
        if password:
            fixed.append(f"--init-file={_password_file(setup.kind, folder, password)}")

        def make(port: int) -> Server:
            command = [
                *fixed,
                f"--basedir={setup.program.home}",
                f"--datadir={folder / 'data'}",
                f"--tmpdir={folder / 'tmp'}",
                f"--log-bin={folder / 'binlog' / 'bin'}",
                f"--pid-file={folder / 'pid'}",
                "--socket=s.sock",  # a path inside the data folder, since a full path may be too long for a socket
                f"--port={port}",
                f"--server-id={port}",
                *options,
            ]
            launch = ServerStart(
                command,
                setup.program.environment,
                folder / "log",
                lambda pid: _is_ready(folder / "pid", pid, port),
                owns_directory=directory is None,
            )
            return Server(setup.kind, port, "root", folder, launch, password)

        return start_on_free_port(make, port)


def _prepare(setup: _ServerSetup, folder: Path) -> None:
    for name in ("binlog", "tmp"):
        (folder / name).mkdir(exist_ok=True)
    done = folder / "data-made"
    if done.exists():
        return
    # An interrupted start may have left incomplete data, which must not be used.
    shutil.rmtree(folder / "data", ignore_errors=True)
    data_for(setup.kind, folder / "data", lambda: setup.make_data(folder))
    done.touch()


def _alone(program: programs.Program, folder: Path) -> dict[str, str]:
    """Returns the environment, with a temporary folder for this server only: a starting server empties the folder."""
    return {**program.environment, "TMPDIR": str(folder / "tmp")}


def _as_root() -> tuple[str, ...]:
    """Returns the option that lets a server run as root. Without it, these servers refuse to run as root."""
    return ("--user=root",) if os.geteuid() == 0 else ()


def _password_file(kind: str, directory: Path, password: str) -> Path:
    quoted = "'" + password.replace("\\", "\\\\").replace("'", "\\'") + "'"
    change = "SET PASSWORD = PASSWORD({})" if kind == "mysql56" else "ALTER USER root@localhost IDENTIFIED BY {}"
    path = directory / "password.sql"
    path.touch(mode=0o600)
    # Each start of the server runs these statements; the binlog must not contain them.
    path.write_text(f"SET SESSION sql_log_bin = 0;\n{change.format(quoted)};\n", "utf-8")
    return path


def _is_ready(pid_file: Path, pid: int, port: int) -> bool:
    """Whether the server is ready. Compares the process id with the pid file: another server may answer on the port."""
    try:
        if pid_file.read_text("utf-8").strip() != str(pid):
            return False
    except OSError:
        return False
    return greets(port)
