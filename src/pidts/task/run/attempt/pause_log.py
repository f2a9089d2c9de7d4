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
        """Logs a pause of `seconds` if its cause is another one than before, or if a batch was committed since."""
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
    """Returns the code and the text of the error that was repeated.

    The error of a commit that was tried several times has the number of attempts in its text, and was raised from the
    error of the last of them.
    """
    first = error.__cause__
    if isinstance(error, Transient) and isinstance(first, Transient) and first.code == error.code:
        return _cause(first)
    return getattr(error, "code", ""), str(error)
