"""The structures of the tables of MySQL, MariaDB and TiDB, and the statements that change them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from pidts.model import Column, ColumnType, Halted, Kind, RenderedChange, RowsUnknown, Table, TableName, ValuesGenerated
from pidts.model.types import DATED, FRACTIONS, INTEGERS, LABELED
from pidts.schema import (
    Action,
    AddColumn,
    AlterTable,
    ChangeColumn,
    DropColumn,
    ModifyColumn,
    Statement,
    apply,
    classify,
)
from pidts.schema.kept_names import kept_names
from pidts.schema.statement_time import UNKNOWN_TIME, StatementTime
from pidts.target.arithmetic import exact
from pidts.target.difference import (
    difference,
    of_session,
    recomputed,
    refuse_of_session,
    refuse_rounded,
    refuse_shortened,
    refuse_unfillable,
    refuse_unknown,
    rounded,
    shortened,
    shortened_by_kind,
    unfillable,
    zero_filled,
)
from pidts.target.mysql import dialect
from pidts.target.mysql.connection import MySqlConnection
from pidts.target.mysql.dialect import adapted, qualified
from pidts.target.mysql.errors import StatementRefused
from pidts.target.mysql.server import TargetServer
from pidts.target.mysql.shape import InformationSchema, MyTable, shape_of
from pidts.target.server_schema import ServerSchema

_NO_SUCH_TABLE = (1146, 1049)
_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")
_FLOATING = frozenset({Kind.FLOAT, Kind.DOUBLE})
_WITHOUT_DATES = frozenset({Kind.TIME, Kind.TIMESTAMP, Kind.YEAR, Kind.BIT, Kind.GEOMETRY, Kind.VECTOR})
_NUMBERS = frozenset({*INTEGERS, *FRACTIONS, Kind.YEAR})


class MySqlSchema(ServerSchema[MyTable]):
    """The structures and the schema changes of one session."""

    transactional_ddl = False
    holds_unreal_dates = True

    def __init__(self, connection: MySqlConnection) -> None:
        self._connection = connection
        self._catalog = InformationSchema(connection.rows, tidb=connection.server.tidb)
        super().__init__(
            lambda name: shape_of(name, self._catalog.table(name), connection.server.dialect),
            self._catalog.unique_keys,
        )

    def read_ahead(self, tables: Iterable[Table]) -> None:
        """Reads information_schema once for all tables that the session does not know, if they are many."""
        self._catalog.read_ahead(table.name for table in tables if not self._knows(table))

    def forget(self) -> None:
        """Forgets what was read from information_schema."""
        super().forget()
        self.forget_ahead()

    def forget_ahead(self) -> None:
        """Forgets the rows that `read_ahead` has read and no caller has used."""
        self._catalog.forget()

    def fingerprint(self, name: TableName) -> str | None:
        """Returns SHOW CREATE TABLE without AUTO_INCREMENT's counter, which INSERTs change; None without a table."""
        try:
            rows = self._connection.shown(f"SHOW CREATE TABLE {qualified(name)}")
        except StatementRefused as error:
            if error.number in _NO_SUCH_TABLE:
                return None
            raise
        return _COUNTER.sub("", rows[0][1])

    def declared(self, name: TableName) -> Table | None:
        """Returns the structure that the text of SHOW CREATE TABLE declares; None if there is no such table."""
        text = self.fingerprint(name)
        if text is None:
            return None
        spoken = self._connection.server.dialect
        statement = classify(text, name.schema, dialect=spoken)
        return apply(statement, {}, {}, dialect=spoken).get(name) or self.structure(name)

    def column_types(self, table: Table) -> tuple[str, ...]:
        """Returns the columns' types, adapted to this server."""
        return dialect.column_types(table, self._connection.server)

    def create_statements(self, table: Table, *, before_copy: bool = False) -> RenderedChange:
        """Returns the statements that create the table, with database, keys and comments.

        All keys are created at once, since adding a key to a full table would rewrite the table.
        """
        del before_copy
        return dialect.create(table, self._connection.server)

    def finish_statements(self, table: Table) -> RenderedChange:
        """Returns no statements: the table has all its keys, and counters follow the rows."""
        del table
        return RenderedChange(())

    def ddl_statements(
        self,
        statement: Statement,
        before: Mapping[TableName, Table | None],
        after: Mapping[TableName, Table | None],
        executed_at: StatementTime = UNKNOWN_TIME,
    ) -> RenderedChange:
        """Returns this server's statements. Refuses a new column that would get other values than on the source."""
        if isinstance(statement, AlterTable):
            old, new = before.get(statement.table), next((t for t in after.values() if t is not None), None)
            if old is not None and new is not None:
                found = self.structure(statement.table)
                made = computed_here(statement, old, new, found, self._connection.server)
                statement, old = _without_generated_here(statement, old, new, found, made)
                before = {**before, statement.table: old}
                is_own_kind = statement.mariadb is self._connection.server.dialect.mariadb
                plain = dialect.render(statement, before, after, self._connection.server, executed_at).statements
                self._refuse_of_session(statement, old, new, plain)
                if statement.zeroes_unreal_days is not False or statement.ignore:
                    self._refuse_unreal_days(statement, old, new, plain)
                if not is_own_kind:
                    self._refuse_converted_otherwise(statement, old, new, found, plain)
                cuts = statement.mariadb if statement.cuts_fractions is None else statement.cuts_fractions
                # PiDTS does not change how a session of the target handles further digits of a second.
                has_own_fractions = cuts is self._connection.server.dialect.mariadb
                if not has_own_fractions:
                    self._refuse_shortened(statement, old, new, plain)
                self._refuse_rounded(statement, old, new, plain)
                self._refuse_zero_filled(statement, old, new, plain)
                there = frozenset(one.name.lower() for one in found.columns if one.generated) if found else frozenset()
                # The names of these columns after the statement count, too.
                here = there.union(
                    name.lower() for name, was in kept_names(statement, old, new).items() if was.lower() in there
                )
                unknown = unfillable(
                    statement, old, new, executed_at, made, reads_alike=is_own_kind and has_own_fractions
                )
                anew = recomputed(statement, old, new)
                unknown += [name for name in anew if name.lower() not in here and name not in unknown]
                if unknown and self._connection.rows(f"SELECT 1 FROM {qualified(statement.table)} LIMIT 1"):
                    made_by_source = {one.name for one in new.columns if one.auto_increment or one.generated}
                    may_copy = made_by_source.issuperset(unknown)
                    is_here = not here.isdisjoint(name.lower() for name in unknown)
                    kind = (ValuesGenerated if is_here else RowsUnknown) if may_copy else Halted
                    raise refuse_unfillable(unknown, old, plain if may_copy or not is_here else (), kind)
                made |= there
                rendered = dialect.render(statement, before, after, self._connection.server, executed_at, made)
                return replace(rendered, computed=made)
        return dialect.render(statement, before, after, self._connection.server, executed_at)

    def _refuse_of_session(self, statement: AlterTable, old: Table, new: Table, instead: tuple[str, ...]) -> None:
        """Refuses a new type if a row's value depends on the source's session."""
        for column, why in of_session(statement, old, new):
            if self._has_row(statement, f"{dialect.identifier(column)} IS NOT NULL"):
                raise refuse_of_session(column, why, old, instead)

    def _refuse_unreal_days(self, statement: AlterTable, old: Table, new: Table, instead: tuple[str, ...]) -> None:
        """Refuses a new type with dates if a row has a day such as February 31, which sessions of PiDTS keep."""
        for before, after in difference(statement, old, new).kept:
            if before.type == after.type or after.type.kind not in DATED or before.type.kind in _WITHOUT_DATES:
                continue
            day = f"CAST({dialect.identifier(before.name)} AS DATETIME)"
            if self._has_row(statement, f"DAY({day}) > DAY(LAST_DAY(DATE_FORMAT({day}, '%Y-%m-01')))"):
                raise refuse_unknown(before.name, old, instead)

    def _refuse_converted_otherwise(
        self, statement: AlterTable, old: Table, new: Table, found: Table | None, instead: tuple[str, ...]
    ) -> None:
        """Refuses a new type if MySQL and MariaDB make different values of a row. `found`: the table as it is here."""
        on_mariadb = self._connection.server.dialect.mariadb
        here = {column.name.lower(): column.type.kind for column in found.columns} if found is not None else {}
        changed = (
            (before, after) for before, after in difference(statement, old, new).kept if before.type != after.type
        )
        for before, after in changed:
            where = _is_converted_otherwise(before, after.type, here.get(before.name.lower()), on_mariadb=on_mariadb)
            if where and self._has_row(statement, where):
                raise refuse_unknown(before.name, old, instead)

    def _refuse_shortened(self, statement: AlterTable, old: Table, new: Table, instead: tuple[str, ...]) -> None:
        """Refuses to shorten fractions of seconds if a row would differ, since MySQL rounds, and MariaDB cuts off."""
        for column, shorter in (*shortened(statement, old, new), *shortened_by_kind(statement, old, new)):
            if self._has_row(statement, _is_rounded_up(column, shorter)):
                raise refuse_shortened(column.name, old, instead)

    def _has_row(self, statement: AlterTable, where: str) -> bool:
        return bool(self._connection.rows(f"SELECT 1 FROM {dialect.qualified(statement.table)} WHERE {where} LIMIT 1"))

    def _refuse_rounded(self, statement: AlterTable, old: Table, new: Table, instead: tuple[str, ...]) -> None:
        """Refuses to cut digits of floating point numbers if some rows have such digits.

        All servers convert FLOAT to DOUBLE, and DOUBLE to FLOAT, in the same way.
        """
        for column, kind in rounded(statement, old, new):
            if column.type.kind is not kind.kind:
                continue
            where = self._is_rounded_away(dialect.identifier(column.name), kind)
            if self._connection.rows(f"SELECT 1 FROM {dialect.qualified(statement.table)} WHERE {where} LIMIT 1"):
                raise refuse_rounded(column.name, kind.scale or 0, old, instead)

    def _is_rounded_away(self, name: str, kind: ColumnType) -> str:
        """Returns an SQL condition: true for values that change when a server rounds them for this type."""
        value, digits = f"({name} * 1e0)", f"1e{kind.scale}"
        made = f"(FLOOR({value}) + ROUND(({value} - FLOOR({value})) * {digits}) / {digits})"
        if kind.kind is Kind.DOUBLE:
            return f"{value} <> {made}"
        if self._connection.server.casts_to_float:
            return f"{value} <> CAST({made} AS FLOAT)"
        return f"ABS({value} - {made}) > ABS({value}) * {2.0**-25}"  # true for some numbers that do not change, too

    def _refuse_zero_filled(self, statement: AlterTable, old: Table, new: Table, instead: tuple[str, ...]) -> None:
        """Refuses to convert numbers to texts if their column may have ZEROFILL on the source."""
        for column in zero_filled(statement, old, new):
            where = f"{dialect.identifier(column)} IS NOT NULL"
            if self._connection.rows(f"SELECT 1 FROM {dialect.qualified(statement.table)} WHERE {where} LIMIT 1"):
                raise refuse_unknown(column, old, instead)


