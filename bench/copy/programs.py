"""Runs other programs that make a full copy.

They are `mariadb-dump | mariadb`, mydumper with myloader, pgloader, and pg_chameleon in a virtual environment. mydumper
and pgloader have to be installed, for example from Debian's packages of these names.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import beside  # noqa: F401 - makes the next imports possible
import yaml
from origin import STREAMS, Source
from targets import TargetServer
from workload import SCHEMA

from pidts.sandbox import Server

CHAMELEON = ("pg_chameleon==2.0.21", "mysql-replication==1.0.17", "pymysql==1.2.4", "setuptools<81")
_ENVIRONMENT = Path(tempfile.gettempdir()) / "pidts-bench-pg-chameleon"
_SOMEBODY = 65534
_ALONE = ("setpriv", "--reuid", str(_SOMEBODY), "--clear-groups")
_READING = ("--inh-caps", "+dac_override", "--ambient-caps", "+dac_override")
"""pg_chameleon refuses to run as root. This capability lets another user read the Python files of root's environment.
"""


def dump(source: Source, target: TargetServer, folder: Path) -> float:
    """Copies the source with `mariadb-dump` in one stream from a consistent snapshot, as its manual recommends.

    Returns the elapsed seconds.
    """
    errors = folder / "dump.log"
    begun = time.perf_counter()
    with errors.open("wb") as log:
        reading = subprocess.Popen(
            ["mariadb-dump", "--no-defaults", *_login(source.server), "--single-transaction", "--databases", SCHEMA],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        writing = subprocess.Popen(
            ["mariadb", "--no-defaults", *_login(target.server)], stdin=reading.stdout, stdout=log, stderr=log
        )
        if reading.stdout:
            reading.stdout.close()  # otherwise a process would not end when the other ends
    if writing.wait() or reading.wait():
        raise RuntimeError(errors.read_text()[-3000:])
    return time.perf_counter() - begun


def _login(server: Server) -> list[str]:
    return [f"--host={server.host}", f"--port={server.port}", f"--user={server.user}"]


def mydumper(source: Source, target: TargetServer, folder: Path) -> float:
    """Copies the source with mydumper into files and with myloader from them, both with one thread for each stream.

    Returns the elapsed seconds.
    """
    files = folder / "files"
    reading = ("mydumper", *_login(source.server), "--threads", str(STREAMS), "--rows", "100000")
    writing = ("myloader", *_login(target.server), "--threads", str(STREAMS), "--queries-per-transaction", "100")
    begun = time.perf_counter()
    _done(folder, *reading, "--database", SCHEMA, "--trx-consistency-only", "--outputdir", str(files))
    _done(folder, *writing, "--directory", str(files))
    return time.perf_counter() - begun


def pgloader(source: Source, target: TargetServer, folder: Path) -> float:
    """Copies the source with pgloader, which also creates tables and keys. Returns the elapsed seconds.

    With its default number of prefetched rows, pgloader does not have enough memory for these tables. By default, it
    would give DATETIME columns a type with a time zone.
    """
    command = folder / "copy.load"
    one, two = source.server, target.server
    command.write_text(
        f"""LOAD DATABASE
        FROM mysql://{one.user}@{one.host}:{one.port}/{SCHEMA}
        INTO postgresql://{two.user}:any@{two.host}:{two.port}/postgres
        WITH workers = {STREAMS}, concurrency = 1, prefetch rows = 10000
        CAST type datetime to timestamp;
        """
    )
    begun = time.perf_counter()
    _done(folder, "pgloader", "--root-dir", str(folder), "--on-error-stop", str(command))
    return time.perf_counter() - begun


def _done(folder: Path, *command: str) -> None:
    errors = folder / f"{command[0]}.log"
    with errors.open("wb") as log:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
    if done.returncode:
        raise RuntimeError(errors.read_text()[-3000:])


def chameleon(source: Source, target: TargetServer, folder: Path) -> float:
    """Copies the source with pg_chameleon's `init_replica`, which also creates tables and keys.

    Returns the elapsed seconds, without the preparation of pg_chameleon.
    """
    _prepare()
    home = folder / "home"
    for name in ("configuration", "pid", "logs"):
        (home / ".pg_chameleon" / name).mkdir(parents=True)
    (home / ".pg_chameleon" / "configuration" / "default.yml").write_text(
        yaml.safe_dump(_chameleon_settings(source.server, target.server, home))
    )
    for path in (home, *home.rglob("*")):
        if os.geteuid() == 0:
            os.chown(path, _SOMEBODY, _SOMEBODY)
    for command in (("create_replica_schema",), ("add_source", "--source", "one")):
        _chameleon(home, *command)
    begun = time.perf_counter()
    _chameleon(home, "init_replica", "--source", "one", "--debug")
    seconds = time.perf_counter() - begun
    if "for the fallback to insert" in (home / "log").read_text():
        raise RuntimeError(f"pg_chameleon has used INSERT instead of COPY, see {home / 'log'}")
    return seconds


def _chameleon(home: Path, *command: str) -> None:
    alone = [*_ALONE, *_READING, "--"] if os.geteuid() == 0 else []
    program = _ENVIRONMENT / "bin" / "chameleon"
    with (home / "log").open("ab") as log:
        done = subprocess.run(
            [*alone, program, *command, "--config", "default"],
            env={**os.environ, "HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
        )
    if done.returncode:
        raise RuntimeError((home / "log").read_text()[-3000:])


def _prepare() -> None:
    """Installs pg_chameleon, once per machine."""
    made = _ENVIRONMENT / "made"
    wanted = "\n".join(CHAMELEON)
    if made.exists() and made.read_text() == wanted:
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", _ENVIRONMENT], check=True)
    subprocess.run([_ENVIRONMENT / "bin" / "pip", "install", "--quiet", *CHAMELEON], check=True)
    made.write_text(wanted)


def _chameleon_settings(source: Server, target: Server, home: Path) -> dict[str, object]:
    """Returns the settings of pg_chameleon's example. Both servers accept any password."""
    login = {"host": source.host, "port": str(source.port), "user": source.user, "password": source.password}
    one = {
        "type": "mysql",
        "db_conn": {**login, "charset": "utf8", "connect_timeout": 10},
        "schema_mappings": {SCHEMA: SCHEMA},
        "limit_tables": [],
        "skip_tables": [],
        "grant_select_to": [],
        "lock_timeout": "120s",
        "my_server_id": 100,
        "replica_batch_size": 10000,
        "replay_max_rows": 10000,
        "batch_retention": "1 day",
        "copy_max_memory": "300M",
        "copy_mode": "file",
        "out_dir": str(home),
        "sleep_loop": 1,
        "on_error_replay": "exit",
        "on_error_read": "exit",
        "auto_maintenance": "disabled",
        "gtid_enable": False,
        "keep_existing_schema": False,
    }
    return {
        "pid_dir": str(home / ".pg_chameleon" / "pid"),
        "log_dir": str(home / ".pg_chameleon" / "logs"),
        "log_dest": "stdout",
        "log_level": "info",
        "log_days_keep": 1,
        "rollbar_key": "",
        "rollbar_env": "",
        "type_override": {},
        "pg_conn": {
            "host": target.host,
            "port": str(target.port),
            "user": target.user,
            "password": "any",
            "database": "postgres",
            "charset": "utf8",
        },
        "sources": {"one": one},
    }
