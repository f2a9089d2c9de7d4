"""Computes a batch from two states of the task: the slices of the log from which the batch takes rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from pidts.model import CommittedEventGroups, Extent, LogEntry, Lsn, TableName
from pidts.plan.copy.state import ChunkRequest
from pidts.plan.relevance import NOTES, JoinedTables, Log, Relevance, RelevanceKind, RelevanceOf, is_end_of_entry
from pidts.plan.state import PlanState

_SLICE_BYTES = 8 << 20
_SLICE_GAP = 64 << 10
"""A gap with transactions of other tables ends a slice only if it has more bytes than this. A smaller gap is read."""
_FAR = 1 << 31
"""From this distance in the source's log on, the 32 bits of an event's position may mean several places."""


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Whole transactions of one relay segment, with no gaps or only small gaps between them.

    A slice may instead be groups of events that prepared XA transactions, in the order of their commits. Such a slice
    is in the batch that has the commits, wherever the groups are in the log. Prepared groups between the other
    transactions of a slice are skipped when the slice is decoded.
    """

    extent: Extent
    begin: Lsn
    """The place of the slice's first event in the source's log."""
    number: int
    """The index in the batch. A slice with a higher number has later changes."""
    groups: CommittedEventGroups | None = None
    """If the slice is groups of events that prepared XA transactions: these groups. `extent` is the first of them. None
    for any other slice.
    """
    only: frozenset[TableName] | None = None
    """The tables whose rows are taken from the slice: they are at another place in the log than the task's other
    tables. None: all tables.
    """
    without: frozenset[TableName] = frozenset()
    """Tables whose rows are not taken: they are held, have slices of their own, or have no key and are not copied yet.
    """
    is_returned: bool = False
    """Whether only removed rows are taken from the slice: its changes came from the target's zone."""
    has_notes: bool = False
    """Whether only notes (`pidts.apply.locks.zone_notes`) are taken from the slice. `only` names the notes' table."""
    gaps: tuple[tuple[int, int], ...] = ()
    """The parts of the extent that are not read, such as changes that came from the target's zone.

    Each part is a pair: its first byte, and the byte after its last byte.
    """

    @property
    def size(self) -> int:
        """Returns how many bytes are decoded: of the extent, or of all prepared groups."""
        return self.extent.size if self.groups is None else self.groups.size

    @property
    def parts(self) -> tuple[Extent, ...]:
        """Returns the extents that are read, which have only complete transactions, all from one log file."""
        ends = (*(first for first, _ in self.gaps), self.extent.end)
        begins = (self.extent.offset, *(after for _, after in self.gaps))
        return tuple(Extent(self.extent.segment, begin, end - begin) for begin, end in zip(begins, ends, strict=True))

    def carries(self, table: TableName) -> bool:
        """Whether this table's rows are taken from the slice."""
        return table not in self.without and (self.only is None or table in self.only)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """All changes that become visible on the target at once."""

    start: PlanState
    end: PlanState
    log: tuple[LogSlice, ...]
    entries: int
    row_events: int
    timestamp: int
    """The time at which the source committed the batch's last transaction; 0 if there is none."""
    gtids: tuple[str, ...]
    """The GTIDs; each text is a single GTID, or the set of GTIDs of neighbouring transactions."""
    tables: frozenset[TableName]
    """All tables with rows in the log slices, including tables that the task does not replicate."""
    origin: str = ""
    """The other zone from which the changes came; empty: the source's own zone."""

    @property
    def write(self) -> tuple[ChunkRequest, ...]:
        """Returns the previous batch's requests whose rows this batch writes."""
        return self.end.written

    @property
    def settled(self) -> tuple[ChunkRequest, ...]:
        """Returns the previous batch's requests that are complete once this batch is on the target."""
        return self.end.settled

    @property
    def read(self) -> tuple[ChunkRequest, ...]:
        """Returns the requests that are carried out with this batch; later batches write their rows."""
        return self.end.reading

    @property
    def log_bytes(self) -> int:
        """Returns how many bytes of the log have to be decoded."""
        return sum(piece.size for piece in self.log)

    @property
    def largest(self) -> int:
        """Returns the size in bytes of the largest slice."""
        return max((piece.size for piece in self.log), default=0)

    @property
    def moves_held(self) -> bool:
        """Whether tables become held, are released, or catch up. Then the slices are not in log order."""
        return self.start.exceptions != self.end.exceptions


