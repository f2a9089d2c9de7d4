"""A task whose target refuses a value: the table of the refused row halts, and other tables continue."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any

from tests.pipeline.values_source import ValuesSource
from tests.refusing_target import RefusingTarget
from tests.target.conformance.samples import create
from tests.values_target import ValuesTarget

from pidts.apply import ApplyRules, Committer
from pidts.batch.applying import apply, apply_long
from pidts.batch.blobs import Blob
from pidts.batch.log_parts import LogPart
from pidts.batch.workers import Commit, Workers
from pidts.model import ChangeBatch, Checkpoint, Halted, Lsn, Table, TableName
from pidts.plan import Limits, Relevance, RelevanceKind, next_state, plan_between
from pidts.reduce import buckets

REFUSED = 7
numbers = itertools.count()


class RefusingTask:
    """The source, the target and the runs of a task, one after the other. A run forgets its halts when it dies."""

    def __init__(
        self,
        tables: Mapping[TableName, Table],
        target_tables: Iterable[Table],
        workers: int,
        limits: Limits,
        rules: ApplyRules | None = None,
        split: int | None = None,
    ) -> None:
        """`split`: each transaction is so large that it is committed in parts of this many rows."""
        self.tables, self.workers, self.limits, self.rules, self.split = tables, workers, limits, rules, split
        self.order: Callable[[range], Iterable[int]] = iter
        """Returns the order in which the workers, which in truth work side by side, apply a batch."""
        self.source = ValuesSource(list(tables.values()))
        self.target = ValuesTarget(f"refuses {next(numbers)}")
        self.refusing = RefusingTarget(self.target, "v", REFUSED)
        session = self.target.connect()
        for table in target_tables:
            create(session, table)
        session.close()
        self.first = Checkpoint(task="t", source="s", worker=0, lsn=self.source.received)

    def log(self, at: Lsn, to: Lsn | None = None) -> Any:
        return self.source.entries(at, to)

    def run(self) -> dict[TableName, Halted]:
        """Runs until there is nothing left to do, and returns the source's tables that have halted."""
        halted: dict[TableName, Halted] = {}
        while True:
            try:
                self.attempt(set(halted))
            except Halted as error:
                (name,) = (name for name in self.tables if str(name) == error.where.table)
                assert name not in halted, "what is halted is left alone"
                halted[name] = error
            else:
                return halted

    def attempt(self, halted: set[TableName]) -> None:
        session = self.target.connect()
        claimed = tuple(session.meta.checkpoints.claim("t", "s", self.workers, self.first))
        session.close()
        workers, state, _ = Workers.claimed(claimed)
        state = state.halting(halted)
        self.before_batch(workers.checkpoints)
        committer = Committer(self.refusing, "t", "s", claimed[0].epoch, rules=self.rules, sleep=lambda _: None)
        while (end := next_state(state, self.log, {}, self.limits, relevance_of)) is not None:
            plan = plan_between(state, end, self.log, relevance_of)
            split = None if plan.moves_held else self.split
            moved = workers.moved(end)
            commit = Commit(workers.checkpoints, moved.checkpoints)
            blobs: list[list[Blob]] = [[] for _ in range(self.workers)]
            for name, table in self.tables.items():
                if state.at(name) == end.at(name):
                    continue
                # Like a slice of the log, the changes begin at the transaction in which the table's place is.
                begin = next(iter(self.log(state.at(name)))).transaction.prev_lsn
                for batch in self.source.decode(begin, end.at(name).at_row(1), {name: table}):
                    for worker, part in enumerate(buckets(self.for_target(batch), self.workers)):
                        if part is not None:
                            blobs[worker].append(Blob(worker, 1 + (state.at(name) == state.lsn), part))
            for worker in self.order(range(self.workers)):
                if self.split is None:
                    apply(committer, commit, worker, blobs[worker])
                else:
                    # The slices of tables that catch up come first.
                    found = sorted(blobs[worker], key=lambda blob: blob.order)
                    log_parts = [
                        LogPart([blob.changes for blob in mine], Lsn(0, 1, 4))
                        for _, mine in groupby(found, key=lambda blob: blob.order)
                    ]
                    apply_long(committer, commit, worker, lambda those=log_parts: those, split)
            state, workers = end, moved
            self.before_batch(workers.checkpoints)
        committer.close()

    def before_batch(self, checkpoints: tuple[Checkpoint, ...]) -> None:
        """Called between batches, and before the first one."""

    def for_target(self, batch: ChangeBatch) -> ChangeBatch:
        """Returns the rows of a source's table as rows of the target's table."""
        return batch


def relevance_of(entry: Any) -> Relevance:
    if not entry.transaction.row_events:
        return Relevance(RelevanceKind.NOTHING)
    return Relevance(RelevanceKind.ROWS, frozenset(entry.transaction.tables))
