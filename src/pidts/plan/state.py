"""The state of a task: which changes are applied, and the contents of the batch that led to it.

A task's position is one Lsn and exceptions from it. Tables whose schema change takes long are *held* at an earlier Lsn:
operators see them as waiting tables. All other tables continue. So every table has its own position,
`PlanState.at(table)`. The target has a change of a table if and only if the change's Lsn is not after that position. A
batch has each table's log between the table's position before the batch and its position after it. If a worker was
ahead of others when the task was interrupted, it skips the log before its own position.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from pidts.model import Lsn, TableName
from pidts.plan.copy.state import ChunkRequest, CopyState

_NO_COPIES = '{"copy": [], '
"""The beginning of a checkpoint's text if no copy is under way."""

_Text: TypeAlias = tuple[str, str, str, str]
"""A held table's schema, name and place, and all three as JSON."""


@dataclass(frozen=True, slots=True)
class HeldTables:
    """Tables that are held together at an earlier place than the task's other tables."""

    tables: frozenset[TableName]
    lsn: Lsn
    """The target has all of the tables' rows and schema changes up to this place, and none after it."""
    due: Lsn | None = None
    """The schema change that the tables wait for; None if they only have to catch up."""
    halted: bool = False
    """Whether the target refused the tables' next change in this run. Such tables stay at `lsn` until the run ends."""
    takes_along: bool = False
    """Whether released tables at later places wait for these tables, to continue together with them."""
    _texts: list[_Text] | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def texts(self) -> list[_Text]:
        """Returns each table's schema, name and place, as a checkpoint has them.

        The texts are kept: each batch of a task writes the texts of all held tables, and most of them have not moved.
        """
        if self._texts is None:
            texts = [(name.schema, name.name, str(self.lsn)) for name in self.tables]
            object.__setattr__(self, "_texts", [(*text, json.dumps(text)) for text in texts])
        return self._texts or []


