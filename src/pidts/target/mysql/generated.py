"""New generated columns that this server can have as the source has them, and computes as the source does."""

from __future__ import annotations

from dataclasses import replace

from pidts.model import ColumnType, Kind, Table
from pidts.schema import AddColumn, AlterTable
from pidts.target.arithmetic import exact
from pidts.target.mysql.dialect import adapted
from pidts.target.mysql.server import Server


def computed_here(
    statement: AlterTable, before: Table, after: Table, found: Table | None, server: Server
) -> frozenset[str]:
    """Returns the names of generated columns, in lower case.

    A server of the other flavor gets only what every server computes alike. Each column that an expression reads must
    have the same type here and on the source, and no TIMESTAMP: its clock is that of the session's zone.
    """
    if found is None or not server.has_generated:
        return frozenset()
    names = set()
    for action in statement.actions:
        if (
            not isinstance(action, AddColumn)
            or action.computed is None
            or not _reads_alike(action, before, after, found, server)
        ):
            continue
        column = next((one for one in after.columns if one.name.lower() == action.column.name.lower()), None)
        is_own = statement.mariadb is server.dialect.mariadb
        if column is not None and (is_own or exact(action.computed, column, before, after) is not None):
            names.add(column.name.lower())
    return frozenset(names)


def _reads_alike(action: AddColumn, before: Table, after: Table, found: Table, server: Server) -> bool:
    assert action.computed is not None  # noqa: S101 - the caller has looked
    here, _ = adapted(after, server)
    had = {column.name.lower(): column.type for column in before.columns}
    there = {column.name.lower(): column.type for column in found.columns}
    own = action.column.name.lower()
    for source, target in zip(after.columns, here.columns, strict=True):
        name = source.name.lower()
        if name != own and name not in action.computed.names:
            continue
        if source.type.kind is Kind.TIMESTAMP or _plain(source.type) != _plain(target.type):
            return False
        if name != own and name in had and (name not in there or _plain(had[name]) != _plain(there[name])):
            return False
    return True


def _plain(kind: ColumnType) -> ColumnType:
    if kind.is_integer:
        return ColumnType(kind.kind, unsigned=kind.unsigned)
    if kind.kind is Kind.JSON:
        return ColumnType(Kind.JSON)
    collation = (kind.collation or "").replace("utf8mb3_", "utf8_")
    return replace(
        kind,
        charset=None,
        collation=collation if kind.is_text else None,
        precision=kind.precision or 10,
        scale=kind.scale or 0,
    )
