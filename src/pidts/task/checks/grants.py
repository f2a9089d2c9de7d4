"""Makes the statements that give a task's accounts the privileges that they need, and no more.

An operator runs these statements in each server's own client. PiDTS connects with an account that may grant privileges,
because the task's accounts may not exist yet. The statements depend on the servers' current tables: for example, which
tables have a key, and which schemas belong to other accounts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from pidts.apply import Target
from pidts.login.privileges import Privilege, account_name, account_of, grant_statements, hosts_of
from pidts.model import DatabaseMissing, PidtsError, PrecheckFailed, Table, TableName
from pidts.source import Session, SourceConfig, connect, query, server_info
from pidts.source.grants import account
from pidts.source.read_only import read_only_privileges
from pidts.source.structures import read_structures
from pidts.source.uncarried_objects import privilege_to_see_routines
from pidts.target.mysql import MySqlSession
from pidts.target.mysql import privileges as mysql
from pidts.target.mysql.row_events.writer import LEAST
from pidts.target.postgres import PostgresSession
from pidts.target.postgres import privileges as postgres
from pidts.target.postgres.dialect import identifier
from pidts.task.checks.privileges import heartbeat_privileges, named_in, source_privileges, takes_all_of
from pidts.task.checks.switch_structures import structures_at_start
from pidts.task.checks.task_records import meta_schemas
from pidts.task.config.task_file import TaskConfig

Side = Literal["source", "target"]

_FASTER = f"with these grants, {LEAST} rows of a table or more go as row events, about 1.5 to 2 times as fast as SQL"
_SEES_TRIGGERS = (
    "if sessions write to other tables without row format, the task halts less often with this grant: it then sees "
    "which of these tables have no triggers"
)


@dataclass(frozen=True, slots=True)
class Grants:
    """The GRANT statements for one server."""

    side: Side
    server: str
    """The server's kind, version and address."""
    account: str
    create: str
    """The statement that creates the account. The operator fills in the password."""
    statements: tuple[tuple[str, str], ...]
    """Pairs of a reason and a statement."""
    notes: tuple[str, ...]
    source: str = ""
    """The source's id, if the task has several sources."""

    def text(self) -> str:
        """Returns comments and statements for the server's client."""
        side = f"{self.side} {self.source}" if self.source else self.side
        lines = [f"-- ===== Run on the {side}: {self.server} =====", f"-- {self.create}"]
        last = ""
        for why, sql in self.statements:
            lines += [f"-- {why}"] if why != last else []
            lines.append(sql)
            last = why
        return "\n".join([*lines, *(f"-- note: {note}" for note in self.notes)])

    def to_json(self) -> dict[str, object]:
        """Returns plain values for JSON."""
        return {
            "side": self.side,
            **({"source": self.source} if self.source else {}),
            "server": self.server,
            "account": self.account,
            "statements": [sql for _, sql in self.statements],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class OtherAccounts:
    """The accounts to connect with instead of the task's own, and the host from which MySQL's accounts log in."""

    sources: Mapping[str, SourceConfig]
    """Connections by source id."""
    target: Target | None
    host: str


def grants_of(
    parts: Sequence[TaskConfig],
    looks: OtherAccounts,
    sides: Iterable[Side],
    *,
    cutover: bool,
) -> Iterator[Grants]:
    """Yields the statements for each server. `cutover` adds the privileges that only `pidts cutover` needs.

    The sources are queried in any case, because their tables decide about the target's statements.
    """
    target_table: dict[TableName, None] = {}
    schemas: set[str] = set()
    for config in parts:
        source = config.source.source_id
        is_other = source in looks.sources
        with (
            _hinted("--source", is_given=is_other),
            closing(connect(looks.sources.get(source) or config.source.server)) as session,
        ):
            tables = read_structures(session, config.allow)
            if "source" in sides:
                found = _source(config, looks, session, tables, cutover=cutover)
                yield replace(found, source=source) if len(parts) > 1 else found
        target_table |= dict.fromkeys(map(config.rules.target_name, tables))
        named = {one.schema for one in named_in(config.allow)} - {name.schema for name in tables}
        schemas |= {name.schema for name in target_table} | {config.rules.routes.schema(schema) for schema in named}
    if "target" in sides:
        with _hinted("--target", is_given=looks.target is not None):
            yield _target(parts[0], looks, list(target_table), schemas, cutover=cutover)


@contextmanager
def _hinted(option: str, *, is_given: bool) -> Iterator[None]:
    """Changes the advice of an error if the connection fails.

    Without the option, the task's own account may not exist yet: the advice names the option. With the option, its URL
    has the wrong account or password. If the database is missing, another account would not help: the error is
    unchanged.
    """
    try:
        yield
    except DatabaseMissing:
        raise
    except PrecheckFailed as error:
        todo = (
            f"Correct the account in the URL of {option}, or its password. Without a password in the URL, MYSQL_PWD "
            "(MySQL, MariaDB) or PGPASSWORD (PostgreSQL) is used; to name another variable, write "
            "'scheme://ADMIN:${VARIABLE}@host:port/'"
            if is_given
            else f"If this account does not exist yet, connect with another one: {option} URL"
        )
        raise PrecheckFailed(error.code, error.what, where=error.where, todo=todo) from error


def _source(
    config: TaskConfig, looks: OtherAccounts, session: Session, tables: Mapping[TableName, Table], *, cutover: bool
) -> Grants:
    server = server_info(session)
    user = config.source.server.user
    is_own = config.source.source_id not in looks.sources
    hosts = [] if is_own or looks.host else hosts_of(partial(query, session), user)
    if looks.host:
        to = account_name(user, looks.host)
    elif is_own:
        to = account(session)
    else:
        in_use = _source_account_in_use(config.source.server, hosts)
        to = in_use or account_of(partial(query, session), user, config.source.server.host)
    reasons = {"SELECT": "to read the rows", "LOCK TABLES": "to read all rows of a table without a key in one snapshot"}
    beats = list(heartbeat_privileges(config))
    privileges = [one for one in source_privileges(config, server, tables.values()) if one not in beats]
    statements = []
    for name in ("", *reasons):
        chosen = [one for one in privileges if (one.name == name if name else one.name not in reasons)]
        statements += [(reasons.get(name, "to read the log"), sql) for sql in grant_statements(chosen, to)]
    statements += [("to write the heartbeat", sql) for sql in grant_statements(beats, to)]
    if config.zones.owners:
        moves = [
            Privilege(name, schema)
            for schema in sorted({name.schema for name in tables})
            for name in ("LOCK TABLES", "SELECT")
        ]
        why = "to let writes wait while rows move to another owner (`pidts zones move`)"
        statements += [(why, sql) for sql in grant_statements(moves, to)]
    if structures_at_start(config, session):
        records = [Privilege("SELECT", schema) for schema in meta_schemas(partial(query, session))]
        statements += [("to read the tables' structures at the switch", sql) for sql in grant_statements(records, to)]
    if cutover:
        asked = {
            "to make the source read-only at a cutover": read_only_privileges(server),
            "to show the views, triggers, events and routines that the target does not get": [
                Privilege(name, schema)
                for schema in sorted({name.schema for name in tables})
                for name in ("SHOW VIEW", "TRIGGER", "EVENT")
            ]
            + [privilege_to_see_routines(server)],
        }
        statements += [(why, sql) for why, wanted in asked.items() for sql in grant_statements(wanted, to)]
    some = sorted({name.schema for name in tables if not takes_all_of(config.allow, name.schema)})
    notes = [] if tables else ["no table is visible: connect with an account that may read the tables (--source URL)"]
    if len(hosts) > 1:
        others = ", ".join(account_name(user, host) for host in sorted(hosts))
        notes.append(f"there are several accounts, one for each host: {others}; --host chooses another one")
    notes += [
        f"tables created in {schema} later need a SELECT of their own: without it, the next start fails"
        for schema in some
    ]
    (triggers,) = grant_statements([Privilege("TRIGGER")], to)
    notes.append(f"optional: {_SEES_TRIGGERS}: {triggers}")
    if config.target.type == "mysql":
        # A note, because the task runs without this grant. Only the check `circular_replication` finds less.
        for schema in meta_schemas(partial(query, session)):
            (grant,) = grant_statements([Privilege("SELECT", schema)], to)
            notes.append(
                "other tasks write to this server; this grant lets `check` see whether they carry these "
                f"tables back: {grant}"
            )
    return Grants(
        "source",
        f"{server.product} {server.version} at {session.host}:{session.port}",
        to,
        f"CREATE USER {to} IDENTIFIED BY '...';",
        tuple(statements),
        tuple(notes),
    )


def _source_account_in_use(server: SourceConfig, hosts: Sequence[str]) -> str:
    """Returns the account that the source chooses at the task's own login; empty if it is not known or not needed.

    A user may have several accounts, one for each host. Only the server knows which account a login gets: it compares
    the accounts' hosts with the address from which this machine connects. With a single account, no login is needed.
    """
    if len(hosts) == 1:
        return ""
    try:
        with closing(connect(server)) as session:
            return account(session)
    except PidtsError:
        return ""


def _target_account_in_use(target: Target, session: MySqlSession, user: str) -> str:
    """Does the same as `_source_account_in_use` for a target. `session` may read the user's accounts."""
    if len(mysql.hosts_there(session, user)) == 1:
        return ""
    try:
        with closing(target.connect()) as own:
            return mysql.own_account(own) if isinstance(own, MySqlSession) else ""
    except PidtsError:
        return ""


def _target(
    config: TaskConfig, looks: OtherAccounts, tables: list[TableName], schemas: set[str], *, cutover: bool
) -> Grants:
    target = looks.target or config.target.server
    if config.target.type == "postgresql":
        return _postgres(config, target, tables)
    if config.target.warehouse:
        about, who = config.target.place, "the account that runs the task"
        return Grants("target", about, who, "", (), (f"it needs no grants: {who} must own the directory",))
    return _mysql(config, target, schemas, own=looks.target is None, host=looks.host, cutover=cutover)


def _postgres(config: TaskConfig, target: Target, tables: list[TableName]) -> Grants:
    role, spec = config.target.user, config.target
    with closing(target.connect()) as session:
        assert isinstance(session, PostgresSession)  # noqa: S101 - that is its type
        found = postgres.needs(session, spec.database, role, tables, spec.meta_schema)
        about = f"postgresql {postgres.version_of(session)} at {spec.host}:{spec.port}, database {spec.database}"
    return Grants(
        "target",
        about,
        role,
        f"CREATE ROLE {identifier(role)} LOGIN PASSWORD '...';",
        tuple((need.why, need.grant) for need in found if need.grant and not need.only_for_ddl),
        (
            *(f"{need.why}. {need.instead}" for need in found if not need.grant and not need.only_for_ddl),
            *(_ownership_note(need) for need in found if need.only_for_ddl),
        ),
    )


def _ownership_note(need: postgres.MissingPrivilege) -> str:
    if need.grant:
        return f"{need.why}, the account must own the table: {need.grant}"
    return f"{need.why}, the account must own the table. {need.instead}"


def _mysql(config: TaskConfig, target: Target, schemas: set[str], *, own: bool, host: str, cutover: bool) -> Grants:
    spec = config.target
    with closing(target.connect()) as session:
        assert isinstance(session, MySqlSession)  # noqa: S101 - that is its type
        version = mysql.version_of(session)
        server = session.server
        if host:
            to = account_name(spec.user, host)
        elif own:
            to = mysql.own_account(session)
        else:
            in_use = _target_account_in_use(spec.server, session, spec.user)
            to = in_use or mysql.account_there(session, spec.user, spec.host)
    owned = () if spec.is_datacenter else schemas
    privileges = list(mysql.needed(owned, spec.meta_schema, is_zone=bool(config.zone)))
    why = {
        True: "for the datacenter" if spec.is_datacenter else "for the task's own tables: checkpoints, structures",
        False: "to write rows and to run DDL",
    }
    statements = [
        (why[is_meta], sql)
        for is_meta in (True, False)
        for sql in grant_statements([one for one in privileges if (one.schema == spec.meta_schema) is is_meta], to)
    ]
    if cutover:
        asked = {
            "to make foreign keys at a cutover": [Privilege("REFERENCES", schema) for schema in sorted(schemas)],
            "to record the end of the target's log, where the way back begins": [Privilege("REPLICATION CLIENT")],
            "to look for changes of programs in the target's log before an undo": [Privilege("REPLICATION SLAVE")],
        }
        statements += [(reason, sql) for reason, wanted in asked.items() for sql in grant_statements(wanted, to)]
    # Between zones and in a datacenter, no rows are written as row events.
    faster = [] if config.zone or spec.is_datacenter else grant_statements(mysql.for_row_events(server, schemas), to)
    optional = " ".join(faster)
    product = "mariadb" if "mariadb" in version.lower() else "mysql"
    return Grants(
        "target",
        f"{product} {version} at {spec.host}:{spec.port}",
        to,
        f"CREATE USER {to} IDENTIFIED BY '...';",
        tuple(statements),
        (f"optional: {_FASTER}: {optional}",) if optional else (),
    )
