"""Translates PostgreSQL's errors into PiDTS's own errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg

from pidts.login import not_offered, not_trusted, other_host, without_password
from pidts.model import DatabaseMissing, Halted, PidtsError, PrecheckFailed, TableName, Transient, Where
from pidts.model.advice import COMPARE_TODO
from pidts.model.errors import AccessNotGranted, LoginRefused, sentence
from pidts.target.fit import CHANGED_TODO, GONE_TODO
from pidts.target.postgres.dialect import identifier, literal, qualified
from pidts.target.refusals import (
    ADMIN_TODO,
    NO_CONNECTION,
    NO_CONNECTION_TODO,
    TARGET_FULL,
    UNREACHABLE_TODO,
    account_todo,
    constraint_todo,
    dependents_todo,
    foreign_key_todo,
    full_todo,
    grants_command,
    index_todo,
    not_null_todo,
    trigger_todo,
)

_TRANSIENT_CLASSES = ("08", "40", "53", "57")
_TRANSIENT = frozenset({"55P03", "25006", "25P03", "25P04"})
_DISK_FULL = "53100"
_NO_CONNECTION = "53300"
_NOT_PERMITTED = "42501"
_NO_ENTRY = "no pg_hba.conf entry"
_NO_LOGIN, _NO_SUCH_DATABASE = "28", "3D000"
"""The class of SQLSTATEs of a refused account or password, and the SQLSTATE of a missing database."""
_DENIED_STATES = frozenset({_NO_SUCH_DATABASE, _NOT_PERMITTED})
_SHAPE_TODO = {"42P01": GONE_TODO, "3F000": GONE_TODO, "42703": CHANGED_TODO}
"""The advice to the operator if a table, its schema or a column is missing, for statements about the table's rows."""
_FOREIGN_KEY = "23503"
_UNIQUE = "23505"
_NOT_NULL = "23502"
_INDEXED = re.compile(r"\((.+?)\)=\(")
"""The columns of a unique index in an error's detail."""
_CONSTRAINTS = {"23514": "CHECK constraint", "23P01": "exclusion constraint", _FOREIGN_KEY: "foreign key"}
"""The kinds of constraints, except unique keys, by the SQLSTATE of their errors."""
_FUNCTION = re.compile(r"^(?:PL/\S+|SQL)[ -]\S*[Ff]un.*", re.MULTILINE)
"""The line in an error's context that names a function. When PiDTS writes a row, only triggers, CHECK constraints and
generated columns call functions.
"""
_ALTERS_TYPE = frozenset({"ATExecAlterColumnType", "RememberAllDependentForRebuilding"})
"""The functions in PostgreSQL's code that refuse to change a column's type if other objects depend on the column."""
_NAME = r'(?:"(?:[^"]|"")+"|[^\s."]+)'
_DEPENDENT_VIEW = re.compile(rf"\b((?:materialized )?view) ({_NAME}(?:\.{_NAME})?) depends on")
"""A view in an error's detail, and its name as SQL."""
_NO_DATABASE = re.compile(r'database ".+" does not exist')
"""The error for a missing database. The quotes exclude a host that is called `database`."""
_QUESTION = "Is the server running "
"""The beginning of a line that the driver adds if it reaches no server. `UNREACHABLE_TODO` asks the same question."""
_OF_SERVER = "connection to server "
"""A part of the driver's text if the host's name was resolved."""
_DENIED = (
    "authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "no password supplied",
    "permission denied for database",
)
_NONE_FREE = ("too many clients", "too many connections", "remaining connection slots", "no more connections allowed")
"""Parts of the errors of a server, or of a pooler, that has no free connection. The driver's error of a login has no
SQLSTATE. A server with translated messages has other texts: see `login_refusal`.
"""
_NOT_READY = "the database system is "
"""The beginning of the errors of a server that is starting, shutting down or in recovery."""


class StatementRefused(Halted):
    """The error for a statement that PostgreSQL has refused."""

    sqlstate = ""
    columns: tuple[str, ...] = ()
    """The columns of the unique index that has refused a row; empty if the server does not name them."""
    without_index = ""
    """The advice to the operator if only the target's table has the unique index over `columns`."""

    @property
    def lacks_privilege(self) -> bool:
        """Whether the server has refused the statement because the role lacks a privilege."""
        return self.sqlstate == _NOT_PERMITTED

    @property
    def is_duplicate(self) -> bool:
        """Whether another row has one of the row's unique values."""
        return self.sqlstate == _UNIQUE


