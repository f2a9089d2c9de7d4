"""The program that tasks of a service are forked from: `python -m pidts.cli.service.spawner DESCRIPTOR`.

It loads all that a task needs, and then forks a process for each line that it reads. It must not start a thread: a
fork copies the thread that calls it alone, and what other threads hold locked stays locked for ever.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
from contextlib import suppress
from typing import Any, NoReturn

from pidts.without_pandas import hide_pandas


def main(descriptor: int) -> None:
    """Serves one service until it ends."""
    hide_pandas()
    _load()
    ended: dict[int, int] = {}
    with (
        suppress(BrokenPipeError, ConnectionResetError),  # the service has ended first
        socket.socket(fileno=descriptor) as service,
        service.makefile("r", encoding="utf-8") as lines,
    ):
        _say(service, {"ready": True})
        for line in lines:
            asked = json.loads(line)
            _reap(ended)
            if "ended" in asked:
                _say(service, {"code": ended.pop(asked["ended"], None)})
                continue
            try:
                child = os.fork()
            except OSError as error:
                _say(service, {"error": error.errno})
                continue
            if child == 0:
                lines.close()
                service.close()
                _be_task(asked)
            _say(service, {"pid": child})


def _load() -> None:
    import pidts.cli.service.task_process
    import pidts.service.task_report
    import pidts.target.mysql
    import pidts.target.postgres
    import pidts.task.run.task_run

    del pidts
    gc.collect()
    gc.freeze()  # the collector would write to pages that are shared otherwise


def _be_task(asked: dict[str, Any]) -> NoReturn:
    """Becomes the process of a task, and ends as one."""
    from pidts.cli.service.task_process import main as run_task

    os.setsid()
    output = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    sys.exit(run_task([asked["folder"], *asked["tables"]]))


def _reap(ended: dict[int, int]) -> None:
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if child == 0:
            return
        ended[child] = os.waitstatus_to_exitcode(status)


def _say(service: socket.socket, answer: dict[str, Any]) -> None:
    service.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
