"""Forks processes on request, from a process that has loaded the program and has one Python thread.

What such a process has loaded, all its children share. A fork copies the calling thread alone, and what other threads
hold locked stays locked for ever: so the process that forks starts no thread, and does nothing but fork.

Requests and answers are JSON, one message each; a request carries the descriptors that become the standard output and
error of the child.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_LONGEST_MESSAGE: Final = 1 << 20
_ANSWER_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05


def channel() -> tuple[socket.socket, socket.socket]:
    """Returns the two ends of what requests and answers travel on."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def serve_forks(requests: socket.socket, run: Callable[[Sequence[str]], int]) -> None:
    """Forks a process for each request until the other end is closed; the process calls `run` and ends as that says."""
    ended: dict[int, int] = {}
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(requests, _LONGEST_MESSAGE, 2)
        except ConnectionResetError:
            return
        if not data:
            return
        request = json.loads(data)
        _reap(ended)
        if "ended" in request:
            answer = {"code": ended.pop(request["ended"], None)}
        else:
            try:
                child = os.fork()
            except OSError as error:
                answer = {"error": error.errno}
            else:
                if child == 0:
                    requests.close()
                    _become(run, request, descriptors)
                answer = {"pid": child}
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(BrokenPipeError, ConnectionResetError):  # the other end was closed: the next read says so
            requests.sendall(json.dumps(answer).encode())


def _become(run: Callable[[Sequence[str]], int], request: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for descriptor, place in zip(descriptors, (1, 2), strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    name_process(request["name"])
    sys.exit(run(request["arguments"]))


def _reap(ended: dict[int, int]) -> None:
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        ended[child] = os.waitstatus_to_exitcode(status)


@dataclass(slots=True)
class ForkedProcess:
    """A process that a forker has forked: its end is seen by a descriptor, its exit code is asked for."""

    pid: int
    forker: Forker
    returncode: int | None = None
    _process: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        with suppress(ProcessLookupError):
            self._process = os.pidfd_open(self.pid)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended, which is known without asking the forker."""
        return self.returncode is not None or self._process < 0 or bool(select.select([self._process], [], [], 0)[0])

    def poll(self) -> int | None:
        """Returns the exit code, below zero for a signal; None while it lives."""
        if self.returncode is None and self.has_ended:
            code = self.forker.exit_code(self.pid)
            self.returncode = 0 if code is None else code
            if self._process >= 0:
                os.close(self._process)
                self._process = -1
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end, as `subprocess.Popen.wait` does."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_POLL_SECONDS)
        return code

    def terminate(self) -> None:
        """Asks it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Sends it a signal, unless it has ended."""
        if self._process >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)


class Forker:
    """A process that forks others on request, as those see it who ask; any thread may."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._requests.settimeout(_ANSWER_SECONDS)
        self._lock = threading.Lock()
        self.is_lost = False
        """Whether it has died, or does not answer."""

    def fork(self, name: str, arguments: Sequence[str], output: int, errors: int) -> ForkedProcess | None:
        """Returns a new process, which writes to these descriptors; None if the forker is lost."""
        answer = self._ask({"name": name, "arguments": list(arguments)}, [output, errors])
        if answer is not None and isinstance(answer.get("error"), int):
            raise OSError(answer["error"], os.strerror(answer["error"]))
        if answer is None or not isinstance(answer.get("pid"), int):
            return None
        return ForkedProcess(answer["pid"], self)

    def exit_code(self, pid: int) -> int | None:
        """Returns the exit code of a process that has ended; None if nobody knows it any more."""
        code = (self._ask({"ended": pid}, []) or {}).get("code")
        return code if isinstance(code, int) else None

    def close(self) -> None:
        """Lets it end, also where a thread waits for an answer."""
        with suppress(OSError):
            self._requests.shutdown(socket.SHUT_RDWR)
        self._requests.close()

    def _ask(self, request: dict[str, Any], descriptors: Sequence[int]) -> dict[str, Any] | None:
        with self._lock:
            if self.is_lost:
                return None
            try:
                socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
                answer = json.loads(self._requests.recv(_LONGEST_MESSAGE) or b"null")
            except OSError:
                answer = None
            self.is_lost = not isinstance(answer, dict)
            if self.is_lost:
                # It ends, and with it what it may have forked since: nobody would know of that process.
                self.close()
            return answer if isinstance(answer, dict) else None


def fork_forker(name: str, run: Callable[[int, Sequence[str]], int]) -> Forker:
    """Forks a process that forks others, and ends with this one, however it ends. For a process without threads.

    `run` is called in each of its children, with the number of the forker: they end with it by `end_with_parent`. They
    read nothing from this process's standard input. What this process has loaded so far stays in memory for good.
    """
    ours, theirs = channel()
    parent = os.getpid()
    gc.freeze()  # the collector would write to pages that are shared otherwise
    for file in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError):
            file.flush()  # a child would write what this process has not written yet
    if os.fork() == 0:
        ours.close()
        end_with_parent(parent)
        name_process(name)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):  # somebody may wait for the end of this process's output
            os.dup2(nothing, number)
        os.close(nothing)
        for number in (signal.SIGINT, signal.SIGTERM):  # its end is that of its parent, which may need it until then
            signal.signal(number, signal.SIG_IGN)
        own = os.getpid()
        serve_forks(theirs, lambda arguments: run(own, arguments))
        os._exit(0)
    theirs.close()
    return Forker(ours)


def end_with_parent(parent: int) -> None:
    """Lets the kernel end this process with its parent, whose number is given."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # It died before the kernel was asked to tell us.
        sys.exit(0)


def name_process(title: str) -> None:
    """Gives this process a name for `top`, of up to 15 letters, and arguments for `ps`: a forked one has its parent's.

    The first word of the title is the name. The arguments get as much of the title as fits where those of the parent
    are: they lie in this process's own memory, and nothing reads them again but the kernel.
    """
    ctypes.CDLL(None).prctl(_PR_SET_NAME, title.split(maxsplit=1)[0].encode(), 0, 0, 0)
    try:
        begin, end = map(int, Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()[45:47])
        arguments = Path("/proc/self/cmdline").read_bytes()
    except (OSError, ValueError):
        return
    if begin == 0 or len(arguments) != end - begin or ctypes.string_at(begin, len(arguments)) != arguments:
        return  # the kernel shows something else than what lies there
    fitting = title.encode()[: len(arguments) - 1].decode("utf-8", "ignore").encode()
    ctypes.memmove(begin, fitting.ljust(len(arguments), b"\0"), len(arguments))
