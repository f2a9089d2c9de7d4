"""Checks whether a source is suitable for a task. A failed check shows the statement or setting that is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pidts.login import Mode
from pidts.login.privileges import Privilege, privileges_of
from pidts.model import Column, Kind, PidtsError, Position, PrecheckFailed, Table, TableName
from pidts.model.errors import Transient, plural
from pidts.source.connection import ServerInfo, Session, SourceConfig, encryption, named, query, server_info, variables
from pidts.source.finding import Finding
from pidts.source.grants import account, current_grants, global_privileges, holds
from pidts.source.position import binary_logs, log_end
from pidts.source.replica import replica_ids
from pidts.source.structures import quoted, quoted_table, system_versioned

_BEYOND_THE_BASIC_PLANE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
_OLDEST = {"mysql": (5, 6, 0), "mariadb": (10, 1, 0)}
_SETTINGS = (
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_value_options",
    "log_slave_updates",
    "log_replica_updates",
    "innodb_native_foreign_keys",
    "binlog_storage_engine",
    "binlog_expire_logs_seconds",
    "binlog_expire_logs_auto_purge",
    "expire_logs_days",
    "max_binlog_total_size",
)
_DAY = 86400
_SOON = 3600
"""If the source purges log sooner than after this number of seconds, log may be lost while a machine restarts."""
_PLUGIN = re.compile(r" IDENTIFIED (?:(?:WITH|VIA) [`'\"]?(?P<plugin>\w+)|(?P<native>BY PASSWORD))", re.IGNORECASE)
_KEY = re.compile(r"^ *CONSTRAINT `((?:[^`]|``)*)` FOREIGN KEY (.*)$", re.MULTILINE)
_CASCADE = re.compile(r"ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")
_LEAVES_OUT_GENERATED = (11, 0, 0)
"""The first MariaDB version whose images may lack generated columns: 10.11 logs them, 11.8 does not."""


@dataclass(frozen=True, slots=True)
class _RequiredGrants:
    connection: Session
    config: SourceConfig
    server: ServerInfo
    settings: Mapping[str, str]
    tables: Mapping[TableName, Table]
    start: Position | None
    copies: bool = True
    receives: bool = True
    begun: bool = False


def check_source(
    connection: Session,
    config: SourceConfig,
    tables: Iterable[Table],
    start: Position | None = None,
    *,
    copies: bool = True,
    receives: bool = True,
    begun: bool = False,
) -> list[Finding]:
    """Checks all requirements for replicating `tables` from the log position `start` (or from now on).

    `copies`: whether the task copies existing rows. `receives`: whether this account reads the log; if not, another
    machine reads it with another account. `begun`: whether the task has begun; if not, a note recommends a further
    privilege.
    """
    by_name = {table.name: table for table in tables}
    asked = _RequiredGrants(
        connection,
        config,
        server_info(connection),
        variables(connection, *_SETTINGS),
        by_name,
        start,
        copies,
        receives,
        begun,
    )
    findings: list[Finding] = []
    not_permitted: list[Finding] = []
    for check in _CHECKS:
        try:
            findings += check(asked)
        except Transient:
            raise
        except PidtsError as error:
            finding = Finding(
                check.__name__.removeprefix("_"), ok=False, message=error.what, fix=error.todo, code=error.code
            )
            (not_permitted if error.code == "missing-privilege" else findings).append(finding)
    # Missing privileges for the log are reported only once, with the GRANT statement that gives them.
    if all(finding.ok for finding in findings if finding.item == "replication_privilege"):
        findings += not_permitted
    return [replace(finding, fix="") if finding.ok else finding for finding in findings]


def _tls(asked: _RequiredGrants) -> Iterator[Finding]:
    """Reports how the connection is encrypted: with some values of ssl-mode, it may be plain or unchecked."""
    mode, version = asked.config.tls.mode, encryption(asked.connection)
    if not version:
        why = "ssl-mode: disabled" if mode is Mode.DISABLED else "the source offers no TLS"
        yield Finding("tls", ok=True, message=f"not encrypted ({why})")
        return
    looked = {Mode.VERIFY_CA: "certificate checked", Mode.VERIFY_IDENTITY: "certificate and host name checked"}
    yield Finding("tls", ok=True, message=f"{version}, {looked.get(mode, 'certificate not checked (set ssl-ca)')}")


def _auth_plugin(asked: _RequiredGrants) -> Iterator[Finding]:
    """Reports how the account proves its password. The query also returns the password's hash, which is never shown."""
    try:
        shown = str(query(asked.connection, "SHOW CREATE USER CURRENT_USER()")[0][0])
    except Transient:
        raise
    except PidtsError:
        return  # MySQL 5.6 has no such statement.
    if found := _PLUGIN.search(shown):
        plugin = found["plugin"] or "mysql_native_password"
        gone = plugin == "mysql_native_password" and not asked.server.is_mariadb
        yield Finding("auth_plugin", ok=True, message=f"{plugin} (MySQL 9 no longer has it)" if gone else plugin)


