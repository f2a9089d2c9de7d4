"""Finds the locks of one table that concern a batch, by their own keys or by keys that the target treats as equal.

Each lock has a *form*: a digest of its key as the target compares it (`TargetSession.compared`). So one query finds the
locks of a batch's keys in any spelling, however many locks there are. Equal keys have the same form. With some
collations, different keys have the same form, too. So the target is asked which keys of one form are equal.

A form begins with a digest of the types that the key has on the target. Somebody may alter these types while rows are
locked, and early versions of PiDTS recorded no forms. So a batch gives a new form to each lock whose form is missing or
begins with other types, in the batch's own transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import pyarrow as pa

from pidts.apply.locks.held_changes import lock_ids
from pidts.apply.port import TargetSession
from pidts.apply.rows.target_rows import has_text
from pidts.apply.uncopied_keys import unpacked
from pidts.model import RowLock, Table

_START = 16
"""The number of hexadecimal digits, at the beginning of a form, that stand for the types of the key."""


def form_start(session: TargetSession, table: Table) -> str:
    """Returns the beginning that the forms of keys have under the target table's current types."""
    there = session.schema.structure(table.name)
    types = {column.name: (column.type.kind.value, column.type.collation) for column in there.columns} if there else {}
    return sha256(repr([types.get(name) for name in table.identity]).encode()).hexdigest()[:_START]


def key_forms(session: TargetSession, table: Table, keys: pa.Table, start: str) -> list[str]:
    """Returns a digest for each key, the same for keys that the target treats as equal; "" if no key has text."""
    if not has_text(table):
        return [""] * keys.num_rows
    return [start + one[_START:] for one in lock_ids(session.compared(table, keys))]


class KnownLocks:
    """Looks up locks in the target's record, each at most once per batch."""

    def __init__(self, session: TargetSession, task: str, source: str, table: Table, *, any_: bool) -> None:
        self._session, self._task, self._source, self._table = session, task, source, table
        self.any = any_
        """Whether the table has locks."""
        self._is_locked: dict[str, bool] = {}
        self._forms: dict[str, str] = {}
        self._locks: dict[str, list[RowLock]] = {}
        """The locks of each form."""
        self._words: dict[str, list[pa.Table]] = {}
        """For each form, one key of each class of equal keys."""
        self._class: dict[str, str] = {}
        """The class of each key, by the key's id."""
        self._start = form_start(session, table) if has_text(table) else ""
        if any_ and has_text(table):
            self._give_forms()

    def among(self, ids: Collection[str]) -> set[str]:
        """Returns which of these ids are ids of locks."""
        if not self.any:
            return set()
        if new := [one for one in ids if one not in self._is_locked]:
            found = self._session.meta.row_locks.among(self._task, self._source, self._table.name, new)
            self._is_locked |= {one: one in found for one in new}
        return {one for one in ids if self._is_locked[one]}

    def forms(self, keys: pa.Table, ids: Sequence[str]) -> list[str]:
        """Returns the form of each key; `ids` are the ids of the keys."""
        new = [place for place, one in enumerate(ids) if one not in self._forms]
        if new:
            asked = key_forms(self._session, self._table, keys.take(pa.array(new)), self._start)
            self._forms |= {ids[place]: form for place, form in zip(new, asked, strict=True)}
        return [self._forms[one] for one in ids]

    def classes(self, keys: pa.Table, ids: Sequence[str]) -> tuple[list[str], Mapping[str, RowLock]]:
        """Returns a class for each key, and the locks keyed by their classes. Equal keys have the same class.

        If several locks have the same class, the one with the lowest id is returned.
        """
        forms = self.forms(keys, ids)
        self._classify(keys, ids, forms)
        locks = [lock for form in dict.fromkeys(forms) for lock in self._of_form(forms, form)]
        if locks:
            words = [unpacked(one.key).select(keys.column_names).cast(keys.schema) for one in locks]
            self._classify(pa.concat_tables(words), [one.id for one in locks], [one.form for one in locks])
        locks.sort(key=lambda one: one.id, reverse=True)
        return [self._class[one] for one in ids], {self._class[one.id]: one for one in locks}

    def locks_of(self, keys: pa.Table) -> list[str]:
        """Returns, for each key, the id of its lock, whatever the key's spelling; empty for a key without a lock."""
        if not keys.num_rows or not self.any:
            return [""] * keys.num_rows
        ids = lock_ids(keys)
        locked = self.among(ids)
        if not has_text(self._table):
            return [one if one in locked else "" for one in ids]
        classes, known = self.classes(keys, ids)
        equal = (known[one].id if one in known else "" for one in classes)
        return [one if one in locked else other for one, other in zip(ids, equal, strict=True)]

    def _of_form(self, forms: Collection[str], form: str) -> Sequence[RowLock]:
        """Returns the locks of a form. The first call reads the locks of all `forms` together."""
        if not self.any:
            return ()
        if new := [one for one in dict.fromkeys(forms) if one not in self._locks]:
            self._locks |= {one: [] for one in new}
            for lock in self._session.meta.row_locks.of_forms(self._task, self._source, self._table.name, new):
                self._locks.setdefault(lock.form, []).append(lock)
        return self._locks[form]

    def _classify(self, keys: pa.Table, ids: Sequence[str], forms: Sequence[str]) -> None:
        """Finds the classes of keys.

        Each query compares every key without a class with the first key of one class of the same form.
        """
        tried = {place: 0 for place, one in enumerate(ids) if one not in self._class}
        while tried:
            for place, number in list(tried.items()):
                words = self._words.setdefault(forms[place], [])
                if number == len(words):
                    words.append(keys.slice(place, 1))
                    self._class[ids[place]] = f"{forms[place]}/{number}"
                    del tried[place]
            asked = list(tried)
            if not asked:
                return
            others = pa.concat_tables([self._words[forms[place]][tried[place]] for place in asked])
            equal = set(self._session.equal_keys(self._table, keys.take(pa.array(asked)), others))
            for number, place in enumerate(asked):
                if number in equal:
                    self._class[ids[place]] = f"{forms[place]}/{tried.pop(place)}"
                else:
                    tried[place] += 1

    def _give_forms(self) -> None:
        record, name = self._session.meta.row_locks, self._table.name
        ids = record.without_form(self._task, self._source, name, self._start)
        if not ids:
            return
        found = [
            one for one in record.lock(self._task, self._source, name, ids) if not one.form.startswith(self._start)
        ]
        if found:
            schema = pa.schema([self._table.arrow.field(column) for column in self._table.identity])
            keys = pa.concat_tables([unpacked(one.key).select(schema.names).cast(schema) for one in found])
            forms = key_forms(self._session, self._table, keys.combine_chunks(), self._start)
            record.give_forms(
                self._task,
                self._source,
                [replace(one, form=form) for one, form in zip(found, forms, strict=True)],
            )
