"""Copies the data of a new server from data that was made before for the same kind of server.

Making the data takes seconds of CPU time, and copying it takes a tenth of that. A process that starts many servers, and
all processes that it starts, share the copies in the folder that `PIDTS_SANDBOX_DATA` names. The process that sets this
variable removes the folder.
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
"""The file with MySQL's identity. A copy must not have it, since each server needs its own.

The server's TLS keys are copied: all copies have the same ones.
"""


def data_for(kind: str, data: Path, make: Callable[[], None]) -> None:
    """Puts the data of a new server into the folder `data`: a copy, or what `make` creates there."""
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
    """Copies files with their owners. Sparse files stay sparse: a new server's logs are large, and consist of holes."""
    subprocess.run(["cp", "-a", "--sparse=always", str(here), str(there)], check=True)
