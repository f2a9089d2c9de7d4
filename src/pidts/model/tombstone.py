"""What a target remembers of a row that was deleted."""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Keeps an event that is older than the deletion from bringing the row back."""

    key: str
    """The row's identity, see `pidts.apply.tombstone.key_texts`."""
    version: str | None
    """Of the row that was deleted."""
    source: str
    lsn: Lsn
    """Where `source` logged the deletion."""