def _is_converted_otherwise(old: Column, new: ColumnType, here: Kind | None, *, on_mariadb: bool) -> str:
    """Returns an SQL condition: true for values of which MySQL and MariaDB make different values of the new type.

    Empty if there are no such values. `here` is the column's type on the target. `on_mariadb`: the target is MariaDB,
    and rows come from MySQL; otherwise the reverse. The condition may also be true for other values.
    """
    name, kind = dialect.identifier(old.name), old.type.kind
    is_text = old.type.is_text or old.type.is_bytes
    if kind in _NUMBERS and new.kind in LABELED:  # a number is a place in the list for MariaDB, and a label for MySQL
        return f"{name} IS NOT NULL"
    if kind in _FLOATING and new.kind is Kind.YEAR:  # MariaDB cuts digits off, and MySQL rounds
        return f"{name} <> FLOOR({name})"
    if kind in _FLOATING and new.kind is Kind.BIT:
        return f"ABS({name}) >= {2.0**63:.0f}"
    if on_mariadb:  # MySQL stores JSON in a form of its own: it sorts keys, and 1.10 becomes 1.1
        is_json_made = new.kind is Kind.JSON and kind is not Kind.JSON and not old.type.is_integer
        return f"{name} IS NOT NULL" if is_json_made else ""
    if here is Kind.JSON and (new.is_text or new.is_bytes):  # on MariaDB, JSON is a text
        return f"{name} IS NOT NULL"
    if is_text and (new.is_integer or new.kind is Kind.BIT):  # without strict mode, MariaDB makes 1 of 1.5 and of 1e3
        return f"CONVERT({name} USING utf8mb4) REGEXP '[.][0-9]*[1-9]|[0-9][eE]'"
    return ""


