"""Logs in with the password that a file has now, so that a running task survives changes of the password."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pidts.bounded_file import read_small
from pidts.model.errors import LoginRefused

_Connection = TypeVar("_Connection")


@dataclass(frozen=True, slots=True)
class Account:
    """The user of a server. Two servers may share a password file, and their passwords do not change together."""

    host: str
    port: int
    user: str


@dataclass(frozen=True, slots=True)
class _Accepted:
    password: str = field(repr=False)


_accepted: dict[tuple[str, Account], _Accepted] = {}
"""The last password that a server has accepted in this process, for each password file and account."""


def with_password(log_in: Callable[[str], _Connection], account: Account, known: str, file: str) -> _Connection:
    """Logs in with the present password of the file; an empty name means no file.

    The file may have been written before the server's password was changed. So if the server refuses the file's
    password, the next attempts are the last password that this server has accepted, and `known`, the password that was
    read when the task file was read. `known` alone is too old if the password has changed twice since then.
    """
    if not file:
        return log_in(known)
    last = _accepted.get((file, account), _Accepted(known)).password
    *earlier, final = dict.fromkeys((_present(file, last), last, known))
    for password in earlier:
        try:
            connection = log_in(password)
        except LoginRefused:
            continue
        _accepted[file, account] = _Accepted(password)
        return connection
    connection = log_in(final)
    _accepted[file, account] = _Accepted(final)
    return connection


def read_password(path: Path) -> str:
    """Returns the password in a file, without the end of its line. Raises OSError or UnicodeDecodeError."""
    return read_small(path).rstrip("\r\n")


def _present(file: str, last: str) -> str:
    try:
        return read_password(Path(file))
    except (OSError, UnicodeDecodeError):
        return last
