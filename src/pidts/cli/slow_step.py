"""Prints a command's present step if the step takes long, and limits the time for which a command waits for a target.

On a busy machine, even loading a command takes a minute. So this module itself imports nothing of the program.
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
"""The seconds since the last line after which a new step is printed, and after which the same step is printed again."""
_LOOKS_EVERY = 0.1


def with_answer(ask: Callable[[], Result], target: str, *, limit: float = GIVES_UP_AFTER) -> Result:
    """Calls `ask` in a thread, and returns its result or raises its error. The time is limited as in `asked`."""
    return asked(ask, target, limit=limit)()


def asked(ask: Callable[[], Result], target: str, *, limit: float = GIVES_UP_AFTER) -> Callable[[], Result]:
    """Calls `ask` in a thread, and returns a function that waits for its result or raises its error.

    If there is no result `limit` seconds after the call of `asked`, the function raises an error. The thread then goes
    on until the process ends, since a driver's call cannot be interrupted.
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
"""Has one item while the command prints its steps, otherwise none."""


def begin_steps(step: str, seconds: float = _STEP_SECONDS, same_seconds: float = _SAME_STEP_SECONDS) -> None:
    """Begins to print the steps of this process's command, unless this has begun. `step` is the present step."""
    if _running:
        _running[0].step = step
    else:
        _running.append(_Steps(step, seconds, same_seconds))


def end_steps() -> None:
    """Ends the printing of steps."""
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
    """Yields a function that is called with the text of each further step. `step` is the text of the first.

    With `quiet`, nothing is printed. No step is printed after the block, so the command's result is the last line.
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