@dataclass(frozen=True, slots=True, eq=False)
class HeldIndex:
    """The held tables of a state, by name.

    A thousand shards may wait for days, while each batch makes another state. Neighbouring states share the
    `HeldTables` objects of all tables that have not moved. So each index is made from the index of the state before,
    and only tables that have moved are examined.
    """

    held: tuple[HeldTables, ...] = ()
    places: Mapping[TableName, Lsn] = field(default_factory=dict)
    dues: frozenset[Lsn] = frozenset()
    """The schema changes for which the tables wait."""
    first: Lsn | None = None
    last: Lsn | None = None
    """The first and the last place of a held table; None if no table is held."""
    texts: list[_Text] = field(default_factory=list)
    """The texts of all tables, sorted."""
    _ids: frozenset[int] = frozenset()
    """The `id()` of each of the `HeldTables`, which exist as long as this index."""
    _former: frozenset[int] | None = None
    """The ids of the index from which this index was made."""
    _added: tuple[HeldTables, ...] = ()
    """The `HeldTables` that the former index lacks."""
    _json: str | None = field(default=None, init=False)
    _targets: tuple[object, Callable[[TableName], TableName], frozenset[TableName]] | None = None

    @classmethod
    def of(cls, held: tuple[HeldTables, ...]) -> HeldIndex:
        """Returns the index of these held tables."""
        return cls().moved_to(held)

    def __reduce__(self) -> tuple[Callable[[tuple[HeldTables, ...]], HeldIndex], tuple[tuple[HeldTables, ...]]]:
        """Lets pickle build the index anew in the other process, where objects have other ids."""
        return HeldIndex.of, (self.held,)

    def moved_to(self, held: tuple[HeldTables, ...]) -> HeldIndex:
        """Returns the index of a following state with these held tables."""
        ids = frozenset(map(id, held))
        if ids == self._ids:
            return self
        added = tuple(one for one in held if id(one) not in self._ids)
        if not ids >= self._ids:  # some tables have moved or are not held any more, which is rare
            places = {name: one.lsn for one in held for name in one.tables}
            dues = frozenset(one.due for one in held if one.due is not None)
            texts = sorted(text for one in held for text in one.texts)
            lsns = [one.lsn for one in held]
            first, last = min(lsns, default=None), max(lsns, default=None)
            return HeldIndex(held, places, dues, first, last, texts, ids, self._ids, added)
        places, targets = dict(self.places), self._targets
        for one in added:
            places.update(dict.fromkeys(one.tables, one.lsn))
        dues = self.dues.union(one.due for one in added if one.due is not None)
        texts = sorted([*self.texts, *(text for one in added for text in one.texts)])
        lsns = [*(one.lsn for one in added), *(lsn for lsn in (self.first, self.last) if lsn is not None)]
        if targets is not None:
            key, target_name, names = targets
            targets = key, target_name, names.union(target_name(name) for one in added for name in one.tables)
        return HeldIndex(held, places, dues, min(lsns), max(lsns), texts, ids, self._ids, added, targets)

    def json(self) -> str:
        """Returns the tables with their places as JSON."""
        if self._json is None:
            object.__setattr__(self, "_json", f"[{', '.join(text for _, _, _, text in self.texts)}]")
        return self._json or ""

    def besides(self, other: HeldIndex) -> tuple[HeldTables, ...]:
        """Returns the `HeldTables` that `other` does not have."""
        if other._ids is self._ids:
            return ()
        if other._ids is self._former:
            return self._added
        return tuple(one for one in self.held if id(one) not in other._ids)

    def unlike(self, other: HeldIndex) -> frozenset[TableName]:
        """Returns the tables that may be at different places in the two indexes."""
        found = (*self.besides(other), *other.besides(self))
        return frozenset[TableName]().union(*(one.tables for one in found))

    def targets(self, key: object, target_name: Callable[[TableName], TableName]) -> frozenset[TableName]:
        """Returns the target tables of the held tables. The result is cached until `key` is another object."""
        if self._targets is None or self._targets[0] is not key:
            found = frozenset(map(target_name, self.places))
            object.__setattr__(self, "_targets", (key, target_name, found))
            return found
        return self._targets[2]


@dataclass(frozen=True, slots=True)
class Places:
    """The place of each table: one place for most tables, and an earlier place for each held table."""

    lsn: Lsn
    exceptions: Mapping[TableName, Lsn] = field(default_factory=dict)
    index: HeldIndex | None = field(default=None, compare=False, repr=False)
    """The index of these exceptions; None if the places were read from a text."""

    @classmethod
    def of_text(cls, lsn: Lsn, copy_json: str) -> Places:
        """Returns the places that a checkpoint describes, without the progress of copies, which may be long."""
        data = json.loads(copy_json) if copy_json else []
        if isinstance(data, list):
            return cls(lsn)
        return cls(lsn, {name: at for name, at in _places_from_json(data["held"]).items() if at < lsn})

    def at(self, table: TableName) -> Lsn:
        """Returns the place that this table has reached."""
        return self.exceptions.get(table, self.lsn)

    def has_all_of(self, other: Places) -> bool:
        """Whether every table is at least as far here as in `other`."""
        if other.lsn > self.lsn:
            return False
        theirs, names = other.exceptions, self.exceptions.keys() & self._unlike(other)
        for name in names:
            lsn, at = self.exceptions[name], theirs.get(name, other.lsn)
            # Most held tables have not moved. Their two places are one object, and `is` is faster than a comparison.
            if at is not lsn and at > lsn:
                return False
        return True

    def moved_since(self, before: Places) -> frozenset[TableName]:
        """Returns the tables, held here or before, whose place is later here than before."""
        places = ((name, before.at(name), self.at(name)) for name in self._unlike(before))
        # Most held tables have not moved, see `has_all_of`.
        return frozenset(name for name, was, now in places if was is not now and was < now)

    def targets(self, key: object, target_name: Callable[[TableName], TableName]) -> frozenset[TableName]:
        """Returns the target tables of the held tables. The result is cached until `key` is another object."""
        if self.index is None:
            return frozenset(map(target_name, self.exceptions))
        return self.index.targets(key, target_name)

    def _unlike(self, other: Places) -> Collection[TableName]:
        """Returns the tables that are held here or in `other`, except tables that surely have equal places."""
        if self.index is not None and other.index is not None:
            return self.index.unlike(other.index)
        return {*self.exceptions, *other.exceptions}


