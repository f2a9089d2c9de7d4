"""Compares the privileges that a role needs on a PostgreSQL target with those that it has.

A role owns the objects that it creates. So on an empty database the right to create schemas is enough. Owners of other
tables may grant the role the right to write to them, but only a table's owner can change the table's structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pidts.model import TableName
from pidts.target.postgres.dialect import identifier, qualified
from pidts.target.postgres.session import PostgresSession

_ON_TABLES = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE")


@dataclass(frozen=True, slots=True)
class MissingPrivilege:
    """A privilege that a role needs and does not have."""

    name: str
    """A text like `CREATE on database shop`."""
    grant: str
    """The statement that gives the privilege; empty if it would also give the rights of a superuser (see `instead`)."""
    why: str
    held: bool
    only_for_ddl: bool = False
    """Whether rows can be written without the privilege. Without it, the task stops at the first schema change."""
    instead: str = ""
    """The advice to an administrator, if there is no safe GRANT."""

    @property
    def remedy(self) -> str:
        """Returns the statement that gives the privilege, or what an administrator can do instead."""
        return self.grant or self.instead


def needs(
    session: PostgresSession, database: str, role: str, tables: Iterable[TableName], meta_schema: str
) -> list[MissingPrivilege]:
    """Returns the privileges that the role lacks for these target tables; tables and role do not have to exist."""
    asked = _RoleQueries(session, role, meta_schema)
    names = sorted(set(tables))
    found = list(asked.on_database(database))
    for schema in sorted({meta_schema, *(name.schema for name in names)}):
        found += asked.on_schema(schema)
    found += asked.on_tables(names)
    needed: dict[str, MissingPrivilege] = {}
    for need in found:  # writing rows and changing structures may need the same privilege: it is returned once
        needed.setdefault(need.remedy, need)
    return list(needed.values())


def own_role(session: PostgresSession) -> str:
    """Returns the session's own role."""
    return str(_rows(session, "SELECT current_user::text")[0][0])


def version_of(session: PostgresSession) -> str:
    """Returns the server's version as the server itself writes it."""
    return str(_rows(session, "SHOW server_version")[0][0])


