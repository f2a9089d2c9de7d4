"""Halts and orders in `pidts_meta`, in the SQL that all servers share.

Halts are there to be read, by people and by commands: a run says what it halts for, and nothing is decided by it.
Orders are decided by: an order is *given*, and *taken* in the transaction that begins the journal of its change anew,
so a restart knows whether what the journal holds is what was ordered.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from pidts.model import DdlOrder, Halt, Lsn, OrderKind
from pidts.target.meta_schema import Run

_OURS = "task = %s AND source = %s"


class HaltRecord:
    """The halts of one session; statements only, the caller decides about transactions."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self, task: str, source: str) -> list[Halt]:
        """Returns the halts in the order of their places."""
        rows, _ = self._run(f"SELECT about FROM pidts_meta.halt WHERE {_OURS} ORDER BY place", (task, source))
        return [Halt.loads(about) for (about,) in rows]

    def save(self, task: str, source: str, halt: Halt) -> None:
        """Inserts or overwrites the halt."""
        self.resolve(task, source, [halt.place])
        sql = "INSERT INTO pidts_meta.halt (task, source, place, about) VALUES (%s, %s, %s, %s)"
        self._run(sql, (task, source, halt.place, halt.dumps()))

    def resolve(self, task: str, source: str, places: Collection[str] | None = None) -> None:
        """Removes the halts at these places; without places, all of them."""
        if places is None:
            self._run(f"DELETE FROM pidts_meta.halt WHERE {_OURS}", (task, source))
        for place in places or ():
            self._run(f"DELETE FROM pidts_meta.halt WHERE {_OURS} AND place = %s", (task, source, place))


class OrderRecord:
    """The operator's orders of one session; statements only, the caller decides about transactions."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def read(self, task: str, source: str) -> list[DdlOrder]:
        """Returns the orders in the order of the log."""
        sql = f"SELECT lsn, kind, statements, number, taken FROM pidts_meta.ddl_order WHERE {_OURS}"
        rows, _ = self._run(sql, (task, source))
        return sorted(map(_order, rows), key=lambda order: order.lsn)

    def find(self, task: str, source: str, lsn: Lsn) -> DdlOrder | None:
        """Returns the order for the change at this place of the log."""
        sql = f"SELECT lsn, kind, statements, number, taken FROM pidts_meta.ddl_order WHERE {_OURS} AND lsn = %s"
        rows, _ = self._run(sql, (task, source, str(lsn)))
        return _order(rows[0]) if rows else None

    def give(self, task: str, source: str, order: DdlOrder) -> None:
        """An earlier order about the same change is replaced."""
        place = (task, source, str(order.lsn))
        rows, _ = self._run(f"SELECT number FROM pidts_meta.ddl_order WHERE {_OURS} AND lsn = %s FOR UPDATE", place)
        self._run(f"DELETE FROM pidts_meta.ddl_order WHERE {_OURS} AND lsn = %s", place)
        sql = (
            "INSERT INTO pidts_meta.ddl_order (task, source, lsn, kind, statements, number, taken) "
            "VALUES (%s, %s, %s, %s, %s, %s, 0)"
        )
        number = int(rows[0][0]) + 1 if rows else 1
        self._run(sql, (*place, order.kind.value, json.dumps(order.statements), number))

    def take(self, task: str, source: str, order: DdlOrder) -> bool:
        """Marks an order as taken, in the transaction that begins the ordered change.

        False where another order has replaced this one.
        """
        sql = f"UPDATE pidts_meta.ddl_order SET taken = 1 WHERE {_OURS} AND lsn = %s AND number = %s AND taken = 0"
        return self._run(sql, (task, source, str(order.lsn), order.number))[1] == 1


def _order(row: tuple[Any, ...]) -> DdlOrder:
    lsn, kind, statements, number, taken = row
    return DdlOrder(
        lsn=Lsn.parse(lsn),
        kind=OrderKind(kind),
        statements=tuple(json.loads(statements)),
        number=int(number),
        taken=bool(int(taken)),
    )
