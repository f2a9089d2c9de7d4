"""What a task does where the target's row is not what the source says it was."""

from __future__ import annotations

from enum import StrEnum


class OnDivergence(StrEnum):
    """The values of `pidts.on-divergence`."""

    OVERWRITE = "overwrite"
    """Rows are not compared; the source's values win."""
    WARN = "warn"
    """The source's values win, and a log line says so."""
    HALT = "halt"
    """The table waits for an operator."""
