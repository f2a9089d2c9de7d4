"""A schema change to be made on the target, for one member of a shard group or for several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pidts.apply.checkpoint import Outcome
from pidts.model import CommandKind, DdlCommand, DdlJournal, DdlState, Lsn, RecordKey, Shadow, Table, TableName
from pidts.schema import Statement
from pidts.schema.statement_time import UNKNOWN_TIME, StatementTime


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberChange:
    """One member's part of a schema change: the member's own statement, and the effect on the member's records."""

    source: str
    epoch: int
    lsn: Lsn
    text: str
    structures: Mapping[TableName, Table | None] = field(default_factory=dict)
    shadows: Mapping[TableName, Shadow | None] = field(default_factory=dict)
    command: DdlCommand | None = None
    renamed: Mapping[TableName, TableName] = field(default_factory=dict)

    def journal(self, task: str) -> DdlJournal:
        """Returns the entry that the member's own journal gets when the change is made."""
        return DdlJournal(
            task=task,
            source=self.source,
            lsn=self.lsn,
            statement=self.text,
            rendered=(),
            step=0,
            state=DdlState.DONE,
            epoch=self.epoch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """A statement of the source's log and its effect; the structures `before` and `after` have the target's names."""

    statement: Statement | None
    """The statement to run; None: nothing is run, and the change is only recorded."""
    text: str
    """The statement as the source ran it, for the journal and for messages."""
    before: Mapping[TableName, Table | None]
    after: Mapping[TableName, Table | None]
    structures: Mapping[TableName, Table | None] = field(default_factory=dict)
    """The structures on the source after the change, keyed by the source's names. The target records them."""
    shadows: Mapping[TableName, Shadow | None] = field(default_factory=dict)
    """The online schema changes under way whose records this change replaces; None removes a record."""
    renamed: Mapping[TableName, TableName] = field(default_factory=dict)
    """The source's tables that the change renames."""
    executed_at: StatementTime = UNKNOWN_TIME
    command: DdlCommand | None = None
    """The ddl command that replaces this statement by others, or runs others before it; None: there is none."""
    shared: TableName | None = None
    """The merged table on the target; None if no other member changes the table."""
    others: tuple[MemberChange, ...] = ()
    """The other members, of this or of other sources, for which the same change is made."""
    origin: str = ""
    """The other zone from which the statement came; empty: the source's own zone."""
    between_zones: bool = False
    """Whether programs may change the target's tables, too, and so may have made the same change."""
    records: Mapping[RecordKey, Mapping[TableName, Table | None]] = field(default_factory=dict)
    """Further entries that the change writes to the target's record of structures."""

    def own(self, rendered: Callable[[], Sequence[str]]) -> tuple[str, ...]:
        """Returns the change's own statements; `rendered` returns them for the source's statement."""
        match self.command:
            case DdlCommand(kind=CommandKind.SKIP):
                return ()
            case DdlCommand(kind=CommandKind.REPLACE, statements=statements):
                return statements
            case _:
                return tuple(rendered())

    @property
    def first(self) -> tuple[str, ...]:
        """Returns the statements that a ddl command puts before the change's own statements."""
        return self.command.statements if self.command is not None and self.command.kind is CommandKind.INJECT else ()

    def does(self, command: DdlCommand) -> bool:
        """Whether the change carries out this ddl command. The command may have been given for another member."""
        leading = self.command
        if command is leading or not command.statements:
            return True
        return leading is not None and (command.kind, command.statements) == (leading.kind, leading.statements)

    @property
    def is_foreseen(self) -> bool:
        """Whether `after` is exactly the structure that the target will have."""
        return self.command is None or self.command.kind in {CommandKind.REVERT, CommandKind.UNLOCK}


@dataclass(frozen=True, slots=True)
class AttemptSuperseded:
    """The end of an attempt that recorded nothing, because of a new ddl command or a new attempt of another source."""

    source: str = ""
    """The source that began a new attempt; its members reach the change again. Empty: a new ddl command was given."""


@dataclass(frozen=True, slots=True)
class OpenJournal:
    """The end of an attempt that began nothing: another member's change of the table has to end first."""

    source: str
    lsn: Lsn


ChangeEnd: TypeAlias = Outcome | AttemptSuperseded | OpenJournal
"""The ways in which an attempt ends without an error."""
