"""Empties a relay that cannot be continued: the source has lost the log behind it.

Other tasks that still needed what is removed are told so when they next ask for it (`relay-purged`).

Interrupted anywhere, its first segments are gone, as after a purge: what is left has no gap, and no writer was let in
meanwhile. Doing it again removes the rest.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pidts.relay.folder import Folder
from pidts.relay.lock import WriterLock
from pidts.relay.refetch import forget_refetches


def empty_relay(relay: Path | str, source_id: str) -> None:
    """Remove all segments and what is known of them; Halted "relay-in-use" where somebody writes it."""
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
