"""The records of the target in memory; other sessions see a transaction's records after COMMIT."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tests.values_target.connection import ValuesConnection
from tests.values_target.store import Lock, MoveStore

from pidts.model import (
    Checkpoint,
    Cutover,
    DdlCommand,
    DdlJournal,
    EarlyRemoval,
    Halt,
    HeldChanges,
    LeftOut,
    Lsn,
    MovedKey,
    RangeOwner,
    RecordKey,
    RowLock,
    Shadow,
    Table,
    TableName,
    Tombstone,
    Tombstones,
    record_text,
)
from pidts.target.checkpoints import claimed_rows, no_checkpoint, other_checkpoint


class ValuesMeta:
    """The records in memory, as one session reads and writes them."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection
        self.checkpoints = ValuesCheckpoints(connection, self)
        self.structures = ValuesStructures(connection)
        self.journal = ValuesJournal(connection)
        self.notes = ValuesNotes(connection)
        self.tombstones = ValuesTombstones(connection)
        self.safe_range = ValuesSafeRange(connection)
        self.halts = ValuesHalts(connection)
        self.ddl_commands = ValuesCommands(connection)
        self.shadows = ValuesShadows(connection)
        self.moves = ValuesMoves(connection)
        connection.at_end.append(self.moves.reset)
        self.rereads = ValuesRereads(connection)
        self.cutovers = ValuesCutovers(connection)
        self.range_owners = ValuesRangeOwners(connection)
        self.row_locks = ValuesRowLocks(connection)
        connection.at_end.append(self.row_locks.reset)
        self.early_removals = ValuesEarlyRemovals(connection)

    def prepare(self) -> None:
        """Does nothing: there is nothing to create."""

    @contextmanager
    def ddl_lock(self, task: str, source: str) -> Iterator[None]:
        """Locks a name until the block is left or the session is closed."""
        name: Lock = ("ddl", task, source)
        self._connection.lock(name)
        try:
            yield
        finally:
            self._connection.store.locks.release(self._connection, lambda lock: lock == name)

    def leave_unfinished(self, name: TableName) -> None:
        """Does nothing: no other program creates tables here, so missing keys were left out on purpose."""


class ValuesCheckpoints:
    """The checkpoints of one session."""

    def __init__(self, connection: ValuesConnection, meta: ValuesMeta) -> None:
        self._connection, self._meta = connection, meta

    def claim(
        self,
        task: str,
        source: str,
        workers: int,
        start: Checkpoint,
        *,
        read: int | None = None,
        on_claim: Callable[[int], None] = lambda _: None,
    ) -> list[Checkpoint]:
        """Claims the task; raises at once if a checkpoint is locked."""
        stored = self.read(task, source)
        for row in stored:
            self._connection.lock(("row", task, source, row.worker))
        with self._meta.ddl_lock(task, source):
            claimed, rewrite = claimed_rows(stored, task, source, workers, start, read)
            if rewrite:
                for row in stored:
                    del self._connection.store.checkpoints[task, source, row.worker]
            self._connection.store.checkpoints.update({(task, source, row.worker): row for row in claimed})
            for target_table in self._meta.moves.target_tables(task, source) if not stored else ():
                self._meta.moves.forget(task, source, target_table)
            for locked in self._meta.row_locks.tables(task, source) if not stored else ():
                self._meta.row_locks.forget(task, source, locked)
            if not stored:
                rereads = self._connection.store.rereads
                for place in [place for place in rereads if place[:2] == (task, source)]:
                    del rereads[place]
        self._connection.is_open = True  # what `on_claim` writes is part of the claim's transaction
        on_claim(claimed[0].epoch)
        for step in self._connection.later:
            step()
        self._connection.end()
        return claimed

    def read(self, task: str, source: str) -> list[Checkpoint]:
        """Returns the committed checkpoints."""
        found = [row for (its, of, _), row in self._connection.store.checkpoints.items() if (its, of) == (task, source)]
        return sorted(found, key=lambda row: row.worker)

    def lock(self, task: str, source: str, worker: int) -> Checkpoint:
        """Locks the row; raises at once if another session has locked it."""
        self._connection.demand_open()
        self._connection.lock(("row", task, source, worker))
        self._connection.at("lock")
        if (task, source, worker) not in self._connection.store.checkpoints:
            raise no_checkpoint(task, source, worker)
        return self._connection.store.checkpoints[task, source, worker]

    def advance(self, left: Checkpoint, new: Checkpoint) -> bool:
        """Locks the row and saves `new` in its place; raises at once if the row is not equal to `left`."""
        self._connection.demand_open()
        self._connection.lock(("row", left.task, left.source, left.worker))
        self._connection.at("advance")
        found = self._connection.store.checkpoints.get((left.task, left.source, left.worker))
        if found is None or found != left or found.altered:
            raise other_checkpoint(left)
        self.save(new)
        return True

    def lock_shared(self, task: str, source: str) -> list[Checkpoint]:
        """Locks the rows for sharing; raises at once if another session has locked one."""
        self._connection.demand_open()
        for row in self.read(task, source):
            self._connection.store.locks.share(("row", task, source, row.worker), self._connection)
        self._connection.at("lock_shared")
        return self.read(task, source)

    def lock_places(self, task: str, source: str) -> list[Checkpoint]:
        """Locks the rows for sharing; returns them without the progress of copies."""
        return [replace(row, copy="") for row in self.lock_shared(task, source)]

    def save(self, checkpoint: Checkpoint) -> None:
        """Saves the checkpoint at COMMIT."""
        self._connection.demand_open()
        self._connection.written_checkpoints[checkpoint.task, checkpoint.source, checkpoint.worker] = checkpoint
        self._connection.at("save")


