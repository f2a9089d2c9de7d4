"""The note about a batch that becomes a Spark job, and the data from which the batch's pointers are made.

This module does not import Spark, since a task without a job never loads Spark.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pidts.batch.transaction_classifier import TransactionClassifier
from pidts.durable_folder import replace_file
from pidts.plan import PlanState


@dataclass(frozen=True, slots=True)
class SliceOptions:
    """The data from which the pointers of a batch are made.

    The object is pickled into a file that only this user can read; an option of the data source names the file.
    """

    relay: Path
    source_id: str
    classifier: TransactionClassifier
    note: Path
    """The file in which the driver writes the note for the next offset."""

    def save(self, path: Path) -> None:
        """Writes these options into a file."""
        path.touch(mode=0o600)
        path.write_bytes(pickle.dumps(self))

    @classmethod
    def load(cls, path: str) -> SliceOptions:
        """Reads the file, which `save` wrote in this same run."""
        options = pickle.loads(Path(path).read_bytes())  # noqa: S301 - our own file, mode 0600, in our own folder
        if not isinstance(options, cls):
            raise TypeError(f"{path} does not hold slice options")
        return options


@dataclass(frozen=True, slots=True)
class JobNote:
    """A batch that becomes a Spark job: the states before and after it, and the time at which it was planned."""

    before: PlanState
    after: PlanState
    planned: float

    def save(self, path: Path) -> None:
        """Writes the note for the next offset. The file appears complete or not at all."""
        note = {"before": self.before.to_json(), "after": self.after.to_json(), "planned": self.planned}
        replace_file(path, json.dumps(note), durable=False)

    @classmethod
    def of(cls, offset: dict[str, Any]) -> JobNote | None:
        """Returns the note in an offset; None if the offset has no note."""
        if "before" not in offset:
            return None
        return cls(PlanState.from_json(offset["before"]), PlanState.from_json(offset["after"]), offset["planned"])
