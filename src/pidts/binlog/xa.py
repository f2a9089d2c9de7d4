"""Two-phase XA transactions in the log: their names, and the event groups that have prepared them.

A transaction's name (xid) has three parts. The XA_PREPARE event has the name as bytes; the statements `XA COMMIT` and
`XA ROLLBACK` have it as text. This module makes the same text of both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

from pidts.binlog.cursor import Cursor
from pidts.binlog.events import Event
from pidts.model.errors import DecodeError
from pidts.model.transaction import Transaction, Xa, XaStep

_LONGEST_PART = 64
_FORMAT_ID = 2**32
"""The event stores 32 bits of the format id. In a statement, the format id may be larger."""
_STATEMENT = re.compile(r"XA\s+(\w+)\s+X'([0-9A-F]*)'\s*,\s*X'([0-9A-F]*)'\s*,\s*(\d+)\b", re.IGNORECASE)

Place = TypeVar("Place")


@dataclass(frozen=True, slots=True)
class XaPrepare:
    """The content of an XA_PREPARE event."""

    xid: str
    one_phase: bool
    """Whether the transaction commits at once (`XA COMMIT ... ONE PHASE`)."""

    @classmethod
    def parse(cls, event: Event) -> XaPrepare:
        """Parses an XA_PREPARE event."""
        cursor = Cursor(event.body, "an XA_PREPARE event")
        one_phase = cursor.uint(1) != 0
        format_id, global_size, branch_size = cursor.uint(4), cursor.uint(4), cursor.uint(4)
        if max(global_size, branch_size) > _LONGEST_PART:
            raise DecodeError(
                "bad-xid", f"an XA_PREPARE event has an xid that is too long: {global_size} and {branch_size} bytes"
            )
        return cls(xid_text(cursor.take(global_size), cursor.take(branch_size), format_id), one_phase)


@dataclass(frozen=True, slots=True)
class XaStatement:
    """The content of an XA statement."""

    verb: str
    """`START`, `END`, `COMMIT` or `ROLLBACK`."""
    xid: str

    @classmethod
    def parse(cls, sql: str) -> XaStatement:
        """Parses a statement in the form in which servers log it."""
        match = _STATEMENT.match(sql)
        if match is None or len(match[2]) % 2 or len(match[3]) % 2:
            raise DecodeError("bad-xid", f"an XA statement is not understood: {sql[:200]}")
        return cls(match[1].upper(), xid_text(bytes.fromhex(match[2]), bytes.fromhex(match[3]), int(match[4])))


@dataclass(frozen=True, slots=True)
class PreparedXa(Generic[Place]):
    """A prepared XA transaction, and the place of its events."""

    xa: Xa
    place: Place


class PreparedEventGroups(Generic[Place]):
    """The event groups of prepared XA transactions, each until its transaction is committed or rolled back."""

    def __init__(self, groups: Iterable[PreparedXa[Place]] = ()) -> None:
        self._by_xid = {group.xa.xid: group for group in groups}

    def __iter__(self) -> Iterator[PreparedXa[Place]]:
        """Yields the groups in the order in which they were prepared."""
        return iter(self._by_xid.values())

    def __len__(self) -> int:
        return len(self._by_xid)

    def copy(self) -> Self:
        """Returns a copy, which another reader can change independently."""
        return type(self)(self)

    def __contains__(self, xid: str) -> bool:
        return xid in self._by_xid

    def drop(self, xid: str) -> None:
        """Removes the group that was prepared under this name, if there is one."""
        self._by_xid.pop(xid, None)

    def add(self, group: PreparedXa[Place]) -> None:
        """Adds a group that was prepared after all others."""
        self.drop(group.xa.xid)
        self._by_xid[group.xa.xid] = group

    def settle(self, transaction: Transaction, place: Place) -> tuple[Transaction, Place | None]:
        """Returns the next transaction of the log with its content, and the place of the events that prepared it.

        Call this method for every transaction, in log order. A COMMIT gets the content that was prepared under its xid.
        The place is None if the transaction commits nothing that was prepared, or if its xid is unknown.
        """
        xa = transaction.xa
        if xa is None:
            return transaction, None
        # After a transaction has ended, its name can be used again. After a crash, a server may prepare a transaction
        # with the same name a second time.
        prepared = self._by_xid.pop(xa.xid, None)
        if xa.step is XaStep.PREPARE:
            self.add(PreparedXa(xa, place))
        if xa.step is not XaStep.COMMIT or prepared is None:
            return transaction, None
        rows = prepared.xa
        settled = replace(
            transaction, row_events=rows.row_events, tables=rows.tables, ddl=rows.ddl, ddl_schema=rows.ddl_schema
        )
        return settled, prepared.place


def xid_text(gtrid: bytes, bqual: bytes, format_id: int) -> str:
    """Returns the name of an XA transaction as one text."""
    return f"X'{gtrid.hex()}',X'{bqual.hex()}',{format_id % _FORMAT_ID}"
