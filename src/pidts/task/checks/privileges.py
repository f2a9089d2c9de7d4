"""Lists the privileges that a task's accounts need. `check` compares the accounts with this list, `grants` prints it.

The source's catalog shows an account only the tables that it may read: a table without SELECT is invisible. So for
tables that the task file names without a pattern, the check looks for SELECT among the account's grants. If an
invisible table only fits a pattern, the check cannot know that it exists. SHOW DATABASES at least shows all schemas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress

from pidts.apply import TargetSession
from pidts.login.privileges import Privilege, grant_statements, privileges_of
from pidts.model import ConfigError, PidtsError, Table, TableName
from pidts.model.errors import listed, named
from pidts.model.similar_names import similar
from pidts.rules import AllowList
from pidts.source import Session, connect
from pidts.source.connection import ServerInfo, query, server_info
from pidts.source.finding import Finding
from pidts.source.grants import account, current_grants
from pidts.source.position import needs_row_locks
from pidts.source.structures import is_system, read_structures
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.mysql import MySqlSession
from pidts.target.mysql.privileges import missing, own_account, read_only_cause
from pidts.target.postgres import PostgresSession
from pidts.target.postgres.privileges import needs, own_role
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.warehouse import access_finding

HEARTBEAT_PRIVILEGES = ("CREATE", "SELECT", "INSERT", "UPDATE")
"""The privileges to write the heartbeat. MariaDB needs SELECT for an INSERT that updates an existing row."""
_PATTERN = frozenset("*?[")
_PLACES = 5
"""One finding about missing privileges names at most this number of schemas."""


def source_privileges(config: TaskConfig, server: ServerInfo, tables: Iterable[Table]) -> Iterator[Privilege]:
    """Yields the privileges to read the log, `tables`, and tables that the rules name, and to write the heartbeat."""
    if config.relay_from is None:
        yield Privilege("REPLICATION SLAVE")
    yield Privilege("REPLICATION CLIENT")
    yield from heartbeat_privileges(config)
    known = sorted(tables, key=lambda table: table.name)
    for schema in sorted({table.name.schema for table in known}):
        of_schema = [table for table in known if table.name.schema == schema]
        if takes_all_of(config.allow, schema):
            yield Privilege("SELECT", schema)
        else:
            yield from (Privilege("SELECT", schema, table.name.name) for table in of_schema)
        # A table without a key is read in one snapshot. On a server without GTIDs, this snapshot needs a lock.
        if config.mode != "incremental" and needs_row_locks(server) and not all(table.identity for table in of_schema):
            yield Privilege("LOCK TABLES", schema)
    for one in named_in(config.allow):
        if not any(_is_of(one, table.name) for table in known):
            yield one


def heartbeat_privileges(config: TaskConfig) -> Iterator[Privilege]:
    """Yields the privileges to write the heartbeat, if the task file asks for one and this machine receives the log."""
    if config.heartbeat and config.relay_from is None:
        yield from (Privilege(name, config.heartbeat_schema) for name in HEARTBEAT_PRIVILEGES)


def takes_all_of(allow: AllowList, schema: str) -> bool:
    """Whether the task takes every table that the schema has or will have."""
    if not allow.takes_schema(schema):
        return False
    if allow.do_tables:
        return any(name == "*" and _fits(pattern, schema, allow) for pattern, name in allow.do_tables)
    return not any(_fits(pattern, schema, allow) for pattern, _ in allow.ignore_tables)


def source_findings(config: TaskConfig, session: Session, tables: Collection[Table]) -> list[Finding]:
    """Returns findings about the source account's privileges that the checks of single tables do not cover."""
    server, to = server_info(session), account(session)
    has = privileges_of(current_grants(session, server))
    unseen = [one for one in named_in(config.allow) if not has.has(one)]
    sees_schemas = has.has(Privilege("SHOW DATABASES"))
    hidden: list[Privilege] = []
    absent: list[str] = []
    there = [str(name) for (name,) in query(session, "SELECT schema_name FROM information_schema.schemata")]
    others = [name for name in there if not (is_system(name) or _reads_schema(config.allow, name))]
    if sees_schemas:
        # A task's rules name the schemas of all its sources. This account sees which of these schemas this source has.
        present = frozenset(map(str.lower, there))
        absent = sorted({one.schema for one in named_in(config.allow) if one.schema.lower() not in present})
        unseen = [one for one in unseen if one.schema.lower() in present]
        hidden = [one for one in _fitting(config.allow, there) if not has.has(one) and one not in unseen]
        hidden = [one for one in hidden if not any(_is_of(one, table.name) for table in tables)]
    seen = [one for one in unseen if any(_is_of(one, table.name) for table in tables)]
    lacking = [one for one in unseen if one not in seen] + hidden
    # The check of each table covers SELECT on tables.
    wanted = source_privileges(config, server, tables)
    lacking += [one for one in wanted if one.name == "LOCK TABLES" and not has.has(one)]
    beats = [one for one in heartbeat_privileges(config) if not has.has(one)]
    findings = [
        Finding(
            "dump_privilege",
            ok=False,
            message=f"{one} is missing{'' if sees_schemas or one.name != 'SELECT' else _or_absent(one.schema)}",
            fix=_or_meant(one.schema, others) + " ".join(grant_statements([one], to)),
        )
        for one in lacking
    ] + [
        Finding("heartbeat_privilege", ok=False, message=f"{one} is missing", fix=" ".join(grant_statements([one], to)))
        for one in beats
    ]
    if absent and not tables:
        what = f"this source has no {named('schema', absent)}: check the spelling in block-allow-list"
        meant = " ".join(filter(None, (_meant(one, others) for one in absent)))
        findings.append(Finding("table_list", ok=True, message=what, fix=meant))
    if not sees_schemas and not has.has(Privilege("SELECT")) and (patterns := _patterns(config.allow)):
        what = (
            f"the account does not see schemas on which it has no privilege: if some fit {', '.join(patterns)}, the "
            "task leaves them out"
        )
        fix = f"This lets the check name them: {' '.join(grant_statements([Privilege('SHOW DATABASES')], to))}"
        findings.append(Finding("dump_privilege", ok=True, message=what, fix=fix))
    return findings + [
        Finding(
            "dump_privilege",
            ok=True,
            message=f"{one} is not granted: the account sees only tables on which it has this privilege, and the task "
            "leaves out all others",
        )
        for one in seen
        if not one.table
    ]


