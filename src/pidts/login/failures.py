"""Turns errors of a login and of a TLS handshake into errors that say what has to be corrected."""

from __future__ import annotations

import re
import ssl

import pymysql

from pidts.model import PrecheckFailed, Where
from pidts.model.errors import NOWHERE

_NONE_SENT = {
    "using password: NO": ("MYSQL_PWD", "mysql://user:${VARIABLE}@host:port/"),
    "no password supplied": ("PGPASSWORD", "postgresql://user:${VARIABLE}@host:port/database"),
}
"""Texts by which the errors of MySQL, MariaDB and PostgreSQL show that a login had no password.

The values are the environment variable from which commands read a URL's password, and a URL that names another
variable.
"""
_LOCKED = "As an administrator of this server, run: ALTER USER 'user'@'host' ACCOUNT UNLOCK"
_TOO_MANY = "The server has refused too many logins of this account in a row. Find the program with a wrong password"
_EXPIRED = "Give the account a new password: ALTER USER 'user'@'host' IDENTIFIED BY 'new password'"
_UNUSABLE = {
    1820: _EXPIRED,
    1862: _EXPIRED,
    3118: _LOCKED,
    3955: f"{_TOO_MANY} (MySQL counts them: FAILED_LOGIN_ATTEMPTS). {_LOCKED}",
    4150: f"{_TOO_MANY} (MariaDB counts them: max_password_errors). As an administrator of this server, run: FLUSH "
    "PRIVILEGES",
    4151: _LOCKED,
}
"""The advice for errors of MySQL and MariaDB after which the account can use no password, keyed by the error's number.

MariaDB lets an account with an expired password log in, and then refuses its statements (1820).
"""
_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""Errors that mean a broken connection, and not a refusal by the server."""
_DAMAGED = ("BAD_RECORD_MAC",)
"""OpenSSL's reason if the network has damaged bytes. A retry may help."""
_HOST_DIFFERS = frozenset({62, 64})
"""OpenSSL's two error numbers for a certificate that is not for this host name, or not for this address."""


def number_and_text(error: Exception) -> tuple[int, str]:
    """Returns the number and the text of an error of the MySQL driver; the number is 0 if the server sent none."""
    if isinstance(error, pymysql.err.Error) and len(error.args) >= 2 and isinstance(error.args[0], int):
        return error.args[0], str(error.args[1])
    return 0, str(error) or type(error).__name__


def unusable_account(number: int) -> str:
    """Returns the advice if an account is locked or its password has expired; empty for another error's number."""
    return _UNUSABLE.get(number, "")


_SEEN = re.compile(r"for user '.*'@'([^']+)'|^Host '([^']+)' is not allowed")
"""Matches MySQL's errors for refused logins. A group is the name of this machine as the server sees it."""


def seen_host(said: str) -> str:
    """Returns this machine's name or address as a MySQL server sees it, from the text of a refused login.

    An account is for one host or a pattern of hosts, which the server compares with this name. Returns an empty text if
    the error does not contain the name.
    """
    found = _SEEN.search(said)
    return (found[1] or found[2]) if found else ""


def without_password(said: str) -> str:
    """Returns advice if the server's error says that the client has sent no password; otherwise an empty text."""
    for part, (variable, url) in _NONE_SENT.items():
        if part in said:
            return (
                "No password was sent. In a task file, give the server a `password`. For a URL, set "
                f"the environment variable {variable}, or name another variable in the URL: '{url}'"
            )
    return ""


def refused(error: BaseException, who: str, where: Where = NOWHERE) -> PrecheckFailed | None:
    """Returns the error for a failed TLS handshake; None if TLS is not the cause, or if a retry may help."""
    found = _cause(error)
    if found is None or isinstance(found, _CUT) or (found.reason or "").endswith(_DAMAGED):
        return None
    if isinstance(found, ssl.SSLCertVerificationError):
        if found.verify_code in _HOST_DIFFERS:
            return other_host(who, found.verify_message, where)
        return not_trusted(who, found.verify_message, where)
    what = f"the TLS handshake with {who} failed: {found.reason or found}"
    todo = (
        "Does the server require a client certificate (ssl-cert, ssl-key)? Or does the server support only TLS "
        "versions that are no longer allowed? The server's error log may say more"
    )
    return PrecheckFailed("tls-failed", what, where=where, todo=todo)


def out_of_order(error: BaseException) -> bool:
    """Whether the MySQL driver received a packet out of order, because the network has damaged a packet's length."""
    return isinstance(error, pymysql.err.InternalError) and str(error.args[0]).startswith("Packet sequence number")


def not_trusted(who: str, said: str, where: Where = NOWHERE) -> PrecheckFailed:
    """Returns the error for a certificate of an unknown authority, or an expired certificate."""
    todo = (
        "Set ssl-ca to the file with the authority that signed the certificate. If the certificate has expired, the "
        "server needs a new one. Or does another server answer at this address?"
    )
    return PrecheckFailed("tls-certificate", f"the certificate of {who} is not trusted: {said}", where=where, todo=todo)


def other_host(who: str, said: str, where: Where = NOWHERE) -> PrecheckFailed:
    """Returns the error for a valid certificate that does not name the host of the connection."""
    what = f"the certificate of {who} belongs to another host: {said}"
    todo = (
        "Connect by a name that is in the certificate, or use ssl-mode: verify_ca if you trust all certificates of its "
        "authority"
    )
    return PrecheckFailed("tls-host", what, where=where, todo=todo)


def not_offered(who: str, where: Where = NOWHERE) -> PrecheckFailed:
    """Returns the error for a server that does not offer the required TLS."""
    todo = (
        "Give the server a certificate (ssl_cert, ssl_key in its configuration), or allow a plain connection with "
        "ssl-mode: preferred"
    )
    return PrecheckFailed("tls-not-offered", f"{who} offers no TLS", where=where, todo=todo)


def _cause(error: BaseException) -> ssl.SSLError | None:
    """Returns the TLS error among the causes and attributes of a driver's error; None if there is none."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        if isinstance(one, ssl.SSLError):
            return one
        seen.add(id(one))
        left += [one.__cause__, one.__context__, getattr(one, "original_exception", None)]
    return None
