"""Compares a datacenter with its source: the last record of each row has to have the source's values.

The records are read once, from `transfer_checkpoint` back to the oldest. So the first record that is read of a row is
the latest one, and has the row's current values; see `pidts.gate.replay`. Two successive records of a row have to fit
together: the row that the earlier change leaves has to be the row that the later change finds. Otherwise a change
between them has no record. If the records include the statement that created or emptied a table, the table is compared
whole: each of its rows needs a record. In any other table, rows without a record are only counted, not compared.

Rows that are not equal are doubtful, since programs write meanwhile. `pidts.verify.settle` decides about these rows, as
for any target. It waits until the datacenter has the log up to the place at which the source was read. Then the records
that were written meanwhile are used. These records are also read only once, in their order. If a schema change is among
them, the comparison begins anew.

Memory is bounded: only pages of records, about 5,000 doubtful rows, and the digests of keys in `KeyStore` are in it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from pidts.copy import highest, ranges
from pidts.gate.replay import (
    ROWS,
    KeyChange,
    ReplayedRow,
    ReplayedTable,
    TableNames,
    TransferRow,
    Values,
    documents,
    follows,
    key_digest,
    row_digest,
    steps,
)
from pidts.model import ConfigError, Halted, Table, TableName, Where
from pidts.model.errors import plain_value
from pidts.source.connection import Session, connect, query
from pidts.source.rows import select_range
from pidts.source.structures import quoted_table, read_structures, system_versioned
from pidts.target.mysql import MySqlSession
from pidts.target.mysql.datacenter import CHECKPOINT, DATA, Datacenter
from pidts.task.compare.catch_up import UNSEEN_SECONDS, TaskCatchUp
from pidts.task.compare.key_store import Found, KeyStore
from pidts.task.compare.recorded_rows import (
    KeyText,
    OneSource,
    RecordedTexts,
    SourceTexts,
    text_keys,
    text_rows,
    text_table,
    texts_of_keys,
)
from pidts.task.compare.table_pairs import TakesTable
from pidts.task.config.task_file import TaskConfig
from pidts.task.tables.channel import first_id
from pidts.verify import (
    EXACT,
    Callbacks,
    ComparisonInterrupted,
    ComparisonProgress,
    DifferenceKind,
    Matcher,
    Report,
    RowDifference,
    TableReport,
    divided,
)
from pidts.verify.settle import settle

_MOVED = "structure-changed"
_TRIES = 5
_AT_ONCE, _DOUBTFUL, _PAGE = 2_000, 5_000, 500
_WAITING_BYTES = 32 << 20
_LATER_RECORDS = 200

Columns = tuple[str, ...]
RowKind = tuple[TableName, Columns, bool]
"""Properties of rows that are compared together: the table, the comparable columns, and whether records may be missing.
(If they may, a difference proves nothing.)
"""
Row = tuple[int, int, str | None, str | None, str | None, str | None, str | None]
"""A row of `transfer_data`, without its time."""


class _RecordChange(NamedTuple):
    """The change that one record makes to the row of one key."""

    id: int
    followed: ReplayedTable
    step: KeyChange
    key: bytes
    """The key's digest."""
    kind: int
    size: int
    """The estimated bytes that this change needs in memory."""


def compare_channel(
    config: TaskConfig,
    *,
    examples: int,
    takes: TakesTable | None,
    callbacks: Callbacks | None,
    say: Callable[[str], None],
) -> Report:
    """Compares the tables that `takes` selects (None: all), and checks that no record's number is missing or wrong.

    The report shows at most `examples` unequal rows. `say` receives a line when the comparison has to wait.
    """
    callbacks = callbacks or Callbacks()
    with ExitStack() as stack:
        target = stack.enter_context(closing(config.target.server.connect()))
        source = stack.enter_context(closing(connect(config.source.server)))
        assert isinstance(target, MySqlSession)  # noqa: S101 - that is its type
        catch_up = TaskCatchUp(config, source, target, stop=callbacks.stop, say=say, unseen_seconds=UNSEEN_SECONDS)
        for left in reversed(range(_TRIES)):
            with closing(KeyStore()) as store:
                try:
                    return _Comparison(config, source, target, OneSource(catch_up), store, callbacks, examples).run(
                        takes
                    )
                except Halted as error:
                    if error.code != _MOVED or not left:
                        raise
            if callbacks.stop.wait(1):
                raise ComparisonInterrupted
    raise AssertionError  # the loop returns or raises


