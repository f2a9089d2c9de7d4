"""The structures of the tables in memory, and the statements that change them, as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from tests.values_target.rows import StoredTable, fill
from tests.values_target.store import Store

import pidts.schema.actions as alter
import pidts.schema.statements as ddl
from pidts.model import Halted, Key, RenderedChange, Table, TableName, Where
from pidts.model.errors import named
from pidts.reduce import UniqueKey, watched_columns
from pidts.schema import Statement, keys_there
from pidts.schema.kept_names import kept_names
from pidts.schema.statement_time import UNKNOWN_TIME, StatementTime
from pidts.target.difference import difference

Structures = Mapping[TableName, Table | None]


class ValuesSchema:
    """Reads and changes the committed structures."""

    holds_unreal_dates = True

    def __init__(self, store: Store, *, transactional_ddl: bool) -> None:
        self._store = store
        self.transactional_ddl = transactional_ddl

    def structure(self, name: TableName) -> Table | None:
        """Returns the table's structure as it was created."""
        stored = self._store.tables.get(name)
        return stored.table if stored else None

    def declared(self, name: TableName) -> Table | None:
        """Returns the same as `structure`, which has everything that the table was created with."""
        return self.structure(name)

    def collision_columns(self, table: Table) -> tuple[str, ...]:
        """Returns the columns of the stored table's unique keys, in which rows with different identities can collide."""
        stored = self.structure(table.name)
        return watched_columns(table, [UniqueKey(key.columns) for key in stored.keys if key.unique] if stored else ())

    def read_ahead(self, tables: Iterable[Table]) -> None:
        """Does nothing: all structures are in memory."""

    def misfits(self, table: Table) -> list[str] | None:
        """Returns how the stored table differs from `table` in its column names and its identity; None if there is
        none.
        """
        stored = self.structure(table.name)
        if stored is None:
            return None
        have, want = {column.name for column in stored.columns}, {column.name for column in table.columns}
        found = [f"it lacks column {', '.join(sorted(want - have))}"] if want - have else []
        needy = sorted(c.name for c in stored.columns if c.name not in want and not c.nullable and c.default is None)
        if needy:
            found.append(f"its {named('column', needy, 'needs', 'need')} a value, and the source has no such column")
        if set(stored.identity) != set(table.identity):
            found.append(f"its identity is ({', '.join(stored.identity)})")
        return found

    def write_obstacles(self, name: TableName) -> list[str]:
        """Returns nothing: there are no foreign keys or triggers."""
        return []

    def computed_otherwise(self, table: Table) -> list[str]:
        """Returns nothing: all columns are plain."""
        return []

    def fingerprint(self, name: TableName) -> str | None:
        """Returns the structure as JSON."""
        stored = self.structure(name)
        return json.dumps(stored.to_json()) if stored else None

    def column_types(self, table: Table) -> tuple[str, ...]:
        """Returns the source's types."""
        return tuple(str(column.type.kind) for column in table.columns)

    def create_statements(self, table: Table, *, before_copy: bool = False) -> RenderedChange:
        """Returns the statements that create the table, in this target's own language, which is JSON."""
        return RenderedChange((creation(table, before_copy=before_copy),))

    def finish_statements(self, table: Table) -> RenderedChange:
        """Returns statements for the missing keys."""
        found = self.structure(table.name)
        have = {(key.columns, key.unique) for key in found.keys} if found else set()
        missing = found is not None and any((key.columns, key.unique) not in have for key in table.keys)
        return RenderedChange((json.dumps({"finish": table.to_json()}),) if missing else ())

    def ddl_statements(
        self,
        statement: Statement,
        before: Mapping[TableName, Table | None],
        after: Mapping[TableName, Table | None],
        executed_at: StatementTime = UNKNOWN_TIME,
    ) -> RenderedChange:
        """Returns one statement for each table."""
        del executed_at
        return RenderedChange(tuple(json.dumps(step) for step in steps(statement, before, after)))


def creation(table: Table, *, before_copy: bool) -> str:
    """Returns the step that creates a table; before its copy, only with the keys that identify rows."""
    keys = tuple(key for key in table.keys if not before_copy or _names_rows(table, key))
    return json.dumps({"create": replace(table, keys=keys).to_json()})


