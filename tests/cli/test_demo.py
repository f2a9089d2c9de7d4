"""The demo starts its own servers, ends with equal rows on both sides, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.forked_programs import LoadedPrograms
from tests.running import PIDTS

SECONDS = 400
DEMO = Path(__file__).parents[2] / "demo"
pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(600)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Returns the demo's temporary folder. PostgreSQL's own user must be able to enter it."""
    with tempfile.TemporaryDirectory(prefix="demo-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [DEMO, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), "PYTHONFAULTHANDLER": "1"},
        start_new_session=True,
    )


def output_of(demo: subprocess.Popen[str]) -> tuple[str, str]:
    """Waits for the program's end and returns its output.

    If the program does not end in time, this function sends it SIGABRT. The program's fault handler then prints the
    stacks of all threads, and the error has this output.
    """
    try:
        return demo.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        demo.send_signal(signal.SIGABRT)
        out, err = demo.communicate(timeout=60)
        raise AssertionError(f"the demo did not end in time\n{out}\n{err}") from None


def left_behind(folder: Path) -> list[str]:
    """Returns the demo's files, and the processes that still use them. Java keeps a file for each process in /tmp."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
            commands.append(path.read_bytes())
    return [entry.name for entry in folder.iterdir()] + [str(line) for line in commands if str(folder).encode() in line]


@pytest.mark.spark
def test_both_sides_are_equal_in_the_end(folder: Path) -> None:
    with start(folder, "--seconds", "4", "--json") as demo:
        out, err = output_of(demo)
    assert demo.returncode == 0, err
    result = json.loads(out.splitlines()[-1])
    assert (result["stage"], result["differences"], result["examples"]) == ("stopped", 0, [])
    assert result["rows"]["copied"] >= 20_000
    assert result["rows"]["inserted"] > 0
    assert left_behind(folder) == []


@pytest.mark.long
def test_a_warehouse_answers_as_the_source_does(folder: Path) -> None:
    pytest.importorskip("pyiceberg")
    command = [*PIDTS, "demo", "--target", "iceberg", "--seconds", "4"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env={**os.environ, "TMPDIR": str(folder)}
    )
    assert done.returncode == 0, done.stderr
    assert "0 differences in" in done.stdout
    lines = done.stdout.splitlines()
    answers = [line.split() for line in lines[lines.index("the answers are equal") - 4 : -1]]
    assert [state for state, *_ in answers] == ["new", "paid", "returned", "sent"]
    assert all(line[1:3] == line[3:] for line in answers)
    assert sum(int(line[3].replace(",", "")) for line in answers) >= 20_000
    assert left_behind(folder) == []


def test_a_target_that_the_demo_does_not_have_is_a_mistake(programs: LoadedPrograms) -> None:
    done = programs.text(["demo", "--target", "oracle"], 60)
    assert done.returncode == 2
    assert "--target postgresql or iceberg" in done.stderr


@pytest.mark.long
def test_with_a_page_the_task_is_a_services_and_nothing_is_left_of_either(folder: Path) -> None:
    with start(folder, "--web", "--seconds", "4", "--json") as demo:
        assert demo.stderr is not None
        said = next(line for line in demo.stderr if "the page: " in line)
        url = said.partition("the page: ")[2].strip()
        tasks: list[dict[str, Any]] = []
        while not tasks:  # The page is served before the task exists.
            with urllib.request.urlopen(f"{url}/api/tasks", timeout=60) as answer:
                tasks = json.load(answer)["tasks"]
            time.sleep(0.1)
        out, err = output_of(demo)
    assert [task["name"] for task in tasks] == ["demo"]
    assert demo.returncode == 0, err
    result = json.loads(out.splitlines()[-1])
    assert (result["differences"], result["examples"]) == (0, [])
    assert result["rows"]["copied"] >= 20_000
    assert result["rows"]["inserted"] > 0
    assert left_behind(folder) == []


def test_ctrl_c_removes_everything(folder: Path) -> None:
    with start(folder) as demo:
        assert demo.stderr is not None
        assert any("filling the shop" in line for line in demo.stderr)
        demo.send_signal(signal.SIGINT)
        _, err = output_of(demo)
    assert demo.returncode == 0, err
    assert "stopped before the copy was complete" in err
    assert left_behind(folder) == []


@pytest.mark.timeout(300)
def test_the_demo_can_start_only_the_servers_and_removes_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        process = subprocess.Popen([*PIDTS, "demo", "--servers"], stdin=subprocess.DEVNULL, stderr=output)
    try:
        deadline = time.monotonic() + 200
        while "Ctrl-C ends the servers" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        assert log.read_text().startswith("demo: starting a MariaDB and a PostgreSQL for this demo\n")
        (task,) = re.findall(r"pidts run (\S+)", log.read_text())
        done = subprocess.run([*PIDTS, "check", task, "--json"], capture_output=True, timeout=200, check=False)
        assert done.returncode == 0, done.stdout
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert not Path(task).exists()
