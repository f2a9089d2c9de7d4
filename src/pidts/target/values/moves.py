"""Remembers, in memory, keys that may have moved; a transaction sees what it has changed itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pidts.model import Lsn, Moved, TableName

Do = Callable[[Callable[[], None]], None]
"""Does it at COMMIT, or at once where no transaction is open."""

MoveStore = dict[tuple[str, str, TableName, str, TableName], Lsn]
"""The Lsn by task, source, the target's table, key and member."""


class ValuesMoves:
    """The moved keys, as one session reads and writes them."""

    def __init__(self, store: MoveStore, do: Do) -> None:
        self._store, self._do = store, do
        self._own: list[Callable[[MoveStore], None]] = []

    def reset(self) -> None:
        """The transaction is over."""
        self._own.clear()

    def any(self, task: str, source: str, landed: TableName) -> bool:
        """Whether something is remembered."""
        return landed in self.target_tables(task, source)

    def find(self, task: str, source: str, landed: TableName, keys: Sequence[str]) -> list[Moved]:
        """Committed ones and the transaction's own."""
        wanted = set(keys)
        return [
            Moved(member, key, lsn)
            for (*place, key, member), lsn in self._seen().items()
            if place == [task, source, landed] and key in wanted
        ]

    def add(self, task: str, source: str, landed: TableName, moved: Sequence[Moved]) -> None:
        """Insert or overwrite."""
        rows = {(task, source, landed, one.key, one.member): one.lsn for one in moved}
        self._change(lambda store: store.update(rows))

    def remove(self, task: str, source: str, landed: TableName, member: TableName, keys: Sequence[str]) -> None:
        """Removes keys that this member no longer has."""
        rows = [(task, source, landed, key, member) for key in keys]

        def remove(store: MoveStore) -> None:
            for row in rows:
                store.pop(row, None)

        self._change(remove)

    def rename(self, task: str, source: str, names: Mapping[TableName, TableName]) -> None:
        """Gives the members other names, all at once."""

        def rename(store: MoveStore) -> None:
            mine = [row for row in store if row[:2] == (task, source) and row[4] in names]
            taken = {row: store.pop(row) for row in mine}
            store.update({(*row[:4], names[row[4]]): lsn for row, lsn in taken.items()})

        self._change(rename)

    def target_tables(self, task: str, source: str) -> list[TableName]:
        """Returns the target tables that have moved keys, in the order of their names."""
        return sorted({row[2] for row in self._seen() if row[:2] == (task, source)})

    def forget(self, task: str, source: str, landed: TableName) -> None:
        """Removes all moved keys of a target table."""

        def remove(store: MoveStore) -> None:
            for row in [row for row in store if row[:3] == (task, source, landed)]:
                del store[row]

        self._change(remove)

    def _seen(self) -> MoveStore:
        seen = dict(self._store)
        for change in self._own:
            change(seen)
        return seen

    def _change(self, change: Callable[[MoveStore], None]) -> None:
        self._own.append(change)

        def make() -> None:
            change(self._store)
            if change in self._own:
                self._own.remove(change)

        self._do(make)