def _names_rows(table: Table, key: Key) -> bool:
    return key.primary or (key.unique and key.columns == table.identity)


def steps(statement: ddl.Statement, before: Structures, after: Structures) -> Iterator[dict[str, Any]]:
    """Yields the steps of a statement; each step is atomic and concerns one table."""
    match statement:
        case ddl.CreateTable(table=name, or_replace=replaces) | ddl.CreateTableLike(table=name, or_replace=replaces):
            if (table := after.get(name)) is not None:
                yield {"create": table.to_json(), "replaces": replaces}
        case ddl.DropTable(tables=names):
            yield from ({"drop": _pair(name)} for name in names)
        case ddl.DropDatabase(name=schema):
            yield from ({"drop": _pair(name)} for name in sorted(before) if name.schema == schema)
        case ddl.TruncateTable(table=name):
            yield {"truncate": _pair(name)}
        case ddl.RenameTable(pairs=pairs):
            yield from ({"rename": _pair(old), "to": _pair(new)} for old, new in pairs)
        case ddl.AlterTable(table=name, actions=actions):
            goal = next((action.name for action in actions if isinstance(action, alter.RenameTo)), name)
            old, new = before.get(name), after.get(goal)
            if old is not None and new is not None:
                difference(statement, old, new)  # This raises for a change that moves rows.
                twice = keys_there(old, actions)
                yield {"alter": new.renamed(name).to_json(), "kept": kept_names(statement, old, new), "twice": twice}
                if goal != name:
                    yield {"rename": _pair(name), "to": _pair(goal)}
        case _:
            pass


def run_step(step: Mapping[str, Any], tables: dict[TableName, StoredTable], *, folds: bool) -> None:
    """Runs one step as a server does: an impossible change is an error, but a DROP of a missing table is not."""
    if "create" in step:
        table = Table.from_json(step["create"])
        if table.name in tables and not step.get("replaces"):
            raise Halted("target-refused", "the table exists already", where=Where(table=str(table.name)))
        tables[table.name] = StoredTable(table, folds=folds)
    elif "drop" in step:
        tables.pop(TableName(*step["drop"]), None)
    elif "truncate" in step:
        tables[TableName(*step["truncate"])].rows.clear()
    elif "rename" in step:
        old, new = TableName(*step["rename"]), TableName(*step["to"])
        if old not in tables or new in tables:
            raise Halted("target-refused", f"cannot rename it to {new}", where=Where(table=str(old)))
        stored = tables.pop(old)
        tables[new] = replace(stored, table=stored.table.renamed(new))
    elif "finish" in step:
        _finish(Table.from_json(step["finish"]), tables)
    elif step["twice"]:
        name = Table.from_json(step["alter"]).name
        what = f"there is a key {', '.join(step['twice'])} already"
        raise Halted("target-refused", what, where=Where(table=str(name)))
    else:
        _alter(Table.from_json(step["alter"]), step["kept"], tables)


def _finish(table: Table, tables: dict[TableName, StoredTable]) -> None:
    """Adds the keys of `table` to the stored table. As on a server, a unique key is refused if two existing rows have
    the same values.
    """
    stored = tables[table.name]
    for key in table.keys:
        values = [stored.values(key.columns, row) for row in stored.rows.values()] if key.unique else []
        known = [value for value in values if None not in value]
        if len(set(known)) != len(known):
            raise Halted(
                "target-refused", f"duplicates in ({', '.join(key.columns)})", where=Where(table=str(table.name))
            )
    stored.table = replace(stored.table, keys=table.keys)


def _alter(table: Table, kept: Mapping[str, str], tables: dict[TableName, StoredTable]) -> None:
    stored = tables[table.name]
    have = [column.name for column in stored.table.columns]
    sources: list[int | None] = []
    for column in table.columns:
        origin = kept.get(column.name, column.name)
        sources.append(have.index(origin) if origin in have and column.name in kept else None)
    fills = [None if place is not None else fill(column) for column, place in zip(table.columns, sources, strict=True)]
    made = StoredTable(table, folds=stored.folds)
    for row in stored.rows.values():
        new = tuple(fill if place is None else row[place] for place, fill in zip(sources, fills, strict=True))
        made.rows[made.key(new)] = new
    tables[table.name] = made


def _pair(name: TableName) -> list[str]:
    return [name.schema, name.name]