def _binlog_expiry(asked: _RequiredGrants) -> Iterator[Finding]:
    """Checks how long the replicator may be stopped before the source purges log that it has not read."""
    settings = asked.settings
    seconds = int(settings.get("binlog_expire_logs_seconds", 0)) or round(
        float(settings.get("expire_logs_days", 0)) * _DAY
    )
    if settings.get("binlog_expire_logs_auto_purge", "ON") == "OFF":
        seconds = 0
    size = int(settings.get("max_binlog_total_size", 0))
    kept = f"the log is kept for {seconds / _SOON:.4g} hours" if seconds else "the log is kept until somebody purges it"
    name = "binlog_expire_logs_seconds" if "binlog_expire_logs_seconds" in settings else "expire_logs_days"
    fix = f"SET GLOBAL {name} = {7 * _DAY if name.endswith('seconds') else 7};   -- and the same under [mysqld]"
    limit = f", at most {size} bytes of it" if size else ""
    yield Finding("binlog_expiry", not 0 < seconds < _SOON, f"{kept}{limit}", fix)


def _version(asked: _RequiredGrants) -> Iterator[Finding]:
    server = asked.server
    oldest = _OLDEST[server.product]
    fix = f"{server.product} {'.'.join(map(str, oldest[:2]))} is the oldest version whose log can be read"
    yield Finding("version", server.number >= oldest, f"{server.product} {server.version}", fix)


def _server_id(asked: _RequiredGrants) -> Iterator[Finding]:
    own = asked.config.server_id
    if asked.server.server_id == 0:
        fix = "[mysqld] server_id = 1   # then restart; without an id the server serves no replica"
        yield Finding("server_id", ok=False, message="the source's server_id is 0", fix=fix)
    elif own is not None and own == asked.server.server_id:
        yield Finding(
            "server_id",
            ok=False,
            message=f"server-id {own} is the source's own",
            fix="Give this task another `server-id`, or none",
        )
    elif asked.receives and own is not None and own in replica_ids(asked.connection, asked.server):
        what = f"a replica with server-id {own} is already connected (this task, if it runs)"
        yield Finding("server_id", ok=False, message=what, fix="Give this task another `server-id`, or none")
    else:
        yield Finding(
            "server_id", ok=True, message=f"source {asked.server.server_id}, PiDTS {own or 'chosen at the start'}"
        )


def _binlog_enable(asked: _RequiredGrants) -> Iterator[Finding]:
    fix = "[mysqld] log_bin = binlog   # then restart"
    value = asked.settings.get("log_bin", "OFF")
    yield Finding("binlog_enable", value == "ON", f"log_bin = {value}", fix)
    if engine := asked.settings.get("binlog_storage_engine"):
        what = f"binlog_storage_engine = {engine}: such a log cannot be read yet"
        fix = "[mysqld] binlog_storage_engine =   # empty; then restart"
        yield Finding("binlog_enable", ok=False, message=what, fix=fix)


def _binlog_format(asked: _RequiredGrants) -> Iterator[Finding]:
    value = asked.settings.get("binlog_format", "ROW")
    fix = "SET GLOBAL binlog_format = 'ROW';   -- and [mysqld] binlog_format = ROW; open sessions keep their format"
    yield Finding("binlog_format", value == "ROW", f"binlog_format = {value}", fix)
    if value == "ROW" and not asked.begun and not holds(_of_account(asked), "TRIGGER"):
        what = (
            "a session may choose another format and log a statement on another table. With TRIGGER on *.*, the "
            "account sees whether that table has triggers. Without it, the task halts at such a statement, to be safe"
        )
        yield Finding("binlog_format", ok=True, is_note=True, message=what)


