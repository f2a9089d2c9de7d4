"""Work that ends when it is asked to: the first signal asks, a second Ctrl-C need not wait.

The work runs in a thread of its own. Spark takes Ctrl-C for itself wherever its session is made in the main thread, and
then cancels what it should finish.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

Result = TypeVar("Result")

_LEAVE = b"\nstopping at the end of a transaction; Ctrl-C again leaves at once\n"
_WAIT = b"\nstopping, and taking everything away again\n"
_SHOW_CURSOR = "\x1b[?25h"


def run_until_stopped(work: Callable[[threading.Event], Result], *, may_leave: bool = True) -> Result:
    """Call `work` with an event that SIGINT and SIGTERM set; its result or its error is the caller's.

    `may_leave` lets a second Ctrl-C end the process at once: not for work that has to take away what it has made.
    """
    stop = threading.Event()
    results: list[Result] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(work(stop))
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            errors.append(error)

    def on_signal(number: int, _: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT and may_leave:
            if sys.stderr.isatty():
                os.write(2, _SHOW_CURSOR.encode())
            os._exit(1)
        os.write(2, _LEAVE if may_leave else _WAIT)
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        thread = threading.Thread(target=body, name="work", daemon=True)
        thread.start()
        while thread.is_alive():
            # A join without a limit would keep signals waiting, too.
            thread.join(0.1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if errors:
        raise errors[0]
    return results[0]
