"""Compares row changes of an Iceberg table with a MERGE written by hand: `python bench/iceberg/run.py`.

Two tables have the same rows: an Iceberg table that PiDTS's target session writes, and a Delta table. In each round,
both get the same Arrow data, one after the other: 64% updates and 16% deletes of rows anywhere in the table, 20% new
rows. The Delta table gets the data by one MERGE of `deltalake`, which has no row-level deletes and writes changed files
anew.

`--fresh` measures something else: a commit of 1,000 changes in each second of a clock that the bench sets forward. It
shows the time of the commits, how many files a query of the current snapshot opens, and how many files stay. Files that
the current snapshot does not need stay for an hour, so choose more than 60 minutes.

In addition to PiDTS, the bench needs the packages of requirements/bench.txt.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from machine import machine  # noqa: E402 - needs the line above

from pidts.apply import TargetSession  # noqa: E402
from pidts.model import Column, ColumnType, Key, Kind, Table, TableName  # noqa: E402
from pidts.reduce import Counts, NetChange  # noqa: E402
from pidts.target import IcebergTarget  # noqa: E402
from pidts.target.iceberg.metadata_file import MetadataFile  # noqa: E402

TEXT = ColumnType(Kind.VARCHAR, length=200)
TABLE = Table(
    TableName("bench", "t"),
    (
        Column("id", ColumnType(Kind.BIGINT), nullable=False),
        Column("k", ColumnType(Kind.INT)),
        Column("amount", ColumnType(Kind.DOUBLE)),
        Column("c", TEXT),
    ),
    (Key("PRIMARY", ("id",), unique=True, primary=True),),
    charset="utf8mb4",
    collation="utf8mb4_bin",
)
AT_ONCE = 500_000


def rows(ids: np.ndarray, version: int) -> pa.Table:
    """Returns rows of about 60 bytes. Their text compresses about as well as names and addresses do."""
    mixed = (ids * 2_654_435_761 + version) & 0xFFFFFFFF
    text = pa.array(mixed).cast(pa.string())
    texts = pa.compute.binary_join_element_wise(text, pa.array(ids[::-1]).cast(pa.string()), text, " of ")
    values = [pa.array(ids), pa.array((mixed % 100_000).astype(np.int32)), pa.array(mixed / 7), texts]
    return pa.table(values, schema=TABLE.arrow)


class Changes:
    """Makes batches of changes to a table whose rows have at first the ids 0 to `size` - 1."""

    def __init__(self, size: int) -> None:
        self._chance = np.random.default_rng(1)
        self._alive = np.arange(size)
        self._next, self._version = size, 0

    def batch(self, count: int) -> tuple[pa.Table, pa.Table]:
        """Returns the keys of rows to remove, and rows to write."""
        self._version += 1
        places = self._chance.choice(len(self._alive), count * 8 // 10, replace=False)
        gone, updated = places[: count // 5], places[count // 5 :]
        new = np.arange(self._next, self._next + count - len(places))
        self._next += len(new)
        deletes = pa.table([pa.array(np.sort(self._alive[gone]))], schema=pa.schema([TABLE.arrow.field("id")]))
        written = rows(np.sort(np.concatenate([self._alive[updated], new])), self._version)
        self._alive = np.concatenate([np.delete(self._alive, gone), new])
        return deletes, written


class Ours:
    """Writes each batch with PiDTS's target session, in one transaction."""

    def __init__(self, folder: Path) -> None:
        self.session = IcebergTarget(str(folder)).connect()
        self.session.meta.prepare()
        for sql in self.session.schema.create_statements(TABLE).statements:
            self.session.execute(sql)

    def load(self, part: pa.Table) -> None:
        self.session.begin()
        self.session.load(TABLE, part)
        self.session.commit()

    def apply(self, deletes: pa.Table, written: pa.Table) -> None:
        commit(self.session, deletes, written)

    def content(self) -> tuple[int, int]:
        """Returns the number of rows and a sum over them, as pyiceberg reads the table."""
        from pyiceberg.catalog.sql import SqlCatalog

        place = self.session.warehouse
        catalog = SqlCatalog("lake", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
        found = catalog.load_table("bench.t").scan(selected_fields=("id", "k")).to_arrow()
        catalog.engine.dispose()
        return summed(found)


class Delta:
    """Writes each batch into a Delta table, with one MERGE."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)

    def load(self, part: pa.Table) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.folder, part, mode="append")

    def apply(self, deletes: pa.Table, written: pa.Table) -> None:
        from deltalake import DeltaTable

        empty = {name: pa.nulls(deletes.num_rows, TABLE.arrow.field(name).type) for name in TABLE.arrow.names[1:]}
        gone = pa.table({"id": deletes["id"], **empty}, schema=TABLE.arrow)
        source = pa.concat_tables([gone, written]).append_column(
            "gone", pa.array(np.arange(deletes.num_rows + written.num_rows) < deletes.num_rows)
        )
        columns = {name: f"s.{name}" for name in TABLE.arrow.names}
        (
            DeltaTable(self.folder)
            .merge(source, predicate="t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_delete(predicate="s.gone")
            .when_matched_update(updates=columns)
            .when_not_matched_insert(updates=columns)
            .execute()
        )

    def content(self) -> tuple[int, int]:
        from deltalake import DeltaTable

        return summed(DeltaTable(self.folder).to_pyarrow_table(columns=["id", "k"]))


def commit(session: TargetSession, deletes: pa.Table, written: pa.Table) -> None:
    """Applies a batch in a transaction of its own."""
    session.begin()
    session.write(NetChange(TABLE, deletes, written, Counts()))
    session.commit()


def summed(found: pa.Table) -> tuple[int, int]:
    """Returns the number of rows and a sum over all rows. The summands are whole numbers: a sum of floating-point
    numbers would depend on the order of the rows.
    """
    return len(found), int(np.sum(found["id"].to_numpy() * (found["k"].to_numpy().astype(np.int64) + 1)))


def seconds(work: Callable[..., None], *values: Any) -> float:
    begun = time.monotonic()
    work(*values)
    return time.monotonic() - begun


def merged(folder: Path, size: int, count: int, rounds: int) -> dict[str, Any]:
    """Returns the figures of rounds in which both tables get the same batch."""
    sides: dict[str, Ours | Delta] = {"ours": Ours(folder / "ours"), "delta": Delta(folder / "delta")}
    spent: dict[str, list[float]] = {name: [] for name in sides}
    load = dict.fromkeys(sides, 0.0)
    for start in range(0, size, AT_ONCE):
        part = rows(np.arange(start, min(start + AT_ONCE, size)), 0)
        for name, side in sides.items():
            load[name] += seconds(side.load, part)
    changes = Changes(size)
    for number in range(rounds):
        batch = changes.batch(count)
        for name, side in list(sides.items())[:: 1 if number % 2 else -1]:
            spent[name].append(round(seconds(side.apply, *batch), 3))
        print(f"round {number}: " + ", ".join(f"{name} {each[-1]:.2f} s" for name, each in spent.items()), flush=True)
    ours, delta = (side.content() for side in sides.values())
    if ours != delta:
        raise SystemExit(f"the tables differ: {ours}, {delta}")
    ratios = [theirs / own for own, theirs in zip(spent["ours"], spent["delta"], strict=True)]
    found = {
        "rows": size,
        "changes_a_batch": count,
        "load_seconds": {name: round(each, 2) for name, each in load.items()},
        "seconds": spent,
        "times_as_fast": round(statistics.median(ratios), 2),
        "times_as_fast_each": [round(each, 2) for each in ratios],
    }
    print(f"{found['times_as_fast']} times as fast as the MERGE (median), loads: {found['load_seconds']}")
    return found


def fresh(folder: Path, size: int, minutes: int) -> dict[str, Any]:
    """Returns the figures of commits of 1,000 changes, one for each second of a clock that is set forward."""
    side, changes, real = Ours(folder / "ours"), Changes(size), time.time
    side.load(rows(np.arange(size), 0))
    skipped, spent, files, snapshots, opened = 0.0, [], [], [], []
    time.time = lambda: real() + skipped
    try:
        for number in range(minutes * 60):
            batch = changes.batch(1000)
            spent.append(seconds(side.apply, *batch))
            skipped += max(0.0, 1 - spent[-1])
            if number % 60 == 59:
                files.append(sum(1 for each in folder.rglob("*") if each.is_file()))
                location = side.session.tables.location(TABLE.name)  # type: ignore[attr-defined]
                snapshots.append(len(json.loads(Path(location.removeprefix("file://")).read_text())["snapshots"]))
                now = MetadataFile.read(TABLE.name, location)
                opened.append(len(now.data) + len(now.deletes) + len(now.manifests))
                counts = f"{opened[-1]} files for a query, {files[-1]} files in all, {snapshots[-1]} snapshots"
                print(f"minute {number // 60 + 1}: {counts}", flush=True)
    finally:
        time.time = real
    ordered = sorted(spent)
    found = {
        "rows": size,
        "commits": len(spent),
        "median_seconds": round(statistics.median(spent), 3),
        "p99_seconds": round(ordered[len(ordered) * 99 // 100], 3),
        "longest_seconds": round(ordered[-1], 3),
        "files_of_a_query": opened,
        "files": files,
        "snapshots": snapshots,
    }
    print({name: each for name, each in found.items() if not isinstance(each, list)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument(
        "--fresh",
        type=int,
        default=0,
        metavar="MINUTES",
        help="instead, measure one commit of 1,000 changes for each second of these minutes, with a clock set forward",
    )
    parser.add_argument("--folder", type=Path, help="the folder for the tables")
    options = parser.parse_args()
    path = HERE.parent / "results" / "iceberg.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    found = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        if options.fresh:
            known["fresh"] = found | fresh(folder, options.rows, options.fresh)
        else:
            known["merge"] = found | merged(folder, options.rows, options.changes, options.rounds)
    finally:
        shutil.rmtree(folder)
    path.write_text(json.dumps(known, indent=2) + "\n")


if __name__ == "__main__":
    main()
