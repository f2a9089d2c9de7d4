"""The streaming source that hands out pointers to a batch's parts, never rows.

Spark runs the planning side in a Python process of its own beside the JVM, and each pointer's `read` in pooled workers.
The offset of a batch is the planner's whole state after it, so any two neighbouring offsets describe the batch between.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from pidts.batch.copy.staging import staged_chunk
from pidts.batch.pointers import pointers
from pidts.batch.relevance import Meaning
from pidts.ddl.planner_signals import done_of, halted_of, kept_of
from pidts.model import LogEntry, Lsn, TableName
from pidts.plan import Limits, PlanState, StagedChunk, next_state, plan_between
from pidts.plan.continuity import UpToBreak
from pidts.relay import RelayReader
from pidts.spark.failures import carried

_POLL_SECONDS, _IDLE_POLL_SECONDS = 0.004, 0.025
_BUSY_SECONDS = 1.0
"""The time after the last work in which new work is looked for often.

Where nothing happens, that would cost 4 % of a core.
"""
_WAIT_SECONDS = 0.4
"""The time for which one call looks for work before it reports none: Spark's own polling is busier than this."""


@dataclass(frozen=True, slots=True)
class SliceOptions:
    """The planner's options.

    They are pickled into a file that only this user can read; the source's option names the file.
    """

    relay: Path
    source_id: str
    staging: Path
    start: PlanState
    limits: Limits
    meaning: Meaning
    goal: Lsn | None

    def save(self, path: Path) -> None:
        """Write the file."""
        path.touch(mode=0o600)
        path.write_bytes(pickle.dumps(self))

    @classmethod
    def load(cls, path: str) -> SliceOptions:
        """Read the file, which `save` of this same run wrote."""
        options = pickle.loads(Path(path).read_bytes())  # noqa: S301 - our own file, mode 0600, in our own folder
        if not isinstance(options, cls):
            raise TypeError(f"{path} does not hold slice options")
        return options


class SliceSource(DataSource):
    """The data source `format("pidts-slices")`."""

    @classmethod
    def name(cls) -> str:
        """Returns the name by which Spark knows the source."""
        return "pidts-slices"

    def schema(self) -> str:
        """A pointer is one text."""
        return "pointer string"

    def streamReader(self, schema: StructType) -> SliceReader:  # noqa: N802, ARG002 - Spark's name
        """The planning side."""
        return SliceReader(self.options["options"])


class SliceReader(DataSourceStreamReader):
    """Plans batches over the relay's index."""

    def __init__(self, path: str) -> None:
        self._options = SliceOptions.load(path)
        self._relay: RelayReader | None = None
        self._worked = time.monotonic()

    def _open(self) -> RelayReader:
        if self._relay is None:
            self._relay = RelayReader(self._options.relay, self._options.source_id)
        return self._relay

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The target's checkpoint. Spark asks twice; the answer is the same."""
        return {"state": self._options.start.to_json()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002 - Spark's
        """The state after the next batch; `start` again where there is no work."""
        with carried():
            return self._next(PlanState.from_json(start["state"]), start)

    def _next(self, state: PlanState, start: dict[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic() + _WAIT_SECONDS
        seen: tuple[Lsn | None, frozenset[Lsn], frozenset[TableName]] | None = None
        while True:
            staging = self._options.staging
            known = self._open().received, done_of(staging, state.dues), kept_of(staging)
            if known != seen or state.reading:
                seen = known
                after = self._plan(state, known[1], known[2])
                if after is not None:
                    self._worked = time.monotonic()
                    return {"state": after.to_json()}
            now = time.monotonic()
            if now >= deadline:
                return start
            time.sleep(_POLL_SECONDS if now - self._worked < _BUSY_SECONDS else _IDLE_POLL_SECONDS)

    def _plan(self, state: PlanState, done: frozenset[Lsn], kept: frozenset[TableName]) -> PlanState | None:
        options = self._options
        staged = {}
        for request in state.reading:
            chunk: StagedChunk | None = staged_chunk(options.staging, request)
            if chunk is not None:
                staged[request.table] = chunk
        read: list[UpToBreak] = []

        def log(at: Lsn, to: Lsn | None) -> Iterable[LogEntry]:
            read.append(UpToBreak(self._open().entries(at, to, joined=True)))
            return read[-1]

        halted = halted_of(options.staging, state.dues)
        after = next_state(state, log, staged, options.limits, options.meaning, options.goal, done, halted, kept)
        broken = next((entries.broken for entries in read if entries.broken is not None), None)
        if after is None and broken is not None:
            raise broken
        return after

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns the end of the relay, so that the lag shows in the query's progress."""
        return {"received": str(self._open().received)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns one pointer a partition."""
        first, last = PlanState.from_json(start["state"]), PlanState.from_json(end["state"])
        with carried():
            plan = plan_between(first, last, partial(self._open().entries, joined=True), self._options.meaning)
        return [InputPartition(pointer.to_json()) for pointer in pointers(plan)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """The pointer itself."""
        yield (partition.value,)
