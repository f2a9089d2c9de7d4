"""Says what a command does or waits for, if this takes longer than a user expects, and ends too long a wait.

On a busy machine, even the modules of a command take a minute to load. So this module loads nothing of the program.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

Result = TypeVar("Result")

GIVES_UP_AFTER = 60.0
_STEP_SECONDS, _SAME_STEP_SECONDS = 3.0, 10.0
"""The time after which a step is printed, since the beginning or since the last line; and printed again."""
_LOOKS_EVERY = 0.1


def with_answer(ask: Callable[[], Result], target: str, *, limit: float = GIVES_UP_AFTER) -> Result:
    """Calls `ask` in a thread, and returns its result or raises its error; the time is limited as in `asked`."""
    return asked(ask, target, limit=limit)()


def asked(ask: Callable[[], Result], target: str, *, limit: float = GIVES_UP_AFTER) -> Callable[[], Result]:
    """Calls `ask` in a thread, and returns a function that waits for its result or raises its error.

    `limit` seconds after the call, this function raises an error. The thread goes on until the process ends, since a
    driver's call cannot be ended.
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
    ends = time.monotonic() + limit

    def answer() -> Result:
        thread.join(max(ends - time.monotonic(), 0.0))
        if errors:
            raise errors[0]
        if not results:
            from pidts.model import Transient

            todo = "Does the server run, and is it overloaded? Then repeat the command"
            what = f"{target} has not answered within {limit:.0f} seconds"
            raise Transient("target-unreachable", what, todo=todo)
        return results[0]

    return answer


class _Steps:
    """The steps of one command. A thread prints a step on stderr if nothing else was printed for a while."""

    def __init__(self, step: str, seconds: float, same_seconds: float) -> None:
        self.step, self._ended = step, threading.Event()
        self._seconds, self._same_seconds = seconds, same_seconds
        self._thread = threading.Thread(target=self._run, name="steps", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        began = last = time.monotonic()
        said = ""
        while not self._ended.wait(_LOOKS_EVERY):
            now, step = time.monotonic(), self.step
            if now - last >= (self._same_seconds if step == said else self._seconds):
                with suppress(OSError):
                    print(f"working for {now - began:.0f} s; now: {step}", file=sys.stderr, flush=True)
                last, said = now, step

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


_running: list[_Steps] = []
"""Has an item while a command says its steps."""


def begin_steps(step: str, seconds: float = _STEP_SECONDS, same_seconds: float = _SAME_STEP_SECONDS) -> None:
    """Begins to say the steps of this process's command, if this has not begun. `step` is the present one."""
    if _running:
        _running[0].step = step
    else:
        _running.append(_Steps(step, seconds, same_seconds))


def end_steps() -> None:
    """Ends what `begin_steps` has begun, if this is so."""
    while _running:
        _running.pop().end()


@contextmanager
def said_steps(
    step: str,
    *,
    quiet: bool = False,
    seconds: float = _STEP_SECONDS,
    same_seconds: float = _SAME_STEP_SECONDS,
) -> Iterator[Callable[[str], None]]:
    """Yields a function that takes the next step of the command; `step` is the first one.

    With `quiet`, nothing is printed. The steps end with the block, so a result that is printed later is the last line.
    """
    if quiet:
        end_steps()
    else:
        begin_steps(step, seconds, same_seconds)

    def take(step: str) -> None:
        for one in _running:
            one.step = step

    try:
        yield take
    finally:
        end_steps()
