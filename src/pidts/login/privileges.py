"""Reads the privileges of a MySQL or MariaDB account from SHOW GRANTS, and writes GRANT statements.

A schema in a GRANT is a pattern: `shop_1` also matches `shopX1`, unless its underscore has a backslash before it. If
the GRANT names a table, the schema is a plain name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from pidts.model import PidtsError, Transient

Ask = Callable[[str], Sequence[Sequence[object]]]
"""Runs a statement and returns its rows; raises a PidtsError if the server refuses it."""

_QUOTED = r"`(?:[^`]|``)*`"
_GRANT = re.compile(
    rf"(?P<way>GRANT|REVOKE) (?P<names>.+?) ON (?P<schema>\*|{_QUOTED})\.(?P<table>\*|{_QUOTED}) (?:TO|FROM) ",
    re.IGNORECASE | re.DOTALL,
)
_OF_COLUMNS = re.compile(r"[\w ]+?\s*\([^)]*\)")
_EVERYTHING = frozenset({"ALL", "ALL PRIVILEGES"})
_SAME = (
    # MariaDB 10.5 renamed this privilege; it accepts the old name and shows the new one.
    frozenset({"REPLICATION CLIENT", "BINLOG MONITOR"}),
)


@dataclass(frozen=True, slots=True)
class Privilege:
    """One privilege, and its objects: everything, a schema, or a table."""

    name: str
    schema: str = ""
    """The schema: a pattern if the privilege was read from SHOW GRANTS, otherwise a name. Empty for all schemas."""
    table: str = ""
    """The table; empty for all tables of the schema."""

    @property
    def place(self) -> str:
        """Returns the objects as a GRANT names them. The schema must be a name, not a pattern."""
        if not self.schema:
            return "*.*"
        return f"{_quoted(self.schema)}.{_quoted(self.table)}" if self.table else f"{_quoted(_escaped(self.schema))}.*"

    def __str__(self) -> str:
        return f"{self.name} on {self.place}"


_HERE = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Privileges:
    """The privileges that an account was granted, and those that partial revokes of MySQL have removed (`taken`)."""

    given: tuple[Privilege, ...]
    taken: tuple[Privilege, ...]

    def has(self, wanted: Privilege) -> bool:
        """Whether the account has this privilege for all objects of `wanted`."""
        return any(_covers(one, wanted) for one in self.given) and not any(_covers(one, wanted) for one in self.taken)


def current_grants(ask: Ask, *, names_roles: bool) -> list[str]:
    """Returns a session's grants. `names_roles`: SHOW GRANTS shows a role's grants only if it names the role."""
    sql = "SHOW GRANTS"
    if names_roles:
        try:
            roles = str(ask("SELECT CURRENT_ROLE()")[0][0] or "NONE")
        except Transient:
            raise
        except PidtsError:
            roles = "NONE"
        if roles != "NONE":
            sql = f"SHOW GRANTS FOR CURRENT_USER() USING {roles}"
    return [_text(row[0]) for row in ask(sql)]


def account_of(ask: Ask, user: str, host: str = "") -> str:
    """Returns the account (`'user'@'host'`) that a GRANT to this user names.

    - The user has only one account: that account.
    - The user has several accounts, and the server's `host` is this machine: the account for a login from this machine.
    - Otherwise: the user's account for any host (`%`), even if it does not exist.
    """
    hosts = hosts_of(ask, user)
    here = [name for name in _HERE if name in hosts] if host in _HERE else []
    return account_name(user, hosts[0] if len(hosts) == 1 else here[0] if here else "%")


def hosts_of(ask: Ask, user: str) -> list[str]:
    """Returns the hosts of this user's accounts; empty if this session may not read them."""
    quoted = user.replace("\\", "\\\\").replace("'", "''")
    try:
        return [_text(row[0]) for row in ask(f"SELECT Host FROM mysql.user WHERE User = '{quoted}'")]
    except Transient:
        raise
    except PidtsError:
        return []


def privileges_of(grants: Iterable[str]) -> Privileges:
    """Parses the lines of SHOW GRANTS. Grants of columns, roles and procedures are ignored."""
    given: list[Privilege] = []
    taken: list[Privilege] = []
    for line in grants:
        if found := _GRANT.match(line):
            schema, table = _name(found["schema"]), _name(found["table"])
            names = (word.strip().upper() for word in _OF_COLUMNS.sub("", found["names"]).split(","))
            (given if found["way"].upper() == "GRANT" else taken).extend(
                # With a table, the schema is a plain name, and is escaped here, since `Privilege.schema` is a pattern.
                Privilege(name, _escaped(schema) if table else schema, table)
                for name in names
                if name
            )
    return Privileges(tuple(given), tuple(taken))


def account_name(user: str, host: str) -> str:
    """Returns the account as SQL, such as `'repl'@'%'`."""
    return "@".join("'" + part.replace("\\", "\\\\").replace("'", "''") + "'" for part in (user, host))


def grant_statements(privileges: Iterable[Privilege], account: str) -> Iterator[str]:
    """Yields one GRANT statement for all privileges on the same objects, in the order of `privileges`."""
    wanted = list(dict.fromkeys(privileges))
    places = {place: number for number, place in reversed(list(enumerate(one.place for one in wanted)))}
    for place, of_place in groupby(sorted(wanted, key=lambda one: places[one.place]), key=lambda one: one.place):
        yield f"GRANT {', '.join(one.name for one in of_place)} ON {place} TO {account};"


def _covers(held_one: Privilege, wanted: Privilege) -> bool:
    """Whether a granted privilege includes the wanted privilege; `held_one.schema` is a pattern."""
    if held_one.name not in _EVERYTHING and held_one.name not in _named(wanted.name):
        return False
    if not held_one.schema:
        return True
    if not wanted.schema or not re.fullmatch(_expression(held_one.schema), wanted.schema, re.IGNORECASE | re.DOTALL):
        return False
    return not held_one.table or held_one.table.lower() == wanted.table.lower()


def _named(name: str) -> frozenset[str]:
    return next((same for same in _SAME if name in same), frozenset({name}))


def _expression(pattern: str) -> str:
    return "".join(
        {"%": ".*", "_": "."}.get(part) or re.escape(part.removeprefix("\\") or part)
        for part in re.findall(r"\\.|.", pattern, re.DOTALL)
    )


def _escaped(schema: str) -> str:
    return re.sub(r"([\\_%])", r"\\\1", schema)


def _name(written: str) -> str:
    return "" if written == "*" else written[1:-1].replace("``", "`")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
