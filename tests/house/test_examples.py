"""Property tests try new examples in each run, and each of these runs can be repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
PROBE = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=50)
@given(st.integers(0, 2**60))
def test_one(number):
    print("drawn", number)
    assert number % 7 != 3 or not {fails}

def test_inner():
    seen = []
    @given(st.integers(0, 2**60))
    def holds(number):
        seen.append(number)
    holds()
    print("inner", seen)
"""


def run(folder: Path, seed: str, *options: str, fails: bool = False) -> str:
    (folder / "tests").mkdir(exist_ok=True)
    helpers = ("examples", "failed_tests", "file_times", "files_in_memory", "forked_programs", "tidied_server")
    for name in ("conftest", *helpers):
        (folder / "tests" / f"{name}.py").write_text((TESTS / f"{name}.py").read_text())
    (folder / "tests" / "test_probe.py").write_text(PROBE.format(fails=fails))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "--import-mode=importlib", *options, "tests"],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if name != "PIDTS_SEED"},
            "CI": "true",
            **({"PIDTS_SEED": seed} if seed else {}),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == fails, done.stdout + done.stderr
    return done.stdout


def drawn(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if line.startswith(("drawn", "inner")))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(tmp_path_factory.mktemp("first"), "")


def seed_of(output: str) -> str:
    (line,) = [line for line in output.splitlines() if line.startswith("examples: ")]
    return line.rpartition("=")[2]


def test_each_run_looks_at_other_examples_also_where_ci_is_set(tmp_path, first):
    other = run(tmp_path, "")
    assert seed_of(first) != seed_of(other)
    assert drawn(first) != drawn(other)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.long)])
def test_the_number_in_the_header_repeats_a_run_also_over_several_workers(tmp_path, first, workers):
    assert len(drawn(first)) == 51
    assert drawn(run(tmp_path, seed_of(first), "-n", str(workers))) == drawn(first)


def test_failing_examples_are_kept_and_tried_first(tmp_path):
    failed = run(tmp_path, "7", fails=True)
    assert "PIDTS_SEED=7 repeats the examples of this run" in failed
    assert "@reproduce_failure" in failed
    again = run(tmp_path, "8", fails=True)
    first = next(line for line in again.splitlines() if line.startswith("drawn"))
    assert int(first.split()[1]) % 7 == 3, "a run without kept examples begins with 0"
    assert first in failed.splitlines()
