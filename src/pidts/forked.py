"""Forks processes on request, from a process that has loaded the program and has one Python thread.

All children of this process share the memory of everything that it has loaded. A fork copies only the calling thread:
a lock of another thread would stay locked in the child for ever. So the process that forks, the forker, does nothing
else and has one thread.

Each request and each answer is one message with JSON. A request also carries two descriptors: the child's standard
output and standard error.
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

from pidts.process_end import end_process

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_LONGEST_MESSAGE: Final = 1 << 20
_ANSWER_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.05


def channel() -> tuple[socket.socket, socket.socket]:
    """Returns the two ends of the connection for requests and answers."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def serve_forks(requests: socket.socket, run: Callable[[Sequence[str]], int]) -> None:
    """Forks a process for each request until the other end is closed; `run` returns a process's exit code."""
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
        with suppress(BrokenPipeError, ConnectionResetError):  # the other end was closed; the next read notices it
            requests.sendall(json.dumps(answer).encode())


def _become(run: Callable[[Sequence[str]], int], request: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for descriptor, place in zip(descriptors, (1, 2), strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    name_process(request["name"])
    end_process(run(request["arguments"]))


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
    """A forked process. Its descriptor (a pidfd) shows whether it has ended; only the forker can read its exit code."""

    pid: int
    forker: Forker
    returncode: int | None = None
    _process: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        with suppress(ProcessLookupError):
            self._process = os.pidfd_open(self.pid)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended. The forker is not asked."""
        return self.returncode is not None or self._process < 0 or bool(select.select([self._process], [], [], 0)[0])

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal, 0 if the forker has forgotten it; None while it runs."""
        if self.returncode is None and self.has_ended:
            code = self.forker.exit_code(self.pid)
            self.returncode = 0 if code is None else code
            if self._process >= 0:
                os.close(self._process)
                self._process = -1
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the process's end, as `subprocess.Popen.wait` does."""
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            time.sleep(_POLL_SECONDS)
        return code

    def terminate(self) -> None:
        """Asks the process to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the process."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Sends the process a signal, unless it has ended."""
        if self._process >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, number)


class Forker:
    """Sends requests to the forker. Any thread may use this object."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._requests.settimeout(_ANSWER_SECONDS)
        self._lock = threading.Lock()
        self.is_lost = False
        """Whether the forker has ended or does not answer."""

    def fork(self, name: str, arguments: Sequence[str], output: int, errors: int) -> ForkedProcess | None:
        """Returns a new process that writes to these descriptors; None if the forker is lost."""
        answer = self._ask({"name": name, "arguments": list(arguments)}, [output, errors])
        if answer is not None and isinstance(answer.get("error"), int):
            raise OSError(answer["error"], os.strerror(answer["error"]))
        if answer is None or not isinstance(answer.get("pid"), int):
            return None
        return ForkedProcess(answer["pid"], self)

    def exit_code(self, pid: int) -> int | None:
        """Returns the exit code of a process that has ended; None if it is not known any more."""
        code = (self._ask({"ended": pid}, []) or {}).get("code")
        return code if isinstance(code, int) else None

    def close(self) -> None:
        """Ends the forker, even if a thread waits for an answer."""
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
                # Closing ends the forker. Otherwise it could still fork a process that no caller knows.
                self.close()
            return answer if isinstance(answer, dict) else None


def fork_forker(name: str, run: Callable[[int, Sequence[str]], int]) -> Forker:
    """Forks the forker: a process that forks others, and that ends with this process.

    The caller's process must have no other threads. Each child of the forker calls `run` with the forker's process id,
    so that the child can end with the forker (`end_with_parent`). The children read nothing from the caller's standard
    input. Garbage collection never frees objects that already exist (`gc.freeze`).
    """
    ours, theirs = channel()
    parent = os.getpid()
    gc.freeze()  # the collector must not write to shared pages: the kernel would copy them
    for file in filter(None, (sys.stdout, sys.stderr)):
        with suppress(OSError):
            file.flush()  # a child must not write this process's buffered output again
    if os.fork() == 0:
        ours.close()
        end_with_parent(parent)
        name_process(name)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1):  # another process may wait until no process has this output open
            os.dup2(nothing, number)
        os.close(nothing)
        for number in (signal.SIGINT, signal.SIGTERM):  # the forker ends with its parent, which may need it until then
            signal.signal(number, signal.SIG_IGN)
        own = os.getpid()
        serve_forks(theirs, lambda arguments: run(own, arguments))
        os._exit(0)
    theirs.close()
    return Forker(ours)


def end_with_parent(parent: int) -> None:
    """Makes the kernel end this process when the process `parent`, its parent, ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        # The parent ended before the kernel was asked.
        sys.exit(0)


def name_process(title: str) -> None:
    """Sets this process's name in `top` and its arguments in `ps`: a forked process begins with those of its parent.

    The name is the title's first word, cut to 15 letters. For `ps`, the kernel reads the arguments from this process's
    memory. The title overwrites the parent's arguments there, so it is cut to their length.
    """
    ctypes.CDLL(None).prctl(_PR_SET_NAME, title.split(maxsplit=1)[0].encode(), 0, 0, 0)
    try:
        begin, end = map(int, Path("/proc/self/stat").read_text("utf-8").rpartition(")")[2].split()[45:47])
        arguments = Path("/proc/self/cmdline").read_bytes()
    except (OSError, ValueError):
        return
    if begin == 0 or len(arguments) != end - begin or ctypes.string_at(begin, len(arguments)) != arguments:
        return  # the arguments that `ps` shows are not at this address
    fitting = title.encode()[: len(arguments) - 1].decode("utf-8", "ignore").encode()
    ctypes.memmove(begin, fitting.ljust(len(arguments), b"\0"), len(arguments))
