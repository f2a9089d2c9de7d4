"""Parses row events: the table, the operation, and the columns in the images. The images stay bytes."""

from __future__ import annotations

from dataclasses import dataclass

from pidts.binlog.compressed import announced_size, inflate
from pidts.binlog.cursor import Cursor
from pidts.binlog.events import Event, EventType
from pidts.model.event import Op

_OPS = {
    EventType.WRITE_ROWS_V1: Op.INSERT,
    EventType.UPDATE_ROWS_V1: Op.UPDATE,
    EventType.DELETE_ROWS_V1: Op.DELETE,
    EventType.WRITE_ROWS: Op.INSERT,
    EventType.UPDATE_ROWS: Op.UPDATE,
    EventType.DELETE_ROWS: Op.DELETE,
    EventType.PARTIAL_UPDATE_ROWS: Op.UPDATE,
    EventType.WRITE_ROWS_COMPRESSED_V1: Op.INSERT,
    EventType.UPDATE_ROWS_COMPRESSED_V1: Op.UPDATE,
    EventType.DELETE_ROWS_COMPRESSED_V1: Op.DELETE,
    EventType.WRITE_ROWS_COMPRESSED: Op.INSERT,
    EventType.UPDATE_ROWS_COMPRESSED: Op.UPDATE,
    EventType.DELETE_ROWS_COMPRESSED: Op.DELETE,
}
ROW_EVENTS = frozenset(_OPS)

_VERSION_2 = frozenset(
    {
        EventType.WRITE_ROWS,
        EventType.UPDATE_ROWS,
        EventType.DELETE_ROWS,
        EventType.PARTIAL_UPDATE_ROWS,
        EventType.WRITE_ROWS_COMPRESSED,
        EventType.UPDATE_ROWS_COMPRESSED,
        EventType.DELETE_ROWS_COMPRESSED,
    }
)
_COMPRESSED = frozenset(kind for kind in ROW_EVENTS if "COMPRESSED" in kind.name)
_COMPRESSED_EVENT = "a compressed row event"


@dataclass(frozen=True, slots=True)
class RowsEvent:
    """A row event of any version. Its images follow each other: for an UPDATE before, after, before, after."""

    op: Op
    width: int
    """The number of the table's columns."""
    present: tuple[int, ...]
    """A bitmap of columns for each image of a row: the columns that the image has. A FULL row image has all columns."""
    images: bytes
    has_diffs: bool = False
    """Whether JSON documents in the after images may be written as partial changes."""

    @classmethod
    def parse(cls, event: Event) -> RowsEvent:
        """Parses an event of one of `ROW_EVENTS`."""
        kind = EventType(event.type)
        cursor = Cursor(event.body, "a row event")
        width, bitmaps = _head(cursor, kind)
        present = tuple(int.from_bytes(bits, "little") & all_columns(width) for bits in bitmaps)
        images = cursor.rest()
        if kind in _COMPRESSED:
            images = inflate(images, _COMPRESSED_EVENT)
        return cls(_OPS[kind], width, present, images, kind is EventType.PARTIAL_UPDATE_ROWS)

    @property
    def partial(self) -> bytes | None:
        """Returns the rows' value in the column `partial` of a batch; None if the images have all columns."""
        if all(bits == all_columns(self.width) for bits in self.present):
            return None
        return b"".join(bits.to_bytes((self.width + 7) // 8, "little") for bits in self.present)


def _head(cursor: Cursor, kind: EventType) -> tuple[int, list[bytes]]:
    """Reads the fields before the images; returns the number of columns, and a bitmap for each image."""
    cursor.take(8)
    if kind in _VERSION_2:
        cursor.take(cursor.uint(2) - 2)
    width = cursor.packed()
    return width, [cursor.take((width + 7) // 8) for _ in range(2 if _OPS[kind] is Op.UPDATE else 1)]


def inflated_size(event: Event) -> int:
    """Returns the size that an event announces for its decompressed images; 0 if they are not compressed."""
    if event.type not in _COMPRESSED:
        return 0
    cursor = Cursor(event.body, _COMPRESSED_EVENT)
    _head(cursor, EventType(event.type))
    return announced_size(cursor)


def op_of(event: Event) -> Op:
    """Returns the operation of an event of one of `ROW_EVENTS`."""
    return _OPS[EventType(event.type)]


def all_columns(width: int) -> int:
    """Returns a bitmap with one set bit for each column."""
    return (1 << width) - 1