def _is_rounded_up(old: Column, new: Column) -> str:
    """Returns an SQL condition: true for values that become another value if digits of a second are rounded, not cut.

    For texts and numbers, the condition may also be true for other values.
    """
    name, digits = dialect.identifier(old.name), new.type.fsp
    match old.type.kind:
        case Kind.TIME | Kind.DATETIME | Kind.TIMESTAMP:
            found = f"MOD(MICROSECOND({name}), {10 ** (6 - digits)}) >= {5 * 10 ** (5 - digits)}"
            return f"{found} AND TIME({name}) >= '23:59:59'" if new.type.kind is Kind.DATE else found
        case Kind.DECIMAL | Kind.FLOAT | Kind.DOUBLE:
            return f"MOD(ABS({name}) * {10**digits}, 1) >= 0.4999"  # a DOUBLE is not exact
        case _:
            return f"CONVERT({name} USING utf8mb4) REGEXP '[.][0-9]{{{digits}}}[5-9]'"


def _without_generated_here(
    statement: AlterTable, before: Table, after: Table, found: Table | None, made: frozenset[str]
) -> tuple[AlterTable, Table]:
    """Removes the actions that make a plain column of the source generated, if it is already generated on the target.

    The target's column stays as it is: its values come from its own expression before and after the statement. This
    happens on the way back after a cutover, when the cutover itself has made the new server's columns generated. `made`
    are columns that the target can compute by the source's expression: their actions stay.
    """
    there = {column.name.lower() for column in found.columns if column.generated} if found is not None else set()
    plain = {column.name.lower(): column.name for column in before.columns if not column.generated}
    origin = kept_names(statement, before, after)
    moved = {old for new, old in origin.items() if new.lower() != old.lower()}
    new = {
        name: column
        for column in after.columns
        if column.generated
        and (name := column.name.lower()) in (there & plain.keys()) - made
        and plain[name] not in moved
        and origin.get(column.name, plain[name]) == plain[name]
    }
    actions = tuple(action for action in statement.actions if _column_of(action) not in new)
    columns = tuple(new.get(column.name.lower(), column) for column in before.columns)
    return replace(statement, actions=actions), replace(before, columns=columns)


def _column_of(action: Action) -> str | None:
    """Returns the column, in lower case, that an action defines or drops."""
    match action:
        case AddColumn(column=column) | ModifyColumn(column=column) | ChangeColumn(column=column):
            return column.name.lower()
        case DropColumn(name=name):
            return name.lower()
        case _:
            return None


def computed_here(
    statement: AlterTable, before: Table, after: Table, found: Table | None, server: TargetServer
) -> frozenset[str]:
    """Returns the names, in lower case, of new generated columns that this server is allowed to compute.

    If source and target are not of the same kind, only expressions that every server computes in the same way count.
    Each column that an expression reads must have the same type on the target and on the source. No such column may be
    a TIMESTAMP, whose value depends on the session's time zone.
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


def _reads_alike(action: AddColumn, before: Table, after: Table, found: Table, server: TargetServer) -> bool:
    assert action.computed is not None  # noqa: S101 - the caller has checked this
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
