"""Translates errors of MySQL, MariaDB and TiDB into PiDTS's own errors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pymysql

from pidts.login import not_offered, number_and_text, refused, seen_host, unusable_account, without_password
from pidts.model import TRANSACTION_TOO_LARGE, DatabaseMissing, Halted, PidtsError, PrecheckFailed, Transient, Where
from pidts.model.advice import COMPARE_TODO, REPLACE, RESYNC, RETRY, SKIP
from pidts.model.errors import NOWHERE, AccessNotGranted, LoginRefused
from pidts.schema import quote
from pidts.schema.defaults import literal
from pidts.target.fit import CHANGED_TODO, GONE_TODO
from pidts.target.refusals import (
    ADMIN_TODO,
    NO_CONNECTION,
    NO_CONNECTION_TODO,
    TARGET_FULL,
    UNREACHABLE_TODO,
    account_todo,
    constraint_todo,
    dependents_todo,
    full_todo,
    grants_command,
    not_null_todo,
    trigger_todo,
)

_DENIED = frozenset({1044, 1045, 1049, 1130, 1142, 1227, 1251, 1524, 1698, 2059, 3159})
_PLAIN_REFUSED = frozenset({3159})
_NOT_GRANTED = frozenset({1044, 1142, 1143, 1227, 1370})
_OTHER_PLUGIN = frozenset({1251, 1524, 2059})
_HOST_REFUSED = 1130
_NO_TLS = 2026
TWO_ROWS = 1242
"""The number of the error for a subquery with two rows. PiDTS uses this subquery to make a statement fail."""
_NO_ACCESS = 1044
_NO_ACCESS_TODO = (
    "Check the spelling of the database: the server gives the same answer if there is no such database. If the name is "
    "right, the account lacks privileges"
)
"""The advice after a login with a database that the account may not use."""
_NO_SUCH_DATABASE, _NO_SUCH_TABLE, _NO_SUCH_COLUMN = 1049, 1146, 1054
_TABLE_FULL = 1114
_LOST = frozenset(
    {
        0,
        1053,
        1077,
        1079,
        1080,
        1152,
        1156,
        1157,
        1158,
        1159,
        1160,
        1161,
        1184,
        1317,
        1927,
        2002,
        2003,
        2006,
        2013,
        2014,
        2027,  # an answer that does not follow the protocol
        2055,
        3169,
        4031,
    }
)
_BUSY = frozenset(
    {
        5,  # out of memory (MySQL)
        1020,  # row changed since the snapshot (MariaDB)
        1037,
        1041,
        1047,  # a Galera node that is not ready
        1135,
        1180,  # COMMIT failed inside the server: the next attempt locks the checkpoint, and reads the outcome from it
        1205,
        1206,
        1213,
        1226,
        1290,  # --read-only: a fail-over may be under way
        1297,
        1412,  # the table's definition changed under the transaction
        1613,
        1614,
        1637,
        1792,
        1836,
        1969,
        3024,
        3032,  # offline mode
        3058,
        3100,  # group replication: no answer at commit, rolled back
        3101,  # group replication: conflict at COMMIT
        3572,
        8002,  # TiDB: write conflicts and commits that were rolled back
        8005,
        8020,  # TiDB: the table is locked
        8022,
        8027,  # TiDB: the table's structure changed, or this node does not know it yet
        8028,
        8229,  # TiDB: the transaction took too long
        9001,
        9002,
        9003,
        9004,
        9005,
        9006,
        9007,
        9008,
        9010,
    }
)
_NO_CONNECTION = frozenset({1040, 1203})
"""The errors if all connections of the server or the account are in use. A proxy may send them within a session."""
_OVER_LIMIT = 1226
"""The account has exceeded one of its limits: at a login its connections, in a session for example its queries."""
_FULL = frozenset(
    {
        20,  # disk full
        1021,  # disk full
        1114,  # table full: mostly the disk of its file, else a limit of its storage engine
        1878,  # a temporary file cannot be written
        3675,  # disk full
    }
)
_OF_FILES = frozenset({1, 3, 4, 27, 1004, 1005, 1006, 1023, 1025, 1026, 1030, 1180})
"""Errors of files and storage engines. Only their text says whether the disk is full."""
_LOG_TODO = (
    "The target's storage engine or its files have failed, and the message does not name the cause. Read the target's "
    "error log, and remove the cause that it names"
)
"""The advice for an error of `_OF_FILES` if a full disk is not the cause. It does not advise to wait: the storage
engine's number 168 also stands for a damaged file or a missing permission.
"""
_NO_SPACE = re.compile(r"(?:errno:?|errcode:|got error) (?:28\b|122 .{0,3}Disk quota)", re.IGNORECASE)
"""The operating system's number for a full disk (28) or a full quota (122), in the text of an error of `_OF_FILES`. A
storage engine uses the number 122 for another error.
"""
_FULL_LIMITS = (
    "If the disk has room, look at the limit of the table's storage engine (innodb_data_file_path, max_heap_table_size)"
)
_BY_LOG = {
    1180: "If the error stays, read the target's error log: COMMIT fails inside the server",
    3100: (
        "If the error stays, read the target's error log. If a transaction exceeds "
        "group_replication_transaction_size_limit, raise this limit, or let large transactions be split: "
        "pidts.split-transactions"
    ),
}
"""The advice for errors that end by themselves only in some cases, and whose texts do not name the cause."""
_DEPENDED_ON = frozenset(
    {
        1553,  # an index that a foreign key needs
        1828,  # a column of a foreign key
        1829,  # a column to which a foreign key of another table refers
        1832,
        1833,
        3108,  # a column that a generated column needs
        3837,  # a column that an index over expressions needs
        3959,  # a column that a CHECK constraint needs
    }
)
"""Errors of a schema change on which other objects depend. Views do not prevent a change."""
_NAME_TAKEN = {1060: "column", 1061: "index"}
"""The errors of a schema change whose new column or index has the name of another one."""
_QUOTED = re.compile(r"'(.+)'")
_SIGNALLED = 1644
"""The number of the error that a trigger raises by SIGNAL."""
_CHECKED = frozenset({3819, 4025})
"""The errors of MySQL and of MariaDB for a row that a CHECK constraint refuses."""
_NO_VALUE = frozenset({1048, 1263, 1364})
"""The errors, and the warning of a load, for a row without a value for a column that is NOT NULL."""
_WRONG_VALUE, _OUT_OF_RANGE = 1292, 1264
_LONG_TIME = re.compile(r"time value: '-?838:59:59\.0*[1-9]")
_LONG_TIME_TODO = (
    f"A TIME of MySQL is between -838:59:59.000000 and 838:59:59.000000; MariaDB also allows fractions of the last "
    f"second. Change the value on the source, then copy the table again: {RESYNC}"
)
"""The advice after a TIME value that only MariaDB can store."""
_COLUMN = re.compile(r"(?:[Cc]olumn|Field) '([^']+)'")
DUPLICATE = frozenset({1062, 1586})
"""The errors for a row that has a unique value of another row."""
_CONSTRAINT = re.compile(r"'(.+)'|`((?:[^`]|``)+)`")
"""The first name in the message of a CHECK constraint."""
_ENTRY_TOO_LARGE = 8025
"""The number of TiDB's error for a row that exceeds its limit."""
_SPLIT = "or let large transactions be split: pidts.split-transactions"
_TIDB_LIMITS = f"Raise tidb_mem_quota_query or txn-total-size-limit on the target, {_SPLIT}"
_TOO_LARGE = {
    1197: f"Raise max_binlog_cache_size on the target, {_SPLIT}",
    **dict.fromkeys((8001, 8004, 8175), _TIDB_LIMITS),
}
"""The errors for a transaction that exceeds a limit of the server, each with the advice."""


