"""Logs in with the password that a file has now, so that a running task survives changes of the password.

Servers lock accounts after a few refused logins in a row (FAILED_LOGIN_ATTEMPTS of MySQL, max_password_errors of
MariaDB). A login cannot know which password the server has at present. So it tries only a few passwords:

- First comes the last password that the server has accepted. As long as the file is ahead of the server, no login is
  refused. After the server's change, the first login of each process is refused once.
- While these two passwords differ, only one login of this machine at a time tries them. Many connections that a run
  opens at the same moment would otherwise all try the old password.
- If all are refused, the login waits for another password in the file, which costs no attempt. At the end of the
  wait, the login tries a new file's password once more.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

import structlog

from pidts.bounded_file import read_small
from pidts.model.errors import LoginRefused

_log = structlog.get_logger(__name__)

_Connection = TypeVar("_Connection")

_WAIT_SECONDS = 20.0
"""How long a login waits between a new password in the file and the change on the server, or the reverse."""
_NEW_SECONDS = 60.0
"""A file that was changed in this time may be ahead of the server, also for a process that has just started."""
_LOOK_SECONDS = 1.0
_TURN_SECONDS, _TURN_PAUSE = 5.0, 0.02
"""How long a login waits for its turn: the process that has the turn may be suspended, or its server may be silent."""
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
    """Logs in with the password that the server has now: the file's present password, or the one before it.

    If there is no file, logs in with `login.password`.
    """
    if not login.password_file:
        return _with_fixed_password(log_in, login)
    tried = _present(login)
    try:
        return _with_known_password(log_in, login)
    except LoginRefused as refused:
        later = _awaited_password(login, tried)
        if later is None:
            was_accepted = _key(login) in _accepted
            file = "Write the account's password into" if was_accepted else "The password was read from"
            refused.todo = f"{refused.todo.rstrip('.')}. {file} {login.password_file}"
            raise
    with _alone(login.password_file):
        return _accepted_by(log_in, login, later)


def _with_fixed_password(log_in: Callable[[str], _Connection], login: ServerLogin) -> _Connection:
    try:
        return _accepted_by(log_in, login, login.password)
    except LoginRefused as refused:
        if _key(login) in _accepted:
            refused.todo = refused.todo.rstrip(".") + _CHANGED
        raise


def _with_known_password(log_in: Callable[[str], _Connection], login: ServerLogin) -> _Connection:
    """Logs in with the last password that the server has accepted, or else with the present one of the file."""
    if (last := _last_accepted(login)) == _present(login):
        return _accepted_by(log_in, login, last)
    with _alone(login.password_file):
        # Another thread may have logged in meanwhile.
        last, present = _last_accepted(login), _present(login)
        if last != present:
            with suppress(LoginRefused):
                return _accepted_by(log_in, login, last)
        return _accepted_by(log_in, login, present)


def _awaited_password(login: ServerLogin, tried: str) -> str | None:
    """Waits for a change of the file or the server; returns the password to try then, or None if nothing may help."""
    accepted = _accepted.get(_key(login))
    is_new = _is_new(login.password_file)
    if not is_new and (accepted is None or not Path(login.password_file).exists()):
        return None
    _log.info(
        "a server refuses the password of a file, which may be changed at this moment",
        file=login.password_file,
        server=f"{login.host}:{login.port}",
        waits_seconds=_WAIT_SECONDS,
    )
    ends = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < ends:
        time.sleep(_LOOK_SECONDS)
        if (present := _present(login)) != tried:
            return present
    return tried if is_new and accepted != _Accepted(tried) else None


def _accepted_by(log_in: Callable[[str], _Connection], login: ServerLogin, password: str) -> _Connection:
    connection = log_in(password)
    _accepted[_key(login)] = _Accepted(password)
    return connection


@contextmanager
def _alone(file: str) -> Iterator[None]:
    """Waits for a while until no other login of this machine, in any process, is in this block."""
    with ExitStack() as stack:
        with suppress(OSError):  # the file may be gone, or its file system may have no locks
            locked = stack.enter_context(Path(file).open("rb"))
            ends = time.monotonic() + _TURN_SECONDS
            while not _has_locked(locked) and time.monotonic() < ends:
                time.sleep(_TURN_PAUSE)
            # Closing the file would not end the lock if another thread has forked a process meanwhile.
            stack.callback(fcntl.flock, locked, fcntl.LOCK_UN)
        yield


def _has_locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def state_for_another_process(login: ServerLogin) -> list[Any]:
    """Returns the pickled state of a frozen, slotted dataclass, with the last accepted password in it.

    A new process, such as a worker of Spark, does not know which passwords this process has used.
    """
    names = (one.name for one in fields(login))  # type: ignore[arg-type]
    return [_last_accepted(login) if name == "password" else getattr(login, name) for name in names]


def read_password(path: Path) -> str:
    """Returns the password in a file, without the end of its line. Raises OSError or UnicodeDecodeError."""
    return read_small(path).rstrip("\r\n")


def present_password(file: str, known: str) -> str:
    """Returns the password in the file, or `known` if there is no file, or if the file cannot be read now."""
    try:
        return read_password(Path(file)) if file else known
    except (OSError, UnicodeDecodeError):
        return known


def _present(login: ServerLogin) -> str:
    return present_password(login.password_file, _last_accepted(login))


def _is_new(file: str) -> bool:
    with suppress(OSError):
        return time.time() - Path(file).stat().st_mtime < _NEW_SECONDS
    return False


def _last_accepted(login: ServerLogin) -> str:
    found = _accepted.get(_key(login)) if login.password_file else None
    return login.password if found is None else found.password


def _key(login: ServerLogin) -> tuple[str, str, int, str]:
    return login.password_file, login.host, login.port, login.user
