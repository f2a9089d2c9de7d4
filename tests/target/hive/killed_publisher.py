"""Publishes in a process of its own that kills itself at one call: `killed_publisher.py TASK PLACE CALL WHEN`.

The call is one of the metastore's client, or of a function of PiDTS. WHEN is `before` or `after`: the process kills
itself before or after the call. Or it is `sent`: the call has left the process, and the JVM that is to execute it is
frozen. The process id of the JVM is printed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from pidts.spark import metastore, session
from pidts.target.hive.change_record import ChangeRecord
from pidts.target.hive.record import PublicationRecord
from pidts.target.hive.session import HiveSession
from pidts.task.config.task_file import load_parts
from pidts.task.operate import change_publication, publication

OWNERS: dict[str, Any] = {
    "choose": ChangeRecord,
    "published": ChangeRecord,
    "put": PublicationRecord,
    "write_visible": change_publication,
}
_SENT_SECONDS = 1.0


class Killing:
    """Kills the process at call number `call` of the function `real`."""

    def __init__(self, real: Any, call: int, when: str, jvm: list[int]) -> None:
        self._real, self._left, self._when, self._jvm = real, call, when, jvm

    def __call__(self, *words: Any, **named: Any) -> Any:
        self._left -= 1
        if self._left:
            return self._real(*words, **named)
        if self._when == "sent":
            os.kill(self._jvm[0], signal.SIGSTOP)
            threading.Thread(target=self._real, args=words, daemon=True).start()
            time.sleep(_SENT_SECONDS)
            sys.stdout.write(f"jvm {self._jvm[0]}\n")
            sys.stdout.flush()
        elif self._when == "after":
            self._real(*words, **named)
        os.kill(os.getpid(), signal.SIGKILL)
        return None


class Client:
    """A metastore client whose method `name` kills the process at the call that `Killing` counts to."""

    def __init__(self, real: Any, name: str, killing: Killing) -> None:
        self._real, self._name, self._killing = real, name, killing

    def __getattr__(self, name: str) -> Any:
        return self._killing if name == self._name else getattr(self._real, name)


def main(task: Path, place: str, call: int, when: str) -> None:
    """Publishes the states that wait for a publication, and kills its own process while doing so."""
    jvm: list[int] = []
    launch = session.launch_gateway
    connected = metastore._connected

    def launched(*words: Any) -> Any:
        gateway = launch(*words)
        jvm.append(gateway.proc.pid)
        return gateway

    def watched(*words: Any) -> metastore.Metastore:
        store = connected(*words)
        store._client = Client(store._client, place, Killing(getattr(store._client, place), call, when, jvm))
        return store

    session.launch_gateway = launched  # type: ignore[attr-defined]
    if place in OWNERS:
        killing = Killing(getattr(OWNERS[place], place), call, when, jvm)

        def replacement(*words: Any, **named: Any) -> Any:
            return killing(*words, **named)  # It replaces a method, so it has to be a function, which gets `self`.

        setattr(OWNERS[place], place, replacement)
    else:
        metastore._connected = watched
    parts = load_parts(task)
    with closing(parts[0].target.server.connect()) as target:
        assert isinstance(target, HiveSession)
        publication.publish(parts, target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])
