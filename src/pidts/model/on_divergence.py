"""What a task does if a row of the target differs from the row that the source had."""

from __future__ import annotations

from enum import StrEnum


class OnDivergence(StrEnum):
    """The values of `pidts.on-divergence`."""

    OVERWRITE = "overwrite"
    """Rows are not compared. The source's values are written."""
    WARN = "warn"
    """The source's values are written, and a warning is logged."""
    LOCK = "lock"
    """The row is set aside with all its changes until an operator decides; all other rows go on."""
    HALT = "halt"
    """The table waits for an operator."""
