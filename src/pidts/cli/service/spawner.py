"""The program that forks the processes of a service's tasks: `python -m pidts.cli.service.spawner DESCRIPTOR`.

The program loads all modules that a task needs, and then forks a process for each request (`forked.py`). The program
must have only one thread, since a fork copies only one thread.
"""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Sequence

from pidts.forked import serve_forks
from pidts.hidden_modules import hide_modules


def main(descriptor: int) -> None:
    """Forks processes for one service, until the service ends."""
    hide_modules()
    _load()
    with socket.socket(fileno=descriptor) as service:
        service.sendall(b"ready")
        serve_forks(service, _run_forked_task)


def _load() -> None:
    import pidts.cli.service.task_process
    import pidts.service.task_report
    import pidts.target.mysql
    import pidts.target.postgres
    import pidts.task.run.task_run

    del pidts
    _load_kernels()
    gc.collect()
    gc.freeze()  # otherwise garbage collection would write to shared pages, and the kernel would copy them


def _load_kernels() -> None:
    from pidts.binlog.machine_code import compiled

    if not compiled():
        return
    from pidts.batch.compile_ahead import compile_once
    from pidts.replicate.warm import warm

    compile_once()
    warm()


def _run_forked_task(arguments: Sequence[str]) -> int:
    """Runs a task in the forked process; returns the exit code. The task's replicators share the loaded modules."""
    from pidts.cli.service.task_process import main as run_task
    from pidts.task.run.replicator_process import fork_replicators

    return run_task(arguments, fork_replicators())


if __name__ == "__main__":
    main(int(sys.argv[1]))
