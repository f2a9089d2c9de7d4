"""Halts and orders of the target in memory; within a transaction they are visible at COMMIT."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from pidts.model import DdlOrder, Halt, Lsn

Do = Callable[[Callable[[], None]], None]
"""Does it at COMMIT, or at once where no transaction is open."""

_Task = tuple[str, str]


@dataclass(slots=True)
class HaltStore:
    """The halts and orders that a server would keep."""

    halts: dict[_Task, dict[str, Halt]] = field(default_factory=dict)
    orders: dict[_Task, dict[Lsn, DdlOrder]] = field(default_factory=dict)


class ValuesHalts:
    """Halts of one session."""

    def __init__(self, store: HaltStore, do: Do) -> None:
        self._store, self._do = store, do

    def read(self, task: str, source: str) -> list[Halt]:
        """Returns the committed halts."""
        return [halt for _, halt in sorted(self._store.halts.get((task, source), {}).items())]

    def save(self, task: str, source: str, halt: Halt) -> None:
        """Inserts or overwrites the halt."""
        self._do(lambda: self._store.halts.setdefault((task, source), {}).update({halt.place: halt}))

    def resolve(self, task: str, source: str, places: Collection[str] | None = None) -> None:
        """Removes the halts at these places; without places, all of them."""

        def forget() -> None:
            known = self._store.halts.get((task, source), {})
            for place in list(known) if places is None else places:
                known.pop(place, None)

        self._do(forget)


class ValuesOrders:
    """Orders of one session."""

    def __init__(self, store: HaltStore, do: Do) -> None:
        self._store, self._do = store, do

    def read(self, task: str, source: str) -> list[DdlOrder]:
        """Returns the orders in the order of the log."""
        return [order for _, order in sorted(self._store.orders.get((task, source), {}).items())]

    def find(self, task: str, source: str, lsn: Lsn) -> DdlOrder | None:
        """Returns the order for the change at this place of the log."""
        return self._store.orders.get((task, source), {}).get(lsn)

    def give(self, task: str, source: str, order: DdlOrder) -> None:
        """An earlier order about the same change is replaced."""
        before = self.find(task, source, order.lsn)
        given = replace(order, number=before.number + 1 if before else 1, taken=False)
        self._do(lambda: self._store.orders.setdefault((task, source), {}).update({order.lsn: given}))

    def take(self, task: str, source: str, order: DdlOrder) -> bool:
        """Marks an order as taken; false where another order has replaced it."""
        stands = self.find(task, source, order.lsn) == replace(order, taken=False)
        if stands:
            self._do(lambda: self._store.orders[task, source].update({order.lsn: replace(order, taken=True)}))
        return stands
