"""Change events: the form that consumers see, whatever kind of database a change comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from pidts.model.lsn import Lsn
from pidts.model.table import TableName


class Op(IntEnum):
    """The kind of a change. `COPY`: a row that a copy read. `ABSENT`: a key without a row on the source."""

    COPY = 0
    INSERT = 1
    UPDATE = 2
    DELETE = 3
    ABSENT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent:
    """A change, with its place in the order of its source's log.

    `prev_lsn` is the Lsn of the previous change in the same transaction; for the first change, the Lsn of the previous
    transaction.
    """

    lsn: Lsn
    prev_lsn: Lsn
    source_zone_id: int
    is_retry: bool = False
    timestamp: int = 0
    """When the source executed the change, in seconds since 1970 UTC."""
    gtid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChange(ChangeEvent):
    """One row inserted, updated or deleted: `old_data` is None for an insert, `new_data` for a delete."""

    table: TableName
    old_data: Mapping[str, Any] | None
    new_data: Mapping[str, Any] | None

    def __post_init__(self) -> None:
        if self.old_data is None and self.new_data is None:
            raise ValueError(f"a change of {self.table} without any image")

    @property
    def op(self) -> Op:
        """Returns the operation, which the existing images determine."""
        if self.old_data is None:
            return Op.INSERT
        return Op.DELETE if self.new_data is None else Op.UPDATE


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaEvent(ChangeEvent):
    """A DDL statement as the source ran it, with the current database."""

    schema: str
    statement: str
