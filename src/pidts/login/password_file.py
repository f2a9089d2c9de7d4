"""Logs in with the password that a file has now, so that a running task survives changes of the password."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pidts.bounded_file import read_small
from pidts.model.errors import LoginRefused

_Connection = TypeVar("_Connection")

_WAIT_SECONDS = 20.0
"""The time between a new password in the file and the server's change that a login waits for."""
_PAUSE_SECONDS = 2.0
_CHANGED = (
    ". The server has accepted this password before. If it was changed, put the new password into the environment or "
    "the task file, and start the task again. A run reads a password-file at each login, so it needs no new start"
)


class ServerLogin(Protocol):
    """A dataclass with the address, user and password of a server."""

    @property
    def host(self) -> str:
        """The server's name or address."""

    @property
    def port(self) -> int:
        """The server's port."""

    @property
    def user(self) -> str:
        """The account's name."""

    @property
    def password(self) -> str:
        """The password that was read when the task file was read."""

    @property
    def password_file(self) -> str:
        """The file with the password; empty if the password is not in a file."""


@dataclass(frozen=True, slots=True)
class _Accepted:
    password: str = field(repr=False)


_accepted: dict[tuple[str, str, int, str], _Accepted] = {}
"""The last password that a server has accepted in this process, keyed by password file, host, port and user.

Two servers may share a password file, but their passwords do not change at the same moment.
"""


def with_password(log_in: Callable[[str], _Connection], login: ServerLogin) -> _Connection:
    """Logs in with the present password of the file, or with `login.password` if there is no file.

    The file may have been written before the server's password was changed. So if the server refuses the file's
    password, the function tries the last password that this server has accepted, and then `login.password`. If the
    password has changed twice since the task file was read, `login.password` is too old. A process that has not logged
    in between the two changes knows only the oldest password, so it waits a while for the server's change.
    """
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        last = _last_accepted(login)
        present = _present(login.password_file, last) if login.password_file else login.password
        waiting = list(dict.fromkeys((present, last, login.password)))
        while waiting:
            password = waiting.pop(0)
            try:
                connection = log_in(password)
            except LoginRefused as refused:
                is_ahead = present not in (last, login.password)
                if not waiting and (not is_ahead or time.monotonic() > deadline):
                    if not login.password_file and _key(login) in _accepted:
                        refused.todo = refused.todo.rstrip(".") + _CHANGED
                    raise
                continue
            _accepted[_key(login)] = _Accepted(password)
            return connection
        time.sleep(_PAUSE_SECONDS)


def state_for_another_process(login: ServerLogin) -> list[Any]:
    """Returns the pickled state of a frozen, slotted dataclass, with the last accepted password in it.

    A new process, such as a worker of Spark, does not know which passwords this process has used.
    """
    names = (one.name for one in fields(login))  # type: ignore[arg-type]
    return [_last_accepted(login) if name == "password" else getattr(login, name) for name in names]


def read_password(path: Path) -> str:
    """Returns the password in a file, without the end of its line. Raises OSError or UnicodeDecodeError."""
    return read_small(path).rstrip("\r\n")


def _present(file: str, last: str) -> str:
    try:
        return read_password(Path(file))
    except (OSError, UnicodeDecodeError):
        return last


def _last_accepted(login: ServerLogin) -> str:
    found = _accepted.get(_key(login)) if login.password_file else None
    return login.password if found is None else found.password


def _key(login: ServerLogin) -> tuple[str, str, int, str]:
    return login.password_file, login.host, login.port, login.user
