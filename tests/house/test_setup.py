"""The setup scripts say what they do, and for how long they have done it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pidts.binlog.machine_code import cache_folder, declared

ROOT = Path(__file__).parents[2]


def said(script: str, folder: Path = ROOT) -> list[str]:
    """Runs lines of bash after the functions of setup/say.sh; returns what they print on stderr."""
    text = f"set -euo pipefail; . {ROOT}/setup/say.sh; progress_seconds=0.2; {script}"
    done = subprocess.run(["bash", "-c", text], cwd=folder, capture_output=True, text=True, timeout=30, check=True)
    return done.stderr.splitlines()


def test_a_long_step_shows_its_progress_until_it_is_done() -> None:
    first, *progress, last = said("working 'installing x'; sleep 4; done_working; say done; sleep 0.5")
    assert (first, last) == ("setup: installing x", "setup: done")
    assert len(progress) >= 2
    assert all(line.startswith("setup:   still working: ") for line in progress)


def test_the_progress_is_visible_although_the_errors_of_a_program_are_discarded() -> None:
    assert len(said("{ working 'installing x'; sleep 4; } 2>/dev/null; done_working")) >= 3


def test_the_progress_ends_with_the_script() -> None:
    assert said("working 'installing x'; exit 0") == ["setup: installing x"]


def test_a_quick_step_shows_no_progress() -> None:
    assert said("working 'installing x'; working 'installing y'; done_working") == [
        "setup: installing x",
        "setup: installing y",
    ]


def chosen_python(folder: Path, path: str) -> str:
    script = f". {ROOT}/setup/python.sh; find_python"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env={"PATH": path}, capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.strip()


def test_no_python_of_the_environment_makes_the_environment_anew(tmp_path: Path) -> None:
    own, other = tmp_path / ".venv/bin", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir(parents=True)
        (folder / "python3").symlink_to(sys.executable)
    path = f"{own}:{own}:{other}:/usr/bin:/bin"
    assert chosen_python(tmp_path, path) == str(other / "python3")
    made = tmp_path / "made"
    made.symlink_to(sys.executable)
    (tmp_path / ".venv/made-by").write_text(f"{tmp_path} {made}\n")
    assert chosen_python(tmp_path, path) == str(made)
    (tmp_path / ".venv/made-by").write_text(f"/elsewhere {made}\n")
    assert chosen_python(tmp_path, path) == str(other / "python3")
    made.unlink()
    (tmp_path / ".venv/made-by").write_text(f"{tmp_path} {made}\n")
    assert chosen_python(tmp_path, path) == str(other / "python3")


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """Returns the folder of the machine code of a copy of the source, in a folder with a Python."""
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    made = tmp_path / "src/pidts/binlog/__pycache__" / cache_folder().name
    made.mkdir(parents=True)
    return made


def test_a_compilation_shows_how_many_functions_are_ready(tmp_path: Path, compiled: Path) -> None:
    one, other = compiled / "one.nbi", compiled / "other.nbi"
    lines = said(f"working compiling compiled; touch {one}; sleep 4; touch {other}; sleep 4; done_working", tmp_path)
    shown = [line.rpartition("; ")[2] for line in lines if "still working" in line]
    end = f" of about {declared()} functions are compiled"
    assert (shown[0], shown[-1]) == (f"1{end}", f"2{end}")
    assert " MB; " in lines[1]


def test_a_compilation_that_has_kept_nothing_yet_shows_this(tmp_path: Path, compiled: Path) -> None:
    assert compiled.exists()
    lines = said("working compiling compiled; sleep 4; done_working", tmp_path)
    assert lines[-1].endswith(f"; 0 of about {declared()} functions are compiled")


def test_of_two_setups_in_one_folder_the_second_says_that_it_waits(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "setup", tmp_path / "setup")
    first = os.open(tmp_path / "setup", os.O_RDONLY)
    try:
        fcntl.flock(first, fcntl.LOCK_EX)
        with subprocess.Popen(["setup/prepare.sh", "run"], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as second:
            assert second.stderr is not None
            assert second.stderr.readline() == "setup: another setup runs in this folder: waiting for it\n"
            second.kill()
    finally:
        os.close(first)
