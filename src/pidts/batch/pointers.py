"""The parts of a batch that Spark hands out: pointers to data, never the data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pidts.model import Extent, Lsn, TableName
from pidts.plan import BatchPlan, ChunkRequest, LogSlice, PreparedSlice


@dataclass(frozen=True, slots=True)
class Pointer:
    """The work of one Spark task. At most one field is set. A pointer with no field set makes every worker run."""

    log: LogSlice | None = None
    write: ChunkRequest | None = None
    """The request whose waiting rows are written."""

    def to_json(self) -> str:
        """Returns the pointer as one text, which a data frame can contain."""
        data: dict[str, object] = {}
        if self.log:
            extent = self.log.extent
            data["log"] = [extent.segment, extent.offset, extent.size, str(self.log.begin), self.log.number]
            if self.log.commit:
                data["commit"] = [str(self.log.commit), self.log.commit_time]
            if self.log.more:
                data["more"] = [_prepared_to_json(group) for group in self.log.more]
            if self.log.only is not None:
                data["only"] = _names_to_json(self.log.only)
            if self.log.without:
                data["without"] = _names_to_json(self.log.without)
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
        """Returns the pointer from this text; the inverse of `to_json`."""
        data = json.loads(text)
        log = None
        if "log" in data:
            segment, offset, size, begin, number = data["log"]
            at, commit_time = data.get("commit", (None, 0))
            commit = None if at is None else Lsn.parse(at)
            only = _names_from_json(data["only"]) if "only" in data else None
            without = _names_from_json(data.get("without", []))
            log = LogSlice(
                Extent(segment, offset, size),
                Lsn.parse(begin),
                number,
                commit,
                only,
                without,
                commit_time,
                is_returned=data.get("returned", False),
                has_notes=data.get("notes", False),
                gaps=tuple((first, after) for first, after in data.get("gaps", [])),
                more=tuple(_prepared_from_json(segment, group) for group in data.get("more", [])),
            )
        write = ChunkRequest.from_json(data["write"]) if "write" in data else None
        return cls(log, write)


def _prepared_to_json(group: PreparedSlice) -> list[object]:
    return [group.extent.offset, group.extent.size, str(group.begin), str(group.commit), group.commit_time]


def _prepared_from_json(segment: int, data: list[Any]) -> PreparedSlice:
    offset, size, begin, commit, commit_time = data
    return PreparedSlice(Extent(segment, offset, size), Lsn.parse(begin), Lsn.parse(commit), commit_time)


def _names_to_json(names: Iterable[TableName]) -> list[list[str]]:
    return [[name.schema, name.name] for name in sorted(names)]


def _names_from_json(data: list[list[str]]) -> frozenset[TableName]:
    return frozenset(TableName(schema, name) for schema, name in data)


def pointers(plan: BatchPlan) -> list[Pointer]:
    """Returns all pointers of a batch. The first one is empty: it makes every worker move its checkpoint."""
    return [
        Pointer(),
        *(Pointer(log=piece) for piece in plan.log),
        *(Pointer(write=request) for request in plan.write),
    ]
