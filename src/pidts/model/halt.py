"""The halts that wait for an operator, and the operator's orders about them."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from pidts.model.errors import PidtsError, listed
from pidts.model.lsn import Lsn
from pidts.model.table import TableName

_NAMED = 5
"""The most tables of one halt that a line names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Tables that wait for an operator, while all others go on."""

    tables: tuple[TableName, ...]
    """The halted tables; none named: all of the task wait."""
    lsn: Lsn
    """The place of the schema change in the log; of rows: up to where the table is on the target."""
    position: str = ""
    """The source's own name of that place."""
    statement: str = ""
    """The schema change that fails; empty where it is rows that the target refuses."""
    code: str
    what: str
    key: str = ""
    """The key of the row that the target refuses, where that is known."""
    todo: str = ""
    awaits: tuple[str, ...] = ()
    """The other shards that a schema change waits for, each as `source: schema.table`."""
    since: float = 0.0
    """The time since when it waits, in seconds since 1970."""
    unfit: tuple[str, ...] = ()
    """The shards whose rows would not fit after it before their own change, if it were run without them."""
    lacks: tuple[str, ...] = ()
    """The reasons why its own rows would not fit, if it were not run."""
    stays: tuple[str, ...] = ()
    """The reasons why it would still wait if it were run without the others."""
    instead: tuple[str, ...] = ()
    """The target's statements for the schema change, which an operator may complete and give in its place."""

    @property
    def place(self) -> str:
        """Tells the halts of one task apart."""
        return str(self.lsn) if self.statement or not self.tables else str(self.tables[0])

    @property
    def why(self) -> str:
        """Returns what has happened, and to which row."""
        return f"{self.what} (key {self.key})" if self.key else self.what

    def to_json(self) -> dict[str, Any]:
        """Returns plain values."""
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        lists = {name: list(value) for name, value in data.items() if isinstance(value, tuple)}
        return {**data, **lists, "tables": [str(name) for name in self.tables], "lsn": str(self.lsn)}

    def dumps(self) -> str:
        """Returns one text, which names tables without a doubt."""
        return json.dumps({**self.to_json(), "tables": [[name.schema, name.name] for name in self.tables]})

    @classmethod
    def loads(cls, text: str) -> Halt:
        """Returns the halt of such a text; the inverse of `dumps`."""
        data = json.loads(text)
        names = tuple(TableName(*name) for name in data.pop("tables"))
        lists = {name: tuple(data.get(name, ())) for name in ("awaits", "unfit", "lacks", "stays", "instead")}
        return cls(**{**data, **lists, "tables": names, "lsn": Lsn.parse(data["lsn"])})

    @classmethod
    def of(
        cls,
        error: PidtsError,
        tables: tuple[TableName, ...],
        lsn: Lsn,
        *,
        position: str = "",
        statement: str = "",
        since: float = 0.0,
    ) -> Halt:
        """Returns the halt that an error makes."""
        return cls(
            tables=tables,
            lsn=lsn,
            position=position,
            statement=statement,
            code=error.code,
            what=error.what,
            key=error.where.key,
            todo=error.todo,
            since=since,
            instead=error.instead,
        )

    def __str__(self) -> str:
        names = listed(self.tables, _NAMED) or "all tables"
        return f"{names}: [{self.code}] {self.why} (at {self.position or self.lsn})"


class OrderKind(StrEnum):
    """The operator's choice of what to do instead of what the log says."""

    SKIP = "skip"
    """Runs nothing; the change counts as made, and the source's structures are followed."""
    REPLACE = "replace"
    """Other statements, in the target's own words."""
    INJECT = "inject"
    """Runs these statements, and then what the log says."""
    REVERT = "revert"
    """Runs what the log says, once more from its beginning."""
    UNLOCK = "unlock"
    """Runs what the log says, without the other shards that have not come to it; they pass when they come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlOrder:
    """An operator's word about one schema change of the log."""

    lsn: Lsn
    kind: OrderKind
    statements: tuple[str, ...] = ()
    """The statements, each by itself, in the target's own words, about the target's names."""
    number: int = 0
    """Another for each order, so that one who has read an order knows whether it still stands."""
    taken: bool = False
    """A run has begun to carry it out: the journal knows how far."""