class ValuesStructures:
    """The structures of the sources' tables."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection

    def save(self, task: str, key: RecordKey, lsn: Lsn, structures: Mapping[TableName, Table | None]) -> None:
        """Saves the structure at COMMIT."""
        del lsn
        self._connection.demand_open()
        self._connection.later.append(lambda: self._connection.store.keep_structures(task, key, structures))

    def load(self, task: str, key: RecordKey) -> dict[TableName, Table]:
        """Returns the committed structures."""
        saved = self._connection.store.structures
        return {name: table for (its, of, name), table in saved.items() if (its, of) == (task, key)}

    def tables(self, task: str | None = None) -> list[tuple[str, RecordKey, TableName]]:
        """Returns the committed tables, of all tasks or of one."""
        return [one for one in self._connection.store.structures if task in (None, one[0])]


class ValuesJournal:
    """The schema changes that have begun."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection

    def read(self, task: str, source: str, lsn: Lsn) -> DdlJournal | None:
        """Returns the committed journal."""
        return self._connection.store.journals.get((task, source, lsn))

    def write(self, journal: DdlJournal) -> None:
        """Saves the journal at COMMIT."""
        self._connection.demand_open()
        place, saved = (journal.task, journal.source, journal.lsn), replace(journal, saved_at=time.time())
        self._connection.later.append(lambda: self._connection.store.journals.update({place: saved}))
        self._connection.at("journal")


class ValuesNotes:
    """One text for each table."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection

    def read(self, task: str, key: RecordKey, name: TableName) -> str:
        """Returns the committed note."""
        return self._connection.store.notes.get((task, key, name), "")

    def write(self, task: str, key: RecordKey, name: TableName, text: str) -> None:
        """Saves the note at COMMIT."""
        self._connection.demand_open()
        self._connection.later.append(lambda: self._connection.store.notes.update({(task, key, name): text}))

    def places(self, name: TableName) -> list[tuple[str, RecordKey]]:
        """Returns the committed notes."""
        found = [place[:2] for place, text in self._connection.store.notes.items() if place[2] == name and text]
        return sorted(found, key=lambda one: (one[0], record_text(one[1])))


class ValuesTombstones:
    """The rows that were deleted under a version column."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection

    def read(self, name: TableName, keys: Sequence[str]) -> list[Tombstone]:
        """Returns the committed tombstones and those of the transaction."""
        there = {**self._connection.store.tombstones, **self._connection.buried}
        return [there[name, key] for key in keys if (name, key) in there]

    def write(self, name: TableName, tombstones: Tombstones) -> None:
        """Saves the tombstones at COMMIT."""
        self._connection.demand_open()
        self._connection.buried.update({(name, tomb.key): tomb for tomb in tombstones.each()})


