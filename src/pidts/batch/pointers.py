"""What a batch consists of, for Spark to hand out: pointers to data, never the data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from pidts.model import Extent, Lsn, TableName
from pidts.plan import BatchPlan, ChunkRequest, LogSlice


@dataclass(frozen=True, slots=True)
class Pointer:
    """One thing for one Spark task to do; exactly one field is set, or none: then it only wakes every worker."""

    log: LogSlice | None = None
    write: ChunkRequest | None = None
    """Of which the rows that wait are written."""

    def to_json(self) -> str:
        """One text: what a pointer is inside a data frame."""
        data: dict[str, object] = {}
        if self.log:
            extent = self.log.extent
            data["log"] = [extent.segment, extent.offset, extent.size, str(self.log.begin), self.log.number]
            if self.log.commit:
                data["commit"] = str(self.log.commit)
            if self.log.only is not None:
                data["only"] = _names_to_json(self.log.only)
            if self.log.without:
                data["without"] = _names_to_json(self.log.without)
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
            commit = Lsn.parse(data["commit"]) if "commit" in data else None
            only = _names_from_json(data["only"]) if "only" in data else None
            without = _names_from_json(data.get("without", []))
            log = LogSlice(Extent(segment, offset, size), Lsn.parse(begin), number, commit, only, without)
        write = ChunkRequest.from_json(data["write"]) if "write" in data else None
        return cls(log, write)


def _names_to_json(names: Iterable[TableName]) -> list[list[str]]:
    return [[name.schema, name.name] for name in sorted(names)]


def _names_from_json(data: list[list[str]]) -> frozenset[TableName]:
    return frozenset(TableName(schema, name) for schema, name in data)


def pointers(plan: BatchPlan) -> list[Pointer]:
    """All there is to do in a batch, the empty pointer first: every worker has a checkpoint to move."""
    return [
        Pointer(),
        *(Pointer(log=piece) for piece in plan.log),
        *(Pointer(write=request) for request in plan.write),
    ]
