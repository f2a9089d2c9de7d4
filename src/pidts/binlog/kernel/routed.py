"""A `RowDecoder` that leaves ordinary events to compiled code (`router.route`), and handles all others itself.

`route` and the decoder both need the state of the open transaction: `route` as numbers, and the decoder as objects.
Before the decoder handles an event, it takes over the state of `route`. Afterwards, `route` takes over the state of the
decoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from pidts.binlog import compressed, decode, refusals
from pidts.binlog.blocks import ordinary
from pidts.binlog.event_group_places import EventGroupPlaces
from pidts.binlog.events import CHECKSUM_SIZE, Event, EventType
from pidts.binlog.jit import address
from pidts.binlog.kernel import images
from pidts.binlog.kernel import layout as at
from pidts.binlog.kernel import router as r
from pidts.binlog.kernel.call import Call
from pidts.binlog.kernel.inflate import UNCOMPRESS
from pidts.binlog.kernel.payloads import UnpackedTransactions
from pidts.binlog.kernel.table_rows import CompiledBinding, CompiledRows
from pidts.binlog.walk import LogWalker, event_at
from pidts.model.batch import ChangeBatch
from pidts.model.early_filter import EarlyFilter, TimesOf
from pidts.model.errors import PidtsError
from pidts.model.lsn import Lsn
from pidts.model.table import Table
from pidts.model.transaction import CommittedEventGroups

_FIRST_ENTRIES = 64
_FIRST_TABLES = 16
_NEVER = 2**62
_RESERVE = 1.1
_NOT_IN_PAYLOAD = _NO_COMMIT = -1
_ARENA = 1 << 18
_MOST_KEPT = 64
"""The largest number of table maps that are kept for the next slice."""
_MOST_PRESENCES = 1024
"""The largest number of one table's column presences that are kept for the next slice."""


