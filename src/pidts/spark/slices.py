"""The streaming source that gives Spark tasks pointers to the parts of a batch, never rows.

The driver plans every batch, see `pidts.spark.planning`, and carries out small batches itself. If a batch becomes a
job, the driver leaves a note with the states before and after the batch. This note is the query's next offset, and the
job's partitions are the pointers of the batch. If there is no note, Spark's next job has no partitions, and the call
that Spark makes for it carries out no batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from pidts.batch.pointers import pointers
from pidts.plan import plan_between
from pidts.relay import RelayReader
from pidts.spark.failures import carried
from pidts.spark.job_note import JobNote, SliceOptions


class SliceSource(DataSource):
    """The data source `format("pidts-slices")`."""

    @classmethod
    def name(cls) -> str:
        """Returns the name by which Spark knows this data source."""
        return "pidts-slices"

    def schema(self) -> str:
        """Returns the schema: a pointer is one text."""
        return "pointer string"

    def streamReader(self, schema: StructType) -> SliceStreamReader:  # noqa: N802, ARG002 - Spark's name
        """Returns the reader, which plans the partitions."""
        return SliceStreamReader(self.options["options"])


class SliceStreamReader(DataSourceStreamReader):
    """Makes Spark's offsets from the driver's notes, and the partitions of a job from the offset at its end."""

    def __init__(self, path: str) -> None:
        self._options = SliceOptions.load(path)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Returns the offset before the first call."""
        return {"number": 0}

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:  # noqa: N802, ARG002
        """Returns the note with a new number, without which Spark makes no call. Before Spark 4.2, `start` is None."""
        offset = {"number": time.time_ns() if start is None else start["number"] + 1}
        with suppress(FileNotFoundError):
            offset |= json.loads(self._options.note.read_text())
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """Returns one partition for each pointer."""
        note = JobNote.of(end)
        if note is None:
            return []
        with carried():
            relay = RelayReader(self._options.relay, self._options.source_id)
            log = partial(relay.entries, joined=True)
            plan = plan_between(note.before, note.after, log, self._options.classifier)
            relay.close()
        return [InputPartition(pointer.to_json()) for pointer in pointers(plan)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """Yields the pointer itself."""
        yield (partition.value,)
