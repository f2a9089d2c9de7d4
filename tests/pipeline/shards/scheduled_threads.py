"""Threads that run one at a time, each until it would wait, in a random order.

The tested code gets `Threading` and `Time` in place of the modules `threading` and `time`. Each wait gives control to a
thread that is chosen at random, and may return early: a condition may wake up without a reason, and a pause may be
short. So equal seeds give equal runs, and a crash stops all threads at one known point. Work that a dead process has
left unfinished can go on while the next process runs.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self

_me = threading.local()


class GoneError(BaseException):
    """Raised in a thread whose simulated process has died."""


class Fiber:
    """A thread that runs only while the scheduler lets it: one of these threads runs at a time."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self.name, self._work = name, work
        self.is_done = False
        self.is_gone = False
        self._error: BaseException | None = None
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def step(self) -> None:
        """Lets the thread run until it waits. Raises the error that has ended the thread."""
        self._go.release()
        self._back.acquire()
        if self.is_done:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def pause(self) -> None:
        """Gives control to the scheduler; the thread itself calls this."""
        self._back.release()
        self._go.acquire()
        if self.is_gone:
            raise GoneError(self.name)

    def end(self) -> None:
        """Ends the thread while it waits, as if its process had been killed."""
        self.is_gone = True
        while not self.is_done:
            with suppress(GoneError):
                self.step()

    def _run(self) -> None:
        _me.fiber = self
        self._go.acquire()
        try:
            if not self.is_gone:
                self._work()
        except BaseException as error:  # noqa: BLE001 - passed on to the code that runs the steps
            self._error = error
        self.is_done = True
        self._back.release()


class Scheduler:
    """All threads of one process, and the threads that an earlier process has left behind."""

    def __init__(self, chance: random.Random, left: Iterable[Fiber] = ()) -> None:
        self.chance = chance
        self.now = 0.0
        self.fibers: list[Fiber] = []
        self.left = [fiber for fiber in left if not fiber.is_done]
        """Threads of an earlier process. They are fenced, and may fail in any way."""

    def spawn(self, name: str, work: Callable[[], object]) -> Fiber:
        """Makes a thread, which begins with its first step."""
        fiber = Fiber(name, work)
        self.fibers.append(fiber)
        return fiber

    def step(self) -> None:
        """Steps one thread, drawn at random."""
        self._step(self.chance.choice([*self.fibers, *self.left]))

    def round(self) -> None:
        """Steps all threads once, in any order. Threads that are added meanwhile wait for the next round."""
        self.now += 0.5
        fibers = [*self.fibers, *self.left]
        for fiber in self.chance.sample(fibers, len(fibers)):
            self._step(fiber)

    def _step(self, fiber: Fiber) -> None:
        try:
            fiber.step()
        except BaseException:
            if fiber not in self.left:
                raise
        finally:
            for fibers in (self.fibers, self.left):
                if fiber.is_done and fiber in fibers:
                    fibers.remove(fiber)

    def wait(self, seconds: float | None) -> None:
        """Gives control to another thread. Less or more time passes than the caller has asked for."""
        self.now += self.chance.choice((0.0, 0.2, 1.0)) * min(1.0 if seconds is None else seconds, 10.0)
        fiber = getattr(_me, "fiber", None)
        if fiber is not None:
            fiber.pause()

    def end(self) -> None:
        """Ends all threads, as if the process had been killed."""
        for fiber in (*self.fibers, *self.left):
            fiber.end()
        self.fibers.clear()
        self.left.clear()


class Time:
    """Replaces the module `time`."""

    def __init__(self, scheduler: Callable[[], Scheduler]) -> None:
        self._scheduler = scheduler

    def monotonic(self) -> float:
        return self._scheduler().now

    def time(self) -> float:
        return 1_700_000_000 + self._scheduler().now

    def sleep(self, seconds: float) -> None:
        self._scheduler().wait(seconds)


class Threading:
    """Replaces the module `threading`. Threads are interrupted only where they wait, so locks have nothing to do."""

    def __init__(self, scheduler: Callable[[], Scheduler]) -> None:
        self._scheduler = scheduler

    def Thread(  # noqa: N802 - the module's name
        self, *, target: Callable[..., object], args: Iterable[Any] = (), name: str = "", daemon: bool = False
    ) -> _Thread:
        del daemon
        return _Thread(self._scheduler(), name, lambda: target(*args))

    def Condition(self, lock: object = None) -> Condition:  # noqa: N802
        return Condition(self._scheduler)

    def Event(self) -> Event:  # noqa: N802
        return Event(self._scheduler)

    def Lock(self) -> Lock:  # noqa: N802
        return Lock(self._scheduler)

    def RLock(self) -> Lock:  # noqa: N802
        return Lock(self._scheduler, again=True)


class _Thread:
    def __init__(self, scheduler: Scheduler, name: str, work: Callable[[], object]) -> None:
        self._scheduler, self.name, self._work = scheduler, name, work
        self._fiber: Fiber | None = None

    def start(self) -> None:
        self._fiber = self._scheduler.spawn(self.name, self._work)

    def is_alive(self) -> bool:
        return self._fiber is not None and not self._fiber.is_done

    def join(self, timeout: float | None = None) -> None:
        while self.is_alive():
            self._scheduler.wait(timeout)
            if timeout is not None:
                return


class Condition:
    def __init__(self, scheduler: Callable[[], Scheduler]) -> None:
        self._scheduler = scheduler

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> bool:
        self._scheduler().wait(timeout)
        return True

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        scheduler = self._scheduler()
        deadline = None if timeout is None else scheduler.now + timeout
        while not (found := predicate()) and (deadline is None or scheduler.now < deadline):
            scheduler.wait(timeout)
        return found

    def notify(self, _: int = 1) -> None:
        pass

    notify_all = notify


class Event:
    def __init__(self, scheduler: Callable[[], Scheduler]) -> None:
        self._scheduler, self._is_set = scheduler, False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._scheduler().wait(timeout)
        return self._is_set


class Lock:
    """A lock that stays locked while the thread that has it waits for something else."""

    def __init__(self, scheduler: Callable[[], Scheduler], *, again: bool = False) -> None:
        self._scheduler, self._again = scheduler, again
        self._owner: object = None
        self._times = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = threading.current_thread()
        while self._times and not (self._again and self._owner is me):
            if not blocking:
                return False
            self._scheduler().wait(None if timeout < 0 else timeout)
            if timeout >= 0 and self._times:
                return False
        self._owner, self._times = me, self._times + 1
        return True

    def release(self) -> None:
        self._times -= 1

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
