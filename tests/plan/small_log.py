"""A log written as short words, for tests of the planner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pidts.model import Checkpoint, Extent, LogEntry, Lsn, TableName, Transaction
from pidts.plan import Limits, PlanState, Relevance, RelevanceKind

START = Lsn(0, 1, 4)
LIMITS = Limits(transactions=100, idle_entries=50)


def table(name: str) -> TableName:
    return TableName("shop", name)


def log(text: str) -> list[LogEntry]:
    """Returns one entry for each word. A small letter is a row of the table of this name, a capital letter a DDL of
    this table.

    `ab` is a transaction with rows of tables a and b, and `AB` one DDL of both. `A+a` is a DDL with rows of its own:
    CREATE TABLE ... SELECT. `*` is a DDL whose tables are not known. The task carries no changes of table x.
    """
    entries, previous = [], START
    for number, word in enumerate(text.split()):
        lsn = Lsn(START.change_no, START.log_index, previous.offset + 100)
        ddl = "".join(letter for letter in word if letter.isupper() or letter == "*")
        rows = tuple(table(letter) for letter in word if letter.islower())
        transaction = Transaction(
            lsn=lsn,
            prev_lsn=previous,
            begin=previous,
            gtid=f"0-1-{number + 1}",
            row_events=len(rows),
            tables=rows,
            ddl=ddl or None,
        )
        entries.append(LogEntry(transaction, Extent(1, previous.offset, 100)))
        previous = lsn
    return entries


def tables_of(ddl: str) -> frozenset[TableName] | None:
    return None if ddl == "*" else frozenset(table(letter.lower()) for letter in ddl)


def relevance_of(entry: LogEntry) -> Relevance:
    transaction = entry.transaction
    if transaction.ddl:
        return Relevance(RelevanceKind.DDL, tables_of(transaction.ddl))
    ours = frozenset(name for name in transaction.tables if name.name != "x")
    return Relevance(RelevanceKind.ROWS, ours) if ours else Relevance(RelevanceKind.NOTHING)


def behind(entries: Iterable[LogEntry], at: Lsn, to: Lsn | None = None) -> Iterator[LogEntry]:
    return (entry for entry in entries if at < entry.transaction.lsn and (to is None or entry.transaction.lsn <= to))


def checkpoint(state: PlanState, worker: int = 0, run: int = 0) -> Checkpoint:
    return Checkpoint(task="t", source="s", worker=worker, lsn=state.lsn, copy=state.copy_json(run))
