"""The record of a deleted row; the target keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from pidts.model.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Keeps an event that is older than the deletion from bringing the row back."""

    key: str
    """The row's identity, see `pidts.apply.rows.tombstone_keys.key_texts`."""
    version: str | None
    """The version of the row that was deleted."""
    source: str
    lsn: Lsn
    """The place where `source` logged the deletion."""
