"""The statements that give a task's accounts what they need, and no more, as each server's own client takes them.

Who may grant looks at the servers: the task's accounts may not be there yet. What is there decides (which tables have a
key, which schemas are somebody else's), so the answer is that of today.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from pidts.apply import Target
from pidts.login.privileges import account_name, account_of, grant_statements, hosts_of
from pidts.model import PrecheckFailed, Table, TableName
from pidts.source import Session, SourceConfig, connect, query, server_info
from pidts.source.grants import account
from pidts.source.structures import read_structures
from pidts.task.compose import source_config, target_of
from pidts.task.config import TaskConfig
from pidts.task.privileges import named_in, source_privileges, takes_all_of

Side = Literal["source", "target"]


@dataclass(frozen=True, slots=True)
class Grants:
    """Those of one server."""

    side: Side
    server: str
    """Kind, version and place."""
    account: str
    create: str
    """How the account would be made; for the reader, who knows the password."""
    statements: tuple[tuple[str, str], ...]
    """Why, and the statement."""
    notes: tuple[str, ...] = ()
    source: str = ""
    """Which one, where the task has several."""

    def text(self) -> str:
        """Comments and statements, for the server's client."""
        side = f"{self.side} {self.source}" if self.source else self.side
        lines = [f"-- {side}: {self.server}", f"-- {self.create}"]
        last = ""
        for why, sql in self.statements:
            lines += [f"-- {why}"] if why != last else []
            lines.append(sql)
            last = why
        return "\n".join([*lines, *(f"-- note: {note}" for note in self.notes)])

    def to_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "side": self.side,
            **({"source": self.source} if self.source else {}),
            "server": self.server,
            "account": self.account,
            "statements": [sql for _, sql in self.statements],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Looks:
    """Other accounts than the task's to look with, and where MySQL's accounts log in from."""

    sources: Mapping[str, SourceConfig] = field(default_factory=dict)
    """By the sources' ids."""
    target: Target | None = None
    host: str = ""


def grants_of(
    parts: Sequence[TaskConfig], looks: Looks, sides: Iterable[Side] = ("source", "target")
) -> Iterator[Grants]:
    """For each server; the sources are asked in any case: their tables are the target's."""
    landed: dict[TableName, None] = {}
    schemas: set[str] = set()
    for config in parts:
        source = config.source.source_id
        with _hinted("--source"), closing(connect(looks.sources.get(source) or source_config(config))) as session:
            tables = read_structures(session, config.allow)
            if "source" in sides:
                found = _source(config, looks, session, tables)
                yield replace(found, source=source) if len(parts) > 1 else found
        landed |= dict.fromkeys(map(config.rules.landed_name, tables))
        named = {one.schema for one in named_in(config.allow)} - {name.schema for name in tables}
        schemas |= {name.schema for name in landed} | {config.rules.routes.schema(schema) for schema in named}
    if "target" in sides:
        with _hinted("--target"):
            yield _target(parts[0], looks, list(landed), schemas)


@contextmanager
def _hinted(option: str) -> Iterator[None]:
    """Whoever asks what an account needs may not have made it yet."""
    try:
        yield
    except PrecheckFailed as error:
        todo = f"If this account is not there yet, look with another one: {option} URL"
        raise PrecheckFailed(error.code, error.what, where=error.where, todo=todo) from error


def _source(config: TaskConfig, looks: Looks, session: Session, tables: Mapping[TableName, Table]) -> Grants:
    server = server_info(session)
    user = config.source.user
    is_own = config.source.source_id not in looks.sources
    hosts = [] if is_own or looks.host else hosts_of(lambda sql: query(session, sql), user)
    if looks.host:
        to = account_name(user, looks.host)
    else:
        to = account(session) if is_own else account_of(lambda sql: query(session, sql), user, config.source.host)
    reasons = {"SELECT": "to read the rows", "LOCK TABLES": "to read all rows of a table without a key at one moment"}
    privileges = list(source_privileges(config, server, tables.values()))
    statements = []
    for name in ("", *reasons):
        chosen = [one for one in privileges if (one.name == name if name else one.name not in reasons)]
        statements += [(reasons.get(name, "to read the log"), sql) for sql in grant_statements(chosen, to)]
    some = sorted({name.schema for name in tables if not takes_all_of(config.allow, name.schema)})
    notes = [] if tables else ["no table was seen: look with an account that sees them, --source URL"]
    if len(hosts) > 1:
        others = ", ".join(account_name(user, host) for host in sorted(hosts))
        notes.append(f"there are several accounts, of which each host gets its own: {others}; --host chooses another")
    notes += [f"tables that come to {schema} later need a SELECT of their own" for schema in some]
    return Grants(
        "source",
        f"{server.flavor} {server.version} at {session.host}:{session.port}",
        to,
        f"CREATE USER {to} IDENTIFIED BY '...';",
        tuple(statements),
        tuple(notes),
    )


def _target(config: TaskConfig, looks: Looks, tables: list[TableName], schemas: set[str]) -> Grants:
    target = looks.target or target_of(config)
    if config.target.type == "postgresql":
        return _postgres(config, target, tables)
    return _mysql(config, target, schemas, own=looks.target is None, host=looks.host)


def _postgres(config: TaskConfig, target: Target, tables: list[TableName]) -> Grants:
    from pidts.target.postgres import PostgresSession
    from pidts.target.postgres.dialect import identifier
    from pidts.target.postgres.privileges import needs, version_of

    role, spec = config.target.user, config.target
    with closing(target.connect()) as session:
        assert isinstance(session, PostgresSession)  # noqa: S101 - that is its type
        found = needs(session, spec.database, role, tables, spec.meta_schema)
        about = f"postgresql {version_of(session)} at {spec.host}:{spec.port}, database {spec.database}"
    return Grants(
        "target",
        about,
        role,
        f"CREATE ROLE {identifier(role)} LOGIN PASSWORD '...';",
        tuple((need.why, need.grant) for need in found if not need.only_for_ddl),
        tuple(f"{need.why}, the owner is needed: {need.grant}" for need in found if need.only_for_ddl),
    )


def _mysql(config: TaskConfig, target: Target, schemas: set[str], *, own: bool, host: str) -> Grants:
    from pidts.target.mysql import MySqlSession
    from pidts.target.mysql.privileges import account_there, needed, own_account, version_of

    spec = config.target
    with closing(target.connect()) as session:
        assert isinstance(session, MySqlSession)  # noqa: S101 - that is its type
        version = version_of(session)
        if host:
            to = account_name(spec.user, host)
        else:
            to = own_account(session) if own else account_there(session, spec.user)
    privileges = list(needed(schemas, spec.meta_schema))
    why = {True: "for the task's own tables: checkpoints, structures", False: "to write rows and to follow DDL"}
    statements = [
        (why[is_meta], sql)
        for is_meta in (True, False)
        for sql in grant_statements([one for one in privileges if (one.schema == spec.meta_schema) is is_meta], to)
    ]
    flavor = "mariadb" if "mariadb" in version.lower() else "mysql"
    return Grants(
        "target",
        f"{flavor} {version} at {spec.host}:{spec.port}",
        to,
        f"CREATE USER {to} IDENTIFIED BY '...';",
        tuple(statements),
    )
