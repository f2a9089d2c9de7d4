"""Copies the data of a new server where a server of its kind has been made before.

To make it takes seconds of processor time, to copy it a tenth. A process that starts many servers, and all processes
that it starts, share the copies in the folder that `PIDTS_SANDBOX_DATA` names; whoever sets it removes the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

FOLDER = "PIDTS_SANDBOX_DATA"
_OF_ONE_SERVER = ("auto.cnf",)
"""MySQL's identity: two servers must not have the same one. Keys that are made with the data are shared."""


def data_for(kind: str, data: Path, make: Callable[[], None]) -> None:
    """Leaves the data of a new server in the folder `data`, which `make` would make there."""
    shared = os.environ.get(FOLDER)
    if shared is None:
        make()
        return
    kept = Path(shared) / kind
    with (Path(shared) / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            make()
            unfinished = kept.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            _copy(data, unfinished)
            for name in _OF_ONE_SERVER:
                (unfinished / name).unlink(missing_ok=True)
            unfinished.rename(kept)
            return
    _copy(kept, data)


def _copy(here: Path, there: Path) -> None:
    """Copies with owners and holes: logs are large and empty."""
    subprocess.run(["cp", "-a", "--sparse=always", str(here), str(there)], check=True)
