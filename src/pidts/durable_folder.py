"""Makes the names in a folder durable, and replaces small files as a whole.

Even a synced file may lose its name in a crash of the machine.
"""

from __future__ import annotations

import os
from pathlib import Path


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Creates a folder and the missing folders above it. Their names are on the disk when this function returns.

    The umask removes bits of `mode`.
    """
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode, exist_ok=True)
        sync_folder(each.parent)


def sync_folder(folder: Path) -> None:
    """Waits until the names that were created, changed or removed in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, text: str, *, durable: bool) -> None:
    """Writes a whole file, which only this user can read. Readers see the old content or the new one.

    With `durable`, the new content is on the disk when this function returns. Otherwise the file may have the old
    content after a crash of the machine. Several processes may write the same file, so each writes a draft of its own.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(draft, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)
