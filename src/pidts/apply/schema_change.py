"""A schema change that is to be made on the target, by one member of a group or for several of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pidts.model import DdlJournal, DdlOrder, DdlState, Lsn, OrderKind, Shadow, Table, TableName
from pidts.schema import Statement

SHARED = "*"
"""In the place of a source, in the target's record of structures: what members of groups have agreed on."""


def dropped_by(source: str) -> str:
    """The same for columns that members of a source have dropped, while the target has them."""
    return f"{SHARED} {source}"


def left_by(source: str) -> str:
    """The same for tables of a source that were dropped or emptied and have left their rows among those of others."""
    return f"{SHARED}- {source}"


def owed_by(source: str, place: int) -> str:
    """The same for what was run without members of a source: the first step that each of them owes, the second, ..."""
    return f"{SHARED}{place} {source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """Another member's part in a change that is made once for several."""

    source: str
    epoch: int
    lsn: Lsn
    text: str
    structures: Mapping[TableName, Table | None] = field(default_factory=dict)
    shadows: Mapping[TableName, Shadow | None] = field(default_factory=dict)
    order: DdlOrder | None = None
    renamed: Mapping[TableName, TableName] = field(default_factory=dict)

    def journal(self, task: str) -> DdlJournal:
        """What its own source's journal says when the change is made."""
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
    """A statement of the source's log and what it does; `before` and `after` go by the names on the target."""

    statement: Statement | None
    """None: nothing of it is to run, it is only put on record."""
    text: str
    """As the source ran it, for the journal and for messages."""
    before: Mapping[TableName, Table | None]
    after: Mapping[TableName, Table | None]
    structures: Mapping[TableName, Table | None] = field(default_factory=dict)
    """What the change leaves on the source, by the source's names, for the target's record."""
    shadows: Mapping[TableName, Shadow | None] = field(default_factory=dict)
    """What it leaves of online schema changes that are under way; None forgets."""
    renamed: Mapping[TableName, TableName] = field(default_factory=dict)
    """The source's tables that have another name behind it."""
    executed_at: int = 0
    order: DdlOrder | None = None
    """What an operator wants to be run instead, or before it."""
    shared: TableName | None = None
    """The table of the target that others change, too."""
    others: tuple[Party, ...] = ()
    """For whom it is made besides, of other sources or of the same."""
    records: Mapping[str, Mapping[TableName, Table | None]] = field(default_factory=dict)
    """What else is put on the target's record of structures, by what stands in the place of a source."""

    def own(self, rendered: Callable[[], Sequence[str]]) -> tuple[str, ...]:
        """What is run, but for what an order puts in front of it."""
        match self.order:
            case DdlOrder(kind=OrderKind.SKIP):
                return ()
            case DdlOrder(kind=OrderKind.REPLACE, statements=statements):
                return statements
            case _:
                return tuple(rendered())

    @property
    def first(self) -> tuple[str, ...]:
        """What an order puts in front of it."""
        return self.order.statements if self.order is not None and self.order.kind is OrderKind.INJECT else ()

    def does(self, order: DdlOrder) -> bool:
        """Whether what was ordered about this one, or about another member's, is what is run."""
        leading = self.order
        if order is leading or not order.statements:
            return True
        return leading is not None and (order.kind, order.statements) == (leading.kind, leading.statements)

    @property
    def is_foreseen(self) -> bool:
        """Whether `after` is what the target has in the end."""
        return self.order is None or self.order.kind in {OrderKind.REVERT, OrderKind.UNLOCK}


class OrderChanged(Exception):
    """An order was given, or another one, since it was read: read it again."""


class PartyLeft(Exception):
    """A source of those for whom a change is to be made has been taken over by another attempt: it arrives again."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.source = source


class JournalOpen(Exception):
    """Another member has begun a change of the table and died: nothing is done before it has come back to it."""

    def __init__(self, source: str, lsn: Lsn) -> None:
        super().__init__(source, lsn)
        self.source, self.lsn = source, lsn