class ValuesSafeRange:
    """The changes that are written in safe mode."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection = connection

    def read(self, task: str, source: str) -> Lsn | None:
        """Returns the committed range."""
        return self._connection.store.safe_until.get((task, source))

    def save(self, task: str, source: str, lsn: Lsn | None) -> None:
        """Saves the range at COMMIT."""
        self._connection.demand_open()
        self._connection.later.append(lambda: self._connection.store.safe_until.update({(task, source): lsn}))


class ValuesHalts:
    """The tables that wait for an operator."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._halts, self._at_commit = connection.store.halts, connection.at_commit

    def read(self, task: str, source: str) -> list[Halt]:
        """Returns the committed halts."""
        return [halt for _, halt in sorted(self._halts.get((task, source), {}).items())]

    def save(self, task: str, source: str, halt: Halt) -> None:
        """Inserts or overwrites the halt."""
        self._at_commit(lambda: self._halts.setdefault((task, source), {}).update({halt.place: halt}))

    def overwrite(self, task: str, source: str, halt: Halt) -> None:
        """Overwrites the halt, if it is still recorded."""
        if halt.place in self._halts.get((task, source), {}):
            self.save(task, source, halt)

    def resolve(self, task: str, source: str, places: Collection[str] | None = None) -> None:
        """Removes the halts at these places; without places, all of them."""

        def forget() -> None:
            known = self._halts.get((task, source), {})
            for place in list(known) if places is None else places:
                known.pop(place, None)

        self._at_commit(forget)


class ValuesCommands:
    """The ddl commands of operators."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._commands, self._at_commit = connection.store.ddl_commands, connection.at_commit

    def read(self, task: str, source: str) -> list[DdlCommand]:
        """Returns the commands in log order."""
        return [command for _, command in sorted(self._commands.get((task, source), {}).items())]

    def find(self, task: str, source: str, lsn: Lsn) -> DdlCommand | None:
        """Returns the command for the change at this place of the log."""
        return self._commands.get((task, source), {}).get(lsn)

    def give(self, task: str, source: str, command: DdlCommand) -> None:
        """Saves a command, which replaces an earlier one about the same change."""
        before = self.find(task, source, command.lsn)
        given = replace(command, number=before.number + 1 if before else 1, taken=False)
        self._at_commit(lambda: self._commands.setdefault((task, source), {}).update({command.lsn: given}))

    def take(self, task: str, source: str, command: DdlCommand) -> bool:
        """Marks a command as taken; returns False if another command has replaced it."""
        is_last = self.find(task, source, command.lsn) == replace(command, taken=False)
        if is_last:
            self._at_commit(lambda: self._commands[task, source].update({command.lsn: replace(command, taken=True)}))
        return is_last


class ValuesShadows:
    """The records of the shadow tables of online schema changes that are under way."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._shadows, self._at_commit = connection.store.shadows, connection.at_commit

    def load(self, task: str, source: str) -> dict[TableName, Shadow]:
        """Returns the committed records of shadow tables, by name."""
        return dict(self._shadows.get((task, source), {}))

    def save(self, task: str, source: str, shadows: Mapping[TableName, Shadow | None]) -> None:
        """Inserts or overwrites the records of these shadow tables; None removes a record."""

        def put() -> None:
            known: dict[TableName, Shadow | None] = {**self._shadows.get((task, source), {}), **shadows}
            self._shadows[task, source] = {name: shadow for name, shadow in known.items() if shadow is not None}

        self._at_commit(put)

    def replace(self, task: str, source: str, shadows: Mapping[TableName, Shadow]) -> None:
        """Saves these changes and removes all others."""
        self._at_commit(lambda: self._shadows.update({(task, source): dict(shadows)}))


