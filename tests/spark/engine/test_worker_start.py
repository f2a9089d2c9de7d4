"""A Python process of Spark connects before it loads anything: Spark waits ten seconds, and a busy machine loads for
longer.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pidts.spark.worker_start import launcher

SECRET = "known to both"
SLOW = """
import os, time
while not os.path.exists({!r}):
    time.sleep(0.02)
"""
"""What Python executes when it starts: it waits until the test, which acts as Spark, has got an answer."""
MODULE = """
from pyspark.serializers import write_int
from pyspark.worker_util import get_sock_file_to_executor
if __name__ == "__main__":
    with get_sock_file_to_executor(timeout=None) as file:
        assert file.read(5) == b"hello"
        file.write(b"done")
        file.flush()
"""


@pytest.fixture
def begin(tmp_path: Path):
    """Starts the module as Spark does. Python itself is not ready before the file `answered` exists."""
    (tmp_path / "sitecustomize.py").write_text(SLOW.format(str(tmp_path / "answered")))
    (tmp_path / "asked_for.py").write_text(MODULE)
    started = []

    def start(**environment: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        started.append(
            subprocess.Popen(
                [launcher(tmp_path / "it's here"), "-m", "asked_for"],
                env={**os.environ, "PYTHONPATH": path, **environment},
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def talk(server: socket.socket, answered: Path, process: subprocess.Popen[bytes], *, secret: bool) -> None:
    """Acts as Spark, which connects to a new Python worker. The connection arrives while Python still starts."""
    server.settimeout(60)
    with server.accept()[0] as connection:
        connection.settimeout(60)
        with connection.makefile("rwb") as file:
            if secret:
                (size,) = struct.unpack("!i", file.read(4))
                assert file.read(size).decode() == SECRET
                file.write(struct.pack("!i", 2) + b"ok")
                file.flush()
            answered.touch()
            assert struct.unpack("!i", file.read(4)) == (process.pid,)
            file.write(b"hello")
            file.flush()
            assert file.read(4) == b"done"
    assert process.wait(60) == 0


def test_a_port_is_answered_before_anything_is_loaded(begin, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        process = begin(PYTHON_WORKER_FACTORY_PORT=str(port), PYTHON_WORKER_FACTORY_SECRET=SECRET)
        talk(server, tmp_path / "answered", process, secret=True)


def test_a_socket_file_is_answered_before_anything_is_loaded(begin, tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        process = begin(PYTHON_WORKER_FACTORY_SOCK_PATH=path)
        talk(server, tmp_path / "answered", process, secret=False)


def test_whatever_else_spark_starts_runs_as_it_is(tmp_path: Path) -> None:
    """Spark's daemon makes no connection, and asks Python for its version."""
    said = subprocess.run(
        [launcher(tmp_path), "-c", "import sys; print(sys.executable, sys.argv)", "a b"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == f"{sys.executable} ['-c', 'a b']\n"


def test_where_the_folder_runs_no_programs_spark_starts_python_itself(tmp_path: Path) -> None:
    mounted = f"mount -t tmpfs -o noexec none '{tmp_path}'"
    unshare = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if not shutil.which("unshare") or subprocess.run([*unshare, mounted], capture_output=True, check=False).returncode:
        pytest.skip("this machine does not let the test mount a folder")
    program = (
        "import subprocess, sys; from pathlib import Path; from pidts.spark.worker_start import launcher; "
        "sys.exit(subprocess.run([launcher(Path(sys.argv[1])), '-c', 'import sys; sys.exit(7)']).returncode)"
    )
    ask = [*unshare, f'{mounted} && exec "$@"', "sh", sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.run(ask, check=False).returncode == 7


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_task_runs_where_python_takes_longer_to_start_than_spark_waits(
    make_task, mariadb, target_server, database, open_session, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\nif 'PYTHON_WORKER_FACTORY_PORT' in os.environ or 'PYTHON_WORKER_FACTORY_SOCK_PATH' in os.environ:"
        "\n    time.sleep(12)\n"
    )
    source = open_session(mariadb).cursor()
    source.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    source.execute(f"INSERT INTO {database}.t VALUES (1), (2)")
    task = make_task(mariadb, target_server("postgres"), [database])
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    run = task.start("--until-synced", environment={**os.environ, "PYTHONPATH": path})
    assert run.process.wait(300) == 0, task.logs()
    assert "spark-failed" not in task.logs()
