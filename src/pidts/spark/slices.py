"""The streaming source that hands out pointers to a batch's parts, never rows.

The driver plans every batch, see `pidts.spark.planning`, and does the small ones itself. For one that is to be a job it
leaves a note of the states before and after, and returns from Spark's call. The note is the next offset, and the job's
partitions are the pointers of the batch between the two states. Without a note the two are equal, and there is nothing
to do for a job: Spark's next call comes at once, and the driver goes on planning in it.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from pidts.batch.pointers import pointers
from pidts.batch.relevance import Meaning
from pidts.plan import PlanState, plan_between
from pidts.relay import RelayReader
from pidts.spark.failures import carried


@dataclass(frozen=True, slots=True)
class SliceOptions:
    """What tells the pointers of a batch.

    They are pickled into a file that only this user can read; the source's option names the file.
    """

    relay: Path
    source_id: str
    meaning: Meaning
    note: Path
    """The file in which the driver leaves the batch of the next offset."""

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


@dataclass(frozen=True, slots=True)
class JobNote:
    """A batch that is to be a job: the states before and after it, and when it was planned."""

    before: PlanState
    after: PlanState
    planned: float

    def save(self, path: Path) -> None:
        """Leave the note for the next offset; it appears whole or not at all."""
        written = path.with_suffix(".new")
        written.write_text(
            json.dumps({"before": self.before.to_json(), "after": self.after.to_json(), "planned": self.planned})
        )
        written.replace(path)

    @classmethod
    def of(cls, offset: dict[str, Any]) -> JobNote | None:
        """Returns the note that an offset holds; None where the driver had left none."""
        if "before" not in offset:
            return None
        return cls(PlanState.from_json(offset["before"]), PlanState.from_json(offset["after"]), offset["planned"])


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
    """Makes offsets of the driver's notes, and partitions of offsets."""

    def __init__(self, path: str) -> None:
        self._options = SliceOptions.load(path)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Before the first call."""
        return {"number": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802, ARG002 - Spark's
        """Returns the driver's note with a new number: Spark calls the driver only if the offset is a new one."""
        offset = {"number": start["number"] + 1}
        with suppress(FileNotFoundError):
            offset |= json.loads(self._options.note.read_text())
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """Returns one pointer a partition."""
        note = JobNote.of(end)
        if note is None:
            return []
        with carried():
            relay = RelayReader(self._options.relay, self._options.source_id)
            log = partial(relay.entries, joined=True)
            plan = plan_between(note.before, note.after, log, self._options.meaning)
            relay.close()
        return [InputPartition(pointer.to_json()) for pointer in pointers(plan)]

    def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
        """The pointer itself."""
        yield (partition.value,)
