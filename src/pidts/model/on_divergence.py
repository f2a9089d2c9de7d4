"""The ways in which a task treats a row of the target that is not what the source says it was."""

from __future__ import annotations

from enum import StrEnum


class OnDivergence(StrEnum):
    """The values of `pidts.on-divergence`."""

    OVERWRITE = "overwrite"
    """Rows are not compared; the source's values win."""
    WARN = "warn"
    """The source's values win, and a log line says so."""
    LOCK = "lock"
    """The row is set aside with all its changes, until a person decides; all other rows go on."""
    HALT = "halt"
    """The table waits for an operator."""
