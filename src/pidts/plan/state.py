"""Where a task stands: what is applied, and what the batch that led here consisted of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from pidts.model import Lsn, TableName
from pidts.plan.copying import ChunkRequest, CopyState


class BatchKind(StrEnum):
    """What a batch does to the target."""

    ROWS = "rows"
    DDL = "ddl"


@dataclass(frozen=True, slots=True)
class PlanState:
    """The state after a batch. Two neighbouring states and the relay say everything about the batch between them."""

    lsn: Lsn
    copy: Mapping[TableName, CopyState] = field(default_factory=dict)
    kind: BatchKind = BatchKind.ROWS
    written: tuple[ChunkRequest, ...] = ()
    """Chunks that the batch wrote."""

    @property
    def copying(self) -> bool:
        """True until every table is copied."""
        return any(not state.done for state in self.copy.values())

    @property
    def reading(self) -> tuple[ChunkRequest, ...]:
        """Chunks that the batch read."""
        return tuple(state.reading for state in self.copy.values() if state.reading is not None)

    def durable(self) -> PlanState:
        """What a restart begins with: chunks that were read but not written do not count."""
        copy = {name: replace(state, reading=None) for name, state in self.copy.items()}
        return PlanState(self.lsn, copy)

    def copy_json(self) -> str:
        """The copy's progress as it is kept in the target's checkpoint; empty where nothing is copied."""
        return json.dumps(_copy_to_json(self.durable().copy)) if self.copy else ""

    @classmethod
    def from_checkpoint(cls, lsn: Lsn, copy_json: str) -> PlanState:
        """The state that a checkpoint describes."""
        return cls(lsn, _copy_from_json(json.loads(copy_json)) if copy_json else {})

    def to_json(self) -> str:
        """One text, since Spark's offsets hold only flat values."""
        return json.dumps(
            {
                "lsn": str(self.lsn),
                "copy": _copy_to_json(self.copy),
                "kind": self.kind.value,
                "written": [request.to_json() for request in self.written],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> PlanState:
        """The inverse of `to_json`."""
        data = json.loads(text)
        return cls(
            lsn=Lsn.parse(data["lsn"]),
            copy=_copy_from_json(data["copy"]),
            kind=BatchKind(data["kind"]),
            written=tuple(ChunkRequest.from_json(item) for item in data["written"]),
        )


def _copy_to_json(copy: Mapping[TableName, CopyState]) -> list[Any]:
    return [[name.schema, name.name, state.to_json()] for name, state in copy.items()]


def _copy_from_json(data: list[Any]) -> dict[TableName, CopyState]:
    return {TableName(schema, name): CopyState.from_json(state) for schema, name, state in data}