class ValuesRereads:
    """The keys of the rows that a copy has to read again from the source."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._rereads, self._at_commit = connection.store.rereads, connection.at_commit

    def add(self, task: str, source: str, name: TableName, lsn: Lsn, keys: str) -> None:
        """Inserts or overwrites the keys of a place of the log."""
        self._at_commit(lambda: self._rereads.setdefault((task, source, name), {}).update({lsn: keys}))

    def read(self, task: str, source: str, name: TableName, after: Lsn, most: int) -> list[tuple[Lsn, str]]:
        """Returns the next committed keys after a place."""
        found = self._rereads.get((task, source, name), {})
        return sorted((lsn, keys) for lsn, keys in found.items() if lsn > after)[:most]

    def forget(self, task: str, source: str, name: TableName, upto: Lsn) -> None:
        """Removes the keys up to a place."""
        place = (task, source, name)

        def forget() -> None:
            found = self._rereads.pop(place, {})
            self._rereads[place] = {lsn: keys for lsn, keys in found.items() if lsn > upto}

        self._at_commit(forget)

    def rename(self, task: str, source: str, names: Mapping[TableName, TableName]) -> None:
        """Renames the tables of the keys, all at once."""

        def rename() -> None:
            there = {new: self._rereads.pop((task, source, old), {}) for old, new in names.items()}
            self._rereads.update({(task, source, new): records for new, records in there.items()})

        self._at_commit(rename)


class ValuesCutovers:
    """The records of cutovers."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._cutovers, self._at_commit = connection.store.cutovers, connection.at_commit

    def read(self, task: str) -> Cutover | None:
        """Returns the committed cutover."""
        return self._cutovers.get(task)

    def replace(self, task: str, before: Cutover | None, after: Cutover | None) -> bool:
        """Saves or removes the cutover at COMMIT, if the committed record is `before`."""
        if self._cutovers.get(task) != before:
            return False

        def save() -> None:
            self._cutovers.pop(task, None)
            if after is not None:
                self._cutovers[task] = after

        self._at_commit(save)
        return True

    def save_structures(self, task: str, tables: Iterable[Table]) -> None:
        """Does nothing: a target in memory has no log from which a task could carry changes back to the source."""

    def keep_undone(self, task: str, record: Cutover) -> None:
        """Keeps the record of an undone switch at COMMIT, under a name that no task can have."""
        self._at_commit(lambda: self._cutovers.update({f"{task}/undone": record}))

    def undone(self, task: str) -> Cutover | None:
        """Returns the committed record of an undone switch."""
        return self._cutovers.get(f"{task}/undone")


class ValuesRangeOwners:
    """The owners of ranges that have moved."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection, self._owners = connection, connection.store.range_owners

    def read(self) -> list[RangeOwner]:
        """Returns the committed owners."""
        return list(self._owners.values())

    recorded = read

    def lock(self, id_: str) -> RangeOwner | None:
        """Locks the owner; raises at once if another session has locked it."""
        self._connection.lock(("range owner", id_))
        return self._owners.get(id_)

    def save(self, owner: RangeOwner) -> None:
        """Saves the owner at COMMIT."""
        self._connection.at("range owner")
        self._connection.at_commit(lambda: self._owners.update({owner.id: owner}))


class ValuesMoves:
    """The moved keys; a transaction sees its own changes."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._moves, self._at_commit = connection.store.moves, connection.at_commit
        self._own: list[Callable[[MoveStore], None]] = []

    def reset(self) -> None:
        """Forgets the transaction's own changes when it has ended."""
        self._own.clear()

    def any(self, task: str, source: str, target_table: TableName) -> bool:
        """Returns whether a target table has any moved keys."""
        return target_table in self.target_tables(task, source)

    def find(self, task: str, source: str, target_table: TableName, keys: Sequence[str]) -> list[MovedKey]:
        """Returns the committed keys and those of the transaction."""
        wanted = set(keys)
        return [
            MovedKey(member, key, lsn)
            for (*place, key, member), lsn in self._seen().items()
            if place == [task, source, target_table] and key in wanted
        ]

    def add(self, task: str, source: str, target_table: TableName, moved: Sequence[MovedKey]) -> None:
        """Inserts or overwrites moved keys."""
        rows = {(task, source, target_table, one.key, one.member): one.lsn for one in moved}
        self._change(lambda store: store.update(rows))

    def remove(self, task: str, source: str, target_table: TableName, member: TableName, keys: Sequence[str]) -> None:
        """Removes keys that this member no longer has."""
        rows = [(task, source, target_table, key, member) for key in keys]

        def remove(store: MoveStore) -> None:
            for row in rows:
                store.pop(row, None)

        self._change(remove)

    def rename(self, task: str, source: str, names: Mapping[TableName, TableName]) -> None:
        """Renames the members, all at once."""

        def rename(store: MoveStore) -> None:
            mine = [row for row in store if row[:2] == (task, source) and row[4] in names]
            taken = {row: store.pop(row) for row in mine}
            store.update({(*row[:4], names[row[4]]): lsn for row, lsn in taken.items()})

        self._change(rename)

    def target_tables(self, task: str, source: str) -> list[TableName]:
        """Returns the target tables that have moved keys, in the order of their names."""
        return sorted({row[2] for row in self._seen() if row[:2] == (task, source)})

    def forget(self, task: str, source: str, target_table: TableName) -> None:
        """Removes all moved keys of a target table."""

        def remove(store: MoveStore) -> None:
            for row in [row for row in store if row[:3] == (task, source, target_table)]:
                del store[row]

        self._change(remove)

    def _seen(self) -> MoveStore:
        seen = dict(self._moves)
        for change in self._own:
            change(seen)
        return seen

    def _change(self, change: Callable[[MoveStore], None]) -> None:
        self._own.append(change)

        def make() -> None:
            change(self._moves)
            if change in self._own:
                self._own.remove(change)

        self._at_commit(make)


