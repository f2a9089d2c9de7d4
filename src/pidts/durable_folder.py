"""Makes the names in a folder durable: a file that is synced itself may lose its name in a crash of the machine."""

from __future__ import annotations

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Waits until created, renamed and removed files of a folder are so on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
