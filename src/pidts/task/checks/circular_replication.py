"""Finds tasks that bring this task's changes back to where they came from.

The counterexample: task `ab` carries shop.orders from A to B, and task `ba` carries it from B to A. A row that A
changes twice reaches B once, comes back with its first value, and overwrites the second one. Each side loses writes.

The evidence is on this task's source: another task that writes there keeps its checkpoint, its tables and its routes
in its meta schema there, and records the identity of the server that it reads. If that server is this task's target,
the routes of both tasks show which tables go in a circle. An account that may not read that schema does not see it.

Two tasks that start for the first time at the same moment do not see each other before they start. So each task checks
again after it has recorded its own source: the later one of the two sees the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pidts.apply import TargetSession
from pidts.apply.merge.table_owners import RULES
from pidts.model import OfSource, PidtsError, TableName
from pidts.rules import Rules
from pidts.rules.record import from_text
from pidts.source import Session, query, server_info
from pidts.source.connection import IDENTIFYING, PLACE_OF_MARIADB, ServerInfo
from pidts.source.finding import Finding
from pidts.source.structures import quoted
from pidts.task.config.task_file import TaskConfig

SOURCE_SERVER = TableName("", "source server")
"""The key of the note that holds the identity of a source's server."""

_EVIDENCE = {("checkpoint", "epoch"), ("note", "told"), ("structure", "structure")}
"""Tables of a meta schema, each with a column that only it has."""
_NAMED = 3
"""A message names at most this many tables."""

Step = Callable[[TableName], TableName | None]
"""Returns the table to which a task carries the changes of a table; None where it does not carry them."""


@dataclass(frozen=True, slots=True)
class Writer:
    """A task that writes to the server that was queried."""

    meta_schema: str
    task: str
    source: str
    server: str
    """The identity of the server that it reads; empty if an older version has not recorded it."""
    rules: Rules
    tables: frozenset[TableName]
    """Its tables, by their names on the server that it reads."""

    def step(self, name: TableName) -> TableName | None:
        """Returns the table to which it writes the changes of a table; None if it does not carry them."""
        return target_name(self.rules, name) if name in self.tables else None


def record_source(config: TaskConfig, source: Session, target: TargetSession) -> None:
    """Records on the target which server this source is."""
    target.begin()
    target.meta.notes.write(config.name, OfSource(config.source.source_id), SOURCE_SERVER, server_info(source).identity)
    target.commit()


def circle_findings(
    config: TaskConfig, source: Session, target: TargetSession, tables: Iterable[TableName]
) -> list[Finding]:
    """Returns a failed finding for each task that sends this task's changes back; `tables` are those of the source."""
    there = _identity(config, target)
    if not there:
        return []

    def back(name: TableName) -> TableName | None:
        return target_name(config.rules, name) if config.allow(name) else None

    findings = []
    if _is_same(server_info(source).identity, there):
        round_trip = going_round(tables, back)
        if round_trip:
            findings.append(_finding(f"the target is the source itself: changes of {_listed(round_trip)} in a circle"))
    for writer in writers_on(source):
        if not _is_same(writer.server, there) or (writer.task, writer.source) == (config.name, config.source.source_id):
            continue

        def there_and_back(name: TableName, writer: Writer = writer) -> TableName | None:
            here = writer.step(name)
            return back(here) if here is not None else None

        round_trip = going_round(writer.tables, there_and_back)
        if round_trip:
            what = (
                f"task {writer.task} (source-id {writer.source}) carries changes from this task's target to this "
                f"source, and this task carries them back: changes of {_listed(round_trip)} in a circle"
            )
            where = f"FROM {quoted(writer.meta_schema)}.checkpoint WHERE task = '{writer.task}'"
            findings.append(_finding(what, f", or, if task {writer.task} will never run again: DELETE {where}; there"))
    return findings


def writers_on(session: Session) -> list[Writer]:
    """Returns all tasks that have begun to write to this server, as far as the account may read their records."""
    return [writer for schema in meta_schemas(session) for writer in _writers_in(session, schema)]


def meta_schemas(session: Session) -> list[str]:
    """Returns the schemas of this server in which tasks keep their records."""
    rows = query(
        session,
        "SELECT table_schema, table_name, column_name FROM information_schema.columns "
        "WHERE table_name IN ('checkpoint', 'note', 'structure') AND column_name IN ('epoch', 'told', 'structure')",
    )
    seen: dict[str, set[tuple[str, str]]] = {}
    for schema, table, column in rows:
        seen.setdefault(str(schema), set()).add((str(table), str(column)))
    return sorted(schema for schema, columns in seen.items() if columns >= _EVIDENCE)


def _writers_in(session: Session, schema: str) -> list[Writer]:
    place = quoted(schema)
    begun = query(session, f"SELECT DISTINCT task, source FROM {place}.checkpoint ORDER BY task, source")
    noted = {
        (task, source, TableName("", name)): str(told)
        for task, source, name, told in query(
            session, f"SELECT task, source, table_name, told FROM {place}.note WHERE table_schema = ''"
        )
    }
    known = query(session, f"SELECT task, source, table_schema, table_name FROM {place}.structure")
    found = []
    for task, source in begun:
        text = noted.get((task, source, RULES))
        found.append(
            Writer(
                meta_schema=schema,
                task=str(task),
                source=str(source),
                server=noted.get((task, source, SOURCE_SERVER), ""),
                rules=from_text(text) if text else Rules(),
                tables=frozenset(TableName(str(row[2]), str(row[3])) for row in known if row[:2] == (task, source)),
            )
        )
    return found


def going_round(names: Iterable[TableName], step: Step) -> list[TableName]:
    """Returns the tables that the changes of one of these reach again and again."""
    found: set[TableName] = set()
    for name in names:
        seen: set[TableName] = set()
        at: TableName | None = name
        while at is not None and at not in seen:
            seen.add(at)
            at = step(at)
        if at is not None:
            found.add(at)
    return sorted(found)


def target_name(rules: Rules, name: TableName) -> TableName | None:
    """Returns a table's name on the target; None if the rules are in conflict, which another check reports."""
    try:
        return rules.landed_name(name)
    except PidtsError:
        return None


def _identity(config: TaskConfig, target: TargetSession) -> str:
    """Returns the identity of the target's server; empty where no source can be such a server."""
    if config.target.type != "mysql":
        return ""
    from pidts.target.mysql import MySqlSession

    assert isinstance(target, MySqlSession)  # noqa: S101 - that is its type
    return ServerInfo.of(target.global_variables(IDENTIFYING)).identity


def _is_same(one: str, other: str) -> bool:
    """Whether two identities are those of one server. A MariaDB that has only a server id, often 1, proves nothing."""
    is_proof = PLACE_OF_MARIADB in one or " server-id " not in one
    return is_proof and bool(one) and one == other


def _listed(names: list[TableName]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(map(str, names[:_NAMED]))}{more} go"


def _finding(what: str, otherwise: str = "") -> Finding:
    fix = f"Carry each table in one direction only: exclude these tables from one of the two tasks{otherwise}"
    if not otherwise:
        fix = "Give these tables another name on the target (routes), or exclude them (block-allow-list)"
    return Finding("circular_replication", ok=False, message=what, fix=fix)