class ValuesRowLocks:
    """The rows that are set aside; a transaction sees its own changes."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection, self._store = connection, connection.store
        self._own: list[Callable[[dict[Any, RowLock], dict[Any, HeldChanges]], None]] = []

    def reset(self) -> None:
        """Forgets the transaction's own changes when it has ended."""
        self._own.clear()

    def tables(self, task: str, source: str) -> dict[TableName, int]:
        """Returns the number of locked rows of each target table that has some."""
        return dict(Counter(place[2] for place in self._seen()[0] if place[:2] == (task, source)))

    def recorded(self, task: str, source: str) -> dict[TableName, int]:
        """Returns the same as `tables`."""
        return self.tables(task, source)

    def read(self, task: str, source: str, table: TableName, *, waiting: bool = False) -> list[RowLock]:
        """Returns all locks of a table, or only those that wait for another lock, the oldest first."""
        found = [one for place, one in self._seen()[0].items() if place[:3] == (task, source, table)]
        return sorted((one for one in found if one.needs or not waiting), key=lambda one: (one.lsn, one.id))

    def ask(self, task: str, source: str) -> None:
        """Does nothing: there are no round trips."""

    def present(self, task: str, source: str, tables: Collection[TableName]) -> tuple[set[TableName], bool]:
        """Returns which of these target tables have locked rows, and whether early removals are on record."""
        return set(tables) & self.tables(task, source).keys(), bool(self._store.early_removals)

    def count(self, task: str, source: str, table: TableName) -> int:
        """Returns the number of locked rows of a table."""
        return len(self.read(task, source, table))

    def among(self, task: str, source: str, table: TableName, ids: Collection[str]) -> set[str]:
        """Returns which of these ids are ids of locks."""
        return set(self.ids(task, source, table)) & set(ids)

    def of_forms(self, task: str, source: str, table: TableName, forms: Collection[str]) -> list[RowLock]:
        """Returns the locks whose keys have these forms: digests that are the same for keys treated as equal."""
        return [one for one in self.read(task, source, table) if one.form in forms]

    def without_form(self, task: str, source: str, table: TableName, start: str) -> list[str]:
        """Returns the ids of the table's locks whose form does not begin with `start`, and of locks without a form."""
        return [one.id for one in self.read(task, source, table) if not one.form.startswith(start)]

    def give_forms(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Overwrites locks that have got new forms."""
        self.change(task, source, locks)

    def ids(self, task: str, source: str, table: TableName, origin: TableName | None = None) -> list[str]:
        """Returns the ids of all locks of a table, the oldest first; only those of one source table if it is given."""
        return [one.id for one in self.read(task, source, table) if origin in (None, one.origin)]

    def some(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[RowLock]:
        """Returns the locks that exist among these ids."""
        return [one for one in self.read(task, source, table) if one.id in ids]

    def lock(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[RowLock]:
        """Locks these ids; returns the row locks that still exist among them."""
        for id_ in ids:
            self._connection.lock(("row", task, source, str(table), id_))
        return [one for one in self.read(task, source, table) if one.id in ids]

    def add(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Inserts locks."""

        def add(there: dict[Any, RowLock], _: dict[Any, HeldChanges]) -> None:
            for one in locks:
                place = (task, source, one.table.name, one.id)
                assert place not in there
                there[place] = RowLock.loads(one.id, one.dumps(), one.structures())

        self._change(add)
        self._connection.at("lock row")

    def change(self, task: str, source: str, locks: Sequence[RowLock]) -> None:
        """Overwrites locks."""

        def change(there: dict[Any, RowLock], _: dict[Any, HeldChanges]) -> None:
            for one in locks:
                there[task, source, one.table.name, one.id] = RowLock.loads(one.id, one.dumps(), one.structures())

        self._change(change)
        self._connection.at("change lock")

    def hold(self, task: str, source: str, table: TableName, held: Sequence[HeldChanges]) -> None:
        """Inserts held changes."""

        def hold(_: dict[Any, RowLock], there: dict[Any, HeldChanges]) -> None:
            for one in held:
                place = (task, source, table, one.id, one.lsn)
                assert place not in there
                there[place] = one

        self._change(hold)
        self._connection.at("hold")

    def held(self, task: str, source: str, table: TableName, ids: Collection[str]) -> list[HeldChanges]:
        """Returns the held changes of these locks, each lock's in the order of the log."""
        found = [
            one for place, one in self._seen()[1].items() if place[:3] == (task, source, table) and place[3] in ids
        ]
        return sorted(found, key=lambda one: (one.id, one.lsn))

    def remove(self, task: str, source: str, table: TableName, ids: Collection[str]) -> None:
        """Removes locks with their held changes."""
        gone = set(ids)

        def remove(locks: dict[Any, RowLock], held: dict[Any, HeldChanges]) -> None:
            for record in (locks, held):
                for place in [place for place in record if place[:3] == (task, source, table) and place[3] in gone]:
                    del record[place]

        self._change(remove)

    def forget(self, task: str, source: str, table: TableName) -> None:
        """Removes all locks of a table."""
        self.remove(task, source, table, self.ids(task, source, table))

    def _seen(self) -> tuple[dict[Any, RowLock], dict[Any, HeldChanges]]:
        locks, held = dict(self._store.row_locks), dict(self._store.held)
        for change in self._own:
            change(locks, held)
        return locks, held

    def _change(self, change: Callable[[dict[Any, RowLock], dict[Any, HeldChanges]], None]) -> None:
        if self._connection.is_open:
            self._own.append(change)

        def make() -> None:
            change(self._store.row_locks, self._store.held)
            if change in self._own:
                self._own.remove(change)

        self._connection.at_commit(make)


class ValuesEarlyRemovals:
    """The removals of rows that were not there; a transaction sees the committed ones."""

    def __init__(self, connection: ValuesConnection) -> None:
        self._connection, self._store = connection, connection.store

    def add(self, task: str, source: str, table: TableName, removals: Mapping[str, int]) -> None:
        """Saves early removals (see `pidts.target.early_removals`) at COMMIT."""
        noted = {(table, key, task, source): at for key, at in removals.items()}
        self._connection.at_commit(lambda: self._store.early_removals.update(noted))
        self._connection.at("note removed")

    def show_left_out(self, task: str, source: str, table: TableName, notes: Sequence[LeftOut]) -> None:
        """Saves these notes when the open transaction commits."""
        mine = [(task, source, table, one) for one in notes]
        self._connection.at_commit(lambda: self._store.left_out.extend(mine))
        self._connection.at("left out shown")

    def of_other_tasks(self, task: str, source: str, table: TableName, keys: Collection[str]) -> list[EarlyRemoval]:
        """Returns the committed early removals of other tasks."""
        wanted = set(keys)
        return [
            EarlyRemoval(key, other, at)
            for (name, key, other, its), at in self._store.early_removals.items()
            if name == table and key in wanted and (other, its) != (task, source)
        ]

    def of_all_tasks(self, table: TableName, keys: Collection[str]) -> list[EarlyRemoval]:
        """Returns the committed early removals of all tasks."""
        wanted = set(keys)
        return [
            EarlyRemoval(key, task, at)
            for (name, key, task, _), at in self._store.early_removals.items()
            if name == table and key in wanted
        ]

    def any_since(self, table: TableName, since: int) -> bool:
        """Returns whether there is a committed early removal at this time, a later time, or an unknown time."""
        return any(name == table and (at >= since or not at) for (name, *_), at in self._store.early_removals.items())

    def forget(self, table: TableName, keys: Collection[str]) -> None:
        """Removes the early removals of these keys when the transaction commits."""
        wanted = set(keys)

        def forget() -> None:
            for place in [one for one in self._store.early_removals if one[0] == table and one[1] in wanted]:
                del self._store.early_removals[place]

        self._connection.at_commit(forget)
        self._connection.at("note forgotten")