def _or_absent(schema: str) -> str:
    """Returns the other possible cause of a missing SELECT, for an account that does not see which schemas exist."""
    return (
        f", or this source has no schema {schema}: check the spelling in block-allow-list. GRANT SHOW DATABASES lets "
        "the check see which of the two it is"
    )


def _or_meant(schema: str, others: Sequence[str]) -> str:
    """Returns the beginning of an advice to grant a privilege, if the account sees a schema with a similar name."""
    meant = _meant(schema, others)
    return f"{meant} Otherwise: " if meant else ""


def _meant(schema: str, others: Sequence[str]) -> str:
    """Returns the advice to correct a misspelt schema; empty if no schema has a similar name."""
    found = similar(schema, others)
    return f"If {schema} means {' or '.join(found)}, correct it in block-allow-list." if found else ""


def _reads_schema(allow: AllowList, schema: str) -> bool:
    selected = not allow.do_tables or any(_fits(pattern, schema, allow) for pattern, _ in allow.do_tables)
    return selected and allow.takes_schema(schema)


def target_findings(config: TaskConfig, session: TargetSession, upstream: Iterable[TableName]) -> list[Finding]:
    """Returns findings about the target account's privileges; `upstream` are table names on the source."""
    try:
        tables = [config.rules.target_name(name) for name in upstream]
    except ConfigError:
        return []  # the check `target_tables` reports this error
    if isinstance(session, PostgresSession):
        all_needs = needs(session, config.target.database, own_role(session), tables, config.target.meta_schema)
        lacking = [need for need in all_needs if not need.held and not need.only_for_ddl]
        found = [
            Finding("target_privilege", ok=False, message=f"{one.name} is missing: {one.why}", fix=one.remedy)
            for one in lacking
        ]
        found += [
            Finding(
                "target_privilege", ok=True, message=f"without {one.name} the task cannot {one.why.removeprefix('to ')}"
            )
            for one in all_needs
            if one.only_for_ddl and not one.held
        ]
    elif isinstance(session, CatalogConnection):
        return [access_finding(session)]
    else:
        assert isinstance(session, MySqlSession)  # noqa: S101 - that is its type
        found = [*_read_only_findings(session), *lacking_findings(session, missing(session, tables))]
    fine = Finding("target_privilege", ok=True, message="the account may write the tables and change their structure")
    return found or [fine]


