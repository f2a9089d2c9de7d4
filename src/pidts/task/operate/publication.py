"""Publishes the state of a warehouse's tables at one moment to a Hive metastore.

A publication first reads this state: the tables, and for each table the Lsn of its rows. Then, table by table:

1. all rows are written into a new folder;
2. the folder is recorded as the next one;
3. the metastore switches the table to the new folder: columns, location and properties in one transaction of the
   metastore;
4. the record says that the folder is published.

The state after an interruption:

- in or after 1: nothing refers to the new folder. The next publication records that the folder is not needed. A
  publication after more than an hour removes the folder, if the metastore does not use it.
- after 2: the record names a folder that the metastore does not use. The next publication of the table replaces this
  record.
- in or after 3: the metastore has the old state or the new state. Both folders are recorded, and neither is removed.
  The next publication asks the metastore which folder it uses.

A dropped table first gets another name in the metastore, and then is removed by that name. If the publication is
interrupted between these two steps, the record still names the table, and the next publication removes it.

The folder of the earlier state stays for an hour, since readers may still use it.

One process at a time publishes from a warehouse. This process, and the JVM with the metastore's client, hold a file
lock, which is released when both have ended. So neither sends a call after the next process has begun to publish. But a
metastore may still be working on an earlier call, and complete it late:

- a switch names the state that it replaces, even a switch that renames a dropped table. Newer metastores (Hive 2.3.10,
  3.1.4, 4 and later) refuse a switch if another switch came first.
- a removal names a table that is never created again.
- the creation of a table is refused if the table exists. A late creation does harm in one case: the source's table was
  dropped meanwhile. Then the metastore has a table that no publication knows, until the source has a table of this name
  again.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import structlog

from pidts.model import Halted, Lsn, SourceTablesKey, TableName
from pidts.plan import PlanState
from pidts.spark.metastore import Metastore, MetastoreTable, metastore
from pidts.target.hive.names import hive_name, refusals
from pidts.target.hive.places import discard, folder_of, inner_folders, is_in, location_of
from pidts.target.hive.record import Publication, tables_folders
from pidts.target.hive.session import HiveSession
from pidts.target.hive.state import hive_columns, write_state
from pidts.target.iceberg.metadata_file import MetadataFile
from pidts.task.config.task_file import TaskConfig
from pidts.task.operate.change_publication import ChangePublisher
from pidts.task.tables.merged import Shard

METASTORE = "metastore_db"
"""The Derby database of an embedded metastore, in the warehouse."""
_KEPT_SECONDS = 3600.0
_STATE = re.compile("-[0-9a-f]{8}$")
"""The suffix of the name of a folder with a published state."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class WarehouseState:
    """The tables of a warehouse at one moment."""

    read_at: float
    whole: Mapping[TableName, tuple[str, str]]
    """For each table whose rows are all at one Lsn: its metadata file and this Lsn."""
    known: frozenset[TableName]
    """The target tables of the task."""
    stored: frozenset[TableName]
    """All tables of the catalog."""


def read_moment(parts: Sequence[TaskConfig], session: HiveSession) -> WarehouseState:
    """Reads the state of a warehouse at this moment."""
    places: dict[TableName, dict[str, set[Lsn | None]]] = {}
    read_at = time.time()
    with session.one_moment():
        if not all(session.meta.checkpoints.read(part.name, part.source.source_id) for part in parts):
            known = frozenset(session.published.of(parts[0].name))
            return WarehouseState(read_at, {}, known, known)
        for part in parts:
            source = part.source.source_id
            rows = session.meta.checkpoints.read(part.name, source)
            states = [PlanState.from_checkpoint(row.lsn, row.copy) for row in rows]
            changed = session.changed_at(part.name, source)
            for name, table in session.meta.structures.load(part.name, SourceTablesKey(source)).items():
                target = Shard(table, part.rules, source).target_name if part.allow(name) else None
                if target is None:
                    continue
                # A schema change is in its table before the checkpoint has it, so the later of the two Lsns counts.
                here = {max(state.at(name), changed[name]) for state in states}
                is_whole = len(here) == 1 and not any(name in state.unfinished for state in states)
                places.setdefault(target, {}).setdefault(source, set()).update(here if is_whole else {None})
        locations = session.tables.all()
    whole = {}
    for target, of_source in places.items():
        # All shards of one source in a merged table have to be at the same Lsn.
        if target in locations and all(len(found) == 1 and None not in found for found in of_source.values()):
            lsns = [f"{source}: {lsn}" if len(parts) > 1 else f"{lsn}" for source, (lsn,) in sorted(of_source.items())]
            whole[target] = locations[target], ", ".join(lsns)
    return WarehouseState(read_at, whole, frozenset(places), frozenset(locations))


def publish(parts: Sequence[TaskConfig], session: HiveSession) -> None:
    """Publishes the tables that have changed since the last publication. Records why a table cannot be published."""
    with session.locked("publish") as lock:
        _Publisher(parts, session, lock).run()


