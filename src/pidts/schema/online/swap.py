"""Applies an online schema change to the real table, once its shadow takes the table's name.

Each statement that alters the shadow is remembered. At the swap, these statements are applied to the real table as one
ALTER TABLE. This ALTER TABLE is checked before it runs: it must lead from the real table's structure to exactly the
shadow's structure, since rows after the swap have this structure. The check fails if the real table was also altered
without the tool, or if the statements are unknown because the shadow existed before the task. Then an ALTER TABLE is
made from the difference of the two structures, if no other ALTER TABLE makes the same difference. If several ALTER
TABLEs could make it, the task halts at the swap.

The shadow's rows are not replicated. So the task halts, and runs no ALTER, if the shadow's rows may differ from the
real table's rows:

- a shadow that was not altered after its creation: `CREATE TABLE _report_new ...; RENAME ...` for a report each night
  looks like an online schema change;
- a shadow with a new column whose default differs from row to row (the clock, a counter): the tool has given values to
  the existing rows while it copied them;
- trash that takes a real name: its rows are from the time of the swap that made the table trash;
- a shadow that takes the name of a table that does not exist.

Crash points: one commit changes the records of shadows and marks the statement as done in the journal. After a crash
before this commit, the statement is processed again, with the same records. After the commit, it is not processed
again. A swap needs the records of its shadow until its ALTER TABLE is done. Only the commit that marks the ALTER TABLE
as done removes these records, so a swap always has them. No record is kept only in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pidts.schema.actions as alter
import pidts.schema.statements as ddl
from pidts.model.advice import REPLACE, RESYNC, SKIP
from pidts.model.errors import Halted, Where
from pidts.model.records.target_records import LoggedStatement, Shadow
from pidts.model.table import Table, TableName
from pidts.schema.charset_rules import Charset
from pidts.schema.compare import differences
from pidts.schema.dialect import Dialect
from pidts.schema.evolve.apply_statement import apply
from pidts.schema.online.difference import actions_between
from pidts.schema.online.names import OnlineDdl, Pairs, Role, SplitStatement, net
from pidts.schema.parse.classify import classify

_AGAIN = f"Skip this statement: {SKIP}. Then copy the table once more: {RESYNC}"
_OTHERWISE = "or set online-ddl: false, if tables with such names are ordinary tables here"


@dataclass(frozen=True, slots=True)
class Translation:
    """One statement as the target runs it."""

    statement: ddl.Statement | None
    """The statement to run; None if there is none."""
    shadows: Mapping[TableName, Shadow | None] = field(default_factory=dict)
    """The new records of shadows; None removes a record."""
    structures: Mapping[TableName, Table | None] | None = None
    """The structures of real tables after a swap; None if `statement` itself shows them."""
    text: str = ""
    """For a swap, the statements that altered the shadow, if they are known."""


def translate(
    online: OnlineDdl,
    statement: ddl.Statement,
    logged: LoggedStatement,
    *,
    shadows: Mapping[TableName, Shadow],
    structures: Mapping[TableName, Table],
    charsets: Mapping[str, Charset],
    dialect: Dialect,
) -> Translation:
    """Translates a statement of the source for the target.

    `shadows` contains the records of shadows, and `structures` the real tables, both before the statement. `dialect` is
    the dialect of the source's server.
    """
    step = _Step(online, shadows, structures, charsets, dialect)
    return step.translated(statement, logged)


def untranslated(
    online: OnlineDdl, statement: ddl.Statement, shadows: Mapping[TableName, Shadow]
) -> tuple[dict[TableName, Table], dict[TableName, None]]:
    """Returns the effects of a swap for which an operator has run other statements.

    The effects are the structures after the swap, and the shadows whose records are removed.
    """
    swapped = online.split(statement).swapped
    found = {real: shadows[name].structure for name, real in swapped if name in shadows}
    structures = {real: structure.renamed(real) for real, structure in found.items() if structure is not None}
    return structures, dict.fromkeys(name for name, _ in swapped)


def renames(statement: ddl.Statement | None) -> Pairs:
    """Returns the old and the new name of each table that a statement renames."""
    moves = _moves(statement) if isinstance(statement, ddl.RenameTable | ddl.AlterTable) else ()
    return tuple((old, new) for old, new in net(moves) if old != new)


class _Step:
    def __init__(
        self,
        online: OnlineDdl,
        shadows: Mapping[TableName, Shadow],
        structures: Mapping[TableName, Table],
        charsets: Mapping[str, Charset],
        dialect: Dialect,
    ) -> None:
        self._online, self._shadows, self._structures = online, shadows, structures
        self._charsets, self._dialect = charsets, dialect
        self._changed: dict[TableName, Shadow | None] = {}

    def translated(self, statement: ddl.Statement, logged: LoggedStatement) -> Translation:
        if not self._online.is_on:
            return Translation(statement)
        split = self._online.split(statement)
        match statement:
            case ddl.DropDatabase(name=schema) | ddl.CreateDatabase(name=schema, or_replace=True):
                self._changed |= {name: None for name in self._shadows if name.schema == schema}
            case ddl.DropTable(tables=tables):
                self._refuse_half_a_swap(split, tables)
                self._changed |= dict.fromkeys(split.shadows)
            case ddl.CreateTable() | ddl.CreateTableLike():
                return self._created(statement, logged, split)
            case ddl.RenameTable() | ddl.AlterTable() if split.swapped or self._renames(statement):
                return self._renamed(statement, logged, split)
            case ddl.TruncateTable() | ddl.StatementDml():
                pass
            case _:
                for name in split.shadows:
                    self._alter(name, statement, logged)
        return Translation(split.rest, self._changed)

    def _shadow(self, name: TableName) -> Shadow | None:
        if name in self._changed:
            return self._changed[name]
        known = self._shadows.get(name)
        if known is None and name in self._structures:
            return Shadow(self._structures[name], complete=False)
        return known

    def _apply(self, statement: ddl.Statement, logged: LoggedStatement) -> dict[TableName, Table | None] | None:
        known = {**self._structures}
        for name in statement.tables:
            shadow = self._shadow(name)
            if shadow is not None and shadow.structure is not None:
                known[name] = shadow.structure
        dialect = self._dialect.of_session(logged)
        try:
            return apply(statement, known, self._charsets, dialect=dialect)
        except Halted:
            return None

    def _created(
        self, statement: ddl.CreateTable | ddl.CreateTableLike, logged: LoggedStatement, split: SplitStatement
    ) -> Translation:
        name = statement.table
        if split.rest is None and self._online.role(name) is Role.SHADOW:
            known = self._shadow(name)
            if not statement.if_not_exists or statement.or_replace:
                made = self._apply(replace(statement, or_replace=True), logged)
                self._changed[name] = Shadow(made.get(name) if made is not None else None)
            elif known is None:
                self._changed[name] = Shadow(None, complete=False)
        elif split.rest is not None and isinstance(statement, ddl.CreateTableLike):
            pattern = self._shadow(statement.like) if statement.like in split.shadows else None
            if pattern is not None and pattern.structure is not None:
                made_like = pattern.structure.renamed(name)
                rest = ddl.CreateTable(name, made_like, statement.if_not_exists, statement.or_replace)
                return Translation(rest, self._changed)
        return Translation(split.rest, self._changed)

    def _alter(self, name: TableName, statement: ddl.Statement, logged: LoggedStatement) -> None:
        known = self._shadow(name) or Shadow(None, complete=False)
        after = self._apply(statement, logged) if known.structure is not None else None
        structure = after.get(name) if after is not None else None
        self._changed[name] = replace(known, structure=structure, statements=(*known.statements, logged))

    def _renames(self, statement: ddl.RenameTable | ddl.AlterTable) -> bool:
        if isinstance(statement, ddl.RenameTable):
            return any(self._online.role(name) is not Role.REAL for name in statement.tables)
        moves = any(isinstance(action, alter.RenameTo) for action in statement.actions)
        return moves and any(self._online.role(name) is not Role.REAL for name in statement.tables)

    def _renamed(
        self, statement: ddl.RenameTable | ddl.AlterTable, logged: LoggedStatement, split: SplitStatement
    ) -> Translation:
        self._refuse(statement, logged, split)
        if isinstance(statement, ddl.AlterTable):
            rest = tuple(action for action in statement.actions if not isinstance(action, alter.RenameTo))
            if rest and statement.table in split.shadows:
                self._alter(statement.table, replace(statement, actions=rest), logged)
        swapped = dict(split.swapped)
        found = {name: self._shadow(name) for name in split.shadows}
        self._changed |= dict.fromkeys(split.shadows)
        for old, new in _moves(statement):
            if old in found and new in found:
                moved = found[old]
                structure = moved.structure.renamed(new) if moved is not None and moved.structure is not None else None
                self._changed[new] = replace(moved, structure=structure) if moved is not None else None
        for shadow, real in swapped.items():
            return self._swapped(shadow, found[shadow], real)
        return Translation(split.rest, self._changed)

    def _refuse(
        self, statement: ddl.RenameTable | ddl.AlterTable, logged: LoggedStatement, split: SplitStatement
    ) -> None:
        """Refuses a rename that cannot be the swap at the end of a tool's work."""
        pairs = net(_moves(statement))
        for old, new in pairs:
            was, becomes = self._online.role(old), self._online.role(new)
            if (was, becomes) == (Role.TRASH, Role.REAL):
                raise _rows(
                    new,
                    f"{old} takes the table's place: this undoes an online schema change, and {old} has the rows of "
                    "an earlier time",
                )
            if (was, becomes) == (Role.REAL, Role.SHADOW):
                raise _rows(old, f"the table is renamed to {new}, and tables with such names are not replicated")
        trashed = {old for old, new in pairs if self._online.role(old) is Role.REAL is not self._online.role(new)}
        taken = trashed.intersection(new for old, new in pairs if self._online.role(old) is Role.REAL)
        if taken or len(split.swapped) + (split.rest is not None) > 1:
            raise self._mixed(split, logged)

    def _swapped(self, name: TableName, shadow: Shadow | None, real: TableName) -> Translation:
        before = self._structures.get(real)
        if before is None:
            raise _rows(real, f"{name} takes the name of an unknown table, and its rows were not replicated")
        if shadow is None or shadow.structure is None:
            raise self._unknown(name, shadow, real)
        if shadow.complete and not shadow.statements:
            raise _rows(real, f"{name} takes the table's place and was never altered, so its rows are not known")
        after = shadow.structure.renamed(real)
        for actions in (self._remembered(shadow), actions_between(before, after)):
            if actions is not None and self._leads(before, actions, after):
                if (column := _filled_by_the_tool(actions)) is not None:
                    raise _rows(real, f"the tool filled the new column {column} with values that are in no log")
                statement = ddl.AlterTable(real, actions, mariadb=self._dialect.mariadb)
                text = "; ".join(logged.sql for logged in shadow.statements)
                return Translation(statement, self._changed, {real: after}, text)
        raise Halted(
            "online-ddl-differs",
            f"the statements that altered {name} do not lead from the table's old structure to its new structure: "
            + "; ".join(differences(after, before)),
            where=Where(table=str(real)),
            todo=f"Replace this statement by the ALTER TABLE that the tool was started for: {REPLACE}. Or: {_AGAIN}",
        )

    def _remembered(self, shadow: Shadow) -> tuple[alter.Action, ...] | None:
        actions: list[alter.Action] = []
        for logged in shadow.statements if shadow.complete else ():
            statement = classify(logged.sql, logged.schema, dialect=self._dialect.of_session(logged))
            if not isinstance(statement, ddl.AlterTable):
                return None
            actions += (action for action in statement.actions if not isinstance(action, alter.RenameTo))
        return tuple(actions) if shadow.complete else None

    def _leads(self, before: Table, actions: Sequence[alter.Action], after: Table) -> bool:
        try:
            made = apply(
                ddl.AlterTable(before.name, tuple(actions), mariadb=self._dialect.mariadb),
                {before.name: before},
                self._charsets,
                dialect=self._dialect,
            )
        except Halted:
            return False
        found = made.get(before.name)
        return found is not None and not differences(after, found)

    def _refuse_half_a_swap(self, split: SplitStatement, tables: Sequence[TableName]) -> None:
        """Refuses pt-online-schema-change's `drop_swap`, which drops the table and renames the shadow separately."""
        gone = {name for name in tables if name not in split.shadows}
        for shadow, known in self._shadows.items():
            real = gone.intersection(self._online.reals(shadow) or ()) if shadow not in tables else None
            if real and known.statements:
                raise Halted(
                    "online-ddl-dropped",
                    f"the table is dropped while {shadow}, the table of its online schema change, exists",
                    where=Where(table=", ".join(map(str, sorted(real)))),
                    todo="If the tool drops the table before it swaps (drop_swap), skip this statement: the swap that "
                    f"follows alters the table ({SKIP}). If the table is really gone, run the statement as it is: "
                    f"{REPLACE}",
                )

    def _unknown(self, name: TableName, shadow: Shadow | None, real: TableName) -> Halted:
        seen = [logged.sql[:200] for logged in shadow.statements] if shadow is not None else []
        seen_text = f"; the statements about it: {'; '.join(seen)}" if seen else ""
        return Halted(
            "online-ddl-unknown",
            f"{name} takes the table's place, and the statements that altered {name} are not known{seen_text}",
            where=Where(table=str(real)),
            todo="The task began in the middle of this online schema change, or a statement about it was not "
            f"understood. Replace this statement by the ALTER TABLE that the tool was started for: {REPLACE}",
        )

    def _mixed(self, split: SplitStatement, logged: LoggedStatement) -> Halted:
        names = sorted({*(split.rest.tables if split.rest is not None else ()), *(real for _, real in split.swapped)})
        return Halted(
            "online-ddl-mixed",
            "a statement swaps tables as an online schema change does, and also changes other tables: "
            f"{logged.sql[:200]}",
            where=Where(table=", ".join(map(str, names))),
            todo=f"{_AGAIN}; {_OTHERWISE}",
        )


def _moves(statement: ddl.RenameTable | ddl.AlterTable) -> list[tuple[TableName, TableName]]:
    if isinstance(statement, ddl.RenameTable):
        return list(statement.pairs)
    return [(statement.table, action.name) for action in statement.actions if isinstance(action, alter.RenameTo)]


def _rows(real: TableName, what: str) -> Halted:
    return Halted("online-ddl-rows", what, where=Where(table=str(real)), todo=f"{_AGAIN}; {_OTHERWISE}")


def _filled_by_the_tool(actions: Sequence[alter.Action]) -> str | None:
    """Returns a new column whose default differs from row to row: the tool has filled it. None if there is none."""
    for action in actions:
        if isinstance(action, alter.AddColumn) and (action.column.auto_increment or _is_moving(action.column.default)):
            return action.column.name
    return None


def _is_moving(default: str | None) -> bool:
    text = (default or "").lower()
    if text.startswith(("'", '"')):
        return False
    return "(" in text or text.startswith(("current_", "now", "localtime"))
