"""Remembers, in memory, online schema changes; within a transaction they change at COMMIT."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pidts.model import Shadow, TableName

Do = Callable[[Callable[[], None]], None]
"""Does it at COMMIT, or at once where no transaction is open."""

ShadowStore = dict[tuple[str, str], dict[TableName, Shadow]]


class ValuesShadows:
    """The online schema changes, as one session reads and writes them."""

    def __init__(self, store: ShadowStore, do: Do) -> None:
        self._store, self._do = store, do

    def load(self, task: str, source: str) -> dict[TableName, Shadow]:
        """Committed ones."""
        return dict(self._store.get((task, source), {}))

    def save(self, task: str, source: str, shadows: Mapping[TableName, Shadow | None]) -> None:
        """Insert or overwrite; None forgets."""

        def put() -> None:
            known: dict[TableName, Shadow | None] = {**self._store.get((task, source), {}), **shadows}
            self._store[task, source] = {name: shadow for name, shadow in known.items() if shadow is not None}

        self._do(put)

    def replace(self, task: str, source: str, shadows: Mapping[TableName, Shadow]) -> None:
        """Saves these and removes all others."""
        self._do(lambda: self._store.update({(task, source): dict(shadows)}))
