"""Halts, which wait for an operator, and ddl commands, with which operators decide about schema changes."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from pidts.model.advice import for_zone, with_place, with_tables
from pidts.model.errors import PidtsError, listed
from pidts.model.lsn import Lsn
from pidts.model.table import TableName

_NAMED = 5
"""The most tables of a halt that a line names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """A halt: the tables that wait for an operator, the place, the cause and the advice."""

    tables: tuple[TableName, ...]
    """The halted tables; empty: all tables of the task."""
    lsn: Lsn
    """The place of the schema change. For refused rows: the place up to which the target has the table's changes."""
    position: str = ""
    """The place `lsn` as a log file and a byte; empty if it is not known."""
    statement: str = ""
    """The schema change that fails; empty if the target refuses rows."""
    code: str
    what: str
    key: str = ""
    """The key of the row that the target refuses, if it is known."""
    todo: str = ""
    awaits: tuple[str, ...] = ()
    """The other shards for which a schema change waits, each as `source: schema.table`."""
    since: float = 0.0
    """When the wait began, in seconds since 1970."""
    unfit: tuple[str, ...] = ()
    """Shards that have not arrived, and whose rows before their own change would not fit into the changed table."""
    lacks: tuple[str, ...] = ()
    """The reasons why the halted table's own rows would not fit if the change were skipped."""
    stays: tuple[str, ...] = ()
    """The reasons why the table would still wait if the change were run without the other shards."""
    instead: tuple[str, ...] = ()
    """Statements that make the change on the target, for an operator to complete (`pidts ddl replace`)."""
    values: tuple[str, ...] = ()
    """Lines about a row's values on source and target. Commands that show halts print these lines; logs never do."""

    is_earlier: bool = False
    """Whether the halt was recorded before the task's last start, and the task has not reached its place since then."""
    is_decided: bool = False
    """Whether an operator has given a ddl command for the statement since the task has halted there."""
    into_zone: str | None = None
    """The zone of the target, whose tables cannot be copied again (`pidts.apply.apply_rules`); None: the target is no
    zone.
    """

    @property
    def place(self) -> str:
        """Returns a text that distinguishes the halts of one task."""
        return str(self.lsn) if self.statement or not self.tables else str(self.tables[0])

    @property
    def why(self) -> str:
        """Returns what has happened, and to which row."""
        return f"{self.what} (key {self.key})" if self.key else self.what

    def to_json(self) -> dict[str, Any]:
        """Returns plain values that may be logged: the values of rows are left out."""
        data = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "values"}
        lists = {name: list(value) for name, value in data.items() if isinstance(value, tuple)}
        return {**data, **lists, "tables": [str(name) for name in self.tables], "lsn": str(self.lsn)}

    def dumps(self) -> str:
        """Returns the halt as JSON, in which the schema and the name of a table are separate values."""
        tables = [[name.schema, name.name] for name in self.tables]
        data = {**self.to_json(), "tables": tables, "values": list(self.values)}
        if not self.is_earlier:  # earlier versions have not recorded these three
            del data["is_earlier"]
        if not self.is_decided:
            del data["is_decided"]
        if self.into_zone is None:
            del data["into_zone"]
        return json.dumps(data)

    @classmethod
    def loads(cls, text: str) -> Halt:
        """The inverse of `dumps`. Fields that a later version has added are left out."""
        data = json.loads(text)
        names = tuple(TableName(*name) for name in data.pop("tables"))
        lists = {name: tuple(data.get(name, ())) for name in ("awaits", "unfit", "lacks", "stays", "instead", "values")}
        known = {field.name: data[field.name] for field in fields(cls) if field.name in data}
        return cls(**{**known, **lists, "tables": names, "lsn": Lsn.parse(data["lsn"])})

    @classmethod
    def of(
        cls,
        error: PidtsError,
        tables: tuple[TableName, ...],
        lsn: Lsn,
        *,
        source: str = "",
        position: str = "",
        statement: str = "",
        since: float = 0.0,
        into_zone: str | None = None,
    ) -> Halt:
        """Returns the halt for an error. The commands in its advice name the source, the place and the tables."""
        todo = error.todo or error.usual_todo
        todo = for_zone(todo, into_zone) if into_zone is not None else todo
        todo = with_tables(with_place(todo, source, str(lsn)), source, tables)
        return cls(
            tables=tables,
            lsn=lsn,
            position=position,
            statement=statement,
            code=error.code,
            what=error.what,
            key=error.where.key,
            todo=todo,
            since=since,
            instead=error.instead,
            values=error.values,
            into_zone=into_zone,
        )

    @property
    def brief(self) -> str:
        """Returns the tables and the code, without what has happened."""
        return f"{listed(self.tables, _NAMED) or 'all tables'}: [{self.code}]"

    def __str__(self) -> str:
        return f"{self.brief} {self.why} (at {self.position or self.lsn})"


class CommandKind(StrEnum):
    """The kinds of ddl commands for a statement in the log."""

    SKIP = "skip"
    """Runs nothing. The change counts as made, and the recorded structures of the source follow it."""
    REPLACE = "replace"
    """Runs other statements, in the target's SQL."""
    INJECT = "inject"
    """Runs other statements, and then the statement in the log."""
    REVERT = "revert"
    """Cancels an earlier ddl command, and runs the statement in the log unchanged, from its beginning."""
    UNLOCK = "unlock"
    """Runs the statement in the log without waiting for other shards. A shard that arrives later does not run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlCommand:
    """An operator's ddl command for one schema change in the log."""

    lsn: Lsn
    kind: CommandKind
    statements: tuple[str, ...] = ()
    """The operator's statements, one in each text, in the target's SQL and with the target's names."""
    number: int = 0
    """Each ddl command gets a new number. The number shows whether the command was replaced after it was read."""
    taken: bool = False
    """Whether a run has begun to execute the command. The journal has the progress."""