def _binlog_row_image(asked: _RequiredGrants) -> Iterator[Finding]:
    """Checks whether the row images in the log are sufficient.

    If an image lacks columns, PiDTS completes the image from the target. This is correct only if the image lacks only
    unchanged columns. But MariaDB logs a REPLACE of an existing row as an update. If the REPLACE sets columns to their
    defaults, the image lacks these columns, as if they were unchanged (seen on 10.11). MySQL logs these columns.
    """
    server, settings = asked.server, asked.settings
    value = settings.get("binlog_row_image", "FULL")
    fix = (
        "SET GLOBAL binlog_row_image = 'FULL';   -- and [mysqld] binlog_row_image = FULL; open sessions "
        "keep the old value"
    )
    if value == "FULL":
        yield Finding("binlog_row_image", ok=True, message=f"binlog_row_image = {value}")
    elif hidden := _left_out(server, asked.tables):
        what = f"binlog_row_image = {value}: this server never logs the generated columns of {', '.join(hidden)}"
        yield Finding("binlog_row_image", ok=False, message=what, fix=fix)
    elif server.is_mariadb and value in ("MINIMAL", "NOBLOB"):
        what = f"binlog_row_image = {value}: MariaDB does not log which columns a REPLACE sets to their defaults"
        instead = "If no client runs REPLACE without naming all columns, add binlog_row_image to ignore-checking-items"
        yield Finding("binlog_row_image", ok=False, message=what, fix=f"{fix}\n{instead}")
    else:
        what = f"binlog_row_image = {value}: columns that updates leave out are read from the target, which is slower"
        yield Finding("binlog_row_image", ok=True, message=what)
    if options := settings.get("binlog_row_value_options"):
        fix = "SET GLOBAL binlog_row_value_options = '';   -- and the same under [mysqld]"
        yield Finding("binlog_row_image", ok=False, message=f"binlog_row_value_options = {options}", fix=fix)


def _left_out(server: ServerInfo, tables: Mapping[TableName, Table]) -> list[str]:
    """Returns the tables with generated columns, if images that are not FULL lack these columns on this server."""
    if not server.is_mariadb or server.number < _LEAVES_OUT_GENERATED:
        return []
    return sorted(str(name) for name, table in tables.items() if any(column.generated for column in table.columns))


def _of_account(asked: _RequiredGrants) -> frozenset[str]:
    return global_privileges(current_grants(asked.connection, asked.server))


def _replication_privilege(asked: _RequiredGrants) -> Iterator[Finding]:
    privileges = _of_account(asked)
    for wanted in ("REPLICATION SLAVE", "REPLICATION CLIENT")[not asked.receives :]:
        ok = holds(privileges, wanted)
        fix = f"GRANT {wanted} ON *.* TO {account(asked.connection)};"
        yield Finding("replication_privilege", ok, wanted if ok else f"{wanted} is missing", fix)


def _dump_privilege(asked: _RequiredGrants) -> Iterator[Finding]:
    # One privilege may cover 20,000 tables. If a privilege covers a whole schema, a query is sent for only one of the
    # schema's tables; in other schemas, for each table. The query is needed: the server ignores a privilege on a
    # pattern of schemas if the account has privileges on the schema's own name.
    has = privileges_of(current_grants(asked.connection, asked.server))
    first = {name.schema: name for name in sorted(asked.tables, reverse=True)}
    covered = {
        schema
        for schema, name in first.items()
        if has.has(Privilege("SELECT", schema)) and _readable(asked.connection, name)
    }
    refused = [name for name in asked.tables if name.schema not in covered and not _readable(asked.connection, name)]
    grants = " ".join(f"GRANT SELECT ON {quoted_table(name)} TO {account(asked.connection)};" for name in refused)
    for name in refused:
        yield Finding("dump_privilege", ok=False, message=f"SELECT on {name} is missing", fix=grants)
    if not refused:
        yield Finding("dump_privilege", ok=True, message=f"SELECT on {plural('table', len(asked.tables))}")


