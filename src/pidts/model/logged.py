"""The changes of a table one by one, in log order, before their net effect; for targets with change tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pidts.model.batch import ChangeBatch
from pidts.model.row_lock import SourceTransaction


@dataclass(frozen=True, slots=True)
class LoggedChanges:
    """Changes of one table of the source."""

    task: str
    source: str
    batch: ChangeBatch
    transactions: Sequence[SourceTransaction]
