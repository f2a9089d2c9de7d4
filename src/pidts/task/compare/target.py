"""Reads the target for a comparison. A table of the target has the rows of one table or of several shards."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from pidts.apply import TargetSession
from pidts.apply.locks.held_changes import lock_ids
from pidts.apply.locks.known_locks import form_start, key_forms
from pidts.apply.locks.same_as_stored import RowStorage
from pidts.apply.rows.target_rows import has_text
from pidts.apply.uncopied_keys import unpacked
from pidts.model import Kind, Table, TableName
from pidts.model.types import LABELED
from pidts.rules import mapping_of
from pidts.source.keys import last_key
from pidts.target.iceberg.connection import CatalogConnection
from pidts.target.mysql import MySqlSession
from pidts.target.mysql.checksums import row_sum as mysql_sum
from pidts.target.postgres import PostgresSession
from pidts.target.postgres.checksums import row_sum as postgres_sum
from pidts.target.postgres.encode.columns import zero_date_in_key
from pidts.task.compare.source import SourceTable
from pidts.verify import Key, KeySpan, MergedTable, Order, Sum
from pidts.verify.keys import is_ordered, native
from pidts.verify.merged import MergedTables

if TYPE_CHECKING:
    from pidts.target.iceberg.session import IcebergSession


RowSum = Callable[[Table, Sequence[object] | None, Sequence[object] | None], tuple[int, int] | None]


class TargetRows:
    """Reads the compared tables of the target on one connection."""

    def __init__(
        self,
        session: TargetSession,
        row_sum: RowSum | None,
        merged_tables: Callable[[], MergedTables],
        *,
        is_postgres: bool,
        orders_text: bool,
        writes: bool,
        read_portions: Callable[[Table], Iterator[pa.Table]] | None = None,
    ) -> None:
        self._session, self._row_sum, self._merged_tables, self._is_postgres = (
            session,
            row_sum,
            merged_tables,
            is_postgres,
        )
        self._orders_text = orders_text
        """Whether the target may order texts in the same way as the source."""
        self._writes = writes
        """Whether unequal rows are repaired, so that a table must also fit for writing."""
        self._read_portions = read_portions
        """Reads a whole table part by part, if the target can."""

    def order(self, table: Table) -> Order:
        """Returns whether the target orders keys as the source does.

        - The order of texts depends on collations, which may differ: the orders are at best likely to be the same.
        - If the target's key ends with extracted columns, rows of several tables with the same source key are next to
          each other on the target. So a span of source keys has the same rows on source and target. But the target may
          also have rows of tables that are not in the task. So the same order is only likely.
        """
        merged = self._merged_tables()[table.name]
        cut = merged.cut
        if is_ordered(cut):
            if self._is_postgres and any(cut.column(name).type.kind is Kind.BIT for name in cut.identity):
                return Order.OTHER
            return Order.SAME if cut.identity == table.identity else Order.LIKELY
        texts = merged.is_side_by_side and not _is_mapped(merged)
        texts = texts and all(_is_plain_text(cut, name) for name in cut.identity)
        return Order.LIKELY if texts and self._orders_text else Order.OTHER

    def misfits(self, table: Table) -> list[str] | None:
        """Returns the reasons why the target table does not fit; None if there is no such table.

        The target table may have or lack the columns that only some shards have.
        """
        merged = self._merged_tables()[table.name]
        found = self._misfits(table)
        if found and merged.most is not None and self._misfits(merged.most) == []:
            found = []
        return [merged.problem, *(found or ())] if merged.problem else found

    def _misfits(self, table: Table) -> list[str] | None:
        found = self._session.schema.misfits(table)
        if not found or self._writes:
            return found
        obstacles = self._session.schema.write_obstacles(table.name)
        return [one for one in found if one not in obstacles]

    def documents(self, table: Table) -> Collection[str]:
        """Returns the text columns that are JSON columns on the target."""
        texts = [column.name for column in table.columns if column.type.is_text]
        stored = RowStorage(self._session.schema.structure(table.name) if texts else None)
        found = {name: stored.column(name) for name in texts}
        return {name for name, column in found.items() if column is not None and column.type.kind is Kind.JSON}

    @property
    def has_sums(self) -> bool:
        """Whether the target can compute checksums."""
        return self._row_sum is not None

    def sum(self, table: Table, span: KeySpan) -> Sum | None:
        """Returns the checksum of a span's rows as they are now; None if the target cannot compute it."""
        if self._row_sum is None:
            return None
        cut = self._merged_tables()[table.name].cut
        found = self._row_sum(cut, self._values(cut, span.after), self._values(cut, span.upto))
        return None if found is None else Sum(*found)

    def find(self, table: Table, keys: pa.Table) -> pa.Table:
        """Returns the rows of these keys."""
        return self._session.read_rows(table, keys=keys)

    def locked(self, table: Table, keys: pa.Table) -> Collection[int]:
        """Returns the numbers of the keys in `keys` whose rows are locked for any shard."""
        name, locks = table.name, self._session.meta.row_locks
        keys = keys.select(list(table.identity))
        ids = lock_ids(keys)
        places: set[int] = set()
        for member in self._merged_tables()[name].members:
            if not isinstance(member, SourceTable):
                continue
            place = member.part.config.name, member.part.config.source.source_id, name
            if name not in locks.recorded(*place[:2]):
                continue
            there = locks.among(*place, ids)
            places |= {number for number, one in enumerate(ids) if one in there}
            if has_text(table):
                places |= self._locked_in_other_words(table, keys, place)
        return places

    def _locked_in_other_words(self, table: Table, keys: pa.Table, place: tuple[str, str, TableName]) -> set[int]:
        """Returns the numbers of the keys in `keys` that a lock spells differently.

        For example, the lock has the key 'a', and `keys` has 'A': the target's collation may make them equal.
        """
        locks, start = self._session.meta.row_locks, form_start(self._session, table)
        forms = key_forms(self._session, table, keys, start)
        known = locks.of_forms(*place, forms)
        words = [unpacked(one.key).select(keys.column_names).cast(keys.schema) for one in known]
        of_lock = [one.form for one in known]
        if others := locks.some(*place, locks.without_form(*place, start)):
            more = [unpacked(one.key).select(keys.column_names).cast(keys.schema) for one in others]
            words += more
            of_lock += key_forms(self._session, table, pa.concat_tables(more), start)
        of_form: dict[str, list[int]] = {}
        for lock, form in enumerate(of_lock):
            of_form.setdefault(form, []).append(lock)
        pairs = [(number, lock) for number, form in enumerate(forms) for lock in of_form.get(form, ())]
        if not pairs:
            return set()
        one, other = (pa.array(side) for side in zip(*pairs, strict=True))
        equal = self._session.equal_keys(table, keys.take(one), pa.concat_tables(words).take(other))
        return {pairs[number][0] for number in equal}

    def keys(self, table: Table, after: Key | None, rows: int) -> tuple[pa.Table, Key | None]:
        """Returns the keys after `after`, at most `rows`, and the last of them: the next call continues after it.

        If the key has an ENUM or a SET, all keys are read at once. Servers sort these columns by number, but compare
        their texts. So the last key would not show where to continue.
        """
        if any(table.column(name).type.kind in LABELED for name in table.identity):
            found = self._session.read_rows(_identity_alone(table)) if after is None else table.arrow.empty_table()
        else:
            # An empty text sorts first. So this query may return the key `after` again, but it never skips a key.
            whole = None if after is None else [*after, *[""] * (len(table.identity) - len(after))]
            found = self._session.read_rows(_identity_alone(table), after=self._values(table, whole), limit=rows)
        return found.select(list(table.identity)), last_key(found, table)

    def all(self, table: Table) -> Iterator[pa.Table]:
        """Yields all rows, part by part if the target can do that."""
        if self._read_portions is None:
            yield self._session.read_rows(table)
        else:
            yield from self._read_portions(table)

    def _values(self, table: Table, key: Key | None) -> Sequence[object] | None:
        """Returns a key's values for a statement. PostgreSQL takes bits as text."""
        if key is None:
            return None
        values = native(table, key)
        if not self._is_postgres:
            return values
        return [self._for_postgres(table, name, value) for name, value in zip(table.identity, values, strict=True)]

    def _for_postgres(self, table: Table, name: str, value: object) -> object:
        if isinstance(value, pa.Scalar):  # a zero or partial date
            raise zero_date_in_key(table, name)
        kind = table.column(name).type
        return f"{value:0{kind.length}b}" if kind.kind is Kind.BIT and kind.length else value


