"""The wheel, installed into a new environment, runs the demo and serves its page from an empty folder.

The packages that it needs are linked from the environment of these tests: pip checks that they satisfy the wheel's
requirements, and nothing is downloaded.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT_FROM = ("src", "requirements", "pyproject.toml", "LICENSE", "README.md")
NOT_LINKED = ("pidts", "__editable__", "__pycache__", "_virtualenv", "distutils-precedence")
SECONDS = 1200
"""The timeout of the first start of an installation, which compiles the decoder: this takes minutes on a busy machine.
"""
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def run(*words: object, cwd: Path) -> str:
    """Runs a program without the environment variables of this test run; returns what it prints."""
    done = subprocess.run(
        [*map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env=clean_environment(),
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def clean_environment() -> dict[str, str]:
    hidden = ("PYTHON", "PIDTS_", "VIRTUAL_ENV", "SPARK_", "COVERAGE", "PYTEST")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


def installed(folder: Path) -> Path:
    """Builds the wheel from a copy of the tree, installs it into a new environment, and returns the folder with its
    programs.
    """
    tree = folder / "tree"
    tree.mkdir()
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(ROOT / name, tree / name)
    run(*PIP, "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, tree, cwd=folder)
    shutil.rmtree(tree)
    (wheel,) = folder.glob("pidts-*.whl")
    environment = folder / "env"
    venv.create(environment, with_pip=False)
    (ours,) = environment.glob("lib/python*/site-packages")
    for place in (Path(one) for one in sys.path if Path(one).name in {"site-packages", "dist-packages"}):
        for entry in place.iterdir():
            linked = ours / entry.name
            if not (entry.name.lower().startswith(NOT_LINKED) or entry.suffix == ".pth" or linked.is_symlink()):
                linked.symlink_to(entry)
    # pip runs without --no-deps, so a requirement of the wheel that is not satisfied is an error.
    words = (*PIP, "--python", environment / "bin" / "python", "install", "-q", "--no-index", f"{wheel}[spark]")
    run(*words, cwd=folder)
    return environment / "bin"


@contextmanager
def service(programs: Path, folder: Path) -> Iterator[str]:
    """Runs the service on a free port, and yields its address."""
    folder.mkdir()
    state = folder / "state"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [programs / "pidts", "serve", "--listen", "127.0.0.1:0", "--state", state],
            cwd=folder,
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        deadline = time.monotonic() + SECONDS
        while not (state / "service.json").exists():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
        yield json.loads((state / "service.json").read_text())["url"]
        process.terminate()
        assert process.wait(60) == 0, (folder / "log").read_text()
    finally:
        process.kill()
        process.wait()


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(3000)
def test_the_installed_wheel_shows_the_demo_and_serves_its_page(tmp_path: Path) -> None:
    programs = installed(tmp_path)
    assert run(programs / "pidts", "--version", cwd=tmp_path).startswith("pidts ")
    # This is the installed program with its compiled code: it uses no file of the source tree.
    place = run(programs / "python", "-c", "import pidts; print(pidts.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(tmp_path / "env")

    with service(programs, tmp_path / "served") as address:
        page = fetched(f"{address}/")
        for part in ("main.js", "page.css", "icon.svg"):
            assert f'"{part}"' in page
            assert fetched(f"{address}/{part}")
        assert json.loads(fetched(f"{address}/api/tasks"))["tasks"] == []
        assert "/api/tasks" in json.loads(fetched(f"{address}/openapi.json"))["paths"]

    folder = tmp_path / "shown"
    folder.mkdir()
    found = json.loads(run(programs / "pidts", "demo", "--seconds", "5", "--json", cwd=folder).splitlines()[-1])
    assert found["stage"] in {"stopped", "synced"}
    assert found["rows"]["copied"] > 0
    assert not found["differences"]
    assert [*folder.iterdir()] == []