@dataclass(frozen=True, slots=True)
class PlanState:
    """The state after a batch. Two neighbouring states and the relay determine the batch between them."""

    lsn: Lsn
    copy: Mapping[TableName, CopyState] = field(default_factory=dict)
    held: tuple[HeldTables, ...] = ()
    due: Lsn | None = None
    """The schema change that comes next and has to be run once this state is on the target; None: there is none."""
    written: tuple[ChunkRequest, ...] = ()
    """The settled requests whose rows the batch wrote."""
    settled: tuple[ChunkRequest, ...] = ()
    """The requests that the batch settled."""
    _index: HeldIndex | None = field(default=None, init=False, compare=False, repr=False)
    _places: Places | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def copying(self) -> bool:
        """Whether some table is not copied yet."""
        return bool(self.unfinished)

    @property
    def unfinished(self) -> frozenset[TableName]:
        """Returns the tables whose copy is not complete after the batch that led to this state."""
        return frozenset(name for name, state in self.copy.items() if not state.done)

    @property
    def unread_copies(self) -> dict[TableName, CopyState]:
        """Returns the progress of the copies that are not complete, as a checkpoint has it: without open requests."""
        return {name: state.unread for name, state in self.copy.items() if not state.done}

    @property
    def reading(self) -> tuple[ChunkRequest, ...]:
        """Returns the requests that were carried out with the batch."""
        return tuple(state.reading for state in self.copy.values() if state.reading is not None)

    @property
    def open_requests(self) -> tuple[ChunkRequest, ...]:
        """Returns the requests that are not settled: the requests in `reading`, and earlier requests that are kept."""
        kept = (state.kept for state in self.copy.values() if state.kept is not None)
        return (*self.reading, *kept)

    @property
    def needs(self) -> Lsn:
        """Returns the place up to which the target has the changes of all tables. The later log is still needed."""
        return self.lsn if self.index.first is None else min(self.lsn, self.index.first)

    @property
    def dues(self) -> frozenset[Lsn]:
        """Returns all schema changes that have to be run."""
        return self.index.dues if self.due is None else self.index.dues | {self.due}

    @property
    def index(self) -> HeldIndex:
        """Returns the held tables by name. The index is kept, since each batch needs it several times."""
        if self._index is None:
            found = HeldIndex.of(self.held)
            object.__setattr__(self, "_index", found)
            return found
        return self._index

    @property
    def exceptions(self) -> Mapping[TableName, Lsn]:
        """Returns the places of held tables."""
        return self.index.places

    def with_index(self, index: HeldIndex) -> PlanState:
        """Sets the index of this state's held tables, and returns the state."""
        object.__setattr__(self, "_index", index)
        return self

    @property
    def uncarried(self) -> frozenset[TableName]:
        """Returns the tables without a key that were not copied before this batch: the batch lacks their changes."""
        whole = {request.table for request in self.settled if request.whole}
        return frozenset({*whole, *(name for name, state in self.copy.items() if not state.is_carried)})

    @property
    def places(self) -> Places:
        """Returns the places of all tables. The result is kept, since each batch needs it several times."""
        if self._places is None:
            places = Places(self.lsn, self.held_earlier.places, self.held_earlier)
            object.__setattr__(self, "_places", places)
            return places
        return self._places

    def at(self, table: TableName) -> Lsn:
        """Returns the place that this table has reached."""
        return self.places.at(table)

    @property
    def held_earlier(self) -> HeldIndex:
        """Returns the held tables that are not at the place of all other tables."""
        if self.index.last is None or self.index.last < self.lsn:
            return self.index
        return HeldIndex.of(tuple(waiting for waiting in self.held if waiting.lsn != self.lsn))

    def concerns(self, table: TableName, lsn: Lsn) -> bool:
        """Whether the table joined before this place, so that a change or statement at this place belongs to it."""
        state = self.copy.get(table)
        return state is None or state.since is None or lsn > state.since

    def joined(self, copy: Mapping[TableName, CopyState]) -> PlanState:
        """Returns the state with further tables, whose copy begins, or begins again. Each joins after its `since`.

        If a table begins again, its requests continue the earlier numbers, since numbers are unique in one run.
        """
        begun = {
            name: replace(state, reads=self.copy[name].reads, settled=self.copy[name].settled)
            if name in self.copy
            else state
            for name, state in copy.items()
        }
        held = (replace(waiting, tables=waiting.tables - copy.keys()) for waiting in self.held)
        return replace(self, copy={**self.copy, **begun}, held=tuple(waiting for waiting in held if waiting.tables))

    def halting(self, names: Collection[TableName]) -> PlanState:
        """Returns the state in which these tables are halted at their current places, each for itself."""
        others = (replace(waiting, tables=waiting.tables - set(names)) for waiting in self.held)
        alone = (HeldTables(frozenset({name}), self.at(name), halted=True) for name in sorted(names))
        return replace(self, held=(*(waiting for waiting in others if waiting.tables), *alone))

    def copy_json(self, run: int = 0, dealing: str = "", copied_at: PlanState | None = None) -> str:
        """Returns the text that a checkpoint has besides the Lsn; empty if nothing is copied and no table is held.

        `dealing` says how rows are assigned to workers, if the tables' structures do not show it. `copied_at` is the
        state to which the copy progress belongs, if that state is earlier. Equal states of one run have equal texts,
        whichever of their tables are held together.
        """
        copy, earlier = self.unread_copies, self.held_earlier
        if not copy and not earlier.held and not dealing and copied_at is None:
            return ""
        copies = ", ".join([one.text(name) for name, one in copy.items()])
        text = f'"copy": [{copies}], "held": {earlier.json()}, "run": {run}, '
        text += f'"dealing": {json.dumps(dealing)}'
        if copied_at is not None:
            text += f', "copied_at": {{"lsn": "{copied_at.lsn}", "held": {copied_at.held_earlier.json()}}}'
        return f"{{{text}}}"

    @classmethod
    def from_checkpoint(cls, lsn: Lsn, copy_json: str) -> PlanState:
        """Returns the state that a checkpoint describes."""
        return cls(lsn, copies_of(copy_json), held_at(Places.of_text(lsn, copy_json).exceptions, lsn))

    def to_json(self) -> str:
        """Returns the state as one text: Spark's offsets have only flat values."""
        return json.dumps(
            {
                "lsn": str(self.lsn),
                "copy": [[name.schema, name.name, state.to_json()] for name, state in self.copy.items()],
                "held": [_held_to_json(waiting) for waiting in self.held],
                "due": str(self.due) if self.due else None,
                "written": [request.to_json() for request in self.written],
                "settled": [request.to_json() for request in self.settled],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> PlanState:
        """The inverse of `to_json`."""
        data = json.loads(text)
        return cls(
            lsn=Lsn.parse(data["lsn"]),
            copy=_copy_from_json(data["copy"]),
            held=tuple(_held_from_json(waiting) for waiting in data["held"]),
            due=Lsn.parse(data["due"]) if data["due"] else None,
            written=tuple(ChunkRequest.from_json(item) for item in data["written"]),
            settled=tuple(ChunkRequest.from_json(item) for item in data["settled"]),
        )


def copies_of(copy_json: str) -> dict[TableName, CopyState]:
    """Returns the progress of copies that a checkpoint describes."""
    if not copy_json or copy_json.startswith(_NO_COPIES):
        return {}
    data = json.loads(copy_json)
    return _copy_from_json(data if isinstance(data, list) else data["copy"])


def run_of(copy_json: str) -> int:
    """Returns the run in which a checkpoint was stored; 0 if the text is empty or an earlier version wrote it."""
    data = json.loads(copy_json) if copy_json else []
    return data["run"] if isinstance(data, dict) else 0


def dealing_of(copy_json: str) -> str:
    """Returns how rows were assigned to workers when a checkpoint was stored."""
    data = json.loads(copy_json) if copy_json else {}
    return data.get("dealing", "") if isinstance(data, dict) else ""


def copied_at(copy_json: str) -> PlanState | None:
    """Returns the state to which a checkpoint's copy progress belongs, if it is earlier; otherwise None."""
    data = json.loads(copy_json) if copy_json else {}
    found = data.get("copied_at") if isinstance(data, dict) else None
    if found is None:
        return None
    lsn = Lsn.parse(found["lsn"])
    return PlanState(lsn, held=held_at(_places_from_json(found["held"]), lsn))


def inside_batch(lsn: Lsn, copy_json: str, later: Places, dealing: str) -> str:
    """Returns the text of a checkpoint inside a batch.

    The batch begins with a checkpoint that has this Lsn and text, and ends at the places `later`. `dealing` says how
    the batch's rows are assigned to workers, which in the first batch of a run may differ from the text. The copy
    progress is as of the batch's start. A schema change in the batch may have renamed a table, or made its copy begin
    again, and this progress does not show it. So a run that uses the progress begins at the batch's start.
    """
    start = PlanState.from_checkpoint(lsn, copy_json)
    inside = PlanState(later.lsn, start.copy, held_at(later.exceptions, later.lsn))
    progress_of = copied_at(copy_json) or (start if start.copy else None)
    return inside.copy_json(run_of(copy_json), dealing, progress_of)


def held_at(places: Mapping[TableName, Lsn], lsn: Lsn) -> tuple[HeldTables, ...]:
    """Returns the tables that are before `lsn`. Tables at the same place are held together."""
    names_at: dict[Lsn, set[TableName]] = {}
    for name, at in places.items():
        if at < lsn:
            names_at.setdefault(at, set()).add(name)
    return tuple(HeldTables(frozenset(names), at) for at, names in sorted(names_at.items()))


def slowest(states: Iterable[PlanState], copy: Mapping[TableName, CopyState]) -> PlanState:
    """Returns the state with, for each table, the earliest of its places in these states."""
    states = list(states)
    lsn = min(state.lsn for state in states)
    places = [(state.lsn, state.exceptions) for state in states]
    names = {name for _, apart in places for name in apart}
    return PlanState(
        lsn, copy, held_at({name: min(apart.get(name, at) for at, apart in places) for name in names}, lsn)
    )


def furthest(end: PlanState, other: Places) -> PlanState:
    """Returns a state with the later of each table's two places, and with the copy progress of `end`."""
    lsn, mine = max(end.lsn, other.lsn), end.places
    places = {name: max(mine.at(name), other.at(name)) for name in {*mine.exceptions, *other.exceptions}}
    return PlanState(lsn, end.copy, held_at(places, lsn))


def _places_from_json(data: list[Any]) -> dict[TableName, Lsn]:
    return {TableName(schema, name): Lsn.parse(at) for schema, name, at in data}


def _held_to_json(waiting: HeldTables) -> list[Any]:
    names, due = [[name.schema, name.name] for name in sorted(waiting.tables)], waiting.due
    return [names, str(waiting.lsn), str(due) if due else None, waiting.halted, waiting.takes_along]


def _held_from_json(data: list[Any]) -> HeldTables:
    names, lsn, due, halted, takes_along = data
    tables = frozenset(TableName(*name) for name in names)
    return HeldTables(tables, Lsn.parse(lsn), Lsn.parse(due) if due else None, halted, takes_along)


def _copy_from_json(data: list[Any]) -> dict[TableName, CopyState]:
    return {TableName(schema, name): CopyState.from_json(state) for schema, name, state in data}