class StatementRefused(Halted):
    """The error for a statement that the server has refused, with the server's error number."""

    number = 0

    @property
    def lacks_privilege(self) -> bool:
        """Whether the server has refused the statement because the account lacks a privilege."""
        return self.number in _NOT_GRANTED

    @property
    def is_duplicate(self) -> bool:
        """Whether another row has one of the row's unique values."""
        return self.number in DUPLICATE


@contextmanager
def mapped(table: str = "") -> Iterator[None]:
    """Translates errors of the driver; the driver passes errors of sockets on unchanged."""
    try:
        yield
    except (pymysql.err.Error, OSError) as error:
        raise translate(error, table) from error


def translate(error: Exception, table: str = "") -> PidtsError:
    """Translates an error, with the server's own text."""
    number, text = number_and_text(error)
    where = Where(table=table)
    if isinstance(error, OSError | pymysql.err.InterfaceError) or number in _LOST:
        return Transient("target-lost", f"the connection to the target is lost: {text}", where=where)
    if number in _FULL or (number in _OF_FILES and _NO_SPACE.search(text)):
        what = f"the target has no space: {text} (error {number})"
        return Transient(TARGET_FULL, what, where=where, todo=full_todo(_FULL_LIMITS if number == _TABLE_FULL else ""))
    if number in _NO_CONNECTION:
        return _without_connection("the target", number, text, where)
    if number in _BUSY:
        todo = _BY_LOG.get(number, "")
        return Transient("target-busy", f"the target: {text} (error {number})", where=where, todo=todo)
    if unusable := unusable_account(number):
        return PrecheckFailed("target-denied", f"the target: {text} (error {number})", where=where, todo=unusable)
    code, todo = "target-refused", refused_row_todo(number, text, table) if table else COMPARE_TODO
    if _is_gone(number, text, table):
        code, todo = "target-shape", GONE_TODO
    elif table and number == _NO_SUCH_COLUMN:
        code, todo = "target-shape", CHANGED_TODO
    elif number in _OF_FILES:
        todo = _LOG_TODO
    elif number == _ENTRY_TOO_LARGE:
        todo = "Raise txn-entry-size-limit on the target"
    elif number in _NOT_GRANTED:
        todo = "Grant the missing privilege to the task's user: pidts check TASK prints the statement"
    elif not table and number in _NAME_TAKEN and (named := _QUOTED.search(text)):
        todo = _taken_todo(_NAME_TAKEN[number], quote(named[1]))
    what = f"the target: {text} (error {number})"
    if number in _DEPENDED_ON:
        refused = StatementRefused("objects-depend", what, where=where, todo=dependents_todo())
    elif number in _TOO_LARGE:
        refused = StatementRefused(TRANSACTION_TOO_LARGE, what, where=where, todo=_TOO_LARGE[number])
    else:
        refused = StatementRefused(code, what, where=where, todo=todo)
    refused.number = number
    return refused


