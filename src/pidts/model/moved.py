"""The record of a row that may have moved between tables that become one; the target keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model.lsn import Lsn
from pidts.model.table import TableName


@dataclass(frozen=True, slots=True)
class Moved:
    """A table of the source has this key, and got it while another one was behind."""

    member: TableName
    key: str
    """The row's identity, see `pidts.apply.merge.moved_rows.key_names`."""
    lsn: Lsn
    """The Lsn of the change by which it got the key."""
