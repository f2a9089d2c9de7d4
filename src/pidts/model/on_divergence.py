"""The choices for a row of the target that differs from the source's row before a change."""

from __future__ import annotations

from enum import StrEnum


class OnDivergence(StrEnum):
    """The values of `pidts.on-divergence`."""

    OVERWRITE = "overwrite"
    """Rows are not compared. The source's values are written."""
    WARN = "warn"
    """The source's values are written, and a warning is logged."""
    LOCK = "lock"
    """The row is set aside with all its changes until an operator decides. Changes of other rows are applied."""
    HALT = "halt"
    """The table waits for an operator."""