def _readable(connection: Session, name: TableName) -> bool:
    try:
        query(connection, f"SELECT * FROM {quoted_table(name)} LIMIT 0")
    except PrecheckFailed:
        return False
    return True


def _binlog_db(asked: _RequiredGrants) -> Iterator[Finding]:
    """Checks the server's own filters, which keep changes out of the log."""
    for statement in ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"):
        try:
            rows = named(asked.connection, statement)
        except (Transient, PrecheckFailed):
            raise
        except PidtsError:
            continue
        only, never = (_names(rows, column) for column in ("binlog_do_db", "binlog_ignore_db"))
        lost = sorted(
            {name.schema for name in asked.tables if (only and name.schema not in only) or name.schema in never}
        )
        if lost:
            what = f"the source does not log {', '.join(lost)}"
            fix = "Remove binlog_do_db and binlog_ignore_db from the server's configuration and restart the server"
            yield Finding("binlog_db", ok=False, message=what, fix=fix)
        else:
            yield Finding("binlog_db", ok=True, message="the source logs all databases of this task")
        return


def _names(rows: list[dict[str, object]], column: str) -> set[str]:
    return {name.strip() for row in rows for name in str(row.get(column) or "").split(",") if name.strip()}


def _log_slave_updates(asked: _RequiredGrants) -> Iterator[Finding]:
    """Checks, if the source is a replica, that it logs the changes that it replicates."""
    logs = asked.settings.get("log_replica_updates") or asked.settings.get("log_slave_updates")
    if logs == "ON":
        return
    for statement in ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS"):
        try:
            if named(asked.connection, statement):
                what = "the source is itself a replica and does not log what it receives"
                fix = "[mysqld] log_slave_updates = ON   # then restart"
                yield Finding("log_slave_updates", ok=False, message=what, fix=fix)
        except Transient:
            raise
        except PidtsError:
            continue
        return


def _table_schema(asked: _RequiredGrants) -> Iterator[Finding]:
    """Checks for system-versioned tables, whose log has further rows, and for labels that the catalog cannot show.

    In labels of ENUM and SET, the catalog shows question marks for characters above U+FFFF.
    """
    fine = 0
    versioned = system_versioned(asked.connection) if asked.server.is_mariadb else frozenset()
    for name, table in asked.tables.items():
        if name in versioned:
            what = f"{name} is system-versioned: the log shows old versions of its rows as new rows"
            fix = (
                f"Leave the table out: block-allow-list, ignore-tables: [{_rule(name)}]; or, if its history may be "
                f"lost, run ALTER TABLE {quoted_table(name)} DROP SYSTEM VERSIONING"
            )
            yield Finding("table_schema", ok=False, message=what, fix=fix)
        columns = [column for column in table.columns if _is_doubtful(column)]
        for column in columns:
            what = (
                f"{name}.{column.name} has a label with a question mark. The question mark may be real, or stand for a "
                "character above U+FFFF that the server's catalog cannot show"
            )
            fix = (
                "If the label really has a question mark, ignore this item (ignore-checking-items: [table_schema]). "
                f"If not, change the label, or leave the table out: block-allow-list, ignore-tables: [{_rule(name)}]"
            )
            yield Finding("table_schema", ok=False, message=what, fix=fix)
        fine += not columns and name not in versioned
    yield Finding("table_schema", ok=True, message=f"{plural('table', fine)} whose structure is known in full")


def _rule(name: TableName) -> str:
    """Returns a table as an item of `ignore-tables` in a `block-allow-list`."""
    return f"{{db-name: {name.schema}, tbl-name: {name.name}}}"


def _is_doubtful(column: Column) -> bool:
    return column.type.charset in _BEYOND_THE_BASIC_PLANE and any("?" in label for label in column.type.labels)