@contextmanager
def mapped(table: str = "") -> Iterator[None]:
    """Translates errors that the driver raises in this block."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error, table) from error


def translate(error: psycopg.Error, table: str = "", *, at_commit: bool = False, grant: str = "") -> PidtsError:
    """Translates an error; its message is the server's first line and its detail.

    `table` is the table whose rows the statement concerns; empty for other statements. With `at_commit`, the error may
    be about a row, too, since COMMIT checks deferred constraints. `grant` lets the session's role switch off triggers
    and foreign keys; it is empty if they are off.
    """
    state = error.sqlstate or ""
    where = Where(table=table)
    what = _message(error)
    if not state and isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)):
        return Transient("target-lost", f"the connection to PostgreSQL is lost: {what}", where=where)
    if state == _DISK_FULL:
        return Transient(TARGET_FULL, f"PostgreSQL has no space: {what} ({state})", where=where, todo=full_todo())
    if state == _NO_CONNECTION:
        what = f"PostgreSQL has no free connection: {what} ({state})"
        return Transient(NO_CONNECTION, what, where=where, todo=NO_CONNECTION_TODO)
    if state[:2] in _TRANSIENT_CLASSES or state in _TRANSIENT:
        return Transient("target-busy", f"PostgreSQL: {what} ({state})", where=where)
    code, todo = "target-refused", COMPARE_TODO
    # If a trigger's function has failed, the error has a context. Then a table of this function may be missing.
    if table and state in _SHAPE_TODO and not error.diag.context:
        code, todo = "target-shape", _SHAPE_TODO[state]
    elif state == _NOT_PERMITTED:
        todo = "Grant the missing privilege to the task's user: pidts check TASK prints the statement"
    elif table or at_commit:
        todo = _row_todo(error, grant) or todo
    what = f"PostgreSQL: {what} ({state or type(error).__name__})"
    if state == "2BP01" or (state == "0A000" and error.diag.source_function in _ALTERS_TYPE):
        todo = dependents_todo(_views(error.diag.message_detail or ""))
        refused = StatementRefused("objects-depend", what, where=where, todo=todo)
    else:
        refused = StatementRefused(code, what, where=where, todo=todo)
    refused.sqlstate = state
    if table and state == _UNIQUE:
        refused.columns, refused.without_index = _refusing_index(error)
    return refused


def _refusing_index(error: psycopg.Error) -> tuple[tuple[str, ...], str]:
    """Returns the columns of the unique index that refuses a row, and advice if only the target has the index."""
    diag = error.diag
    found = _INDEXED.search(diag.message_detail or "")
    if not found or not diag.constraint_name or not diag.schema_name or not diag.table_name:
        return (), ""
    name, table = identifier(diag.constraint_name), qualified(TableName(diag.schema_name, diag.table_name))
    index = qualified(TableName(diag.schema_name, diag.constraint_name))
    columns = tuple(column.strip('"').replace('""', '"') for column in found[1].split(", "))
    return columns, index_todo(
        f"{name} of {table}", f"DROP INDEX {index}", f"ALTER TABLE {table} DROP CONSTRAINT {name}"
    )


def _row_todo(error: psycopg.Error, grant: str) -> str:
    """Returns the advice after a constraint or a trigger has refused a row; empty if the server names none."""
    diag = error.diag
    if called := _FUNCTION.search(diag.context or ""):
        return trigger_todo(called[0], grant)
    if error.sqlstate == _NOT_NULL and diag.column_name and diag.schema_name and diag.table_name:
        table, column = qualified(TableName(diag.schema_name, diag.table_name)), identifier(diag.column_name)
        return not_null_todo(f"{column} of {table}", f"ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL")
    kind = _CONSTRAINTS.get(error.sqlstate or "")
    if not kind or not diag.constraint_name or not diag.schema_name:
        return ""
    name = identifier(diag.constraint_name)
    if diag.table_name:
        table = qualified(TableName(diag.schema_name, diag.table_name))
        constraint, remedy = f"{kind} {name} of {table}", f"ALTER TABLE {table} DROP CONSTRAINT {name}"
        if error.sqlstate == _FOREIGN_KEY:
            return foreign_key_todo(constraint, remedy, grant)
        return constraint_todo(constraint, remedy)
    if diag.datatype_name:
        domain = qualified(TableName(diag.schema_name, diag.datatype_name))
        return constraint_todo(f"{kind} {name} of the domain {domain}", f"ALTER DOMAIN {domain} DROP CONSTRAINT {name}")
    return ""


def _views(detail: str) -> list[str]:
    """Returns statements that show and drop the views that depend on a table, according to the server's message.

    The server names a view before the views that depend on it, so the last view is dropped first.
    """
    found = list(dict.fromkeys(_DEPENDENT_VIEW.findall(detail)))
    shown = [f"SELECT pg_get_viewdef({literal(name)}::regclass)" for _, name in found]
    return [*shown, *(f"DROP {kind.upper()} {name}" for kind, name in reversed(found))]


def translate_connect(error: psycopg.Error, place: str, ask: Callable[[], str] = str) -> PidtsError:
    """Translates an error of a login; a refused login is permanent, since the next attempt would be refused, too.

    `ask` returns the SQLSTATE of the error, or an empty text. It is called if the server may have translated the
    error's text.
    """
    what = _message(error)
    who = f"the target {place}"
    if asks_for_clear_password(error):
        asked = f"PostgreSQL at {place} asks for the password in clear text, and the connection is not encrypted"
        todo = "Change `password` to `scram-sha-256` in the target's pg_hba.conf, or use TLS: set ssl-mode to required"
        return PrecheckFailed("target-denied", asked, todo=todo)
    if offers_no_tls(error):
        return not_offered(who)
    if "does not match host name" in what:
        return other_host(who, what)
    if "certificate verify failed" in what:
        return not_trusted(who, what)
    is_denied, has_none_free = (any(words in what for words in known) for known in (_DENIED, _NONE_FREE))
    is_silent = isinstance(error, psycopg.errors.ConnectionTimeout) or _QUESTION in str(error)
    may_be_translated = _OF_SERVER in what and not (is_denied or has_none_free or is_silent or _NOT_READY in what)
    state = ask() if may_be_translated else ""
    if is_denied or state in _DENIED_STATES or state.startswith(_NO_LOGIN):
        denied, todo = f"PostgreSQL at {place}: {what}", _login_todo(what, place, state)
        if _lacks_database(what, state):
            return DatabaseMissing("target-denied", denied, todo=todo)
        if _NO_ENTRY in what:
            return PrecheckFailed("target-denied", denied, todo=todo)
        if _lacks_access(what, state):
            return AccessNotGranted("target-denied", denied, todo=todo)
        return LoginRefused("target-denied", denied, todo=todo)
    if has_none_free or state == _NO_CONNECTION:
        what = f"PostgreSQL at {place} has no free connection: {what}"
        return Transient(NO_CONNECTION, what, todo=NO_CONNECTION_TODO)
    return Transient("target-unreachable", f"PostgreSQL at {place}: {what}", todo=UNREACHABLE_TODO)


def asks_for_clear_password(error: psycopg.Error) -> bool:
    """Whether a login has ended because the server asked for the password in clear text."""
    return "server requested a cleartext password" in str(error)


def offers_no_tls(error: psycopg.Error) -> bool:
    """Whether a login that demands TLS has ended because the server offers none."""
    return "server does not support SSL" in str(error)


def _lacks_database(what: str, state: str) -> bool:
    return state == _NO_SUCH_DATABASE or _NO_DATABASE.search(what) is not None


def _lacks_access(what: str, state: str) -> bool:
    return state == _NOT_PERMITTED or "permission denied for database" in what


def _login_todo(what: str, place: str, state: str) -> str:
    grants = grants_command("postgresql", place)
    if _lacks_database(what, state):
        return "Run on the target: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0; or correct target-database"
    if _NO_ENTRY in what:
        return "Add this machine's address to the target's pg_hba.conf, then run on the target: SELECT pg_reload_conf()"
    if _lacks_access(what, state):
        return f"As an administrator of the target, run the statements that `{grants}` prints. {ADMIN_TODO}"
    return without_password(what) or account_todo(f"`{grants}` prints CREATE ROLE and GRANT")


def _message(error: psycopg.Error) -> str:
    if error.diag.message_primary:
        return "; ".join(filter(None, (error.diag.message_primary, error.diag.message_detail)))
    # The driver's text has the server's hint in a line of its own.
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith(_QUESTION)]
    return " ".join(line if line.endswith((":", ",", ";")) else sentence(line) for line in lines).removesuffix(".")
