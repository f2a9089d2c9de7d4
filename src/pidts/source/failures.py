"""Translates errors of MySQL and MariaDB servers into errors that say what to do: retry, correct a setting, or stop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from pidts.login import (
    not_offered,
    number_and_text,
    out_of_order,
    refused,
    seen_host,
    unusable_account,
    without_password,
)
from pidts.model import PidtsError, PrecheckFailed, StructureChanged, Where
from pidts.model.errors import LoginRefused, Transient

CANNOT_CONNECT = frozenset({2001, 2002, 2003, 2005})
LOST = frozenset({1053, 1077, 1079, 1158, 1159, 1160, 1161, 1317, 1927, 2006, 2013, 2014, 2027, 2055, 3169, 4031})
"""Numbers of errors: the server was shut down, a connection or its statement was killed, or the connection broke.

2027: the server has sent a malformed packet.
"""

BUSY = frozenset({1040, 1203, 1205, 1213, 1226, 1412, 3024, 1969, 3032, 3168})
"""Numbers of errors: the server refuses a request at present, for example because of too many connections or a lock.
3032, 3168: the server is in offline mode, or is starting.

1412: the table was altered after the session's snapshot; the next snapshot shows the new structure.
"""
SOURCE_BUSY = "source-busy"
"""The code of an error from a server that is running, but accepts no more work at present."""
LOGIN_REFUSED = frozenset({1044, 1045, 1129, 1130, 1251, 1275, 1396, 1524, 1698, 2054, 2059, 2061, 3159})
PLAIN_REFUSED = frozenset({3159})
OTHER_ACCOUNT = frozenset({1045, 1130, 1698})
"""Numbers of errors: the server has no account for this user and this machine, or another password for it."""
UNKNOWN_PLUGIN = frozenset({1251, 1524, 2059, 2061})
NO_TLS = 2026
NOT_PERMITTED = frozenset({1044, 1045, 1142, 1143, 1227, 1370, 4166})
BINLOG_OFF = frozenset({1381})
STRUCTURE_CHANGED = frozenset({1049, 1054, 1146, 1176})


def explain(error: Exception, where: Where, *, login: bool = False) -> PidtsError:
    """Returns a PidtsError for a driver's error, with the server's own text.

    `login` says whether the error came at the login: a refused password and a refused command have the same numbers.
    """
    number, text = number_and_text(error)
    if login and (refusal := refused(error, "the source", where)) is not None:
        return refusal
    if number == NO_TLS:
        return not_offered("the source", where)
    if number in CANNOT_CONNECT or (number == 0 and isinstance(error, OSError)):
        todo = "Check that the server runs, that host and port are right, and that no firewall blocks the connection"
        return Transient("source-unreachable", text, where=where, todo=todo)
    if number in LOST or isinstance(error, pymysql.err.InterfaceError):
        return Transient("source-lost", f"the connection to the source is lost: {text}", where=where)
    if not login and out_of_order(error):
        return Transient("source-damaged", f"bytes from the source arrived damaged: {text}", where=where)
    if number in BUSY:
        return Transient(SOURCE_BUSY, f"the source is too busy: {text} (error {number})", where=where)
    if unusable := unusable_account(number):
        what = f"the source refuses the account: {text} (error {number})"
        return PrecheckFailed("access-denied", what, where=where, todo=unusable)
    if login and number in LOGIN_REFUSED:
        return _login_refused(number, text, where)
    if number in BINLOG_OFF:
        todo = "Set log_bin in the server's configuration and restart it"
        return PrecheckFailed("binlog-off", "the source writes no binary log", where=where, todo=todo)
    if number in NOT_PERMITTED:
        todo = "Grant the privilege: docs/start/quick-start.md has the statements"
        return PrecheckFailed("missing-privilege", f"{text} (error {number})", where=where, todo=todo)
    if number in STRUCTURE_CHANGED:
        return StructureChanged("structure-changed", f"{text} (error {number})", where=where)
    return PidtsError(
        "source-refused",
        f"{text} (error {number})",
        where=where,
        todo="Remove the cause that the source names, then start again",
    )


def _login_refused(number: int, text: str, where: Where) -> PrecheckFailed:
    todo = "Check the user and the password of this source"
    if number in OTHER_ACCOUNT and (host := seen_host(text)):
        todo += f". The source sees this machine as {host}: create the account for this host, its address, or %"
    todo += "; docs/start/quick-start.md shows the account that PiDTS needs"
    if number in PLAIN_REFUSED:
        todo = "This server refuses connections without TLS: set ssl-mode to required, verify_ca or verify_identity"
    elif number in UNKNOWN_PLUGIN:
        todo = (
            "Give the account a password that clients can log in with: caching_sha2_password (MySQL), "
            "mysql_native_password or ed25519 (MariaDB)"
        )
    todo = without_password(text) or todo
    what = f"the source refuses the login: {text} (error {number})"
    if number in PLAIN_REFUSED or number in UNKNOWN_PLUGIN:
        return PrecheckFailed("access-denied", what, where=where, todo=todo)
    return LoginRefused("access-denied", what, where=where, todo=todo)


@contextmanager
def explained(where: Where, *, login: bool = False) -> Iterator[None]:
    """Turns errors of the driver in the `with` block into PidtsErrors."""
    try:
        yield
    except (pymysql.err.Error, OSError) as error:
        raise explain(error, where, login=login) from error
