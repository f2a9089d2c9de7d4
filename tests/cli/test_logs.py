"""Log lines go where the options say, and a run continues if the reader of its output is gone."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from secrets import token_hex

import pytest
import structlog

from pidts.cli.app import run_command
from pidts.cli.log_options import choose, options_first, set_up_logs
from pidts.model import PidtsError
from pidts.target.postgres import PostgresTarget

PROGRAM = [sys.executable, "-m", "pidts"]

Output = pytest.CaptureFixture[str]


def test_the_options_of_logs_may_follow_the_command() -> None:
    given = ["run", "t.yaml", "--log-level", "error", "--json", "--log-file=x"]
    assert options_first(given) == ["--log-level", "error", "--log-file=x", "run", "t.yaml", "--json"]
    assert options_first(["ddl", "replace", "t", "--", "--log-level"]) == ["ddl", "replace", "t", "--", "--log-level"]


def test_with_json_every_line_on_stderr_is_an_object(capsys: Output) -> None:
    assert run_command(["check", "absent.yaml", "--log-format", "json"]) == 2
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert (line["level"], line["code"], line["where"]) == ("error", "unreadable-file", {"file": "absent.yaml"})


def test_a_log_file_is_appended_to_and_is_for_its_user_alone(tmp_path: Path, capsys: Output) -> None:
    file = tmp_path / "run.log"
    for _ in range(2):
        assert run_command(["check", "absent.yaml", "--log-file", str(file)]) == 2
        assert "error [unreadable-file]" in capsys.readouterr().err
    lines = file.read_text().splitlines()
    assert [("unreadable-file" in line, "\x1b" in line) for line in lines] == [(True, False)] * 2
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run_command(["check", "absent.yaml", "--log-file", str(tmp_path)]) == 2
    assert "[unwritable-file]" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_in_the_log_shows_no_variables(tmp_path: Path, form: str) -> None:
    file, password = tmp_path / "run.log", token_hex(8)
    choose("", form, file)
    set_up_logs()
    try:
        PostgresTarget("127.0.0.1", 1, "u", password).connect()
    except PidtsError:
        structlog.get_logger().warning("the tables are published later", exc_info=True)
    said = file.read_text()
    assert "Traceback" in said
    assert "target-unreachable" in said
    assert password not in said


def test_a_name_of_the_source_cannot_control_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "run.log"
    choose("", "text", file)
    set_up_logs()
    structlog.get_logger().info("a table\x1b[2J\nhas halted", table="shop.\x1b]0;owned\x07", todo="two\nlines")
    (line,) = file.read_text().splitlines()
    assert line.isprintable()
    assert "shop." in line


def test_an_unknown_level_is_refused_with_those_that_exist(capsys: Output) -> None:
    assert run_command(["--log-level", "loud", "version"]) == 2
    assert "'loud' is none of debug, info, warning, error" in capsys.readouterr().err


def test_a_summary_is_reported_on_stderr_where_the_reader_of_stdout_is_gone() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = "from pidts.cli.final_summary import print_summary; print_summary('shop: stopped after 3.0 s')"
    run = subprocess.run([sys.executable, "-c", words], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, "shop: stopped after 3.0 s\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    words = {"COMP_WORDS": "pidts repl", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "pidts repl"}
    asked = {**os.environ, **words, "_PIDTS_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    shown = subprocess.run(PROGRAM, env=asked, capture_output=True, text=True, check=False)
    assert "replicate" in shown.stdout
