"""A schema change that is to be made on the target, by one member of a group or for several of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from pidts.apply.checkpoint import Outcome
from pidts.model import DdlJournal, DdlOrder, DdlState, Lsn, OrderKind, RecordKey, Shadow, Table, TableName
from pidts.schema import Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """The part of another member in a change that is made once for several."""

    source: str
    epoch: int
    lsn: Lsn
    text: str
    structures: Mapping[TableName, Table | None] = field(default_factory=dict)
    shadows: Mapping[TableName, Shadow | None] = field(default_factory=dict)
    order: DdlOrder | None = None
    renamed: Mapping[TableName, TableName] = field(default_factory=dict)

    def journal(self, task: str) -> DdlJournal:
        """Returns the entry of its own source's journal when the change is made."""
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
    """A statement of the source's log and its effect; `before` and `after` go by the names on the target."""

    statement: Statement | None
    """The statement to run; None: nothing is run, the change is only put on record."""
    text: str
    """The statement as the source ran it, for the journal and for messages."""
    before: Mapping[TableName, Table | None]
    after: Mapping[TableName, Table | None]
    structures: Mapping[TableName, Table | None] = field(default_factory=dict)
    """The structures that the change leaves on the source, by the source's names, for the target's record."""
    shadows: Mapping[TableName, Shadow | None] = field(default_factory=dict)
    """The online schema changes under way that it alters; None forgets one."""
    renamed: Mapping[TableName, TableName] = field(default_factory=dict)
    """The source's tables that have another name after it."""
    executed_at: int = 0
    order: DdlOrder | None = None
    """An operator's order to run something else instead, or before it."""
    shared: TableName | None = None
    """The merged table of the target, where others change it, too."""
    others: tuple[Party, ...] = ()
    """The other members for which it is made, of other sources or of the same."""
    origin: str = ""
    """The other zone from which the statement came; empty: the source's own zone."""
    records: Mapping[RecordKey, Mapping[TableName, Table | None]] = field(default_factory=dict)
    """Further entries of the target's record of structures."""

    def own(self, rendered: Callable[[], Sequence[str]]) -> tuple[str, ...]:
        """Returns the statements that are run, without those that an order puts before them."""
        match self.order:
            case DdlOrder(kind=OrderKind.SKIP):
                return ()
            case DdlOrder(kind=OrderKind.REPLACE, statements=statements):
                return statements
            case _:
                return tuple(rendered())

    @property
    def first(self) -> tuple[str, ...]:
        """Returns the statements that an order puts before them."""
        return self.order.statements if self.order is not None and self.order.kind is OrderKind.INJECT else ()

    def does(self, order: DdlOrder) -> bool:
        """Whether an order about this member, or about another one, is what is run."""
        leading = self.order
        if order is leading or not order.statements:
            return True
        return leading is not None and (order.kind, order.statements) == (leading.kind, leading.statements)

    @property
    def is_foreseen(self) -> bool:
        """Whether `after` is the structure that the target has in the end."""
        return self.order is None or self.order.kind in {OrderKind.REVERT, OrderKind.UNLOCK}


@dataclass(frozen=True, slots=True)
class Superseded:
    """The outcome that nothing is on record: an order, or an attempt of a source, was replaced since it was read."""

    source: str = ""
    """The other source whose attempt was replaced, so that its member arrives again; empty: an order was replaced."""


@dataclass(frozen=True, slots=True)
class OpenJournal:
    """The outcome that nothing was begun: another member has begun a change of the table, and has to end it first."""

    source: str
    lsn: Lsn


Ended: TypeAlias = Outcome | Superseded | OpenJournal
"""The ways in which an attempt at a change ends, besides an error."""
