"""What stands still for an operator, and what an operator has ordered about it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pidts.model.errors import PidtsError
from pidts.model.lsn import Lsn
from pidts.model.table import TableName

_NAMED = 5
"""So many tables of one halt are named in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Tables that wait for an operator, while all others go on."""

    tables: tuple[TableName, ...]
    """None named: all of the task wait."""
    lsn: Lsn
    """Where the schema change stands in the log; of rows: up to where the table is on the target."""
    position: str = ""
    """The source's own name of that place."""
    statement: str = ""
    """The schema change that fails; empty where it is rows that the target refuses."""
    code: str
    what: str
    key: str = ""
    """Of the row that the target refuses, where that is known."""
    todo: str = ""
    awaits: tuple[str, ...] = ()
    """Of a schema change that waits for other shards: theirs, each as `source: schema.table`."""
    since: float = 0.0
    """Since when it waits, in seconds since 1970."""
    unfit: tuple[str, ...] = ()
    """Of those whose rows would not fit behind it before their own change, if it were run without them."""
    lacks: tuple[str, ...] = ()
    """What keeps its own rows from fitting, if it were not run."""
    stays: tuple[str, ...] = ()
    """What would keep it waiting if it were run without the others."""

    @property
    def place(self) -> str:
        """Tells the halts of one task apart."""
        return str(self.lsn) if self.statement or not self.tables else str(self.tables[0])

    @property
    def why(self) -> str:
        """What has happened, and to which row."""
        return f"{self.what} (key {self.key})" if self.key else self.what

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "tables": [str(name) for name in self.tables],
            "lsn": str(self.lsn),
            "position": self.position,
            "statement": self.statement,
            "code": self.code,
            "what": self.what,
            "key": self.key,
            "todo": self.todo,
            "awaits": list(self.awaits),
            "since": self.since,
            "unfit": list(self.unfit),
            "lacks": list(self.lacks),
            "stays": list(self.stays),
        }

    def dumps(self) -> str:
        """One text, which names tables without a doubt."""
        return json.dumps({**self.to_json(), "tables": [[name.schema, name.name] for name in self.tables]})

    @classmethod
    def loads(cls, text: str) -> Halt:
        """The inverse of `dumps`."""
        data = json.loads(text)
        names = tuple(TableName(*name) for name in data.pop("tables"))
        lists = {name: tuple(data.get(name, ())) for name in ("awaits", "unfit", "lacks", "stays")}
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
        """What an error says."""
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
        )

    def __str__(self) -> str:
        names = ", ".join(map(str, self.tables[:_NAMED])) or "all tables"
        if len(self.tables) > _NAMED:
            names = f"{names} and {len(self.tables) - _NAMED} more"
        return f"{names}: [{self.code}] {self.why} (at {self.position or self.lsn})"


class OrderKind(StrEnum):
    """What to do instead of what the log says."""

    SKIP = "skip"
    """Nothing; the change counts as made, and the source's structures are followed."""
    REPLACE = "replace"
    """Other statements, in the target's own words."""
    INJECT = "inject"
    """These statements, and then what the log says."""
    REVERT = "revert"
    """What the log says, once more from its beginning."""
    UNLOCK = "unlock"
    """What the log says, without those other shards that have not come to it; they pass when they come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlOrder:
    """An operator's word about one schema change of the log."""

    lsn: Lsn
    kind: OrderKind
    statements: tuple[str, ...] = ()
    """Each by itself, in the target's own words, about the target's names."""
    number: int = 0
    """Another for each order, so that one who has read an order knows whether it still stands."""
    taken: bool = False
    """A run has begun to carry it out: the journal knows how far."""
