"""Starts PostgreSQL on loopback, with UTF-8 and the role postgres. If root starts it, the server's user is postgres."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from pidts.model.errors import PidtsError
from pidts.sandbox import programs
from pidts.sandbox.made_data import data_for
from pidts.sandbox.server import HOST, Server, ServerStart, directory_for, run_once, start_on_free_port

_USER = "postgres"


def start_postgres(
    directory: Path | None = None, options: Sequence[str] = (), *, port: int | None = None, password: str = ""
) -> Server:
    """Starts PostgreSQL with the data of a folder. If the folder has none, new data is made.

    Without `directory`, the folder is new. Without `port`, a free port is chosen. `options` are arguments such as
    `-c max_connections=20`.
    """
    program = programs.postgres()
    as_user = _USER if os.geteuid() == 0 else None
    with directory_for("postgres", directory) as folder:
        if as_user is not None:
            _hand_over(folder)
        data = folder / "data"
        if not (data / "PG_VERSION").exists():

            def make_data() -> None:
                _make_data(program, folder, password, as_user)

            if password:  # the password is part of the data
                make_data()
            else:
                data_for("postgres", data, make_data)

        def make(port: int) -> Server:
            command = [
                *program.command,
                *("-D", str(data), "-h", HOST, "-p", str(port)),
                *("-c", "unix_socket_directories="),  # no socket file: its path may be too long
                *("-c", "fsync=off"),  # the data is temporary: it survives a crash of the server, not of the machine
                *options,
            ]
            launch = ServerStart(
                command,
                program.environment,
                folder / "log",
                lambda pid: _is_ready(data, pid),
                stop_signal=signal.SIGINT,  # "fast": open sessions are ended, not waited for
                quick_signal=signal.SIGQUIT,  # "immediate": no checkpoint, but the shared memory is removed
                as_user=as_user,
                owns_directory=directory is None,
            )
            return Server("postgres", port, _USER, folder, launch, password)

        return start_on_free_port(make, port)


def _make_data(program: programs.Program, directory: Path, password: str, as_user: str | None) -> None:
    command = [
        str(program.home / "initdb"),
        *("-D", str(directory / "data"), "-U", _USER, "-E", "UTF8"),
        *("--locale=C.UTF-8", "--no-sync", "--no-instructions"),
        *("-A", "scram-sha-256" if password else "trust"),
    ]
    secret = directory / "password"
    if password:
        secret.touch(mode=0o600)
        secret.write_text(password + "\n", "utf-8")
        if as_user is not None:
            shutil.chown(secret, as_user)
        command.append(f"--pwfile={secret}")
    try:
        run_once(command, directory / "init.log", program.environment, "PostgreSQL's data could not be made", as_user)
    except BaseException:
        shutil.rmtree(directory / "data", ignore_errors=True)
        raise
    finally:
        secret.unlink(missing_ok=True)


def _hand_over(directory: Path) -> None:
    try:
        owner = pwd.getpwnam(_USER)
    except KeyError:
        raise PidtsError(
            "sandbox-missing",
            "There is no user postgres to run PostgreSQL as",
            todo="Install it: apt-get install postgresql",
        ) from None
    os.chown(directory, owner.pw_uid, owner.pw_gid)
    for parent in directory.parents:
        if not parent.stat().st_mode & 0o001:
            raise PidtsError(
                "sandbox-failed",
                f"PostgreSQL runs as the user postgres, who may not enter {parent}",
                todo="Choose another folder, or set TMPDIR to one that everybody may enter",
            )


def _is_ready(data: Path, pid: int) -> bool:
    """Whether the server is ready, by its pid file: line 1 is the process id, line 8 the state.

    The process id is compared, since a killed server leaves its pid file behind.
    """
    try:
        lines = (data / "postmaster.pid").read_text("utf-8").splitlines()
    except OSError:
        return False
    return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"