class _Publisher:
    def __init__(self, parts: Sequence[TaskConfig], session: HiveSession, lock: int) -> None:
        self._task, self._session, self._lock = parts[0].name, session, lock
        self._target = parts[0].target
        self._roots = tables_folders(session)
        self._record = session.published
        self._before = self._record.of(self._task)
        self._moment = read_moment(parts, session)
        self._changes = ChangePublisher(self._task, session, parts[0].hive_keep_changes)

    def run(self) -> None:
        moment, before = self._moment, self._before
        gone = [name for name in before if name not in moment.stored]
        for name in before.keys() - moment.known - set(gone):
            # The table was removed from the task: the published table stays unchanged.
            self._record.remove(self._task, name)
        published = {hive_name(name): name for name, one in before.items() if one.folder and name not in gone}
        changed, problems = {}, dict[TableName, str]()
        for name, (location, lsn) in sorted(moment.whole.items()):
            known = before.get(name, Publication())
            if known.metadata != location or known.next:
                changed[name] = MetadataFile.read(name, location)
                if (other := published.setdefault(hive_name(name), name)) != name:
                    problems[name] = (
                        f"Hive has only lower-case names, and table {other} has the same name in lower case"
                    )
            elif not known.problem:
                self._record.put(self._task, name, replace(known, lsn=lsn, read_at=moment.read_at))
        problems = refusals(base.table for base in changed.values()) | problems
        changed = {name: base for name, base in changed.items() if name not in problems}
        old = self._old_folders()
        if changed or gone or old or self._changes.is_wanted:
            place = Path(self._session.warehouse) / METASTORE
            with metastore(self._target.metastore, place, self._lock) as store:
                for name, base in changed.items():
                    try:
                        self._publish(store, name, base)
                    except Halted as error:
                        # If the table has changed meanwhile, the commit may have removed a file of this state. Then
                        # the next publication uses the later state.
                        if self._session.tables.location(name) == moment.whole[name][0]:
                            problems[name] = str(error)
                acts = [partial(self._drop, store, each) for each in gone]
                acts += [partial(self._remove, store, each) for each in old]
                for act in acts:
                    try:
                        act()
                    except Halted as error:
                        _log.warning(
                            "the next publication removes what is not needed in the metastore", cause=str(error)
                        )
                self._changes.run(store)
        for name, problem in problems.items():
            known = self._record.of(self._task).get(name, Publication())
            if known.problem != problem:
                _log.warning("a table is not published", table=str(name), why=problem)
            self._record.put(self._task, name, replace(known, problem=problem))

    def _publish(self, store: Metastore, name: TableName, base: MetadataFile) -> None:
        database, table = hive_name(name)
        lsn, known = self._moment.whole[name][1], self._before.get(name, Publication())
        there = store.table(database, table)
        old = "" if there is None else folder_of(there.location)
        if there is not None and not is_in(old, self._roots) and old not in (known.folder, known.next):
            raise Halted(
                "metastore-refused",
                f"the metastore has a table {database}.{table} at {there.location}, which this task does not publish",
                todo="Rename or drop the metastore's table, or give the task's table another name with a route",
            )
        place = lsn.replace(": ", "-").replace(", ", "-").replace(":", "-")
        folder = f"{self._roots[0]}/{database}/{table}/{place}-{uuid.uuid4().hex[:8]}"
        try:
            files = write_state(base, folder, old)
        except BaseException:
            discard(folder)
            raise
        known = replace(known, folder=old, next=folder)
        self._record.put(self._task, name, known)
        goal = MetastoreTable(
            database=database,
            name=table,
            location=location_of(folder),
            columns=hive_columns(base.table),
            properties={
                "pidts.task": self._task,
                "pidts.lsn": lsn,
                "pidts.read-at": datetime.fromtimestamp(self._moment.read_at, UTC).isoformat(timespec="milliseconds"),
            },
        )
        try:
            if there is None:
                store.create(goal, location_of(f"{self._roots[0]}/{database}"))
            else:
                store.switch(goal, there)
        except Halted:
            now = store.table(database, table)
            # If the metastore uses the folder, the switch has succeeded in spite of the error.
            if now is None or folder_of(now.location) != folder:
                self._record.put(self._task, name, replace(known, next=""))
                discard(folder)
                raise
        metadata, read_at = self._moment.whole[name][0], self._moment.read_at
        done = Publication(folder=folder, metadata=metadata, lsn=lsn, read_at=read_at)
        self._record.put(self._task, name, done)
        _log.info("a table is published", table=f"{database}.{table}", lsn=lsn, files=files)

    def _drop(self, store: Metastore, name: TableName) -> None:
        """Removes a dropped table from the metastore, if the table there is still the one that this task published."""
        known, (database, table) = self._before[name], hive_name(name)
        folders = [each for each in (known.folder, known.next) if each]
        for each in folders:
            store.drop_aside(database, location_of(each))
        there = store.table(database, table)
        if there is not None and folder_of(there.location) in folders:
            store.drop(there)
            _log.info("a dropped table is not published any more", table=str(name))
        self._record.remove(self._task, name)

    def _old_folders(self) -> list[str]:
        """Returns the folders of earlier states and interrupted publications that nothing has needed for an hour."""
        folders = [each for root in self._roots for each in inner_folders(root, 3) if _STATE.search(each)]
        return self._record.unneeded(folders, _KEPT_SECONDS)

    def _remove(self, store: Metastore, folder: str) -> None:
        """Removes a folder that no record names, if the metastore does not use it."""
        _, database, table, _ = folder.rsplit("/", 3)
        there = store.table(database, table)
        if there is None or folder_of(there.location) != folder:
            discard(folder)
        else:
            self._record.forget(folder)  # the folder's table has left the task; this is tried again in an hour
