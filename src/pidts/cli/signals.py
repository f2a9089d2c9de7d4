"""Stops a command on a signal: the first signal lets the command end cleanly, and a second Ctrl-C ends it at once.

The command's work has a thread of its own. If Spark's session were made in the main thread, Spark would handle Ctrl-C
itself, and cancel jobs that must finish.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TypeVar

from pidts.cli.forced_exit import end_within

Result = TypeVar("Result")

RUN_ENDS_WITHIN = 60.0
"""A run ends within this many seconds after a signal, and leaves unfinished work to the next run."""
_LEAVE = "stopping at the end of a transaction"
_AGAIN = "; press Ctrl-C again to end at once"
_AT_ONCE = "ended at once"
_CLEANS_UP = "the work has ended; the command ends after its clean-up"
_WAIT = "stopping, and removing everything that was started"
_SHOW_CURSOR = "\x1b[?25h"


def run_until_stopped(
    work: Callable[[threading.Event], Result],
    *,
    may_leave: bool = True,
    says: str = _LEAVE,
    again: str = _AGAIN,
    at_once: str = _AT_ONCE,
    ends_within: float | None = None,
) -> Result:
    """Calls `work` with an event that SIGINT and SIGTERM set, and returns its result or raises its error.

    - `says`: the message that is printed when a signal stops the work.
    - `may_leave`: whether a second Ctrl-C ends the process at once; False for work that has to clean up.
    - `again`: the message that a second Ctrl-C ends the process. `at_once`: its last line in that case.
    - `ends_within`: if the process still runs this many seconds after the first signal, it is ended as by `kill -9`.

    A caller may give `ends_within` only if the process ends with this work, and if the next process can continue from
    any state. With `ends_within`, signals are handled in this way until the process ends: a signal after the work does
    not interrupt the summary or the clean-up, and does not change the exit code.
    """
    stop, has_ended = threading.Event(), threading.Event()
    results: list[Result] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work(stop))
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            errors.append(error)

    def on_signal(number: int, _: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT and may_leave:
            cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
            with suppress(OSError):
                os.write(2, f"{cursor}\n{at_once}\n".encode())
            os._exit(1)
        if ends_within is not None and not stop.is_set():
            end_within(ends_within)
        stop.set()
        ending = _CLEANS_UP if has_ended.is_set() else says
        said = f"{ending}{again if number == signal.SIGINT else ''}" if may_leave else _WAIT
        with suppress(OSError):  # in `pidts run ... 2>&1 | tee`, the same Ctrl-C has also ended `tee`
            os.write(2, f"\n{said}\n".encode())

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        thread = threading.Thread(target=body, name="work", daemon=True)
        thread.start()
        while thread.is_alive():
            # During a join without a time limit, signals would not be handled.
            thread.join(0.1)
    finally:
        has_ended.set()
        if ends_within is None:
            for number, handler in before.items():
                signal.signal(number, handler)
    if errors:
        raise errors[0]
    return results[0]
