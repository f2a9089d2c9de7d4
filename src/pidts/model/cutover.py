"""The record of a cutover: the progress of the switch from a task's sources to its target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from pidts.model.table import TableName


class CutoverStage(StrEnum):
    """How far a cutover has come. A crash may leave it in each of these states."""

    BEGUN = "begun"
    """Sources may be read-only, and the target may have constraints. The task may run. All steps can be undone."""
    STOPPING = "stopping"
    """The target has everything, and the task must not run any more."""
    DONE = "done"
    """No run can write to the target, and the application may."""


class ConstraintKind(StrEnum):
    """The kinds of constraints and similar objects that a cutover creates on the target."""

    FOREIGN_KEY = "FOREIGN KEY"
    CHECK = "CHECK"
    KEY = "KEY"
    ON_UPDATE = "ON UPDATE"
    COUNTER = "COUNTER"
    """A sequence for a column that had no sequence. The record contains the column's name."""


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key of one table."""

    kind: ClassVar = ConstraintKind.FOREIGN_KEY

    name: str
    table: TableName
    columns: tuple[str, ...]
    parent: TableName
    parent_columns: tuple[str, ...]
    on_delete: str = "NO ACTION"
    on_update: str = "NO ACTION"

    def __str__(self) -> str:
        return f"{self.name} of {self.table} ({', '.join(self.columns)}) on {self.parent}"


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """A CHECK constraint of one table; the expression is in the SQL of the server that has the table."""

    kind: ClassVar = ConstraintKind.CHECK

    name: str
    table: TableName
    expression: str

    def __str__(self) -> str:
        return f"{self.name} of {self.table}"


@dataclass(frozen=True, slots=True)
class ExpressionKey:
    """A key over expressions of one table; its parts are in the SQL of the server that has the table."""

    kind: ClassVar = ConstraintKind.KEY

    name: str
    table: TableName
    parts: tuple[str, ...]
    unique: bool = False

    def __str__(self) -> str:
        return f"{self.name} of {self.table} ({', '.join(self.parts)})"


@dataclass(frozen=True, slots=True)
class OnUpdate:
    """A column that the source declares `ON UPDATE CURRENT_TIMESTAMP`: each UPDATE sets it to the current time."""

    kind: ClassVar = ConstraintKind.ON_UPDATE

    name: str
    table: TableName
    digits: int = 0
    """The number of digits in the fraction of a second."""
    place: int = 1
    """The column's place in the table, from 1."""
    generated: tuple[str, ...] = ()
    """The table's generated columns."""

    def __str__(self) -> str:
        return f"ON UPDATE CURRENT_TIMESTAMP of column {self.name} of {self.table}"


Constraint = ForeignKey | CheckConstraint | ExpressionKey | OnUpdate


@dataclass(frozen=True, slots=True)
class CutoverCommand:
    """A process that carries out or undoes a cutover."""

    host: str
    process: int
    """The number of the process on its machine."""
    began_at: float
    """When the command began, in seconds since 1970: this time distinguishes commands with equal process numbers."""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CutoverCommand:
        """Returns the command of a record. A later version may have recorded further fields."""
        return cls(data["host"], data["process"], data["began_at"])


@dataclass(frozen=True, slots=True)
class CutoverServer:
    """The server of a source when the cutover began."""

    address: str
    """`host:port`"""
    identity: str
    """The identity that the server itself has shown."""

    def __str__(self) -> str:
        return f"{self.address} ({self.identity})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutover:
    """The record of a cutover that a crash must not lose."""

    stage: CutoverStage = CutoverStage.BEGUN
    read_only: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each source that this cutover makes read-only: the variables that it sets, and their former values."""
    servers: Mapping[str, CutoverServer] = field(default_factory=dict)
    """For each source: the server whose rows were compared. This cutover makes this server read-only. Records of
    earlier versions do not have the server.
    """
    log_ends: Mapping[str, str] = field(default_factory=dict)
    """For each source: a place in its log up to which the target had all changes when *stopping* was recorded. Records
    of earlier versions do not have this place.
    """
    constraints: tuple[tuple[ConstraintKind, TableName, str], ...] = ()
    """Objects that this cutover creates on the target: foreign keys, checks, keys, automatic timestamps, sequences."""
    position: str = ""
    """The end of the target's own log at the switch; empty if the target has none, or if it is unknown."""
    gtid: str = ""
    began_at: float = 0.0
    done_at: float = 0.0
    """`began_at` and `done_at`: when the cutover began and ended, in seconds since 1970; 0: not yet."""
    command: CutoverCommand | None = None
    """The command that saved this record; None if an earlier version saved it."""
    is_undone: bool = False
    """Whether an undo has begun. Then only the undo can continue."""
    undone_epoch: int = 0
    """If a finished cutover was undone: the highest epoch of the task's checkpoints at that time. Each later run has a
    higher epoch. Only the record that such an undo keeps has this number.
    """

    def dumps(self) -> str:
        """Returns the record as text."""
        data: dict[str, Any] = {
            "stage": self.stage.value,
            "read_only": {source: dict(values) for source, values in self.read_only.items()},
            # Each kind has its own key: a run of an earlier version ignores the kinds that it does not know.
            "foreign_keys": self._named(ConstraintKind.FOREIGN_KEY),
            "checks": self._named(ConstraintKind.CHECK),
            "keys": self._named(ConstraintKind.KEY),
            "on_update": self._named(ConstraintKind.ON_UPDATE),
            "counters": self._named(ConstraintKind.COUNTER),
            "position": self.position,
            "gtid": self.gtid,
            "began_at": self.began_at,
            "done_at": self.done_at,
        }
        if self.servers:
            data["servers"] = {source: asdict(server) for source, server in self.servers.items()}
        if self.log_ends:
            data["log_ends"] = dict(self.log_ends)
        if self.command is not None:
            data["command"] = asdict(self.command)
        if self.is_undone:
            data["is_undone"] = True
        if self.undone_epoch:
            data["undone_epoch"] = self.undone_epoch
        return json.dumps(data, ensure_ascii=True)

    def _named(self, kind: ConstraintKind) -> list[list[str]]:
        return [[table.schema, table.name, name] for one, table, name in self.constraints if one is kind]

    @classmethod
    def loads(cls, text: str) -> Cutover:
        """The inverse of `dumps`."""
        data = json.loads(text)
        made = {
            # Records of earlier versions have only foreign keys, in `foreign_keys` or in `constraints`.
            ConstraintKind.FOREIGN_KEY: data["foreign_keys"] if "foreign_keys" in data else data["constraints"],
            ConstraintKind.CHECK: data.get("checks", ()),
            ConstraintKind.KEY: data.get("keys", ()),
            ConstraintKind.ON_UPDATE: data.get("on_update", ()),
            ConstraintKind.COUNTER: data.get("counters", ()),
        }
        return cls(
            stage=CutoverStage(data["stage"]),
            read_only=data["read_only"],
            servers={
                source: CutoverServer(server["address"], server["identity"])
                for source, server in data.get("servers", {}).items()
            },
            log_ends=data.get("log_ends", {}),
            constraints=tuple(
                (kind, TableName(schema, table), name) for kind, names in made.items() for schema, table, name in names
            ),
            position=data["position"],
            gtid=data["gtid"],
            began_at=data["began_at"],
            done_at=data["done_at"],
            command=CutoverCommand.from_json(data["command"]) if data.get("command") else None,
            is_undone=data.get("is_undone", False),
            undone_epoch=data.get("undone_epoch", 0),
        )
