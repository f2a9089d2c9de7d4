"""Empties a relay that cannot be continued: the source has lost the log behind it.

Other tasks that still need the removed log get the error `relay-purged` when they next read it.

If it is interrupted, the first segments are gone, as after a purge: the rest has no gap, and no writer could open it
meanwhile. A second call removes the rest.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pidts.relay.folder import Folder
from pidts.relay.lock import WriterLock
from pidts.relay.refetch import forget_refetches


def empty_relay(relay: Path | str, source_id: str) -> None:
    """Removes all segments and all files about them. Halts with "relay-in-use" if a writer has the relay open."""
    folder = Folder.of(relay, source_id)
    if not folder.path.exists():
        return
    lock = WriterLock(folder.lock, source_id)
    try:
        for number in folder.numbers():
            folder.index(number).unlink(missing_ok=True)
            folder.log(number).unlink(missing_ok=True)
        for path in folder.path.glob("*.log"):
            if path.stem.isdigit():
                path.unlink(missing_ok=True)
        shutil.rmtree(folder.path / "structures", ignore_errors=True)
        forget_refetches(folder)
        folder.sync()
    finally:
        lock.release()
