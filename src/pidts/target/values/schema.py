"""The structures of the tables in memory, and the statements that change them, which are JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pidts.model import Rendered, Table, TableName
from pidts.reduce import UniqueKey, watched_columns
from pidts.schema import Statement
from pidts.target.values.ddl import creation, steps
from pidts.target.values.store import Store


class ValuesSchema:
    """Reads what is committed."""

    def __init__(self, store: Store, *, transactional_ddl: bool) -> None:
        self._store = store
        self.transactional_ddl = transactional_ddl

    def structure(self, name: TableName) -> Table | None:
        """Returns the table's structure as it was created."""
        stored = self._store.tables.get(name)
        return stored.table if stored else None

    def collision_columns(self, table: Table) -> tuple[str, ...]:
        """Returns the collision columns by the keys of the target's table."""
        stored = self.structure(table.name)
        return watched_columns(table, [UniqueKey(key.columns) for key in stored.keys if key.unique] if stored else ())

    def misfits(self, table: Table) -> list[str] | None:
        """Names and identity only."""
        stored = self.structure(table.name)
        if stored is None:
            return None
        have, want = {column.name for column in stored.columns}, {column.name for column in table.columns}
        found = [f"it lacks column {', '.join(sorted(want - have))}"] if want - have else []
        needy = sorted(c.name for c in stored.columns if c.name not in want and not c.nullable and c.default is None)
        if needy:
            found.append(f"it demands column {', '.join(needy)}, and the source has none of that name")
        if set(stored.identity) != set(table.identity):
            found.append(f"its identity is ({', '.join(stored.identity)})")
        return found

    def fingerprint(self, name: TableName) -> str | None:
        """Returns the structure as JSON."""
        stored = self.structure(name)
        return json.dumps(stored.to_json()) if stored else None

    def column_types(self, table: Table) -> tuple[str, ...]:
        """Returns the source's own."""
        return tuple(str(column.type.kind) for column in table.columns)

    def create_statements(self, table: Table, *, before_copy: bool = False) -> Rendered:
        """Returns the statements that create the table, in this target's own language, which is JSON."""
        return Rendered((creation(table, before_copy=before_copy),))

    def finish_statements(self, table: Table) -> Rendered:
        """Returns the keys that are missing."""
        found = self.structure(table.name)
        have = {(key.columns, key.unique) for key in found.keys} if found else set()
        missing = found is not None and any((key.columns, key.unique) not in have for key in table.keys)
        return Rendered((json.dumps({"finish": table.to_json()}),) if missing else ())

    def ddl_statements(
        self,
        statement: Statement,
        before: Mapping[TableName, Table | None],
        after: Mapping[TableName, Table | None],
        executed_at: int = 0,
    ) -> Rendered:
        """Returns one statement for each table."""
        del executed_at
        return Rendered(tuple(json.dumps(step) for step in steps(statement, before, after)))
