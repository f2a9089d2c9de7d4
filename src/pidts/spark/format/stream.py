"""The stream reader of `format("binlog")`: offsets, limits and lag. Spark tasks decode the parts that it plans."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from pidts.excerpt.files import FIRST_EVENT
from pidts.excerpt.plan import Offset, ReadLimits, StreamPlan, TypedTable, only
from pidts.excerpt.rows import QueryView
from pidts.excerpt.store import RelayStore
from pidts.model import GtidSet, Lsn, Position, Transient, Where
from pidts.relay.structures import dialect_at, history_at
from pidts.schema import Dialect
from pidts.schema.evolve.known_structures import KnownStructures
from pidts.source import connect, position
from pidts.spark.format.column_types import fits, view_of
from pidts.spark.format.hosted_relay import HostedRelay, check_server
from pidts.spark.format.log_places import first_in_relay, first_on_server
from pidts.spark.format.options import LATEST, BinlogOptions
from pidts.spark.format.partitions import TaskReader, dealt

_WAIT_SECONDS = 0.4
"""The time for which one call waits for changes before it reports that there are none. Without waiting, Spark would ask
again at once, which costs more.
"""
_BEGIN_SECONDS = 120.0


class BinlogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans a stream. This object exists in the planner's process as long as the query runs."""

    def __init__(self, options: BinlogOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._host = HostedRelay(options.server, options.relay, options.source_id)
        self._goal: Lsn | None = None
        self._checked = False
        self._plan: StreamPlan | None = None
        self._dialect: Dialect | None = None
        self._at: Lsn | None = None

    def __reduce__(self) -> tuple[type[TaskReader], tuple[()]]:
        """Sends no fields to the tasks: no connection and no password leaves the planner."""
        return TaskReader, ()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns a new query's first offset. Spark may ask again before it replays the first batch (`partitions`)."""
        lsn = self._first()
        return {**Offset(lsn, self._host.identity(), None).to_json(), "initial": True}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Returns the limit that the options set."""
        options = self._options
        return ReadMaxRows(options.max_rows) if options.max_rows else ReadMaxBytes(options.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Notes the current end of the source's log, at which the query ends."""
        end = self._host.end_of_log()
        if end is not None:
            self._goal = Lsn.at(end, self._change_no())
        else:
            self._goal = self._host.reader.received

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns the end of the next batch, or `start` again if there is no new change."""
        offset = self._known(start)
        plan, limits = self._planner(offset), self._limits(limit)
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            seen = self._host.reader.received
            waiting = self._goal is not None and not self._reached(self._goal)
            end = None if waiting else plan.next(offset, limits)
            if end is not None:
                self._at = end.lsn
                began = {"from": offset.to_json()} if start.get("initial") else {}
                return {**end.to_json(), **began}
            if time.monotonic() >= deadline and not waiting:
                self._at = offset.lsn
                return start
            self._host.wait(seen, 0.2)

    def _limits(self, limit: ReadLimit) -> ReadLimits:
        if isinstance(limit, ReadAllAvailable):
            return ReadLimits(None, None, self._goal)
        return ReadLimits(self._options.max_rows, self._options.max_bytes, self._goal)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns the lag that the query's progress shows."""
        return self._host.lag(self._at)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Returns the partitions of a batch: byte ranges of whole transactions.

        If Spark replays the first batch, it has no record of the batch's start. So Spark calls `initialOffset` again,
        which may return another place by then. Therefore the end offset of the first batch also contains the batch's
        start.
        """
        if end.get("initial"):
            return []
        offset, upto = self._known(end.get("from", start)), Offset.from_json(end)
        plan = self._planner(offset)
        while not self._reached(upto.lsn):
            self._host.wait(self._host.reader.received, 0.2)
        view, store = self._view(offset), self._store()
        return dealt(
            store, view, plan.log_parts(offset, upto.lsn, self._options.partition_bytes), self._options.partition_bytes
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decodes a partition's rows in a Spark task."""
        return TaskReader().read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Removes all log up to an offset, which Spark no longer needs."""
        if not end.get("initial"):
            self._host.release(Lsn.parse(end["lsn"]))

    def stop(self) -> None:
        """Stops receiving the log, since the query ends."""
        self._host.close()

    def _first(self) -> Lsn:
        start, server = self._options.start or LATEST, self._options.server
        if server is None:
            return first_in_relay(self._host.reader, start, change_no=self._change_no())
        if isinstance(start, GtidSet):
            self._host.begin(str(start))
            return self._await_begin()
        found = first_on_server(server, start)
        return found if isinstance(start, Lsn) else replace(found, change_no=self._change_no())

    def _change_no(self) -> int:
        """Returns the number of failovers that the user's relay has seen; 0 for a temporary relay."""
        if self._options.relay is None:
            return 0
        origin = self._host.reader.origin
        return origin.change_no if origin else 0

    def _known(self, data: dict[str, Any]) -> Offset:
        """Begins to receive the log at an offset. Returns the offset, with the tables' structures at its place."""
        offset = Offset.from_json(data)
        if not self._checked:
            check_server(offset.server, self._host.identity(), self._where)
            self._host.begin(self._begin_at(offset.lsn))
            self._await_begin()
            self._checked = True
        if offset.history is not None:
            return offset
        history = self._await_history(offset.lsn)
        return Offset(offset.lsn, offset.server, only(history, self._options.allow))

    def _begin_at(self, lsn: Lsn) -> Position | None:
        server = self._options.server
        if server is None:
            return None
        with closing(connect(server)) as session:
            base = position(session)[0].base
        # The user may have named a row's Lsn, and a row cannot be read without the events before it.
        return Position.of(base, lsn.log_index, FIRST_EVENT if lsn == self._options.start else lsn.offset)

    def _await_begin(self) -> Lsn:
        deadline = time.monotonic() + _BEGIN_SECONDS
        while (first := self._host.reader.first) is None:
            if time.monotonic() > deadline:
                raise Transient("source-silent", "the source has sent no log", where=self._where)
            self._host.check()
            time.sleep(0.01)
        return first

    def _await_history(self, lsn: Lsn) -> KnownStructures:
        """Waits for the structures, which the replicator stores soon after it begins, and returns them.

        Does not wait for the log up to `lsn`. As long as that log is not received, the structures lack its later schema
        changes.
        """
        while True:
            try:
                return history_at(self._host.reader, lsn)
            except Transient:
                if self._options.server is None:
                    raise
            self._host.wait(None, 0)
            time.sleep(0.02)

    def _reached(self, lsn: Lsn) -> bool:
        received = self._host.reader.received
        return received is not None and received >= lsn

    def _store(self) -> RelayStore:
        return RelayStore(self._host.relay, self._options.source_id)

    def _view(self, offset: Offset) -> QueryView:
        if self._dialect is None:
            self._dialect = self._host.dialect() or dialect_at(self._host.reader, offset.lsn)
        return view_of(self._options, self._schema, self._dialect)

    def _planner(self, offset: Offset) -> StreamPlan:
        if self._plan is None:
            name, image = self._options.typed, self._schema["new"].dataType
            typed = TypedTable(name, partial(fits, wanted=image)) if name else None
            self._plan = StreamPlan(self._host.reader, self._store(), self._view(offset), typed)
        return self._plan

    @property
    def _where(self) -> Where:
        return self._options.server.where if self._options.server else Where(source=self._options.source_id)