def plan_between(start: PlanState, end: PlanState, log: Log, relevance_of: RelevanceOf) -> BatchPlan:
    """Returns the batch between two states.

    The batch has, for each table, the log between the table's places in the two states. The batch leaves out changes
    from before a table has joined the task, and changes of a table without a key that is not copied yet.
    """
    uncarried, joined = end.uncarried, JoinedTables(end.copy)
    log = joined.cut(log)
    slices = _Slices()
    moving = start.index.unlike(end.index) - uncarried
    for begin, to, only in _parts_of_held_tables(moving, start, end, log):
        _take_held(slices, _up_to(to, log(begin, to)), only, joined, relevance_of)
    apart = frozenset(start.exceptions).union(end.exceptions) - uncarried
    without = apart | uncarried if uncarried else apart
    gtids: list[str] = []
    count = timestamp = 0
    slices.begin_part()
    for entry in _up_to(end.lsn, log(start.lsn, end.lsn)):
        transaction = entry.transaction
        count += entry.count
        timestamp = transaction.timestamp or timestamp
        if transaction.gtid:
            gtids.append(transaction.gtid)
        if transaction.row_events:
            _take_main(slices, entry, without, joined, relevance_of)
    if len(slices.origins) > 1:
        zones = ", ".join(sorted(slices.origins))
        raise ValueError(f"the batch up to {end.lsn} has changes of several zones: {zones}")
    origin = next(iter(slices.origins - {NOTES}), "")
    tables = frozenset(slices.tables)
    return BatchPlan(start, end, slices.all(), count, slices.row_events, timestamp, tuple(gtids), tables, origin)


def _take_held(
    slices: _Slices,
    entries: Iterable[LogEntry],
    only: frozenset[TableName],
    joined: JoinedTables,
    relevance_of: RelevanceOf,
) -> None:
    """Takes the rows of held tables (`only`) from a part of the log."""
    slices.begin_part()
    for entry in entries:
        relevance = relevance_of(entry)
        if relevance.comes_back or relevance.origin == NOTES:
            slices.skip()
            continue
        late = joined.late(entry.transaction.lsn)
        mine = only - late if late else only
        tables = mine.intersection(entry.transaction.tables)
        if tables and entry.transaction.row_events:
            slices.take(entry, relevance, tables, only=mine)
        elif relevance.is_returned:
            slices.skip()


def _take_main(
    slices: _Slices,
    entry: LogEntry,
    without: frozenset[TableName],
    joined: JoinedTables,
    relevance_of: RelevanceOf,
) -> None:
    """Takes the rows of an entry, except rows of the tables in `without`."""
    transaction = entry.transaction
    relevance = joined.narrow(relevance_of(entry), transaction.lsn)
    if relevance.comes_back:
        slices.skip()
    if relevance.kind is RelevanceKind.NOTHING:
        return
    if relevance.kind is RelevanceKind.ROWS and relevance.tables is not None:
        ours: Iterable[TableName] = relevance.tables
    else:
        ours = transaction.tables
    early = joined.late(transaction.lsn)
    tables = frozenset(ours) - without - early
    if tables:
        only = tables if relevance.origin == NOTES else None
        slices.take(entry, relevance, tables, only=only, without=without | early if early else without)
    elif relevance.is_returned:
        slices.skip()


def _parts_of_held_tables(
    names: Collection[TableName], start: PlanState, end: PlanState, log: Log
) -> Iterator[tuple[Lsn, Lsn, frozenset[TableName]]]:
    """Yields the parts of the log that have changes of these tables, each with its tables.

    Tables that end at the same place are read together, even if they begin at different places: each part ends where
    the next tables begin. So the log is read once, and not once for each of a thousand shards.
    """
    before, after = start.exceptions, end.exceptions
    found: dict[Lsn, dict[Lsn, set[TableName]]] = {}
    for name in names:
        begin, to = before.get(name, start.lsn), after.get(name, end.lsn)
        if begin is not to and begin < to:
            found.setdefault(to, {}).setdefault(begin, set()).add(name)
    for to, groups in sorted(found.items()):
        first, *others = sorted(groups)
        together = [first]
        for begin in others:
            # The log can be cut only where an entry ends. If no entry ends at the place of some tables, these tables
            # get a part of their own.
            if is_end_of_entry(log, begin, to):
                together.append(begin)
            else:
                yield begin, to, frozenset(groups[begin])
        tables = set[TableName]()
        for begin, stop in zip(together, [*together[1:], to], strict=True):
            tables |= groups[begin]
            yield begin, stop, frozenset(tables)


