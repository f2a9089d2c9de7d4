"""A command that takes long says on stderr what it does, also while its modules are loaded."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pidts.cli.app import run_command
from pidts.cli.slow_step import begin_steps, said_steps
from pidts.sandbox import Server

Output = pytest.CaptureFixture[str]

SLOW_TO_LOAD = """
import sys
import time
from pidts.cli import program

class Slow:
    def find_spec(self, name, *_):
        if name == "pidts.cli.app":
            time.sleep(4)

sys.meta_path.insert(0, Slow())
sys.argv = ["pidts", *sys.argv[1:]]
program.main()
"""


def now_lines(text: str) -> list[str]:
    return [line.partition("; now: ")[2] for line in text.splitlines() if line.startswith("working for ")]


def test_a_quick_command_says_nothing(capsys: Output) -> None:
    with said_steps("one", seconds=0.3) as step:
        step("two")
    time.sleep(0.5)
    assert capsys.readouterr().err == ""


def test_each_step_that_lasts_is_printed_once(capsys: Output) -> None:
    with said_steps("one", seconds=0.3) as step:
        time.sleep(0.8)
        step("two")
        step("three")
        time.sleep(0.8)
    time.sleep(0.5)
    assert now_lines(capsys.readouterr().err) == ["one", "three"]


def test_a_step_that_lasts_much_longer_is_printed_again(capsys: Output) -> None:
    with said_steps("one", seconds=0.3, same_seconds=0.6):
        time.sleep(2)
    assert now_lines(capsys.readouterr().err)[:2] == ["one", "one"]


def test_a_program_that_reads_log_lines_from_stderr_gets_no_other_lines(capsys: Output) -> None:
    begin_steps("zero", 0.3)
    with said_steps("one", quiet=True) as step:
        step("two")
        time.sleep(0.8)
    assert capsys.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize(("command", "says"), [("check", ["loading the program"]), ("events", [])])
def test_loading_the_program_is_a_step(tmp_path: Path, command: str, says: list[str]) -> None:
    program = [sys.executable, "-c", SLOW_TO_LOAD, command, str(tmp_path / "none.yaml")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert now_lines(done.stderr)[:1] == says, done.stderr
    assert done.returncode != 0


@pytest.mark.slow
def test_a_check_names_the_server_that_it_waits_for(mariadb: Server, tmp_path: Path, capsys: Output) -> None:
    """The result on stdout is one JSON object."""
    path = tmp_path / "t.yaml"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        path.write_text(f"""
name: t
task-mode: all
target-database: {{host: {mariadb.host}, port: {mariadb.port}, user: {mariadb.user}, password: "{mariadb.password}"}}
mysql-instances:
  - {{source-id: s1, from: {{host: 127.0.0.1, port: {port}, user: u}}}}
""")

        def answer() -> None:
            with silent.accept()[0]:
                time.sleep(5)

        threading.Thread(target=answer, daemon=True).start()
        assert run_command(["check", "--json", str(path)]) == 3
    shown = capsys.readouterr()
    assert f"waiting for source s1 (127.0.0.1:{port})" in now_lines(shown.err)
    assert json.loads(shown.out)["ok"] is False
