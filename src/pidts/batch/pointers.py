"""Defines what Spark gives to its tasks for a batch: pointers to data, never the data."""

from __future__ import annotations

import json
from array import array
from dataclasses import dataclass
from typing import Any

from pidts.model import CommittedEventGroups, Extent, Lsn
from pidts.model.table import names_from_json, names_to_json
from pidts.plan import BatchPlan, ChunkRequest, LogSlice


@dataclass(frozen=True, slots=True)
class Pointer:
    """The work of one Spark task: at most one field is set. Without any, the pointer only makes every worker run."""

    log: LogSlice | None = None
    write: ChunkRequest | None = None
    """The request whose staged rows are written."""

    def to_json(self) -> str:
        """Returns the pointer as one text for a data frame."""
        data: dict[str, object] = {}
        if self.log:
            extent = self.log.extent
            data["log"] = [extent.segment, extent.offset, extent.size, str(self.log.begin), self.log.number]
            if self.log.groups is not None:
                data["groups"] = _groups_to_json(self.log.groups)
            if self.log.only is not None:
                data["only"] = names_to_json(self.log.only)
            if self.log.without:
                data["without"] = names_to_json(self.log.without)
            if self.log.is_returned:
                data["returned"] = True
            if self.log.has_notes:
                data["notes"] = True
            if self.log.gaps:
                data["gaps"] = self.log.gaps
        if self.write:
            data["write"] = self.write.to_json()
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str) -> Pointer:
        """The inverse of `to_json`."""
        data = json.loads(text)
        log = None
        if "log" in data:
            segment, offset, size, begin, number = data["log"]
            only = names_from_json(data["only"]) if "only" in data else None
            without = names_from_json(data.get("without", []))
            log = LogSlice(
                Extent(segment, offset, size),
                Lsn.parse(begin),
                number,
                _groups_from_json(data["groups"]) if "groups" in data else None,
                only,
                without,
                is_returned=data.get("returned", False),
                has_notes=data.get("notes", False),
                gaps=tuple((first, after) for first, after in data.get("gaps", [])),
            )
        write = ChunkRequest.from_json(data["write"]) if "write" in data else None
        return cls(log, write)


def _groups_to_json(groups: CommittedEventGroups) -> list[object]:
    numbers = memoryview(groups.numbers).cast("q").tolist()
    return [groups.segment, str(groups.begin), str(groups.commit), numbers]


def _groups_from_json(data: list[Any]) -> CommittedEventGroups:
    segment, begin, commit, numbers = data
    return CommittedEventGroups(segment, Lsn.parse(begin), Lsn.parse(commit), array("q", numbers).tobytes())


def pointers(plan: BatchPlan) -> list[Pointer]:
    """Returns all pointers of a batch. The first one is empty: even workers without rows move their checkpoints."""
    return [
        Pointer(),
        *(Pointer(log=piece) for piece in plan.log),
        *(Pointer(write=request) for request in plan.write),
    ]
