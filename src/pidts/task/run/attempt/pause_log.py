"""Logs why a run pauses after an attempt: one line for each cause, not one for each attempt."""

from __future__ import annotations

import structlog

from pidts.model import Transient

_log = structlog.get_logger(__name__)


class PauseLog:
    """The log lines about the pauses of one part of a task."""

    def __init__(self, source: str) -> None:
        self._source, self._logged = source, ("", "")

    def paused(self, error: Transient, seconds: float, *, has_progressed: bool) -> None:
        """Logs the pause, unless the last pause had the same cause and no batch was committed in between."""
        cause = _cause(error)
        if has_progressed or cause != self._logged:
            _log.warning(
                "paused, going on from the target's checkpoint",
                source=self._source,
                code=error.code,
                cause=str(error),
                pause=seconds,
            )
        self._logged = cause


def _cause(error: BaseException) -> tuple[str, str]:
    """Returns the code and the text of an error, without the number of tries.

    If a commit was tried several times, its error names the number of tries, and has the last try's error as its
    `__cause__`. With the number, equal causes would look different.
    """
    first = error.__cause__
    if isinstance(error, Transient) and isinstance(first, Transient) and first.code == error.code:
        return _cause(first)
    return getattr(error, "code", ""), str(error)
