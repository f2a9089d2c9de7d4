"""Says what a command waits for, if this takes longer than a user expects, and ends a wait that takes too long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from pidts.model import Transient

Result = TypeVar("Result")

_SAYS_AFTER = 2.0
GIVES_UP_AFTER = 60.0


def with_answer(ask: Callable[[], Result], server: str, code: str, *, limit: float = GIVES_UP_AFTER) -> Result:
    """Calls `ask` in a thread, and returns its result or raises its error.

    After two seconds, this function prints on stderr that the server has not answered yet. After `limit` seconds, it
    raises an error with this code. The thread goes on until the process ends, since a driver's call cannot be ended.
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
    thread.join(min(_SAYS_AFTER, limit))
    if thread.is_alive():
        print(f"{server} has not answered yet; the command waits", file=sys.stderr, flush=True)
        thread.join(max(limit - _SAYS_AFTER, 0.0))
    if errors:
        raise errors[0]
    if not results:
        todo = "Does the server run, and is it overloaded? Then repeat the command"
        raise Transient(code, f"{server} has not answered within {limit:.0f} seconds", todo=todo)
    return results[0]
