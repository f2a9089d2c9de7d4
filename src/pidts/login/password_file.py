"""Logs in with the password that a file has now, so that a running task survives a change of the password."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pidts.bounded_file import read_small
from pidts.model.errors import LoginRefused

_Connection = TypeVar("_Connection")


def with_password(log_in: Callable[[str], _Connection], known: str, file: str) -> _Connection:
    """Logs in with the present password of the file; an empty name means no file.

    If the server refuses it, logs in with `known`, the password that was read when the task file was read: the file may
    have been written before the server's password was changed.
    """
    now = _present(file, known) if file else known
    try:
        return log_in(now)
    except LoginRefused:
        if now == known:
            raise
    return log_in(known)


def read_password(path: Path) -> str:
    """Returns the password in a file, without the end of its line. Raises OSError or UnicodeDecodeError."""
    return read_small(path).rstrip("\r\n")


def _present(file: str, known: str) -> str:
    try:
        return read_password(Path(file))
    except (OSError, UnicodeDecodeError):
        return known