def target_rows(
    session: TargetSession, merged_tables: Callable[[], MergedTables], *, writes: bool = False
) -> TargetRows:
    """Returns the object that reads the target's rows and computes checksums for this kind of server."""
    if isinstance(session, PostgresSession):
        row_sum = partial(postgres_sum, session)
        return TargetRows(session, row_sum, merged_tables, is_postgres=True, orders_text=False, writes=writes)
    if isinstance(session, MySqlSession):
        row_sum = partial(mysql_sum, session)
        return TargetRows(session, row_sum, merged_tables, is_postgres=False, orders_text=True, writes=writes)
    if isinstance(session, CatalogConnection):
        # A warehouse cannot compute the source's sums, so rows are read and compared.
        read = cast("IcebergSession", session).read_portions  # only this kind of session has a catalog
        return TargetRows(
            session, None, merged_tables, is_postgres=False, orders_text=False, writes=writes, read_portions=read
        )
    raise TypeError(session)


def _identity_alone(table: Table) -> Table:
    columns = tuple(table.column(name) for name in table.identity)
    keys = tuple(key for key in table.keys if key.columns == table.identity)
    return replace(table, columns=columns, keys=keys)


def _is_plain_text(table: Table, name: str) -> bool:
    kind = table.column(name).type
    return kind.is_integer or (kind.is_text and kind.kind not in LABELED)


def _is_mapped(merged: MergedTable) -> bool:
    return any(
        isinstance(one, SourceTable)
        and (mapping := mapping_of(one.rules.mappings, one.name)) is not None
        and mapping.target_column in one.table.identity
        for one in merged.members
    )