def _taken_todo(kind: str, name: str) -> str:
    return (
        f"The target's table already has {kind} {name}. If it is the same as on the source, run {SKIP}; this leaves "
        f"out the whole statement. Otherwise drop it on the target (ALTER TABLE ... DROP {kind.upper()} {name}), and "
        f"then run {RETRY}. Or give a statement without it, or with another name: run {REPLACE}"
    )


def refused_row_todo(number: int, text: str, table: str, times: Collection[str] = ()) -> str:
    """Returns the advice to the operator after the server has refused a row of the table with this error or warning.

    `table` is `schema.name`. If one of the two names contains a dot, it is not known where the schema ends. Then the
    advice has no statement, which might name another table. `times` are columns of type TIME.
    """
    schema, _, own_name = table.partition(".")
    by_trigger = number == _SIGNALLED or (number == _NO_SUCH_TABLE and not _is_gone(number, text, table))
    if "." in own_name:
        return trigger_todo(f"SHOW TRIGGERS lists the triggers of {table}") if by_trigger else COMPARE_TODO
    if by_trigger:
        shown = f"SHOW TRIGGERS FROM {quote(schema)} WHERE `Table` = {literal(own_name)}"
        return trigger_todo(f"{shown} lists the triggers")
    if number in _NO_VALUE and (named := _COLUMN.search(text)):
        place, column = f"{quote(schema)}.{quote(own_name)}", quote(named[1])
        remedy = f"ALTER TABLE {place} MODIFY {column} ... NULL, with the column's type instead of the dots"
        return not_null_todo(f"{column} of {place}", remedy)
    is_long = number == _OUT_OF_RANGE and (named := _COLUMN.search(text)) is not None and named[1] in times
    if is_long or (number == _WRONG_VALUE and _LONG_TIME.search(text)):
        return _LONG_TIME_TODO
    if number not in _CHECKED or not (found := _CONSTRAINT.search(text)):
        return COMPARE_TODO
    name, place = found[1] or found[2].replace("``", "`"), f"{quote(schema)}.{quote(own_name)}"
    if name.startswith(f"{own_name}."):
        # MariaDB names a CHECK that is written with its column by the table and the column.
        column = quote(name.removeprefix(f"{own_name}."))
        remedy = f"ALTER TABLE {place} MODIFY {column} ..., with the column's definition but without CHECK"
        return constraint_todo(f"CHECK constraint of column {column} of {place}", remedy)
    constraint = quote(name)
    return constraint_todo(
        f"CHECK constraint {constraint} of {place}", f"ALTER TABLE {place} DROP CONSTRAINT {constraint}"
    )


