"""Of two runs of one task on a machine, the second one reports the process of the first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pidts.model import PidtsError
from pidts.task.operate.sole_run import running_process, sole_run

RUN = """
import sys
from pathlib import Path
from types import SimpleNamespace
from pidts.task.operate.sole_run import sole_run
with sole_run(SimpleNamespace(name="shop", relay=Path(sys.argv[1]))):
    print("holds it", flush=True)
    sys.stdin.read()
"""


def config(relay: Path, name: str = "shop") -> Any:
    return SimpleNamespace(name=name, relay=relay)


@contextmanager
def another_run(relay: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", RUN, str(relay)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holds it\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_run_is_refused_with_the_process_of_the_first(tmp_path: Path) -> None:
    with another_run(tmp_path) as first:
        with pytest.raises(PidtsError) as caught, sole_run(config(tmp_path)):
            pass
        assert caught.value.code == "already-running"
        assert f"process {first.pid} on this machine runs the task shop" in caught.value.what
        assert f"kill {first.pid}" in caught.value.todo
        with sole_run(config(tmp_path, "another")):
            pass
    with sole_run(config(tmp_path)):
        assert (tmp_path / "shop.run").read_text() == str(os.getpid())


def test_a_run_that_is_stopped_may_be_replaced(tmp_path: Path) -> None:
    with another_run(tmp_path) as first:
        first.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
        with sole_run(config(tmp_path)):
            pass


def test_a_run_that_replaces_a_stopped_one_is_the_one_that_runs(tmp_path: Path) -> None:
    with another_run(tmp_path) as first:
        first.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
        with sole_run(config(tmp_path)):
            for ends in (False, True):
                if ends:
                    first.kill()
                    first.wait()
                assert running_process(config(tmp_path)) == os.getpid()
                with pytest.raises(PidtsError, match=f"process {os.getpid()} on this machine") as caught:
                    sole_run(config(tmp_path)).__enter__()
                assert caught.value.code == "already-running"
        assert [path.name for path in tmp_path.iterdir()] == ["shop.run"]
        with sole_run(config(tmp_path)):
            pass


def test_a_folder_that_cannot_be_written_is_left_to_the_checks(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with sole_run(config(tmp_path / "file" / "relay")):
        pass
