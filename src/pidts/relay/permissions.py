"""Creates folders and files for a source's rows, which only the user who runs the task can read.

Existing files keep their mode, since an operator may have set it on purpose. `pidts check` reports a mode that gives
other users access.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


@contextmanager
def private_files() -> Iterator[None]:
    """Makes new files readable by this user only: files of this process and of its children, including Spark's."""
    before = os.umask(_OTHERS)
    try:
        yield
    finally:
        os.umask(before)


def make_folder(path: Path) -> None:
    """Creates a folder and its missing parents, readable by this user only."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for each in reversed(missing):
        # With `parents=True` the parents would get the umask's mode.
        each.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def private_opener(path: str, flags: int) -> int:
    """Opens a file for `open`; a new file is readable by this user only."""
    return os.open(path, flags, FILE_MODE)


def is_open_to_others(path: Path) -> bool:
    """Whether users other than the owner may read, change or enter the path."""
    return bool(path.stat().st_mode & _OTHERS)