class _RoleQueries:
    def __init__(self, session: PostgresSession, role: str, meta_schema: str) -> None:
        self._session, self._role, self._meta_schema = session, role, meta_schema
        found = _rows(session, "SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = %s", role)
        self._is_there = bool(found)
        self._may_all = bool(found) and bool(found[0][0])
        self._owners: dict[str, bool] = {}
        self._version = int(str(_rows(session, "SHOW server_version_num")[0][0]))

    def on_database(self, database: str) -> Iterator[MissingPrivilege]:
        for privilege, why in (
            ("CONNECT", "to log in"),
            ("CREATE", f"to create the schema {self._meta_schema}, and schemas for the source's databases"),
        ):
            has = self._has("SELECT pg_catalog.has_database_privilege(%s, %s, %s)", database, privilege)
            yield self._need(privilege, "database", identifier(database), why, held=has)

    def on_schema(self, schema: str) -> Iterator[MissingPrivilege]:
        owners = _rows(
            self._session,
            "SELECT pg_catalog.pg_get_userbyid(nspowner)::text FROM pg_catalog.pg_namespace WHERE nspname = %s",
            schema,
        )
        if not owners or self._is(str(owners[0][0])):
            return
        if schema == self._meta_schema:
            instead = (
                "Give the task a schema of its own, by `meta-schema: NAME` in the task file; with another schema, the "
                "task is a new task. Or, if no other task uses this schema, give it to the account: ALTER SCHEMA "
                f"{identifier(schema)} OWNER TO {identifier(self._role)}; and ALTER TABLE ... OWNER TO "
                f"{identifier(self._role)} for each of its tables"
            )
            why = f"{schema} exists, and only its owner may change the tables in it"
            yield self._owner(str(owners[0][0]), why, instead)
            return
        for privilege in ("USAGE", "CREATE"):
            has = self._has("SELECT pg_catalog.has_schema_privilege(%s, %s, %s)", schema, privilege)
            yield self._need(privilege, "schema", identifier(schema), "to create tables in the schema", held=has)

    def on_tables(self, names: Sequence[TableName]) -> Iterator[MissingPrivilege]:
        found = _rows(
            self._session,
            "SELECT n.nspname::text, c.relname::text, c.oid, pg_catalog.pg_get_userbyid(c.relowner)::text, "
            "EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND t.tgenabled IN ('O', 'D')) "
            "FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "JOIN unnest(%s::text[], %s::text[]) AS wanted(schema, name) ON n.nspname = schema AND c.relname = name "
            "WHERE c.relkind IN ('r', 'p') ORDER BY 1, 2",
            [name.schema for name in names],
            [name.name for name in names],
        )
        for schema, table, oid, owner, has_triggers in found:
            name = TableName(str(schema), str(table))
            if has_triggers and not self._may_all:
                yield from self._no_triggers(name)
            if not self._is(str(owner)):
                yield from self._on_table(name, oid)
                instead = (
                    f"Give the table to the account: ALTER TABLE {qualified(name)} OWNER TO {identifier(self._role)}"
                )
                yield self._owner(str(owner), f"to change the structure of {name}", instead, only_for_ddl=True)

    def _on_table(self, name: TableName, oid: object) -> Iterator[MissingPrivilege]:
        for privilege in _ON_TABLES:
            has = self._has("SELECT pg_catalog.has_table_privilege(%s, %s::oid, %s)", oid, privilege)
            yield self._need(privilege, "table", qualified(name), "to write rows", held=has)
        for sequence in self._sequences(oid):
            for privilege in ("SELECT", "UPDATE"):
                has = self._has("SELECT pg_catalog.has_sequence_privilege(%s, %s, %s)", sequence, privilege)
                yield self._need(
                    privilege, "sequence", sequence, "to set counters above the numbers in the rows", held=has
                )

    def _no_triggers(self, name: TableName) -> Iterator[MissingPrivilege]:
        """Yields the privilege to switch off triggers; before version 15 only a superuser may do so."""
        if self._version >= 150000:
            has = self._has("SELECT pg_catalog.has_parameter_privilege(%s, %s, %s)", "session_replication_role", "SET")
            why = (
                f"{name} has foreign keys or triggers, which must not fire, since rows arrive in another order than "
                "on the source"
            )
            yield self._need("SET", "parameter", "session_replication_role", why, held=has)

    def _sequences(self, oid: object) -> list[str]:
        rows = _rows(
            self._session,
            "SELECT pg_catalog.format('%%I.%%I', n.nspname, c.relname) FROM pg_catalog.pg_depend d "
            "JOIN pg_catalog.pg_class c ON c.oid = d.objid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE d.refobjid = %s::oid AND d.deptype IN ('a', 'i') AND c.relkind = 'S' ORDER BY 1",
            oid,
        )
        return [str(row[0]) for row in rows]

    def _is(self, owner: str) -> bool:
        """Whether the role has the owner's rights."""
        if owner not in self._owners:
            self._owners[owner] = self._may_all or self._has(
                "SELECT pg_catalog.pg_has_role(%s, %s, %s)", owner, "USAGE"
            )
        return self._owners[owner]

    def _has(self, sql: str, *values: object) -> bool:
        if not self._is_there or self._may_all:
            return self._may_all
        return bool(_rows(self._session, sql, self._role, *values)[0][0])

    def _need(self, privilege: str, kind: str, place: str, why: str, *, held: bool) -> MissingPrivilege:
        grant = f"GRANT {privilege} ON {kind.upper()} {place} TO {identifier(self._role)};"
        return MissingPrivilege(f"{privilege} on {kind} {place}", grant, why, held)

    def _owner(self, owner: str, why: str, instead: str, *, only_for_ddl: bool = False) -> MissingPrivilege:
        """Returns the role of an object's owner as a missing privilege.

        A superuser's role is never granted: with it, the account could do anything on the server.
        """
        if not self._is_superuser(owner):
            grant = f"GRANT {identifier(owner)} TO {identifier(self._role)};"
            return MissingPrivilege(f"the role {owner}", grant, why, held=False, only_for_ddl=only_for_ddl)
        instead = (
            f"Its owner {owner} is a superuser. Do not grant this role: the account could do anything on the server. "
            f"{instead}"
        )
        return MissingPrivilege("the ownership", "", why, held=False, only_for_ddl=only_for_ddl, instead=instead)

    def _is_superuser(self, owner: str) -> bool:
        """Whether a role is a superuser, or is a member of a superuser's role and can act as this superuser."""
        sql = (
            "SELECT EXISTS (SELECT FROM pg_catalog.pg_roles r "
            "WHERE r.rolsuper AND pg_catalog.pg_has_role(%s, r.oid, 'MEMBER'))"
        )
        return bool(_rows(self._session, sql, owner)[0][0])


def _rows(session: PostgresSession, sql: str, *values: object) -> list[tuple[object, ...]]:
    return list(session.pipeline.now(sql, values).rows)
