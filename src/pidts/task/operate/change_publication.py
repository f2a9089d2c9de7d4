"""Publishes the waiting changes of a warehouse as files of change tables, which readers find in a Hive metastore.

All files that wait at the beginning are published, one table after the other:

1. the waiting files that become one file, and the name of this file, are recorded;
2. the metastore gets the table, or its new columns;
3. the file is written under a name that readers ignore, and then renamed: one file for each day that has changes;
4. the metastore gets the partitions of these days, where they are new;
5. the waiting files are removed from the record, and then from the disk.

What follows an interruption:

- After 1: the next publication makes the same file, with the same changes and the same name. The new file overwrites a
  file that was already renamed. (A reader that has opened the former file continues with it.) So each change is in the
  table exactly once.
- Between 3 and 5: a reader may see the changes of one day before the changes of another day.
- In 5, after the record was changed: the next publication removes the files without a record, as after an interrupted
  transaction.

A metastore may complete the last call of a killed process after the next process has begun. There are two such calls:

- Adding a column to the table and to all its partitions. The call names the columns that it replaces, so it changes
  nothing if it comes too late (`pidts.task.operate.publication`).
- Adding a partition. The call does nothing if the partition exists. Normally the partition exists by then, since the
  next publication makes the same file and adds the same partition. If the partition was removed meanwhile because of
  its age, a later publication removes it again.

Earlier files are not changed. So if the change table has a column of the same name and another type, the new column
gets another name, such as `price__bigint`. A column that was dropped from the source stays in the change table.

A partition older than `pidts.hive.keep-changes` is removed from the metastore. The partition's folder is removed a day
later, since readers may still use it. If a removal is interrupted, the next publication repeats the removal.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from pidts.model import Halted, TableName
from pidts.spark.metastore import Metastore, MetastoreTable
from pidts.target.hive.change_record import ChangeRecord, ChangeTable, FilesToMerge, changes_folders, waiting_folder
from pidts.target.hive.names import CHANGE_COLUMNS, DAY, change_refusal, change_table_name
from pidts.target.hive.places import begin_folder, discard, folder_of, location_of, write_visible
from pidts.target.hive.session import HiveSession
from pidts.target.iceberg.files import folders_in, name_of, reading

_TASK, _TABLE = "pidts.task", "pidts.table"
"""The properties of a change table that name the task and the target table whose changes it contains."""
_DAY_MICROS = 86_400_000_000

_log = structlog.get_logger(__name__)


class ChangePublisher:
    """Publishes the changes of one task."""

    def __init__(self, task: str, session: HiveSession, keep_seconds: int) -> None:
        self._task, self._session, self._keep = task, session, keep_seconds
        self._record = ChangeRecord(session)
        self._roots = changes_folders(session)

    @property
    def is_wanted(self) -> bool:
        """Whether changes wait to be published."""
        return self._record.is_waiting(self._task)

    def run(self, store: Metastore) -> None:
        """Publishes the waiting changes. If the metastore refuses a table, its changes stay, with the reason."""
        with suppress(OSError):
            for path in self._record.unrecorded():
                path.unlink(missing_ok=True)
        refused = set[TableName]()
        for chosen in self._record.choose(self._task):
            if chosen.table in refused:
                continue  # later changes must also wait, since columns are added in the order of the log
            try:
                self._publish(store, chosen)
            except Halted as error:
                refused.add(chosen.table)
                known = self._record.of(self._task).get(chosen.table, ChangeTable())
                if known.problem != str(error):
                    _log.warning("changes of a table are not published", table=str(chosen.table), why=str(error))
                self._record.put(self._task, chosen.table, replace(known, problem=str(error)))
        if self._keep:
            self._expire(store)

    def _publish(self, store: Metastore, chosen: FilesToMerge) -> None:
        table, names = self._table(store, chosen)
        rows = self._waiting_rows(chosen).rename_columns(names)
        for day, mine in _by_day(rows):
            folder = f"{folder_of(table.location)}/{DAY}={day}"
            begin_folder(folder)
            write_visible(mine, folder, f"{chosen.name}.parquet")
            store.put_partition(table, day, location_of(folder))
        lsn = str(pc.max(rows["pidts_lsn"]).as_py())
        self._record.published(self._task, chosen, ChangeTable(lsn=lsn, read_at=time.time()))
        for name in chosen.files:
            with suppress(OSError):
                (waiting_folder(self._session) / name).unlink()
        _log.info("changes are published", table=str(table), lsn=lsn, changes=rows.num_rows)

    def _table(self, store: Metastore, chosen: FilesToMerge) -> tuple[MetastoreTable, list[str]]:
        """Returns the change table with all columns that it needs, and the names of the changes' columns in it."""
        database, name = change_table_name(chosen.table)
        there = store.table(database, name)
        if there is not None and not self._is_own(there, chosen.table):
            owner = there.properties.get(_TABLE, "")
            if there.properties.get(_TASK) == self._task and owner not in ("", str(chosen.table)):
                raise Halted(
                    "metastore-refused",
                    f"Hive knows only lower-case names, and {owner} has this change table",
                    todo="Give one of the two tables another name with routes",
                )
            raise Halted(
                "metastore-refused",
                f"the metastore has a table {database}.{name} at {there.location}, which this task does not publish",
                todo="Rename or drop the metastore's table, or give the task's table another name with a route",
            )
        if problem := change_refusal(chosen.table, [own for own, _ in chosen.columns[len(CHANGE_COLUMNS) :]]):
            raise Halted(
                "metastore-refused",
                problem,
                todo="Give the table or the column another name, with routes or column mappings",
            )
        columns = {} if there is None else dict(there.columns)
        names = [_placed(columns, own, kind) for own, kind in chosen.columns]
        if twice := sorted(each for each in set(names) if names.count(each) > 1):
            what = (
                f"two columns would have the name {twice[0]}. One of them already has this name, and the other one got "
                "it because a column of the same name had another type before"
            )
            raise Halted("metastore-refused", what, todo="Give one of the two columns another name")
        # A change table stays where it is, since its earlier files are there.
        folder = f"{self._roots[0]}/{database}/{name}" if there is None else folder_of(there.location)
        goal = MetastoreTable(
            database=database,
            name=name,
            location=location_of(folder),
            columns=list(columns.items()),
            partitions=[(DAY, "string")],
            properties={_TASK: self._task, _TABLE: str(chosen.table)},
            state=hashlib.sha256(repr(list(columns.items())).encode()).hexdigest()[:16],
        )
        if there is None:
            store.create(goal, location_of(f"{self._roots[0]}/{database}"))
        elif list(there.columns) != list(goal.columns) or _TABLE not in there.properties:
            store.switch(goal, there)
        return goal, names

    def _waiting_rows(self, chosen: FilesToMerge) -> pa.Table:
        parts = []
        for name in chosen.files:
            path = waiting_folder(self._session) / name
            with reading(f"file://{path}"), pa.memory_map(str(path)) as source:
                parts.append(pa.ipc.open_file(source).read_all())
        return pa.concat_tables(parts)

    def _expire(self, store: Metastore) -> None:
        last = (datetime.now(UTC) - timedelta(seconds=self._keep)).date()
        for name in self._record.of(self._task):
            database, table = change_table_name(name)
            there = store.table(database, table)
            if there is None or not self._is_own(there, name):
                continue  # refused tables also have a record, but this task has not created them
            goal = replace(there, partitions=[(DAY, "string")])
            for day in store.partitions(database, table):
                if day < str(last):
                    store.drop_partition(goal, day)
            for each in folders_in(folder_of(there.location)):
                key, _, day = name_of(each).partition("=")
                if key == DAY and day < str(last - timedelta(days=1)):
                    discard(each)

    def _is_own(self, there: MetastoreTable, name: TableName) -> bool:
        """Whether a table of the metastore contains the changes that this task has made to this target table."""
        database, table = change_table_name(name)
        own = [f"{root}/{database}/{table}" for root in self._roots]
        if there.properties.get(_TASK) != self._task or folder_of(there.location) not in own:
            return False
        if _TABLE in there.properties:
            return there.properties[_TABLE] == str(name)
        # An earlier version has made the change table without this property. Several target tables may have this name
        # for their change table. Only the owner of this change table has an Lsn in the record.
        return bool(self._record.of(self._task).get(name, ChangeTable()).lsn)


def _placed(columns: dict[str, str], name: str, kind: str) -> str:
    """Returns the name of the column for values of this type, and adds the column to `columns` if it is missing."""
    while columns.get(name, kind) != kind:
        name += f"__{kind.replace('(', '_').replace(',', '_').rstrip(')')}"
    columns[name] = kind
    return name


def _by_day(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yields the changes of each day in UTC, in the order of the log."""
    rows = rows.sort_by([("pidts_lsn", "ascending"), ("pidts_op", "ascending")])
    days = rows["pidts_ts"].to_numpy().astype(np.int64) // _DAY_MICROS
    for day in np.unique(days):
        yield str(np.datetime64(int(day), "D")), rows.filter(pa.array(days == day))
