"""Writes net changes to PostgreSQL: one DELETE and one INSERT for each part of the rows, which are passed as arrays.

The statements are queued in the `StatementPipeline` until an answer is needed, at the latest for COMMIT, which then
raises their errors. Only rows without a key are removed immediately, since the number of found rows has to be checked
before anything is committed.

If the transaction has read and locked rows (`NetChange.there`), an UPDATE writes only their changed columns. So the
server looks up, compares and copies less. The other columns already have the values that would be written, and the lock
keeps these values until COMMIT. All other rows are written whole, including rows that this change first removes.
Triggers, rules and inheriting tables could notice the difference (`UPDATE OF column`). So this module first asks the
server whether the table has any of them.

`NetChange.expected` contains rows that the target must have before the change. These rows are not read first: the
statements that change or remove them find them by all columns. The write fails in three cases:

- A statement does not find as many rows as it was given.
- The key of a new row exists.
- The table has triggers, rules or inheriting tables.

The caller then computes the change again. If another transaction has changed a row, the statement waits until that
transaction ends, and compares the row's newest version. So no other transaction changes the row between the comparison
and the write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pidts.model import Halted, PidtsError, Table, TableName, Where, byte_size
from pidts.model.advice import OTHER_ROW_TODO, RESYNC
from pidts.reduce import ExpectedRows, NetChange
from pidts.target.fit import gone, unfit
from pidts.target.postgres.dialect import qualified
from pidts.target.postgres.encode.arrays import Element, parameter
from pidts.target.postgres.encode.columns import UnrealDates, nul_in_text, shown_key
from pidts.target.postgres.encode.geometry import UnfitGeometryError
from pidts.target.postgres.errors import StatementRefused
from pidts.target.postgres.firing import DEMAND_NO_ACTIONS, DEMAND_NOTHING_FIRES, fires
from pidts.target.postgres.shape import PgTable
from pidts.target.postgres.statement_pipeline import StatementPipeline
from pidts.target.postgres.statements import UNEXPECTED, Statements, reads_exactly, statements
from pidts.target.text import combined, moment_text

_WAYS = ("enable_hashjoin", "enable_seqscan")
_NUL_STATES = ("22021", "22P05")
_ROWS = 10_000
_BYTES = 16 << 20
"""The most rows and the most bytes of one statement. They limit the memory of PiDTS and of the server."""
_MANY = 500
"""For fewer rows than this, finding the changed columns costs more than it saves."""
_IS_PLAIN = (
    "SELECT relkind = 'r' AND NOT relispartition AND NOT relhassubclass AND NOT relhasrules AND NOT relrowsecurity "
    "AND pg_catalog.current_setting('session_replication_role') = 'replica' AND NOT EXISTS (SELECT FROM "
    "pg_catalog.pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled IN ('A', 'R')) "
    "FROM pg_catalog.pg_class c WHERE oid = %s::pg_catalog.regclass"
)
"""Whether the session has the role of a replica, and the table is plain: neither partitioned nor a partition, without
inheriting tables, rules and policies, and without triggers that fire in this role.
"""
_DEMAND_PLAIN = f"SELECT 1 / ({_IS_PLAIN})::integer"


@dataclass(slots=True)
class SchemaChanges:
    """The number of schema changes so far, shared by all sessions of a process with one target.

    When the number rises, every session makes its statements again. The source's structure does not show every change,
    since some change only the target's table. For example, a generated column becomes a plain column.
    """

    count: int = 0


class Writer:
    """Writes the rows of one session, for as long as its connection lasts."""

    def __init__(
        self,
        pipeline: StatementPipeline,
        shape: Callable[[TableName], PgTable | None],
        problems: Callable[[Table, PgTable], list[str]],
        on_unreal: UnrealDates,
        changes: SchemaChanges,
    ) -> None:
        self._pipeline, self._shape, self._problems, self._on_unreal = pipeline, shape, problems, on_unreal
        self._changes, self._change = changes, changes.count
        self._known: dict[TableName, Statements] = {}
        self._plain: dict[TableName, bool] = {}
        """For each table, the last answer to `_IS_PLAIN`. Each write that relies on it asks again (`_DEMAND_PLAIN`)."""

    def write(self, change: NetChange) -> None:
        """Writes a change. Deletes are written first, so that a unique value may move from one row to another."""
        plan = self.plan(change.table)
        if change.expected is not None:
            self._write_expecting(plan, change, change.expected)
            return
        if change.times is not None:
            self._remove(plan, change.deletes, change.times)
        else:
            self._each(plan, plan.delete, plan.delete_columns, change.deletes)
        if change.safe:
            for columns, sql in plan.give_way:
                self._each(plan, sql, columns, change.upserts)
        new, rows = change.parted()
        self._each(plan, plan.add, plan.written, new)
        self._each(plan, plan.insert, plan.written, self._update(plan, change, rows))
        self.demand_nothing_fires(plan.table)

    def can_expect(self, table: Table) -> bool:
        """Whether `write` can compare the table's rows with the expected rows."""
        plan = self.plan(table)
        if plan.can_expect and table.name not in self._plain:
            self._plain[table.name] = self._is_plain(table)
        return plan.can_expect and self._plain[table.name]

    def insert(self, table: Table, rows: pa.Table) -> None:
        """Inserts new rows. A row that already exists is an error."""
        plan = self.plan(table)
        self._each(plan, plan.add, plan.written, rows)

    def forget(self) -> None:
        """Forgets all statements; called after DDL."""
        self._known.clear()
        self._plain.clear()

    def plan(self, table: Table) -> Statements:
        """Returns the statements of a table; it reads the catalog once for each structure."""
        if self._change != self._changes.count:
            self._change = self._changes.count
            self.forget()
        known = self._known.get(table.name)
        if known is not None and (known.table is table or (known.table == table and known.table.computes_as(table))):
            return known
        shape = self._shape(table.name)
        if shape is None:
            raise gone(table.name)
        if problems := self._problems(table, shape):
            raise unfit(table.name, problems)
        self._known[table.name] = made = statements(table, shape)
        return made

    def demand_nothing_fires(self, table: Table) -> None:
        """Halts the table if somebody has added a trigger, or a foreign key that changes rows, since the start."""
        if not self._pipeline.acts:
            return
        grant = self._pipeline.grant

        def explain(_: StatementRefused) -> PidtsError:
            self._known.pop(table.name, None)  # the next attempt reads the catalog, and names the trigger or key
            return fires(table.name, grant)

        name, sql = qualified(table.name), DEMAND_NOTHING_FIRES if grant else DEMAND_NO_ACTIONS
        self._pipeline.later(sql, (name, name), table=str(table.name), explain=explain)

    def _write_expecting(self, plan: Statements, change: NetChange, expected: ExpectedRows) -> None:
        """Removes and changes rows that are as expected, and adds new rows whose keys do not exist."""
        name = qualified(plan.table.name)
        self._pipeline.later(
            _DEMAND_PLAIN, (name,), table=str(plan.table.name), explain=partial(_unexpected, plan.table)
        )
        for keys in portions(expected.absent):
            self._later(plan, plan.expecting_none(), self._arrays(plan, keys), 0, keys)
        for rows in portions(expected.removed.select(list(plan.written))):
            self._later(plan, plan.remove(), self._before(plan, rows), rows.num_rows, rows)
        changed = change.upserts.filter(expected.is_changed)
        columns = self._set_columns(plan, expected.changed, changed)
        before = len(plan.written)
        sides = [*expected.changed.select(list(plan.written)).columns, *changed.select(columns).columns]
        for rows in portions(pa.table(sides, names=[str(number) for number in range(len(sides))])):
            was = rows.select(range(before)).rename_columns(plan.written)
            now = rows.select(range(before, len(sides))).rename_columns(columns)
            self._later(
                plan, plan.change(columns), [*self._before(plan, was), *self._arrays(plan, now)], rows.num_rows, now
            )
        self._each(plan, plan.add, plan.written, change.upserts.filter(pc.invert(expected.is_changed)))

    def _later(self, plan: Statements, sql: str, arrays: Sequence[object], count: int, rows: pa.Table) -> None:
        """Sends a statement that has to find `count` rows; another number is an error."""
        table = plan.table

        def explain(error: StatementRefused) -> PidtsError | None:
            return _unexpected(table, error) or explained(table, rows, error)

        self._pipeline.later(sql, [*arrays, count], numbered=True, table=str(table.name), explain=explain)

    def _before(self, plan: Statements, rows: pa.Table) -> list[object]:
        """Returns the arrays of rows that are only compared, so nothing is reported about their dates."""
        with of_row(plan.table, rows):
            return [plan.forms[name].parameter(rows[name], plan.table, _unnoted) for name in rows.column_names]

    def _set_columns(self, plan: Statements, before: pa.Table, after: pa.Table) -> list[str]:
        """Returns the columns that are set. For many rows, these are only the columns that change, if they are few."""
        if after.num_rows < _MANY:
            return list(plan.settable)
        columns = [name for name in plan.settable if not _all_same(combined(before[name]), combined(after[name]))]
        return columns if columns and 2 * len(columns) <= len(plan.written) else list(plan.settable)

    def _update(self, plan: Statements, change: NetChange, rows: pa.Table) -> pa.Table:
        """Sets the changed columns of the rows that were read. Returns the rows that still have to be written."""
        there = change.there
        if there is None or change.safe or rows.num_rows < _MANY or not _has_plain_key(plan.table):
            return rows
        (key,) = plan.table.identity
        place = pc.index_in(combined(rows[key]), value_set=combined(there[key]))
        known = pc.and_not(place.is_valid(), pc.is_in(combined(rows[key]), value_set=combined(change.deletes[key])))
        if known.true_count < _MANY:
            return rows
        at = place.filter(known)

        def changes(name: str) -> bool:
            mine, now = combined(rows[name]).filter(known), combined(there[name]).take(at)
            return not (reads_exactly(plan.forms[name]) and _all_same(mine, now))

        columns = [name for name in plan.settable if changes(name)]
        if 2 * len(columns) > len(plan.written) or not self._is_plain(plan.table):
            return rows
        for part in portions(rows.select([key, *columns]).filter(known)) if columns else ():
            explain = partial(explained, plan.table, part)
            values, table = self._arrays(plan, part), str(plan.table.name)
            count = self._pipeline.now(plan.update(columns), values, numbered=True, table=table, explain=explain).count
            if count != part.num_rows:
                raise Halted(
                    "row-missing",
                    f"the target has updated {count} of {part.num_rows} rows, which exist and are locked",
                    where=Where(table=table),
                    todo="Find the rule, trigger or policy of the table that prevents UPDATEs",
                )
        return rows.filter(pc.invert(known))

    def _is_plain(self, table: Table) -> bool:
        """Whether the table has no triggers, rules or policies that a write could set off, and no inheriting tables."""
        ((is_plain,),) = self._pipeline.now(_IS_PLAIN, (qualified(table.name),), table=str(table.name)).rows
        return bool(is_plain)

    def _each(self, plan: Statements, sql: str, columns: Sequence[str], rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        for part in portions(rows.select(list(columns))):
            self._pipeline.later(
                sql,
                self._arrays(plan, part),
                numbered=True,
                table=str(plan.table.name),
                explain=partial(explained, plan.table, part),
            )

    def _remove(self, plan: Statements, rows: pa.Table, times: pa.Int64Array) -> None:
        """Removes rows without a key; only for this, the server may use a hash join and scan the table."""
        if not rows.num_rows:
            return
        table = str(plan.table.name)
        for way in _WAYS:
            self._pipeline.later(f"SET LOCAL {way} = on")
        at = 0
        for part in portions(rows.select(list(plan.delete_columns))):
            values = [*self._arrays(plan, part), parameter(times.slice(at, part.num_rows), Element.INT8)]
            explain = partial(explained, plan.table, part)
            for number, wanted, found in self._pipeline.now(
                plan.delete, values, numbered=True, table=table, explain=explain
            ).rows:
                raise Halted(
                    "row-missing",
                    f"the target has {found} of {wanted} copies of a row that the source removed",
                    where=Where(table=table, key=_shown(part, number - 1)),
                    todo=f"The target's rows differ from the source's: copy the table again: {RESYNC}",
                )
            at += part.num_rows
        for way in _WAYS:
            self._pipeline.later(f"SET LOCAL {way} = off")

    def _arrays(self, plan: Statements, rows: pa.Table) -> list[object]:
        with of_row(plan.table, rows):
            return [plan.forms[name].parameter(rows[name], plan.table, self._on_unreal) for name in rows.column_names]


def _unexpected(table: Table, error: StatementRefused) -> PidtsError | None:
    """Returns the error to raise if the target's rows are not as a statement expects them; otherwise None."""
    if error.sqlstate != UNEXPECTED:
        return None
    return Halted(
        "row-diverged",
        "the target's rows differ from the rows that the source had",
        where=Where(table=str(table.name)),
        todo="Nothing has to be done: the rows are read and compared one by one",
    )


def _unnoted(table: Table, column: str, count: int) -> None:
    """Does nothing: dates of rows that are only compared are not reported."""


def _has_plain_key(table: Table) -> bool:
    """Whether the key is one column whose values are equal only if their bytes are equal."""
    types = [table.column(name).type for name in table.identity]
    return len(types) == 1 and (types[0].is_integer or types[0].is_text or types[0].is_bytes)


def _all_same(one: pa.Array, other: pa.Array) -> bool:
    """Whether the values of two columns have the same bytes; NULL equals NULL."""
    if pa.types.is_floating(one.type):
        bits = pa.int32() if one.type == pa.float32() else pa.int64()
        one, other = one.view(bits), other.view(bits)
    return bool(one.equals(other))


@contextmanager
def of_row(table: Table, rows: pa.Table) -> Iterator[None]:
    """Adds the row to an error about a value that cannot be written."""
    try:
        yield
    except UnfitGeometryError as error:
        error.where = Where(table=str(table.name), key=shown_key(table, rows, error.place))
        raise


def portions(rows: pa.Table, most: int = _ROWS) -> Iterator[pa.Table]:
    """Yields parts of bounded size; a single row may be larger."""
    if not rows.num_rows:
        return
    step = max(1, min(most, _BYTES * rows.num_rows // max(byte_size(rows), 1)))
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def explained(table: Table, rows: pa.Table, error: StatementRefused) -> PidtsError | None:
    """Returns an error that says more than the server's error; None if there is nothing to add.

    It names a NUL character's row and column, or has advice for the unique index that has refused the row.
    """
    if error.columns:
        error.todo = error.without_index if _is_additional(table, error.columns) else OTHER_ROW_TODO
        return error
    return nul_in_text(table, rows) if error.sqlstate in _NUL_STATES else None


def _is_additional(table: Table, columns: Sequence[str]) -> bool:
    """Whether the source's table has no unique key over these columns.

    The result is False for an index over expressions: the table's keys do not show whether the source has it.
    """
    indexed = set(columns)
    keys = (key.columns for key in table.keys if key.primary or key.declared_unique)
    return indexed.issubset(column.name for column in table.columns) and indexed not in map(set, keys)


def _shown(rows: pa.Table, place: int) -> str:
    """Returns the row's first columns. Dates are converted by Arrow, since Python has no zero or partial dates."""
    columns = rows.select(rows.column_names[:8]).slice(place, 1)
    values = (
        moment_text(combined(c)) if pa.types.is_date(c.type) or pa.types.is_timestamp(c.type) else c for c in columns
    )
    return ", ".join(
        f"{name}={value.to_pylist()[0]!r:.60}" for name, value in zip(columns.column_names, values, strict=True)
    )
