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
    """What a server would keep."""

    halts: dict[_Task, dict[str, Halt]] = field(default_factory=dict)
    orders: dict[_Task, dict[Lsn, DdlOrder]] = field(default_factory=dict)


class ValuesHalts:
    """Of one session."""

    def __init__(self, store: HaltStore, do: Do) -> None:
        self._store, self._do = store, do

    def halts(self, task: str, source: str) -> list[Halt]:
        """Committed ones."""
        return [halt for _, halt in sorted(self._store.halts.get((task, source), {}).items())]

    def tell(self, task: str, source: str, halt: Halt) -> None:
        """Insert or overwrite."""
        self._do(lambda: self._store.halts.setdefault((task, source), {}).update({halt.place: halt}))

    def resolve(self, task: str, source: str, places: Collection[str] | None = None) -> None:
        """These are over; without names, all."""

        def forget() -> None:
            known = self._store.halts.get((task, source), {})
            for place in list(known) if places is None else places:
                known.pop(place, None)

        self._do(forget)

    def orders(self, task: str, source: str) -> list[DdlOrder]:
        """All that were ever given."""
        return [order for _, order in sorted(self._store.orders.get((task, source), {}).items())]

    def order(self, task: str, source: str, lsn: Lsn) -> DdlOrder | None:
        """The one about the change at this place."""
        return self._store.orders.get((task, source), {}).get(lsn)

    def give(self, task: str, source: str, order: DdlOrder) -> None:
        """In the place of an earlier one."""
        before = self.order(task, source, order.lsn)
        given = replace(order, number=before.number + 1 if before else 1, taken=False)
        self._do(lambda: self._store.orders.setdefault((task, source), {}).update({order.lsn: given}))

    def take(self, task: str, source: str, order: DdlOrder) -> bool:
        """Whether it still stood."""
        stands = self.order(task, source, order.lsn) == replace(order, taken=False)
        if stands:
            self._do(lambda: self._store.orders[task, source].update({order.lsn: replace(order, taken=True)}))
        return stands
