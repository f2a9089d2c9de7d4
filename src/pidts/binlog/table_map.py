"""TABLE_MAP events: the table of the row events after it, and the encoding of its columns."""

from __future__ import annotations

from dataclasses import dataclass

from pidts.binlog import table_metadata
from pidts.binlog.cursor import Cursor
from pidts.binlog.wire import Wire, WireType, read_wires
from pidts.model.errors import DecodeError
from pidts.model.table import Table, TableName

_SEQUENCE = bytes([*[WireType.LONGLONG] * 6, WireType.TINY, WireType.LONGLONG])


@dataclass(frozen=True, slots=True)
class TableMap:
    """The content of a TABLE_MAP event. `metadata` is its optional part, which describes the columns' types."""

    table_id: int
    name: TableName
    types: bytes
    wires: tuple[Wire, ...]
    nullable: tuple[bool, ...]
    metadata: bytes = b""
    mariadb: bool = False

    @classmethod
    def parse(cls, body: bytes | memoryview, *, mariadb: bool = False) -> TableMap:
        """Parses the event's body; MariaDB and MySQL count columns differently in the list of charsets."""
        cursor = Cursor(body, "a TABLE_MAP event")
        table_id = cursor.uint(6)
        cursor.take(2)
        name = TableName(cursor.name(), cursor.name())
        count = cursor.packed()
        types = cursor.take(count)
        wires = read_wires(types, cursor.take(cursor.packed()))
        bits = int.from_bytes(cursor.take((count + 7) // 8), "little")
        nullable = tuple(bool(bits >> place & 1) for place in range(count))
        return cls(table_id, name, types, wires, nullable, cursor.rest(), mariadb)

    @property
    def may_be_sequence(self) -> bool:
        """Whether the table looks like a SEQUENCE object of MariaDB. A copy of a sequence also does."""
        return self.mariadb and self.types == _SEQUENCE and not any(self.nullable)

    def to_table(self, *, placeholders: bool = False) -> Table | None:
        """Returns the table. If the event lacks the columns' names: None, or with `placeholders` names such as `@1`."""
        found = table_metadata.read(self.wires, self.metadata, mariadb=self.mariadb)
        return table_metadata.to_table(self.name, self.wires, self.nullable, found, placeholders=placeholders)

    def complete(self, table: Table, *, as_bytes: bool = False) -> Table:
        """Returns a known table, with its unknown charsets taken from the event.

        If the event also lacks a charset, the charset stays unknown; with `as_bytes`, the column is read as bytes.
        """
        if not table.has_unknown_charset or len(table.columns) != len(self.wires):
            return table
        found = table_metadata.read(self.wires, self.metadata, mariadb=self.mariadb)
        return table_metadata.complete(table, self.wires, found, as_bytes=as_bytes)


def table_id(body: bytes | memoryview) -> int:
    """Returns the table id: the first field of a TABLE_MAP event, and of each row event of its table."""
    if len(body) < 8:
        raise DecodeError("truncated", "a TABLE_MAP or row event has no room for its table")
    return int.from_bytes(body[:6], "little")


def table_name(body: bytes | memoryview) -> TableName:
    """Returns the table's name without parsing the columns: an index of transactions needs only the name."""
    cursor = Cursor(body, "a TABLE_MAP event")
    cursor.take(8)
    return TableName(cursor.name(), cursor.name())
