"""Starts a MySQL that encrypts its log. It needs a keyring, which the server loads only from a file beside its program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pidts import sandbox
from pidts.sandbox import Server
from pidts.sandbox.programs import mysql97

_COMPONENT = "component_keyring_file"


def start_encrypting_mysql97(folder: Path, options: Sequence[str]) -> Server:
    """Starts MySQL 9.7 with `binlog_encryption`; the folder keeps its keys."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MYSQL97_ROOT", str(_with_keyring(mysql97().home.parent, folder)))
        return sandbox.start_mysql97(options=["--binlog-encryption=ON", *options])


def _with_keyring(there: Path, folder: Path) -> Path:
    """Returns a folder with links to the installation, and with the files that configure the keyring."""
    root = folder / "mysql97"
    programs, plugins = Path("usr/sbin"), Path("usr/lib/mysql/plugin")
    own = {programs, plugins, *programs.parents, *plugins.parents}
    for part in sorted(own):
        (root / part).mkdir(parents=True, exist_ok=True)
        for one in (there / part).iterdir():
            if part / one.name not in own:
                (root / part / one.name).symlink_to(one)
    (root / programs / "mysqld.my").write_text(json.dumps({"components": f"file://{_COMPONENT}"}))
    keys = {"path": str(folder / "mysql97-keys"), "read_only": False}
    (root / plugins / f"{_COMPONENT}.cnf").write_text(json.dumps(keys))
    return root
