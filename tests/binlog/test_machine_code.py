"""The folder of the machine code belongs to one state of the sources, and is filled by one process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from pidts.batch.compile_ahead import compile_once
from pidts.binlog import machine_code
from pidts.binlog.machine_code import cache_folder, complete, is_complete
from pidts.cli.app import compile_before_run

PACKAGE = Path(machine_code.__file__).parent.parent


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of machine code, which no other test uses."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    cache_folder.cache_clear()
    yield cache_folder()
    cache_folder.cache_clear()


def users_of_the_compiler() -> list[Path]:
    """Returns the files that have compiled functions, relative to the package."""
    compiling = ("import inline", "import jit", "import entry", "inline, ", ", jit", "entry, ", ", entry")
    return [
        file.relative_to(PACKAGE)
        for file in PACKAGE.rglob("*.py")
        for line in file.read_text().splitlines()
        if line.startswith("from pidts.binlog.jit import ") and any(one in line for one in compiling)
    ]


def test_machine_code_is_beside_the_source_or_where_one_may_write(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    beside = tmp_path / "package" / "__pycache__"
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert machine_code._parent(beside, "compiled-1") == tmp_path / "cache" / "pidts"
    beside.parent.mkdir()
    assert machine_code._parent(beside, "compiled-1") == beside
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.R_OK and Path(path).exists())
    assert machine_code._parent(beside, "compiled-1") == tmp_path / "cache" / "pidts"
    (beside / "compiled-1").mkdir()
    (beside / "compiled-1" / machine_code._mark()).touch()
    assert machine_code._parent(beside, "compiled-1") == beside, "nothing has to be written there"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert machine_code._parent(beside, "compiled-1") == tmp_path


@pytest.mark.parametrize(
    "file", ["binlog/kernel/images.py", "binlog/events.py", "model/event.py", "relay/segments/index.py"]
)
def test_machine_code_of_other_sources_is_not_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str) -> None:
    """It is not taken even if only a file with constants has changed, which were compiled into the code."""
    for part in machine_code._COMPILED_FROM:
        shutil.copytree(PACKAGE / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(machine_code, "__file__", str(tmp_path / "binlog" / "machine_code.py"))
    before = cache_folder.__wrapped__().name
    assert before == cache_folder.__wrapped__().name
    path = tmp_path / file
    path.write_text(path.read_text() + "\n")
    assert cache_folder.__wrapped__().name != before


def test_the_name_of_the_folder_depends_on_each_file_with_compiled_functions() -> None:
    files = users_of_the_compiler()
    assert len(files) > 20
    folders = tuple(f"{one}/" for one in machine_code._COMPILED_FROM)
    assert [str(file) for file in files if not str(file).startswith(folders)] == []


def test_of_several_processes_one_compiles_and_the_others_wait(folder: Path) -> None:
    begun, may_end, calls, seen = threading.Event(), threading.Event(), [], []

    def compile_all() -> None:
        calls.append(1)
        begun.set()
        may_end.wait(10)

    def wait() -> None:
        complete(compile_all)
        seen.append(is_complete())

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert begun.wait(10)
    assert not is_complete()
    assert seen == []
    may_end.set()
    for thread in threads:
        thread.join(10)
    assert (len(calls), seen) == (1, [True] * 3)


def test_a_compilation_that_fails_is_done_again(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        complete(lambda: 1 // 0)
    assert not is_complete()
    calls: list[int] = []
    complete(lambda: calls.append(1))
    assert (calls, is_complete()) == ([1], True)


def test_nothing_is_compiled_for_a_folder_that_cannot_be_written(folder: Path) -> None:
    folder.parent.touch()  # a file, so that no folder can be made in it
    calls: list[int] = []
    complete(lambda: calls.append(1))
    assert (calls, is_complete()) == ([], False)


def test_a_run_says_once_why_its_machine_code_is_not_kept(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert machine_code.why_not_kept() == ""
    shutil.rmtree(folder.parent)
    folder.parent.touch()  # a file, so that no folder can be made in it
    compile_before_run()
    (said,) = capsys.readouterr().err.splitlines()
    assert f"compiled code cannot be kept ({folder}: " in said
    assert "set NUMBA_CACHE_DIR to a folder" in said


def test_a_run_that_compiles_shows_how_far_it_is(folder: Path) -> None:
    """On a busy machine, compiling takes minutes."""
    (folder / "kernel").mkdir(parents=True)
    for name in ("a", "b"):
        (folder / "kernel" / f"{name}-1.py311.nbi").touch()
    said: list[str] = []
    compile_once(said.append, program=[sys.executable, "-c", "import time; time.sleep(1.5)"], every=0.5)
    declared = sum(
        line.strip() in {"@jit", "@inline", "@entry"}
        for file in users_of_the_compiler()
        for line in (PACKAGE / file).read_text().splitlines()
    )
    assert declared > 100
    assert said[0].endswith(f": 2 of about {declared} functions are compiled")


def doubled(folder: Path, cache: Path, **variables: str) -> list[str]:
    """Calls two compiled functions of a module in this folder; returns the results, and what was not read from disk."""
    folder.mkdir(exist_ok=True)
    (folder / "doubled.py").write_text(
        "from pidts.binlog.jit import entry, jit\n"
        "@jit\ndef twice(x):\n    return 2 * x\n"
        "@entry\ndef thrice(x):\n    return 3 * x\n"
        "print(twice(2), thrice.ctypes(3), twice.stats.cache_hits.total(), thrice.cache_hits)\n"
    )
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(folder), **variables}
    command = [sys.executable, "-c", "import doubled"]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    return ended.stdout.split()


def test_machine_code_is_read_from_disk_even_by_a_copy_of_the_program(tmp_path: Path) -> None:
    assert doubled(tmp_path / "one", tmp_path / "cache") == ["4", "9", "0", "0"]
    assert doubled(tmp_path / "two", tmp_path / "cache") == ["4", "9", "1", "1"]


def test_functions_are_compiled_even_if_no_folder_can_be_written(tmp_path: Path) -> None:
    """This is so in a container whose files are all read-only. Each process then compiles for itself."""
    (tmp_path / "cache").touch()  # a file, so that no folder can be made in it
    assert doubled(tmp_path / "one", tmp_path / "cache") == ["4", "9", "0", "0"]


def test_functions_are_compiled_even_if_the_environment_allows_no_place_for_their_code(tmp_path: Path) -> None:
    variable = {"NUMBA_CACHE_LOCATOR_CLASSES": "IPythonCacheLocator"}
    assert doubled(tmp_path / "one", tmp_path / "cache", **variable) == ["4", "9", "0", "0"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_user_who_may_not_enter_the_folder_beside_the_source_has_another_one(tmp_path: Path) -> None:
    """The folder is private if its first process made it so."""
    package = tmp_path / "package"
    (package / "__pycache__" / "compiled-1").mkdir(parents=True)
    (package / "__pycache__" / "compiled-1" / machine_code._mark()).touch()
    (package / "__pycache__").chmod(0o700)
    program = (
        "import os, pathlib, sys\n"
        "from pidts.binlog import machine_code\n"
        "mark = machine_code._mark()\n"
        "os.setuid(65534)\n"
        f"beside = pathlib.Path({str(package / '__pycache__')!r})\n"
        "print(machine_code._parent(beside, 'compiled-1'))\n"
    )
    tmp_path.chmod(0o755)
    environ = {**os.environ, "XDG_CACHE_HOME": "/nobody"}
    environ.pop("NUMBA_CACHE_DIR", None)
    ended = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert ended.stdout == "/nobody/pidts\n", ended.stderr


def test_damaged_machine_code_is_compiled_again(tmp_path: Path) -> None:
    """A power failure can leave empty files."""
    doubled(tmp_path / "one", tmp_path / "cache")
    for pattern in ("*.nbc", "*.nbi"):
        damaged = list((tmp_path / "cache").rglob(pattern))
        assert len(damaged) == 2
        for file in damaged:
            file.write_bytes(b"")
        assert doubled(tmp_path / "one", tmp_path / "cache") == ["4", "9", "0", "0"]
    assert doubled(tmp_path / "one", tmp_path / "cache") == ["4", "9", "1", "1"]


def test_machine_code_for_another_processor_is_not_complete(tmp_path: Path) -> None:
    """The folder may be part of an image that was made on another machine."""
    machine = tmp_path / "cpuinfo"
    machine.write_text("model name: a\ncpu MHz: 2000\nflags: avx2\n")
    mark = machine_code._mark(machine)
    machine.write_text("model name: a\ncpu MHz: 3000\nflags: avx2\n")
    assert machine_code._mark(machine) == mark
    machine.write_text("model name: a\ncpu MHz: 2000\nflags: sse\n")
    assert machine_code._mark(machine) != mark


@pytest.mark.long
def test_a_complete_folder_has_every_compiled_function(folder: Path) -> None:
    """Otherwise, the first transactions of a kind would wait for the compiler, for seconds."""
    from numba.core.dispatcher import Dispatcher

    from pidts.binlog.jit import CARRYLESS

    compile_once()
    kept = {file.name.rpartition("-")[0] for file in folder.rglob("*.nbi")}
    missing = []
    for file in users_of_the_compiler():
        module = import_module("pidts." + str(file.with_suffix("")).replace("/", "."))
        for name, function in vars(module).items():
            if isinstance(function, Dispatcher) and function.py_func.__module__ == module.__name__:
                missing += [] if f"{file.stem}.{function.py_func.__name__}" in kept else [f"{file}: {name}"]
    assert 0 <= machine_code.declared() - len(kept) <= len(missing) + 2, "the progress ends at about its total"
    assert missing == (["binlog/crc.py: _sliced"] if CARRYLESS else [])  # for processors without a certain instruction
