"""The files in `deploy/` fit the tree: systemd itself checks the unit, and the container file has the right form."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
INSTRUCTIONS = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """Returns the container file's instructions, each with its continued lines."""
    text = re.sub(r"\\\n", " ", (DEPLOY / "Containerfile").read_text("utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not here")
    unit = tmp_path / "pidts.service"
    # systemd also looks for the program, which is installed only on the operator's machine.
    unit.write_text((DEPLOY / "pidts.service").read_text("utf-8").replace("/opt/pidts/bin/pidts", "/bin/true"), "utf-8")
    done = subprocess.run([program, "verify", unit], capture_output=True, text=True, timeout=60, check=False)
    complaints = [line for line in done.stderr.splitlines() if "pidts.service" in line]
    assert complaints == []


def test_the_unit_leaves_tasks_running_and_keeps_its_state_private() -> None:
    lines = (DEPLOY / "pidts.service").read_text("utf-8").splitlines()
    for wanted in ("KillMode=process", "StateDirectoryMode=0700", "UMask=0077", "NoNewPrivileges=true", "User=pidts"):
        assert wanted in lines


def test_files_of_tasks_that_continue_are_not_removed_with_the_service() -> None:
    lines = (DEPLOY / "pidts.service").read_text("utf-8").splitlines()
    assert not [line for line in lines if line.startswith("PrivateTmp")]
    assert "StateDirectory=pidts pidts/tmp" in lines
    assert "Environment=TMPDIR=/var/lib/pidts/tmp" in lines
    assert "OOMPolicy=continue" in lines


def test_commands_in_the_container_find_the_service_without_naming_its_folder() -> None:
    found = dict(instructions())
    assert found["CMD"] == '["serve"]'
    (state,) = [rest for word, rest in instructions() if word == "ENV"]
    assert "XDG_STATE_HOME=/var/lib" in state.split()
    assert found["VOLUME"] == "/var/lib/pidts"


def test_the_container_file_is_made_of_known_instructions_and_of_files_that_are_there() -> None:
    found = instructions()
    assert {word for word, _ in found} <= INSTRUCTIONS
    for word, rest in found:
        if word == "COPY" and not rest.startswith("--from"):
            for name in rest.split()[:-1]:
                assert (ROOT / name).exists(), name
    named = re.findall(r"requirements/[\w.]+", " ".join(rest for _, rest in found))
    assert all((ROOT / name).exists() for name in named)


def test_the_container_installs_by_hashes_and_runs_as_nobody_in_particular() -> None:
    found = instructions()
    installs = [part for word, rest in found if word == "RUN" for part in rest.split("&&") if "pip install" in part]
    assert installs
    assert all("--require-hashes" in part or "--no-deps" in part for part in installs)
    assert ("USER", "pidts") in found
    assert found.index(("USER", "pidts")) < next(at for at, (word, _) in enumerate(found) if word == "ENTRYPOINT")


def test_the_image_contains_the_compiled_code_in_a_folder_of_its_user() -> None:
    found = instructions()
    (environment,) = [rest for word, rest in found if word == "ENV"]
    (folder,) = re.findall(r"NUMBA_CACHE_DIR=(\S+)", environment)
    assert not folder.startswith(("/tmp", found[[word for word, _ in found].index("VOLUME")][1]))
    assert any(f"install -d -o pidts {folder}" in rest for word, rest in found if word == "RUN")
    compiles = found.index(("RUN", "python -m pidts.batch.compile_ahead"))
    assert found.index(("USER", "pidts")) < compiles
    assert found.index(("ENV", environment)) < compiles
    assert "python -m pidts.batch.compile_ahead" in (ROOT / "setup/python.sh").read_text("utf-8")


def test_the_ignore_file_lets_all_copied_files_pass() -> None:
    let = {
        line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text("utf-8").splitlines() if line[:1] == "!"
    }
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from"):
            assert {name.rstrip("/") for name in rest.split()[:-1]} <= let
