"""Says what a command waits for, if this takes longer than a user expects, and ends a wait that takes too long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from pidts.model import Transient

Result = TypeVar("Result")

_SAYS_AFTER = 2.0
GIVES_UP_AFTER = 60.0


def with_answer(ask: Callable[[], Result], target: str, *, limit: float = GIVES_UP_AFTER) -> Result:
    """Calls `ask` in a thread, and returns its result or raises its error; the time is limited as in `asked`."""
    return asked(ask, target, limit=limit)()


def asked(ask: Callable[[], Result], target: str, *, limit: float = GIVES_UP_AFTER) -> Callable[[], Result]:
    """Calls `ask` in a thread, and returns a function that waits for its result or raises its error.

    Two seconds after the call, this function prints on stderr that the target has not answered yet. `limit` seconds
    after the call, it raises an error. The thread goes on until the process ends, since a driver's call cannot be
    ended.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def body() -> None:
        try:
            results.append(ask())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=body, name="ask", daemon=True)
    thread.start()
    began = time.monotonic()

    def wait_until(seconds: float) -> None:
        thread.join(max(began + seconds - time.monotonic(), 0.0))

    def answer() -> Result:
        wait_until(min(_SAYS_AFTER, limit))
        if thread.is_alive():
            print(f"{target} has not answered yet; the command waits", file=sys.stderr, flush=True)
            wait_until(limit)
        if errors:
            raise errors[0]
        if not results:
            todo = "Does the server run, and is it overloaded? Then repeat the command"
            what = f"{target} has not answered within {limit:.0f} seconds"
            raise Transient("target-unreachable", what, todo=todo)
        return results[0]

    return answer