def _read_only_findings(session: MySqlSession) -> Iterator[Finding]:
    """Yields a finding if the target is read-only for the account. A run waits: a failover may be under way."""
    why, todo = read_only_cause(session)
    if why:
        yield Finding("target_privilege", ok=False, message=why, fix=todo, is_down=True)


def lacking_findings(session: MySqlSession, lacking: Sequence[Privilege]) -> list[Finding]:
    """Returns one finding about all privileges that the account lacks on a MySQL target; none if it lacks none."""
    if not lacking:
        return []
    places = list(dict.fromkeys(one.place for one in lacking))
    names = {place: ", ".join(one.name for one in lacking if one.place == place) for place in places}
    message = f"{listed([f'{names[place]} on {place}' for place in places], _PLACES)} "
    message += "is missing" if len(lacking) == 1 else "are missing"
    grants = " ".join(grant_statements(lacking, own_account(session))) if len(places) <= _PLACES else ""
    command = "`pidts grants TASK --only target` prints all that the account needs"
    return [Finding("target_privilege", ok=False, message=message, fix=f"{grants} {command}".strip())]


def lacking_grants(parts: Sequence[TaskConfig]) -> list[str]:
    """Returns the GRANT statements for privileges that the task's accounts lack. Leaves out servers with errors."""
    found: list[str] = []
    upstream: list[TableName] = []
    for config in parts:
        with suppress(PidtsError), closing(connect(config.source.server)) as session:
            hidden: dict[TableName, str] = {}
            server, tables = server_info(session), read_structures(session, config.allow, hidden)
            upstream += tables
            wanted = [*source_privileges(config, server, tables.values())]
            wanted += [Privilege("SELECT", name.schema, name.name) for name in hidden]
            has = privileges_of(current_grants(session, server))
            found += grant_statements([one for one in wanted if not has.has(one)], account(session))
    with suppress(PidtsError), closing(parts[0].target.server.connect()) as target:
        if isinstance(target, MySqlSession):
            names = [parts[0].rules.target_name(name) for name in upstream]
            found += grant_statements(missing(target, names), own_account(target))
        else:
            findings = target_findings(parts[0], target, upstream)
            found += [one.fix for one in findings if not one.ok and one.fix]
    return list(dict.fromkeys(found))


def named_in(allow: AllowList) -> Iterator[Privilege]:
    """Yields SELECT on the schemas and tables that the block-allow-list takes and names without a pattern."""
    for schema, table in allow.do_tables:
        if _is_plain(schema) and allow.takes_schema(schema):
            if _is_plain(table):
                yield Privilege("SELECT", schema, table)
            elif table == "*":
                yield Privilege("SELECT", schema)
    if not allow.do_tables:
        yield from (Privilege("SELECT", schema) for schema in allow.do_dbs if _is_plain(schema))


def _fitting(allow: AllowList, schemas: Iterable[str]) -> list[Privilege]:
    """Returns SELECT on each schema whose tables the task takes all; none if the block-allow-list names no schema."""
    if not allow.do_tables and not allow.do_dbs:
        return []  # without patterns, an operator may choose the schemas by the account's privileges alone
    return [Privilege("SELECT", schema) for schema in schemas if takes_all_of(allow, schema)]


def _patterns(allow: AllowList) -> list[str]:
    taken = [schema for schema, _ in allow.do_tables] or allow.do_dbs
    return sorted({schema for schema in taken if not _is_plain(schema)})


def _is_plain(pattern: str) -> bool:
    return not pattern.startswith("~") and not _PATTERN & set(pattern)


def _is_of(one: Privilege, name: TableName) -> bool:
    """Whether a privilege covers a table. Ignores case: a mistake about case does no harm here."""
    return one.schema.lower() == name.schema.lower() and one.table.lower() in {"", name.name.lower()}


def _fits(pattern: str, schema: str, allow: AllowList) -> bool:
    return AllowList(do_dbs=(pattern,), case_sensitive=allow.case_sensitive).takes_schema(schema)
