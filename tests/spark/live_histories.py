"""Random tables with unusual keys that are copied and changed at the same time, by real runs between real servers.

The tables and statements are those of `tests.apply.server_histories`. A program writes to the source while a task
copies the tables in small chunks. At the end, each target table must have its source table's rows. If the tables are
merged, three source tables have one target table, in whose keys a column names the source table; programs add a column
to one table after the other.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from itertools import count, islice
from typing import Any

from tests.apply.server_histories import RandomKeys, content
from tests.apply.test_on_servers import target_on
from tests.binlog.logs.round_trip import RoundTrip

from pidts.model import Column, ColumnType, Kind, TableName
from pidts.sandbox import Server

IMAGES = (("FULL",), ("NOBLOB", "NOBLOB", "FULL"), ("MINIMAL", "NOBLOB", "FULL"))
SHARDS = ("1", "2", "3")
SHARD = Column("shard", ColumnType(Kind.VARCHAR, length=255, charset="utf8mb4", collation="utf8mb4_bin"))
"""The column with the name of the source table, in the keys of a merged table."""


class LiveHistory:
    """Random tables of one schema on a source, and a program that writes to them."""

    def __init__(
        self, source: Server, schema: str, chance: random.Random, tables: int, images: Sequence[str], *, is_merged: bool
    ) -> None:
        self.source, self.schema, self.chance, self.images = source, schema, chance, images
        self.trip = RoundTrip(source, ["SET innodb_lock_wait_timeout = 1"], schema)
        self.trip.begin()
        self.is_merged, self.shards = is_merged, SHARDS if is_merged else ("",)
        has_json = source.kind == "mysql97"
        drawn = (RandomKeys(chance, source.kind, has_json) for _ in count())
        # Merged tables have a key.
        usual = islice((one for one in drawn if one.shape != "none" or not is_merged), tables)
        self.groups = {f"t{number}_": one for number, one in enumerate(usual)}
        """The tables by the names of their target tables."""
        self.tables = {
            f"{schema}.{group}{shard}": drawn for group, drawn in self.groups.items() for shard in self.shards
        }
        self.names = list(self.tables)
        self.added = dict.fromkeys(self.names, 0)
        """The number of columns that the program has added to each of the merged tables."""
        self.has_begun = False
        """Whether the task has begun. Until then no XA transaction is prepared, and merged tables stay alike."""
        self.prepared: list[str] = []
        self.statements: list[str] = []
        for name, drawn in self.tables.items():
            self.run(drawn.statement(name))
            for _ in range(chance.randrange(1, 4)):
                for statement in [*drawn.bulk(name), drawn.change(name)]:
                    self.run(statement)

    def routes(self) -> dict[str, dict[str, Any]]:
        """Returns the task's routes."""
        to = {"schema-pattern": self.schema, "target-schema": f"{self.schema}_to"}
        if not self.is_merged:
            return {"all": to}
        extract = {"extract-table": {"table-regexp": "_(.)$", "target-column": "shard"}}
        return {group: {**to, "table-pattern": f"{group}*", "target-table": group, **extract} for group in self.groups}

    @contextmanager
    def written(self) -> Iterator[None]:
        """Lets the program write as long as the block lasts."""
        stop = threading.Event()

        def write() -> None:
            while not stop.wait(0.01):
                self.transaction()

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.end_prepared(share=1)
            for name, added in self.added.items():
                for number in range(added, max(self.added.values())):
                    self.run(f"ALTER TABLE {name} ADD COLUMN m{number} INT DEFAULT {number}")

    def transaction(self) -> None:
        """Runs a random transaction, or changes the structure of a merged table."""
        chance = self.chance
        if self.is_merged and self.has_begun and chance.random() < 0.02:
            self.add_column(chance.choice(self.names))
        images = chance.choice(self.images)
        self.run(f"SET SESSION binlog_row_image = {images}")
        if self.source.kind == "mysql97":
            options = "PARTIAL_JSON" if images == "FULL" and chance.random() < 0.5 else ""
            self.run(f"SET SESSION binlog_row_value_options = '{options}'")
            self.run(f"SET SESSION binlog_transaction_compression = {chance.choice(['ON', 'OFF'])}")
        number = f"'{self.schema} {chance.randrange(10**9)}'" if chance.random() < 0.2 else ""
        self.run(f"XA START {number}" if number else "BEGIN")
        for _ in range(chance.randrange(1, 6)):
            name = chance.choice(self.names)
            drawn, kind = self.tables[name], chance.random()
            found = drawn.bulk(name) if kind < 0.1 else drawn.swap(name) if kind < 0.2 else [drawn.change(name)]
            for statement in found:
                self.run(statement)
        if not number:
            self.run("COMMIT" if chance.random() < 0.95 else "ROLLBACK")
        elif self.run(f"XA END {number}") and (not self.has_begun or chance.random() < 0.2):
            self.run(f"XA COMMIT {number} ONE PHASE")
        else:
            self.run(f"XA PREPARE {number}")
            self.prepared.append(number)
        # Only MySQL 9.7 lets a session do something else before it ends a prepared transaction.
        self.end_prepared(share=0.3 if self.source.kind == "mysql97" else 1)

    def end_prepared(self, share: float) -> None:
        """Commits some of the prepared transactions, or rolls them back."""
        for number in [one for one in self.prepared if self.chance.random() < share]:
            self.run(f"XA {self.chance.choice(['COMMIT', 'COMMIT', 'ROLLBACK'])} {number}")
            self.prepared.remove(number)

    def add_column(self, name: str) -> None:
        """Adds a column to a merged table, if no other table of the group would be two columns behind."""
        number = self.added[name]
        if min(added for other, added in self.added.items() if other[:-1] == name[:-1]) == number:
            self.run(f"ALTER TABLE {name} ADD COLUMN m{number} INT DEFAULT {number}")
            self.added[name] += 1

    def run(self, statement: str) -> bool:
        """Runs a statement; the server may refuse it."""
        with suppress(AssertionError):
            self.trip.run(statement)
            self.statements.append(statement)
            return True
        return False

    def differences(self, target: Server) -> list[str]:
        """Returns the statements of the tables whose rows on the target are other than on the source."""
        structures, found = self.trip.structures(), []
        with closing(target_on(self.source).connect()) as source, closing(target_on(target).connect()) as there:
            for number, drawn in self.groups.items():
                wanted, table = [], structures[TableName(self.schema, f"{number}{self.shards[0]}")]
                for shard in self.shards:
                    rows = content(source, structures[TableName(self.schema, f"{number}{shard}")])
                    wanted += [f"{row[:-1]}, {shard!r}]" if self.is_merged else row for row in rows]
                if self.is_merged:
                    table = replace(table, columns=(*table.columns, SHARD))
                goal = TableName(f"{self.schema}_to", number)
                if sorted(wanted) != content(there, table.renamed(goal)):
                    found.append(drawn.statement(str(goal)))
        return found

    def close(self) -> None:
        self.run(f"DROP DATABASE {self.schema}")
        self.trip.close()
