"""Finds the server programs on this machine. `./test` and `./demo` install them; this module does not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from pidts.model.errors import PidtsError

_SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"])


@dataclass(frozen=True, slots=True)
class Program:
    """A server's program: the command that starts it, and its folders."""

    command: tuple[str, ...]
    home: Path
    environment: dict[str, str] = field(default_factory=dict)
    version_option: str = "--version"

    def version(self) -> str | None:
        """Returns the version that the program prints; None if the program cannot run here."""
        try:
            asked = subprocess.run(
                [*self.command, self.version_option],
                env={**os.environ, **self.environment},
                capture_output=True,
                text=True,
                check=True,
                timeout=30,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        found = re.search(r"\d+\.\d+(?:\.\d+)*", asked.stdout)
        return found.group() if found else None


def which(name: str) -> str | None:
    """Returns a program's path, also in system folders such as /usr/sbin; None if it is not found."""
    return shutil.which(name, path=_SEARCH_PATH)


def mariadb() -> Program:
    """Returns MariaDB from the system's packages."""
    server = which("mariadbd")
    if server is None or which("mariadb-install-db") is None:
        raise missing("MariaDB", "apt-get install mariadb-server")
    return Program((server,), Path("/usr"))


def mariadb_plugins() -> Path:
    """Returns the folder of MariaDB's plugins. Some packages have only the programs, without the plugins."""
    for folder in (Path("/usr/lib/mysql/plugin"), Path(os.environ.get("MARIADB_PLUGINS", "/opt/mariadb-plugins"))):
        if (folder / "file_key_management.so").exists():
            return folder
    raise missing("MariaDB's file_key_management plugin", "./test unpacks it")


def mysql97() -> Program:
    """Returns MySQL 9.7 from a folder with files of Debian sid. The server runs with sid's loader and libraries."""
    root = Path(os.environ.get("MYSQL97_ROOT", "/opt/mysql97"))
    server = root / "usr/sbin/mysqld"
    loaders = sorted(root.glob("usr/lib*/ld-linux-*.so.*"))
    libraries = sorted(root.glob("usr/lib/*-linux-gnu"))
    if not (server.exists() and loaders and libraries):
        raise missing(f"MySQL 9.7 (in {root})", "./test unpacks it")
    # With --basedir, the server finds its plugins and messages wherever the folder is.
    return Program((str(loaders[0]), "--library-path", str(libraries[0]), str(server), "--no-defaults"), root / "usr")


def mysql56() -> Program:
    """Returns MySQL 5.6 from an npm package."""
    root = Path(os.environ.get("MYSQL56_ROOT", "/opt/mysql56")) / "package" / "server"
    if not (root / "mysqld").exists():
        raise missing(f"MySQL 5.6 (in {root})", "./test unpacks it")
    return Program((str(root / "mysqld"), "--no-defaults"), root, {"LD_LIBRARY_PATH": str(root)})


def postgres() -> Program:
    """Returns the newest PostgreSQL from the system's packages; `home` contains its programs."""
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda home: _number(home.parent.name))
    on_path = which("postgres")
    if on_path is not None and which("initdb") is not None and not homes:
        homes = [Path(on_path).parent]
    if not homes:
        raise missing("PostgreSQL", "apt-get install postgresql")
    return Program((str(homes[-1] / "postgres"),), homes[-1])


def tidb() -> Program:
    """Returns TiDB's server, from the environment variable TIDB_SERVER or in the PATH."""
    server = os.environ.get("TIDB_SERVER") or which("tidb-server")
    if server is None or not Path(server).exists():
        raise missing("TiDB", "set TIDB_SERVER to the path of a tidb-server")
    return Program((server,), Path(server).parent, version_option="-V")


def installed() -> dict[str, str | None]:
    """Returns the version of each kind of server; None for a kind that cannot run here."""
    found: dict[str, str | None] = {}
    for find in (mariadb, mysql97, mysql56, postgres, tidb):
        try:
            found[find.__name__] = find().version()
        except PidtsError:
            found[find.__name__] = None
    return found


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def missing(what: str, todo: str) -> PidtsError:
    """Returns the error for something that is not installed."""
    return PidtsError("sandbox-missing", f"{what} is not on this machine", todo=f"Install it: {todo}")