@dataclass(slots=True)
class _Comparison:
    config: TaskConfig
    source: Session
    target: MySqlSession
    catch_up: OneSource
    store: KeyStore
    callbacks: Callbacks
    most: int
    datacenter: Datacenter = field(init=False)
    present: TableNames = field(init=False)
    """The current tables, by their current names."""
    read_upto: int = 0
    """The id of the last record that was read."""
    reports: dict[TableName, TableReport] = field(default_factory=dict)
    recorded_rows: Counter[TableName] = field(default_factory=Counter)
    """For each table, the number of rows that its records show."""
    notes: dict[TableName, list[str]] = field(default_factory=dict)
    keyless: set[TableName] = field(default_factory=set)
    """Tables that have records from before a change of the table's key."""
    broken: dict[TableName, str] = field(default_factory=dict)
    """For each table, the last place at which a record is missing."""
    breaks: Counter[TableName] = field(default_factory=Counter)
    """The number of places at which a record is missing, for each table."""
    examples: list[RowDifference] = field(default_factory=list)
    waiting: dict[RowKind, list[ReplayedRow]] = field(default_factory=dict)
    """The rows that are not compared yet, as their last records show them."""
    waiting_bytes: int = 0
    row_kinds: dict[tuple[TableName, int, Columns], RowKind] = field(default_factory=dict)
    """The kinds of rows so far, by table, number of the table's schema changes after the record, and record's columns.
    """
    doubtful: dict[tuple[TableName, Columns], dict[KeyText, ReplayedRow]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.datacenter = Datacenter(self.target, self.config.target.database)

    def run(self, takes: TakesTable | None) -> Report:
        is_taken = takes or (lambda _: True)
        allow = self.config.allow
        tables = read_structures(self.source, lambda name: allow(name) and is_taken(name))
        versioned = system_versioned(self.source)
        self.present = TableNames.of(table for name, table in tables.items() if name not in versioned)
        for name in tables:
            self.reports[name] = TableReport(name, filtered=self.config.rules.keeps_rows(name))
            if name in versioned:
                self._note(name, "its records hold versions of rows, and are not compared")
            elif not tables[name].identity:
                self._note(name, "it has no key, so its records are not compared")
        if (reached := self.datacenter.reached()) is None:
            raise ConfigError(
                "not-begun",
                f"the channel has not begun: there is no {CHECKPOINT}",
                todo="Start the channel: pidts run TASK",
            )
        self.read_upto = upto = reached.id
        numbers, passed = self._walk(upto)
        self._flush()
        for name in sorted(passed.whole):
            self._lacking(self.present.tables[name].table)
            self._note(name, f"compared whole: record {passed.first[name]} created or emptied the table")
        self._settle_all()
        self._count_others(passed)
        found = [self._finished(self.reports[name]) for name in sorted(self.reports)]
        return Report((numbers, *found) if found or takes is None else (), tuple(self.examples))

    def _walk(self, upto: int) -> tuple[TableReport, TableNames]:
        """Reads the records up to number `upto`, from the last to the first.

        Returns a report about missing and wrong numbers, and the tables by their names before the first record.
        """
        numbers, lineage = _NumberCheck(upto, first_id(self.config, self.target)), self.present
        for page in self.datacenter.pages(0, upto, backwards=True):
            lineage = self._take_page(page, lineage, numbers)
            self._show_progress(numbers.last, upto)
        return numbers.report(TableName(self.config.target.database, DATA)), lineage

    def _take_page(self, page: Sequence[Row], lineage: TableNames, numbers: _NumberCheck) -> TableNames:
        """Processes a page of records, from the last to the first.

        `lineage` has the tables by their names after the page. Returns them by their names before the page.
        """
        chosen: list[tuple[Row, ReplayedTable]] = []
        tables: dict[tuple[object, object], ReplayedTable | None] = {}
        for row in page:
            id_, tid, schema, table, _, optype, _ = row
            numbers.take(id_, tid)
            if optype not in ROWS:
                record = _record(row)
                if lineage.concerned(record):
                    lineage = lineage.before(record)
                    tables.clear()
                continue
            if (schema, table) not in tables:
                tables[schema, table] = lineage.tables.get(TableName(schema or "", table or ""))
            if (followed := tables[schema, table]) is not None:
                chosen.append((row, followed))
        parsed = zip(chosen, _documents([row for row, _ in chosen]), strict=True)
        taken = [one for (row, followed), document in parsed for one in self._taken(row, document, followed)]
        known = self.store.found(list({one.key for one in taken}))
        put: dict[bytes, Found] = {}
        for one in taken:
            step, found = one.step, known.get(one.key)
            if found is None:
                self._expect(one)
            elif found[0] == one.kind and not follows(found[1], row_digest(step.after)):
                self._break(one)
            known[one.key] = put[one.key] = one.kind, row_digest(step.before)
        self.store.put(put)
        return lineage

    def _taken(self, row: Row, document: Any, followed: ReplayedTable) -> Iterator[_RecordChange]:
        """Yields the changes of a record, if its key identifies a row of the current table."""
        id_, name = row[0], followed.table.name
        if not followed.has_key:
            if followed.identity and name not in self.keyless:
                self.keyless.add(name)
                self._note(name, f"up to record {id_} its records have another key, and are not compared")
            return
        found = steps(document, followed)
        if found is None:
            raise Halted(
                _MOVED,
                f"record {id_} does not have the key ({', '.join(followed.identity)})",
                where=Where(table=str(name)),
                todo="The table's structure changes now: compare again when the channel has recorded it",
            )
        kind, size = _image_kind(followed.age, row[4] or ""), len(row[6] or "")
        for step in found:
            yield _RecordChange(id_, followed, step, key_digest(name, step.key), kind, size)

    def _expect(self, taken: _RecordChange) -> None:
        """Adds a row, as its last record shows it, to the rows to compare."""
        followed, step = taken.followed, taken.step
        columns = followed.identity if step.after is None else tuple(step.after)
        known = followed.table.name, followed.age, columns
        if (kind := self.row_kinds.get(known)) is None:
            kind = self.row_kinds[known] = followed.table.name, followed.known(columns), followed.may_lack_changes
        facts = self.waiting.setdefault(kind, [])
        facts.append(ReplayedRow(step.key, step.after))
        self.waiting_bytes += taken.size
        if len(facts) >= _AT_ONCE:
            self._compare(kind, self.waiting.pop(kind))
        elif self.waiting_bytes > _WAITING_BYTES:
            self._flush()

    def _flush(self) -> None:
        self.waiting_bytes = 0
        while self.waiting:
            kind = next(iter(self.waiting))
            self._compare(kind, self.waiting.pop(kind))

    def _compare(self, kind: RowKind, facts: Sequence[ReplayedRow]) -> None:
        name, columns, may_lack_changes = kind
        whole = self.present.tables[name].table
        texts = text_table(whole, columns)
        matcher = Matcher(texts, EXACT)
        keys = text_keys(texts, [fact.key for fact in facts])
        rows = list(_rows(texts, facts))
        self.recorded_rows[name] += len(rows)
        wrong = sorted(matcher.verdicts(keys, self._texts(whole).find(texts, keys), text_rows(texts, rows)))
        if may_lack_changes:
            unsure = sum(facts[place].row is not None for place in wrong)
            self._add(name, rows=len(rows) - unsure, not_compared=len(wrong))
            return
        self._add(name, rows=len(rows))  # the keys of deleted rows are also compared, but not counted as rows
        doubtful = self.doubtful.setdefault((name, columns), {})
        doubtful.update((facts[place].key, facts[place]) for place in wrong)
        if len(doubtful) >= _DOUBTFUL:
            self._settle(name, columns, self.doubtful.pop((name, columns)))

    def _texts(self, table: Table) -> SourceTexts:
        return SourceTexts(self.source, table, self.config.rules.expressions.time_zone)

    def _lacking(self, table: Table) -> None:
        """Finds the source's rows without a record, in a table whose rows all need a record."""
        keys = tuple(key for key in table.keys if key.columns == table.identity)
        own = replace(table, columns=tuple(table.column(name) for name in table.identity), keys=keys)
        texts = text_table(table, table.identity)
        columns = tuple(column.name for column in table.columns)
        end, after = highest(self.source, own), None
        while end is not None:
            (part,) = ranges(self.source, own, after, end, _DOUBTFUL, 1)
            found = self._texts(table).printed(texts, select_range(self.source, own, part.after, part.upto))
            asked = texts_of_keys(found)
            digests = {key: key_digest(table.name, key) for key in asked}
            known = self.store.found(list(digests.values()))
            lacking = {key: ReplayedRow(key, None) for key, digest in digests.items() if digest not in known}
            self._settle(table.name, columns, lacking)
            self.callbacks.demand_not_stopped()
            if part.is_last:
                return
            after = part.upto

    def _settle_all(self) -> None:
        while self.doubtful:
            (name, columns), facts = self.doubtful.popitem()
            self._settle(name, columns, facts)

    def _settle(self, name: TableName, columns: Columns, facts: Mapping[KeyText, ReplayedRow]) -> None:
        """Decides about doubtful rows, and adds the unequal ones to the table's report."""
        if not facts:
            return
        whole = self.present.tables[name].table
        texts = text_table(whole, columns)
        matcher = Matcher(texts, EXACT)
        recorded = RecordedTexts(lambda keys: self._later(whole, keys), facts)
        keys = text_keys(texts, list(facts))
        settled = settle(self._texts(whole), recorded, self.catch_up, matcher, keys, _PAGE, self.callbacks.pause)
        counts: Counter[DifferenceKind] = Counter()
        unknown = uncounted = 0
        for place, (key, (kind, names)) in enumerate(zip(texts_of_keys(settled.keys), settled.found, strict=True)):
            if key in recorded.unknown:
                unknown += 1
                uncounted += facts[key].row is not None
                continue
            if counts.total() < self.most:
                self.examples.append(RowDifference(name, kind, matcher.readable(settled.keys, place), names))
            counts[kind] += 1
        self.examples = divided(self.examples, self.most)
        found = {kind.value: count for kind, count in counts.items()}
        self._add(name, **found, rows=-uncounted, not_compared=unknown)
        report = self.reports[name]
        self.reports[name] = replace(report, waits=tuple(dict.fromkeys((*report.waits, *settled.waits))))

    def _later(self, table: Table, keys: Sequence[KeyText]) -> dict[KeyText, list[ReplayedRow]]:
        """Returns, for each of these keys, the successive rows in the records written since the comparison began."""
        self._read_later()
        digests = {key_digest(table.name, key): key for key in keys}
        found = self.store.later(list(digests))
        wanted: dict[int, list[KeyText]] = {}
        for digest, ids in found.items():
            for id_ in ids:
                wanted.setdefault(id_, []).append(digests[digest])
        facts: dict[KeyText, list[ReplayedRow]] = {}
        ids = sorted(wanted)
        for begin in range(0, len(ids), _LATER_RECORDS):
            records = map(_record, self.datacenter.records(ids[begin : begin + _LATER_RECORDS]))
            for record in sorted(records, key=lambda one: one.id):
                for step in steps(_document(record.id, record.data), self.present.tables[table.name]) or ():
                    if step.key in wanted[record.id]:
                        facts.setdefault(step.key, []).append(ReplayedRow(step.key, step.after))
        return facts

    def _read_later(self) -> None:
        """Reads the records written since the last call."""
        reached = self.datacenter.reached()
        if reached is None or reached.id <= self.read_upto:
            return
        for page in self.datacenter.pages(self.read_upto, reached.id):
            for record in map(_record, page):
                if not record.is_row:
                    if names := self.present.concerned(record):
                        what = f"its structure was changed while it was compared (record {record.id})"
                        raise Halted(_MOVED, what, where=Where(table=str(names[0])), todo="Compare again")
                elif (followed := self.present.tables.get(record.table)) is not None and followed.has_key:
                    for step in steps(_document(record.id, record.data), followed) or ():
                        is_whole = step.after is None or len(step.after) == len(followed.names)
                        self.store.put_later(key_digest(record.table, step.key), record.id, is_whole=is_whole)
        self.read_upto = reached.id

    def _break(self, taken: _RecordChange) -> None:
        name = taken.followed.table.name
        if self.reports[name].filtered:
            return
        pairs = zip(taken.followed.identity, taken.step.key, strict=True)
        named = ", ".join(f"{column}={plain_value(value)}" for column, value in pairs)
        self.broken.setdefault(name, f"of ({named}) after record {taken.id}")
        self.breaks[name] += 1

    def _count_others(self, passed: TableNames) -> None:
        for name in self.reports:
            if name in passed.whole:
                continue
            ((count,),) = query(self.source, f"SELECT COUNT(*) FROM {quoted_table(name)}")
            if (others := int(count) - self.recorded_rows[name]) > 0:
                self._add(name, not_compared=others)

    def _finished(self, report: TableReport) -> TableReport:
        if count := self.breaks[report.table]:
            more = f" (and {count - 1} more places)" if count > 1 else ""
            report = replace(report, problem=f"a change has no record: {self.broken[report.table]}{more}")
        return replace(report, note="; ".join(dict.fromkeys(self.notes.get(report.table, ()))))

    def _note(self, name: TableName, text: str) -> None:
        self.notes.setdefault(name, []).append(text)

    def _add(self, name: TableName, **counts: int) -> None:
        report = self.reports[name]
        self.reports[name] = replace(report, **{kind: getattr(report, kind) + count for kind, count in counts.items()})

    def _show_progress(self, id_: int, upto: int) -> None:
        self.callbacks.demand_not_stopped()
        name = TableName(self.config.target.database, DATA)
        doubtful = sum(map(len, self.doubtful.values()))
        wrong = sum(report.differences for report in self.reports.values())
        self.callbacks.show(ComparisonProgress(name, 1, 1, upto - id_ + 1, upto, doubtful, wrong))


class _NumberCheck:
    """Finds missing numbers of records, from `transfer_checkpoint` back to the oldest record."""

    def __init__(self, upto: int, first: int | None) -> None:
        """`first` is the id of the channel's first record; None if an early version has begun the channel."""
        self._upto, self._given_from = upto, first
        self.last = upto + 1
        self._tid: int | None = None
        self._gaps: list[str] = []
        self._lost = self._count = 0

    def take(self, id_: int, tid: int) -> None:
        """Checks the numbers of the next record. The records come from the last to the first."""
        self._count += 1
        if self._given_from is not None and self.last - 1 >= self._given_from:
            lost = self.last - max(id_, self._given_from - 1) - 1
            if lost > 0:
                self._lost += lost
                first, last = self.last - lost, self.last - 1
                self._gaps.append(f"record {first}" if lost == 1 else f"records {first} to {last}")
            elif self._tid is not None and not 0 <= self._tid - tid <= 1:
                self._gaps.append(f"tid {self._tid} of record {self.last} does not follow tid {tid}")
            elif id_ >= self.last:
                self._gaps.append(f"record {id_}, which exists twice")
        self.last, self._tid = id_, tid

    def report(self, name: TableName) -> TableReport:
        note = f"{self._count:,} records" + (f", from {self.last:,} to {self._upto:,}" if self._count else "")
        if self._given_from is None:
            note += "; it is not known whether numbers are missing: an earlier version of PiDTS has begun the channel"
        more = f" (and {len(self._gaps) - 1} more places)" if len(self._gaps) > 1 else ""
        problem = f"records are missing or were altered: {self._gaps[0]}{more}" if self._gaps else ""
        return TableReport(name, missing=self._lost, problem=problem, note=note)


def _rows(texts: Table, facts: Iterable[ReplayedRow]) -> Iterator[Values]:
    """Yields the rows, each completed by its key: an image with only some columns may lack the key."""
    identity = texts.identity
    for fact in facts:
        if fact.row is not None:
            has_key = all(name in fact.row for name in identity)
            yield fact.row if has_key else {**fact.row, **dict(zip(identity, fact.key, strict=True))}


def _record(row: Row) -> TransferRow:
    id_, tid, schema, table, instance, optype, data = row
    return TransferRow(id_, tid, TableName(schema or "", table or ""), instance or "", optype or "", data or "")


def _documents(records: Sequence[Row]) -> list[Any]:
    try:
        found = documents(row[6] or "" for row in records)
        if len(found) == len(records):
            return found
    except ValueError:
        pass
    return [_document(row[0], row[6] or "") for row in records]


def _document(id_: int, data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise Halted(
            "datacenter-altered",
            f"record {id_} has no JSON: {error}",
            where=Where(table=DATA),
            todo="Restore the record's data, or compare without its table (--tables)",
        ) from error


@lru_cache(1024)
def _image_kind(age: int, instance: str) -> int:
    """Returns a number. Row images with the same number can be compared: their structure and server are the same.

    Row images from two servers are not compared, since records may repeat after a failover without GTIDs.
    """
    digest = blake2b(f"{age} {instance}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big")
