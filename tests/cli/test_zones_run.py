"""Each direction of a file is run by a process of its own. The processes start in the right order, and the others end
or continue when one ends.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pidts.cli.zones import run
from pidts.cli.zones.run import DirectionRun, exit_code_of, run_zones, summary_of
from pidts.task.config.zones_file import Direction

A_B = Direction("a", "b", (), copies=True)
B_C = Direction("b", "c", ("a",), copies=True)
C_A = Direction("c", "a", ("b",), copies=False)

PROGRAM = """
import os, pathlib, signal, sys, time
path = pathlib.Path(sys.argv[-1])
def stop(*_):
    print('{"stage": "stopped"}', flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
if path.with_name(path.name + ".deaf").exists():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if path.with_name(path.name + ".new").exists():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
with path.open("a") as starts:
    starts.write(f"{os.getpid()} {time.time()}\\n")
code = path.with_name(path.name + ".code")
if code.exists():
    said = int(code.read_text())
    code.unlink()
    print('{"stage": "ended"}', flush=True)
    sys.exit(said)
while True:
    time.sleep(0.05)
"""


class StandInRuns:
    """Runs programs in place of `pidts run`. Each notes its starts in the file of its direction (`path`)."""

    def __init__(self, folder: Path) -> None:
        self.file, self.copied = folder / "z.yaml", set[str]()
        self.stop = threading.Event()
        self.found: list[DirectionRun] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.found = run_zones(
            self.file,
            [A_B, B_C, C_A],
            self.stop,
            until_synced=False,
            program=[sys.executable, "-c", PROGRAM],
            is_copied=lambda path: path.name in self.copied,
        )

    def path(self, direction: Direction) -> Path:
        return self.file.with_name(f"z.yaml@{direction}")

    def starts(self, direction: Direction) -> list[int]:
        path = self.path(direction)
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []

    def started(self) -> list[str]:
        return [str(one) for one in (A_B, B_C, C_A) if self.starts(one)]

    def begin(self) -> None:
        self._thread.start()

    def ended(self) -> list[DirectionRun]:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.found


def wait_until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInRuns:
    monkeypatch.setattr(run, "_AGAIN_SECONDS", 0.1)
    return StandInRuns(tmp_path)


@pytest.mark.slow
def test_directions_that_copy_start_when_their_source_has_the_rows_and_others_last(runs: StandInRuns) -> None:
    runs.begin()
    wait_until(lambda: runs.started() == ["a-b"])
    time.sleep(1.5)
    assert runs.started() == ["a-b"]
    runs.copied.add("z.yaml@a-b")
    wait_until(lambda: runs.started() == ["a-b", "b-c"])
    time.sleep(1.5)
    assert runs.started() == ["a-b", "b-c"]
    runs.copied.add("z.yaml@b-c")
    wait_until(lambda: runs.started() == ["a-b", "b-c", "c-a"])
    runs.stop.set()
    found = runs.ended()
    assert exit_code_of(found) == 0
    assert summary_of("shop", found)["directions"]["c-a"] == {"stage": "stopped"}
    assert all(len(runs.starts(one)) == 1 for one in (A_B, B_C, C_A))


@pytest.mark.parametrize(("code", "starts"), [(1, 2), (2, 1), (3, 1), (5, 1)])
def test_a_direction_that_fails_starts_again_unless_it_needs_an_operator(
    runs: StandInRuns, code: int, starts: int
) -> None:
    runs.copied |= {"z.yaml@a-b", "z.yaml@b-c"}
    runs.path(C_A).with_name("z.yaml@c-a.code").write_text(str(code))
    runs.begin()
    wait_until(lambda: len(runs.starts(C_A)) == starts)
    time.sleep(1.5)
    assert len(runs.starts(C_A)) == starts
    assert len(runs.starts(A_B)) == 1, "the others do not stop for it"
    runs.stop.set()
    assert exit_code_of(runs.ended()) == (code if starts == 1 else 0)


def test_a_direction_that_had_only_just_started_has_not_failed(runs: StandInRuns) -> None:
    runs.path(A_B).with_name("z.yaml@a-b.new").touch()
    runs.begin()
    wait_until(lambda: len(runs.starts(A_B)) == 1)
    runs.stop.set()
    assert exit_code_of(runs.ended()) == 0


def test_a_direction_that_does_not_end_is_killed(runs: StandInRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_END_SECONDS", 0.5)
    runs.path(A_B).with_name("z.yaml@a-b.deaf").touch()
    runs.begin()
    wait_until(lambda: len(runs.starts(A_B)) == 1)
    runs.stop.set()
    assert exit_code_of(runs.ended()) == 1


def test_a_direction_that_is_killed_starts_again(runs: StandInRuns) -> None:
    runs.begin()
    wait_until(lambda: len(runs.starts(A_B)) == 1)
    os.kill(runs.starts(A_B)[0], signal.SIGKILL)
    wait_until(lambda: len(runs.starts(A_B)) == 2)
    runs.stop.set()
    assert exit_code_of(runs.ended()) == 0


def test_no_direction_waits_for_rows_that_will_not_arrive(runs: StandInRuns) -> None:
    runs.path(A_B).with_name("z.yaml@a-b.code").write_text("5")
    runs.begin()
    assert exit_code_of(runs.ended()) == 5
    assert runs.started() == ["a-b"]


def test_the_directions_end_with_the_program_that_has_started_them(tmp_path: Path) -> None:
    script = f"""
import sys, threading
from pathlib import Path
sys.path[:0] = {sys.path!r}
from pidts.cli.zones.run import run_zones
from pidts.task.config.zones_file import Direction
run_zones(Path({str(tmp_path / "z.yaml")!r}), [Direction("a", "b", (), copies=True)], threading.Event(),
    until_synced=False, program=[sys.executable, "-c", {PROGRAM!r}], is_copied=lambda _: False)
"""
    parent = subprocess.Popen([sys.executable, "-c", script])
    path = tmp_path / "z.yaml@a-b"
    try:
        wait_until(lambda: path.exists() and path.read_text().endswith("\n"))
    finally:
        parent.kill()
        parent.wait()
    child = int(path.read_text().split()[0])
    wait_until(lambda: not Path(f"/proc/{child}").exists() or "(Z)" in Path(f"/proc/{child}/status").read_text())
