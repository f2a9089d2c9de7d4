"""The rules of a task that decide how its changes are prepared and written (`pidts.apply.prepare`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from pidts.apply.locks.held_changes import FindTransactions, unknown_transactions
from pidts.apply.rows.convergence import converges
from pidts.apply.rows.version_column import can_be_version
from pidts.model import ChangeBatch, Halted, Lsn, OnDivergence, Table, TableName
from pidts.model.zone_notes import NOTES
from pidts.rules import Owners, Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyRules:
    """The task's rules for writing, which do not change during a run."""

    task: str = ""
    source: str = ""
    """The source whose log has the changes. Only Lsns of one source can be compared."""
    version_column: str = ""
    safe: bool = False
    safe_until: Lsn | None = None
    """The target may already have the changes up to this place; None: it has no change that is still to be applied."""
    merged: frozenset[TableName] = frozenset()
    """The merged tables of the target."""
    beside: bool = False
    """Whether tables of other sources of the task may map to the same target tables."""
    converges: bool = False
    """Whether versions decide between zones that all accept writes (`pidts.apply.rows.convergence`)."""
    zone: str = ""
    """The zone of the source; empty: no zone."""
    into_zone: str | None = None
    """The zone of the target; empty: a zone that the task file does not name; None: the target is not a zone.

    In a zone, a copy does not remove extra rows, except while `pidts zones return` fills the zone
    (`removes_extra_rows`).
    """
    owners: Owners = field(default_factory=Owners)
    """The zones that own rows. A write by another zone is set aside."""
    seeks_rivals: bool = False
    """Whether to look for other rows that have a unique value which a change writes (`after_refusal`).

    A change for which such a row is found is set aside. True after the target has refused such a change.
    """
    on_divergence: OnDivergence = OnDivergence.OVERWRITE
    has_locks: bool = False
    """Whether rows may be locked already."""
    lock_limit: int = 1000
    """How many rows of one table may be locked."""
    find_transactions: FindTransactions = unknown_transactions
    """Returns the GTID and the time of each held change's transaction."""
    keeps_changes: bool = False
    """Whether the target keeps, besides each table, a table of all its changes."""
    expects: bool = False
    """Whether the target may compare rows while it writes them; see `pidts.apply.locks.check`."""
    inserts: bool = False
    """Whether the target may be asked to refuse a new row if its key exists. Another program may have inserted the key
    after the task has read the rows.
    """
    read_first: frozenset[str] = frozenset()
    """Target tables whose rows are read before they are written: for them, `expects` and `inserts` do not apply. An
    empty name means all tables.
    """
    filters: Rules = field(default_factory=Rules)
    """The task's filters. If a filter leaves out changes of a table, the target may lack rows that the source had."""
    _plain: dict[TableName, tuple[Table, bool]] = field(default_factory=dict, init=False, compare=False, repr=False)
    """For each source table, the target table of its last changes, and the result of `is_plain` for it."""

    def is_plain(self, batch: ChangeBatch) -> bool:
        """Whether this table's changes, if they have whole images, are written exactly as `reduce` returns them.

        True if all of these hold: no row has to be read from the target first, no row is set aside, and the target
        table has no rows of other tables.
        """
        known = self._plain.get(batch.origin)
        if known is None or known[0] is not batch.table:
            known = self._plain[batch.origin] = batch.table, self._is_plain(batch)
        return known[1]

    def _is_plain(self, batch: ChangeBatch) -> bool:
        if self.safe or self.safe_until is not None or self.keeps_changes or batch.table.name == NOTES.name:
            return False
        is_alone = batch.table.name not in self.merged and not self.may_share(batch)
        is_read = self.guards(batch.table) or self.keeps_away(batch) or self.looks_at(batch)
        return is_alone and not is_read and not self.filters.drops(batch.origin)

    def may_share(self, batch: ChangeBatch) -> bool:
        """Whether the batch's target table may have rows of other source tables, including dropped tables."""
        is_merged = batch.table.name in self.merged
        return is_merged or bool(self.task and (self.beside or self.filters.routes.may_leave_rows(batch.origin)))

    def keeps_away(self, batch: ChangeBatch) -> bool:
        """Whether an update of this table may concern a row that the filters have left out."""
        return not self.safe and self.filters.keeps_away(batch.origin)

    def compares(self, batch: ChangeBatch) -> bool:
        """Whether the target's rows are compared with those that the source had; see `pidts.apply.locks.divergence`.

        If versions decide about a table, no comparison locks its rows: a change with an older version is left out on
        purpose, and a comparison would then lock its row.
        """
        if self.on_divergence is OnDivergence.OVERWRITE or self.safe:
            return False
        if (self.converges or self.on_divergence is OnDivergence.LOCK) and self.guards(batch.table):
            return False
        return batch.table.name not in self.merged and not self.filters.drops(batch.origin)

    def may_expect(self, batches: Sequence[ChangeBatch]) -> bool:
        """Whether the target may compare all rows of these changes itself.

        Not if versions decide about a table (`guards`): then the target may have to remove more rows than are named.
        """
        is_read = not self.read_first.isdisjoint({"", *(str(batch.table.name) for batch in batches)})
        return self.expects and not is_read and not self._guards_any(batches)

    def may_insert(self, batches: Sequence[ChangeBatch]) -> bool:
        """Whether the target may refuse new rows of these changes. Not if versions decide (`guards`)."""
        return self.inserts and not self._guards_any(batches)

    def guards(self, table: Table) -> bool:
        """Whether the versions of this table's rows decide which rows are written."""
        if self.converges:
            return converges(table, self.version_column)
        return is_guarded(table, self.version_column)

    def _guards_any(self, batches: Sequence[ChangeBatch]) -> bool:
        return any(map(self.guards, {batch.table.name: batch.table for batch in batches}.values()))

    def after_refusal(self, refusal: Halted) -> ApplyRules | None:
        """Returns the rules under which refused changes are prepared again; None if the rules would be the same.

        In a zone, a program may have given the unique value of a change to another row. So the next attempt looks for
        rows that have the unique values of the changes.
        """
        is_locking = self.on_divergence is OnDivergence.LOCK or bool(self.owners)
        if not self.zone or not is_locking or refusal.code != "target-refused":
            return None
        return replace(self, seeks_rivals=True)

    @property
    def looks_for_locks(self) -> bool:
        """Whether the target may have locked rows, or may get some in this run."""
        return self.has_locks or self.on_divergence is OnDivergence.LOCK or bool(self.owners)

    def looks_at(self, batch: ChangeBatch) -> bool:
        """Whether rows are compared, or may have been locked in an earlier comparison."""
        return self.compares(batch) or bool(self.owners) or (self.has_locks and batch.table.name not in self.merged)

    def can_record(self, batch: ChangeBatch, copying: Collection[TableName]) -> bool:
        """Whether a row may be left to a copy under way, which reads the row again by its recorded key.

        False if a filter may have left out the row on purpose, or if versions decide which row counts: the copy must
        not read such a row again.
        """
        if not self.task or batch.origin not in copying or not batch.table.identity:
            return False
        guarded = self.guards(batch.table)
        return not (guarded or self.filters.drops(batch.origin) or self.maps_key(batch))

    def maps_key(self, batch: ChangeBatch) -> bool:
        """Whether the task's filters give the rows of this table another key on the target."""
        return self.filters.maps_key(batch.table.renamed(batch.origin))


def is_guarded(table: Table, version_column: str) -> bool:
    """Whether the table has a usable version column, and a key for finding rows."""
    names = table.arrow.names
    return bool(
        version_column and table.identity and version_column in names and can_be_version(table.column(version_column))
    )
