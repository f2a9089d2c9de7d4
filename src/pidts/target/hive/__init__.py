"""Hive tables as a target: a warehouse of Iceberg tables, whose states are published to a Hive metastore.

Tasks write to the warehouse. A published table is a complete state of the warehouse's table at one Lsn, in files that
Hive and Spark can read directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pidts.target.iceberg import IcebergTarget, with_packages

if TYPE_CHECKING:
    from pidts.target.hive.session import HiveSession


@dataclass(frozen=True, slots=True)
class HiveTarget(IcebergTarget):
    """The configuration of a warehouse whose tables are published."""

    keeps_changes: bool = False
    """Whether each table gets a change table."""

    def connect(self) -> HiveSession:
        """Returns a new session."""
        with with_packages("hive"):
            from pidts.target.hive.session import HiveSession
        return HiveSession(
            self.warehouse,
            self.catalog,
            self.meta_schema,
            refuses_unreal=self.refuses_unreal,
            keeps_changes=self.keeps_changes,
            files=self.files,
        )