def _primary_key(asked: _RequiredGrants) -> Iterator[Finding]:
    for name, table in asked.tables.items():
        for column in (table.column(each) for each in table.identity):
            if column.type.kind is Kind.ENUM and "" in column.type.labels:
                what = (
                    f"{name}: the key column {column.name} has the label ''. An invalid value of this ENUM has the "
                    "same text, and two rows whose keys differ only in this become one row on the target"
                )
                fix = f"Correct or delete the rows with an invalid value: {quoted(column.name)} + 0 = 0"
                yield Finding("primary_key", ok=True, is_note=True, message=what, fix=fix)
    keyless = [name for name, table in asked.tables.items() if not table.identity]
    if not keyless:
        yield Finding("primary_key", ok=True, message="every table has a key by which its rows are found")
        return
    copied = ", and it is copied in one piece, from one snapshot" if asked.copies else ""
    names = ", ".join(map(str, keyless))
    what = f"without a key: {names}. The rows of such a table are found by all their columns{copied}"
    yield Finding("primary_key", ok=True, message=what)


def _foreign_key(asked: _RequiredGrants) -> Iterator[Finding]:
    """Checks for foreign keys that let InnoDB change rows itself, since the log does not contain these changes."""
    if asked.settings.get("innodb_native_foreign_keys", "ON") == "OFF":
        return
    for name, key, actions in _cascades(asked):
        what = f"{name}: foreign key {key} {actions}: the log lacks the rows that the foreign key changes"
        fix = (
            "Let the application change these rows itself, and make the foreign key anew without these rules. If no "
            "program ever changes or deletes the rows to which the key refers, ignore this check: "
            "ignore-checking-items: [foreign_key]"
        )
        yield Finding("foreign_key", ok=False, message=what, fix=fix)


def _cascades(asked: _RequiredGrants) -> Iterator[tuple[TableName, str, str]]:
    """Yields the tables with foreign keys that change rows, each with the key's name and its rule.

    To an account that may only read the tables, MariaDB's catalog shows which tables have foreign keys, and not the
    keys' rules. SHOW CREATE TABLE shows the rules.
    """
    sql = (
        "SELECT DISTINCT table_schema, table_name FROM information_schema.key_column_usage "
        "WHERE table_schema = %s AND referenced_table_name IS NOT NULL"
    )
    schemas = sorted({name.schema for name in asked.tables})
    keyed = {
        TableName(str(row["table_schema"]), str(row["table_name"]))
        for schema in schemas
        for row in named(asked.connection, sql, [schema])
    }
    for name in sorted(keyed & asked.tables.keys(), key=str):
        (definition,) = named(asked.connection, f"SHOW CREATE TABLE {quoted_table(name)}")
        text = definition["create table"]
        for key, rules in _KEY.findall(text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)):
            if actions := _CASCADE.findall(rules):
                yield name, key.replace("``", "`"), " ".join(actions)


def _meta_position(asked: _RequiredGrants) -> Iterator[Finding]:
    logs = dict(binary_logs(asked.connection))
    start = asked.start
    if start is None:
        yield Finding("meta_position", ok=True, message=f"the log ends at {log_end(asked.connection)}")
    elif start.file not in logs:
        what = f"the source no longer has {start.file}; its oldest log is {next(iter(logs), 'none')}"
        fix = "Set task-mode: all, which begins with a full copy, or restore the log file on the source"
        yield Finding("meta_position", ok=False, message=what, fix=fix)
    elif start.offset > logs[start.file]:
        what = f"{start.file} ends at {logs[start.file]}, before {start.offset}"
        fix = "Check that this is the right server, and correct `meta` in the task file"
        yield Finding("meta_position", ok=False, message=what, fix=fix)
    else:
        yield Finding("meta_position", ok=True, message=f"{start} is still there")


def _gtid(asked: _RequiredGrants) -> Iterator[Finding]:
    if asked.server.gtid_mode:
        yield Finding("gtid", ok=True, message="every transaction has a GTID")
        return
    what = "gtid_mode is not ON: no failover by GTID, and a full copy locks a chunk's rows while it reads them"
    yield Finding("gtid", ok=True, message=what)


_CHECKS: tuple[Callable[[_RequiredGrants], Iterator[Finding]], ...] = (
    _tls,
    _auth_plugin,
    _version,
    _server_id,
    _binlog_enable,
    _binlog_format,
    _binlog_row_image,
    _binlog_db,
    _log_slave_updates,
    _binlog_expiry,
    _replication_privilege,
    _dump_privilege,
    _table_schema,
    _primary_key,
    _foreign_key,
    _meta_position,
    _gtid,
)