def _is_gone(number: int, text: str, table: str) -> bool:
    """Whether the server lacks this table or its database. False if a trigger of the table lacks another table."""
    mine, said = table.casefold(), text.casefold()
    if number == _NO_SUCH_DATABASE:
        database = said.partition("'")[2].rpartition("'")[0]
        return mine.startswith(f"{database}.")
    return number == _NO_SUCH_TABLE and bool(table) and f"'{mine}'" in said


def translate_connect(error: Exception, place: str) -> PidtsError:
    """Translates an error of a login; a refused login is permanent, since the next attempt would be refused, too."""
    number, text = number_and_text(error)
    if (refusal := refused(error, f"the target {place}")) is not None:
        return refusal
    if number == _NO_TLS:
        return not_offered(f"the target {place}")
    if unusable := unusable_account(number):
        return PrecheckFailed("target-denied", f"target {place}: {text} (error {number})", todo=unusable)
    if number in _DENIED:
        what, todo = f"target {place}: {text} (error {number})", _login_todo(number, text, place)
        if number == _NO_SUCH_DATABASE:
            return DatabaseMissing("target-denied", what, todo=todo)
        if number in _PLAIN_REFUSED or number in _OTHER_PLUGIN:
            return PrecheckFailed("target-denied", what, todo=todo)
        if number == _HOST_REFUSED or number in _NOT_GRANTED:
            return AccessNotGranted("target-denied", what, todo=todo)
        return LoginRefused("target-denied", what, todo=todo)
    if number in _NO_CONNECTION or number == _OVER_LIMIT:
        return _without_connection(f"target {place}", number, text)
    return Transient("target-unreachable", f"target {place}: {text}", todo=UNREACHABLE_TODO)


def _without_connection(target: str, number: int, text: str, where: Where = NOWHERE) -> Transient:
    what = f"{target} has no free connection: {text} (error {number})"
    return Transient(NO_CONNECTION, what, where=where, todo=NO_CONNECTION_TODO)


def _login_todo(number: int, text: str, place: str) -> str:
    host = seen_host(text) or ("ADDRESS" if number == _HOST_REFUSED else "")
    grants = grants_command("mysql", f"{place}/", host)
    if number in _PLAIN_REFUSED:
        return "Set ssl-mode to required, verify_ca or verify_identity"
    if number == _NO_SUCH_DATABASE:
        return "Create the database on the target (CREATE DATABASE), or correct target-database in the task file"
    if number == _HOST_REFUSED:
        return f"Create the account for this machine's address: `{grants}` prints the statements. {ADMIN_TODO}"
    if number in _NOT_GRANTED:
        todo = f"As an administrator of the target, run the statements that `{grants}` prints. {ADMIN_TODO}"
        return f"{_NO_ACCESS_TODO}. {todo}" if number == _NO_ACCESS else todo
    if number in _OTHER_PLUGIN:
        return "Run on the target: ALTER USER ... IDENTIFIED WITH caching_sha2_password BY '...' (MariaDB: ed25519)"
    return without_password(text) or account_todo(f"`{grants}` prints CREATE USER and GRANT", host)