def _up_to(end: Lsn, entries: Iterable[LogEntry]) -> Iterator[LogEntry]:
    for entry in entries:
        if entry.transaction.lsn > end:
            return
        yield entry


class _Slices:
    """The slices of a batch. The entries of each part of the log are added in log order."""

    def __init__(self) -> None:
        self.row_events = 0
        self.tables: set[TableName] = set()
        """The tables whose rows are taken from the slices."""
        self.origins: set[str] = set()
        self._slices: list[LogSlice] = []
        self._cut = False
        """Whether rows after the last slice were skipped."""
        self._more: list[CommittedEventGroups] = []
        """More prepared groups of the last slice, which are added to it when it is complete."""
        self._group_bytes = 0
        """The size of all prepared groups of the last slice, in bytes."""

    def begin_part(self) -> None:
        self._cut = False

    def skip(self) -> None:
        self._cut = True

    def take(
        self,
        entry: LogEntry,
        relevance: Relevance,
        tables: Collection[TableName],
        *,
        only: frozenset[TableName] | None = None,
        without: frozenset[TableName] = frozenset(),
    ) -> None:
        """Takes the rows of these tables from an entry."""
        self.row_events += entry.transaction.row_events
        self.tables.update(tables)
        self.origins.add(relevance.origin)
        piece = LogSlice(
            entry.extent,
            entry.transaction.begin,
            len(self._slices),
            only=only,
            without=without,
            is_returned=relevance.is_returned,
            has_notes=relevance.origin == NOTES,
        )
        self._add(piece, entry)
        self._cut = False

    def all(self) -> tuple[LogSlice, ...]:
        """Returns all slices; nothing may be added afterwards."""
        self._complete()
        return tuple(self._slices)

    def _add(self, piece: LogSlice, entry: LogEntry) -> None:
        """Adds a slice, or extends the last one. If rows between the two were skipped, their bytes become a gap."""
        if (groups := entry.groups) is not None:
            self._add_groups(replace(piece, extent=groups.extent, begin=groups.begin, groups=groups), groups)
            return
        last = self._slices[-1] if self._slices else piece
        if self._slices and last.groups is None and _alike(last, piece) and not (self._cut and _is_far(last, piece)):
            extent, before = piece.extent, last.extent
            near = before.segment == extent.segment and 0 <= extent.offset - before.end <= _SLICE_GAP
            if near and extent.end - before.offset <= _SLICE_BYTES:
                longer = Extent(before.segment, before.offset, extent.end - before.offset)
                gaps = (*last.gaps, (before.end, extent.offset)) if self._cut else last.gaps
                self._slices[-1] = replace(last, extent=longer, gaps=gaps)
                return
        self._append(piece)

    def _add_groups(self, piece: LogSlice, groups: CommittedEventGroups) -> None:
        """Adds a slice that has prepared groups, or adds the groups to the last slice.

        The groups of one slice are decoded together, so they have to be in the same files.
        """
        last, size = self._slices[-1] if self._slices else None, self._group_bytes + groups.size
        before = last.groups if last is not None and _alike(last, piece) else None
        if before is not None and before.is_alike(groups) and size <= _SLICE_BYTES:
            self._more.append(groups)
            self._group_bytes = size
            return
        self._append(piece)

    def _append(self, piece: LogSlice) -> None:
        self._complete()
        self._slices.append(piece)
        self._group_bytes = 0 if piece.groups is None else piece.groups.size

    def _complete(self) -> None:
        if self._more:
            last = self._slices[-1]
            if last.groups is not None:
                self._slices[-1] = replace(last, groups=last.groups.followed_by(self._more))
        self._more = []


def _is_far(one: LogSlice, other: LogSlice) -> bool:
    """Whether the bytes between two slices may have to be read to find the second slice's place in the source's log.

    These bytes may have the event that names the next log file.
    """
    first, second = one.begin, other.begin
    is_same_file = (first.change_no, first.log_index) == (second.change_no, second.log_index)
    return not is_same_file or second.offset - first.offset >= _FAR


def _alike(one: LogSlice, other: LogSlice) -> bool:
    """Whether the same tables and rows are taken from both slices."""
    return (one.only, one.without, one.is_returned, one.has_notes) == (
        other.only,
        other.without,
        other.is_returned,
        other.has_notes,
    )
