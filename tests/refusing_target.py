"""A target in memory that refuses some rows, as a server with a constraint does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.values_target import ValuesTarget

from pidts.model import Halted, Where
from pidts.reduce import NetChange


@dataclass
class RefusingTarget:
    """Refuses rows with one value in one column, and removals of some keys, until the test removes the cause."""

    target: ValuesTarget
    column: str
    value: int
    refuses: bool = True
    not_removed: frozenset[int] = frozenset()
    """The ids whose rows cannot be removed."""
    answers: Callable[[int], None] = lambda _: None
    """Called with the number of each refusal; may raise another error."""
    refusals: int = 0

    def connect(self) -> Any:
        return _Session(self, self.target.connect())

    def is_refused(self, change: NetChange) -> bool:
        return self.refuses and (
            self.value in change.upserts[self.column].to_pylist()
            or bool(self.not_removed and self.not_removed & set(change.deletes["id"].to_pylist()))
        )


@dataclass
class _Session:
    _owner: RefusingTarget
    _session: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def write(self, change: NetChange) -> None:
        if self._owner.is_refused(change):
            self._owner.refusals += 1
            self._owner.answers(self._owner.refusals)
            what, where = f"no {self._owner.value}", Where(table=str(change.table.name))
            raise Halted("target-refused", what, where=where, todo="mend it")
        self._session.write(change)