class RoutedDecoder(decode.RowDecoder):
    """Decodes slices. The function `router.route` reads most of their events."""

    def __init__(self, facts: decode.LogFacts, *, is_final: bool) -> None:
        super().__init__(facts, is_final=is_final)
        self._state = np.zeros(r.STATE_SIZE, np.int64)
        self._call = Call()
        self._charsets = ordinary.plain_charsets()
        self._entries = np.zeros((_FIRST_ENTRIES, r.ENTRY), np.int64)
        self._known: list[tuple[bytes, decode.Binding | None]] = []
        self._slots: dict[int, list[int]] = {}
        """For each table id, the entries of its table maps; a search among the entries of thousands of tables is slow.
        """
        self._tables: list[CompiledRows] = []
        self._numbered: set[CompiledRows] = set()
        """The same objects as in `_tables`."""
        self._touched_tables = np.zeros(_FIRST_TABLES, np.int64)
        self._arena, self._done_size = np.empty(0, np.uint8), np.zeros(1, np.int64)
        """The memory into which events are decompressed, and the number `done` of `inflate`."""
        self._has_begun_again = False
        self._state[r.COMMIT] = _NO_COMMIT
        self._unpacked = UnpackedTransactions.none()
        self._groups: CommittedEventGroups | None = None
        """The event groups to decode, if XA transactions were prepared in them; otherwise None."""
        self._commits: Sequence[int] = ()
        """For each of these groups, the byte of the log file at which its committing event begins."""
        self._state[r.UNCOMPRESS], self._state[r.DONE_SIZE] = UNCOMPRESS, address(self._done_size)
        self._state[r.CHARSETS] = address(self._charsets)
        self._state[r.READ_ROWS] = images.read_rows.address
        self._state[r.SERIAL] = self._state[r.MAP_SERIAL] = 1
        self._place_arrays()

    def steps(self, walker: LogWalker, raw: bytes | memoryview) -> Iterator[None]:
        """Reads all events of the slice."""
        view = memoryview(raw)
        place = 0
        self._take_unpacked(UnpackedTransactions.none())
        while place < len(view):
            if walker.format is not None and (self._commit is None or self._groups is not None):
                place = self._route(walker, view, place)
                if place >= len(view):
                    return
            piece = event_at(view, place)
            event = walker.feed(piece)
            try:
                yield from self._steps_of(event)
            except PidtsError as error:
                raise refusals.located(error, f"{walker.file}:{event.offset}") from error
            place += len(piece)

    def follow_event_groups(self, walker: LogWalker, raw: bytes, groups: CommittedEventGroups) -> None:
        """Reads the event groups that have prepared XA transactions as if they were one block."""
        _, sizes, offsets, commits, _ = decode.event_group_columns(groups)
        entries = np.column_stack([np.cumsum(sizes) - sizes, offsets, commits])
        state = self._state
        self._groups, self._commits = groups, commits
        state[r.GROUPS], state[r.GROUP_COUNT], state[r.GROUP_NEXT] = address(entries), len(groups), 0
        self._commit, self._places = groups.commit, EventGroupPlaces()
        self.follow(walker, raw)
        self._groups, self._commits, self._commit = None, (), None
        state[r.GROUP_COUNT], state[r.COMMIT] = 0, _NO_COMMIT

    def take(self, times: TimesOf | None = None) -> list[ChangeBatch]:
        """Returns all rows so far; tables are in the order in which they first appeared.

        In a later slice of the same decoder, they are in the order of their first rows in this slice.
        """
        taken = super().take(times)
        if self._has_begun_again and len(taken) > 1:
            taken.sort(key=_first_lsn)
        return taken

    def can_begin_again(self) -> bool:
        """Whether another slice can be decoded with the tables that are known now. Call this only after `take`."""
        if self._early_filters or self._open_full or len(self._known) > _MOST_KEPT:
            return False
        if any(len(rows.memory.presences) > _MOST_PRESENCES for rows in self._tables):
            return False
        self._begin()
        self._mapped, self._has_begun_again = {}, True
        return True

    def _steps_of(self, event: Event) -> Iterator[None]:
        """Handles one event that is not ordinary, or that contains others."""
        if event.type == EventType.TRANSACTION_PAYLOAD and self._commit is None and not self._is_cut(event):
            return self._payload_steps(event)
        return super()._steps_of(event)

    def _is_cut(self, event: Event) -> bool:
        """Whether some rows of the event are wanted, and others are not."""
        return self._after is not None and self._after.at_row(0) == Lsn(self._change_no, event.log_index, event.offset)

    def _payload_steps(self, event: Event) -> Iterator[None]:
        base = 0
        for data in compressed.payload_pieces(event.body):
            piece = memoryview(data)
            self._feed_piece(event, piece, base)
            base += len(piece)
            yield

    def _feed_piece(self, event: Event, piece: memoryview, base: int) -> None:
        place = 0
        while True:
            self._state[r.PAYLOAD], self._state[r.BASE] = event.offset, base
            place = self._run(piece, place, event.log_index)
            if place >= len(piece):
                return
            place += self._feed_inner(event.offset, event.log_index, event_at(piece, place, base), base + place)

    def _feed_inner(self, offset: int, log_index: int, raw: memoryview, place: int) -> int:
        """Handles an event inside the compressed transaction at `offset`; returns the event's size."""
        inner = compressed.inner_event(offset, log_index, raw)
        if inner.type == EventType.TRANSACTION_PAYLOAD:
            raise refusals.unknown_event(inner)
        self._feed(inner, place)
        return len(raw)

    def _unpack(self, view: memoryview, place: int) -> bool:
        """Decompresses the transactions from byte `place` on; False: the first one has to be decompressed alone."""
        tail = CHECKSUM_SIZE if self._state[r.CHECKSUMS] else 0
        self._take_unpacked(UnpackedTransactions.of(view, place, tail))
        return len(self._unpacked) > 0 and int(self._unpacked.entries[0, 0]) == place

    def _take_unpacked(self, unpacked: UnpackedTransactions) -> None:
        """Makes decompressed transactions the current ones."""
        self._unpacked, state = unpacked, self._state
        state[r.UNPACKED], state[r.UNPACKED_COUNT], state[r.UNPACKED_NEXT] = address(unpacked.entries), len(unpacked), 0

    def _route(self, walker: LogWalker, view: memoryview, place: int) -> int:
        """Reads ordinary events from byte `place` on; returns the byte after them."""
        state = self._state
        assert walker.format is not None  # noqa: S101 - the caller has checked it
        state[r.OFFSET], state[r.CHECKSUMS], state[r.PAYLOAD] = walker.offset, walker.format.checksum, _NOT_IN_PAYLOAD
        try:
            place = self._run(view, place, walker.log_index)
            while state[r.INSIDE]:
                inner_at = int(state[r.INNER_AT])
                inner = event_at(self._unpacked.events(place), inner_at)
                state[r.INNER_AT] += self._feed_inner(int(state[r.PAYLOAD]), walker.log_index, inner, inner_at)
                place = self._run(view, place, walker.log_index)
        except PidtsError as error:
            raise refusals.located(error, f"{walker.file}:{state[r.LAST]}") from error
        walker.offset = int(state[r.OFFSET])
        return place

    def _run(self, view: memoryview, place: int, log_index: int) -> int:
        state, block = self._state, address(view)
        self._give_state(place, log_index)
        while True:
            result = r.route(state, block, len(view), address(self._call.block))
            if result in (r.DONE, r.HAND_OVER):
                break
            if result == r.MAKE_ROOM:
                self._take_state()
                self._make_room(self._tables[state[r.TABLE]])
                self._give_state(int(state[r.AT]), log_index)
                continue
            if result == r.MORE_ARENA:
                self._make_arena(int(state[r.NEEDED]))
                continue
            if result == r.PACKED:
                if self._unpack(view, int(state[r.AT])):
                    continue
                break
            memory = self._tables[state[r.TABLE]].memory
            if not self._call.help(result, memory, self._ahead(len(view), memory.size), len(view)):
                # The decoder reads the same event again, and raises the error.
                memory.back_to(int(state[r.ROWS_BEFORE]))
                break
            state[r.RESUME] = 1
        self._take_state()
        return int(state[r.AT])

    def _make_arena(self, needed: int) -> None:
        self._arena = np.empty(max(_ARENA, 2 * needed), np.uint8)
        self._state[r.ARENA], self._state[r.ARENA_ROOM] = address(self._arena), len(self._arena)

    def _ahead(self, size: int, decoded: int) -> float:
        """Returns the factor by which the number of rows will probably grow, within the limit of one batch."""
        done = int(self._state[r.AT] + self._call.block[at.AT // 8])
        return min(size / max(done, 1), self._batch_bytes / max(decoded, 1)) * _RESERVE

    def _give_state(self, place: int, log_index: int) -> None:
        """Gives the decoder's state to the compiled code."""
        state = self._state
        state[r.AT], state[r.RESUME], state[r.CLEARED], state[r.UNMAPPED], state[r.TOUCHED_COUNT] = place, 0, 0, 0, 0
        state[r.CAREFUL] = bool(self._savepoints or self._open_full)
        state[r.LIMIT] = _NEVER if self._may_go_back else self._batch_bytes
        if self._groups is not None:
            state[r.GROUP] = -1 if self._places.first is None else self._places.first
            state[r.PLACES_END] = self._places.end
        place_of_rows = self._commit or Lsn(self._change_no, log_index, 0)
        state[r.AFTER] = self._last_left_out(place_of_rows)
        prefix = place_of_rows.to_bytes()[:8]
        state[r.PREFIX] = int.from_bytes(prefix, "little", signed=True)
        state[r.SERIAL] += 1
        for rows in self._touched:
            rows.memory.state[at.TOUCHED // 8] = state[r.SERIAL]  # type: ignore[union-attr]
        state[r.MAP_SERIAL] += 1
        for table_id, binding in self._mapped.items():
            self._remap(table_id, binding)

    def _take_state(self) -> None:
        """Gives the compiled code's state to the decoder."""
        state = self._state
        if self._groups is not None:
            group = int(state[r.GROUP])
            last = max(int(state[r.GROUP_NEXT]) - 1, 0)
            self._commit = replace(self._groups.commit, offset=int(self._commits[last]))
            self._places = EventGroupPlaces(None if group < 0 else group, int(state[r.PLACES_END]))
        if state[r.CLEARED]:
            self._touched, self._savepoints = {}, {}
        if state[r.UNMAPPED]:
            self._mapped = {}
        for number in self._touched_tables[: state[r.TOUCHED_COUNT]].tolist():
            rows = self._tables[number]
            self._touched.setdefault(rows, (int(rows.memory.state[at.ROWS_BEFORE // 8]), 0, 0))
        serials = self._entries[:, r.E_MAPPED]
        # For so few entries, Python's search is faster than NumPy's. Mostly, no table is mapped at a slice's end.
        if len(serials) > _FIRST_ENTRIES or int(state[r.MAP_SERIAL]) in serials.tolist():
            for entry in np.flatnonzero(serials == state[r.MAP_SERIAL]):
                self._mapped[int(self._entries[entry, r.E_ID])] = self._known[self._entries[entry, r.E_NUMBER]][1]

    def _last_left_out(self, lsn: Lsn) -> int:
        """Returns the byte up to which rows of this Lsn's log file are not wanted; -1 if all of them are wanted."""
        if self._after is None:
            return -1
        here = (lsn.change_no, lsn.log_index)
        after = (self._after.change_no, self._after.log_index)
        if here == after:
            return self._after.offset
        return _NEVER if here < after else -1

    def _bind(self, body: bytes) -> decode.Binding | None:
        binding = super()._bind(body)
        self._known.append((body, binding))
        if isinstance(binding, CompiledBinding) and binding.rows not in self._numbered:
            binding.rows.memory.state[at.NUMBER // 8] = len(self._tables)
            self._tables.append(binding.rows)
            self._numbered.add(binding.rows)
        if 2 * len(self._known) > len(self._entries):
            self._entries = np.zeros((2 * len(self._entries), r.ENTRY), np.int64)
            self._slots = {}
            for number in range(len(self._known)):
                self._enter(number)
        else:
            self._enter(len(self._known) - 1)
        if len(self._tables) > len(self._touched_tables):
            self._touched_tables = np.zeros(2 * len(self._tables), np.int64)
        self._place_arrays()
        return binding

    def _new_rows(self, table: Table, early_filter: EarlyFilter | None) -> CompiledRows:
        return CompiledRows(table, early_filter)

    def _enter(self, number: int) -> None:
        body, binding = self._known[number]
        table_id = int.from_bytes(body[:6], "little")
        slot = self._free_slot(table_id)
        table = program = 0
        if isinstance(binding, CompiledBinding):
            table = address(binding.rows.memory.state)
            program = 0 if binding.program is None else address(binding.program)
        self._slots.setdefault(table_id, []).append(slot)
        self._entries[slot, : r.E_NUMBER + 1] = table_id, address(body), len(body), table, program, 0, number

    def _free_slot(self, table_id: int) -> int:
        slot = r.slot_of(table_id) & (len(self._entries) - 1)
        while self._entries[slot, r.E_BODY]:
            slot = (slot + 1) & (len(self._entries) - 1)
        return int(slot)

    def _remap(self, table_id: int, binding: decode.Binding | None) -> None:
        for entry in self._slots.get(table_id, ()):
            if self._known[self._entries[entry, r.E_NUMBER]][1] is binding:
                self._entries[entry, r.E_MAPPED] = self._state[r.MAP_SERIAL]
                return

    def _place_arrays(self) -> None:
        self._state[r.ENTRIES], self._state[r.MASK] = address(self._entries), len(self._entries) - 1
        self._state[r.TOUCHED] = address(self._touched_tables)


def _first_lsn(batch: ChangeBatch) -> bytes:
    found: bytes = batch.rows.column("lsn")[0].as_py()
    return found
