"""The tree follows its own rules: which names it may have, how it is laid out, and that all packages are pinned."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pidts"


def _tracked() -> Iterator[Path]:
    """Returns the files that are committed or that git would add; in a tree without git's history, all files."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if name and path.is_file() and path != Path(__file__):
            yield path


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text("utf-8")
    except UnicodeDecodeError:
        return
    for number, line in enumerate(text.splitlines(), 1):
        yield f"{path.relative_to(ROOT)}:{number}", line


# Where a machine gets packages from is its own setting, and a path of one machine is of no use on another. A path is
# found only where it is not a part of a longer path or of a word.
FORBIDDEN = re.compile(
    r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|repo1?\.maven|crates\.io|deb\.debian\.org|archive\.ubuntu\.com"
    r"|--(?:extra-)?index-url|(?<![\w./-])/(?:work|home)/\w"
)


@pytest.mark.parametrize(
    "line",
    ["--index-url https://x", "see /" + "work/shared/x", "https://" + "pypi" + ".org/simple", "cd /" + "home/jo/src"],
)
def test_the_search_finds_what_it_is_for(line: str) -> None:
    assert FORBIDDEN.search(line)


def test_no_registry_and_no_private_path_is_named() -> None:
    found = [
        f"{place}: {line.strip()}" for path in _tracked() for place, line in _lines(path) if FORBIDDEN.search(line)
    ]
    assert found == []


def test_every_requirement_is_pinned_with_a_hash() -> None:
    for path in sorted((ROOT / "requirements").glob("*.txt")):
        joined = path.read_text("utf-8").replace("\\\n", " ")
        pins = [line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        assert pins, path.name
        for pin in pins:
            assert re.match(r"[a-z0-9-]+(\[[\w,]+\])?==\S+ .*--hash=sha256:[0-9a-f]{64}", pin), pin[:80]


def _wanted(name: str) -> set[str]:
    lines = (ROOT / "requirements" / f"{name}.in").read_text("utf-8").splitlines()
    return {re.split(r"[\[<>=~! ]", line)[0].lower() for line in lines if line and not line.startswith(("#", "-"))}


@pytest.mark.parametrize("name", ["build", "run", "dev"])
def test_every_requirement_is_pinned(name: str) -> None:
    pinned = set(re.findall(r"^([a-z0-9-]+)", (ROOT / "requirements" / f"{name}.txt").read_text("utf-8"), re.MULTILINE))
    assert _wanted(name) <= pinned


def test_packages_shared_by_runs_and_tests_have_one_version() -> None:
    pins: dict[str, set[str]] = {}
    for path in (ROOT / "requirements").glob("*.txt"):
        text = path.read_text("utf-8")
        here: dict[str, set[str]] = {}
        # A package may have one pin for each version of Python.
        for package, version in re.findall(r"^([a-z0-9-]+)(?:\[[\w,]+\])?==(\S+)", text, re.MULTILINE):
            here.setdefault(package, set()).add(version)
        for package, versions in here.items():
            assert pins.setdefault(package, versions) == versions, package


def test_every_package_has_its_place_in_the_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    placed = set(re.findall(r"\w+", " ".join(layers)))
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert packages <= placed


def test_every_package_says_in_one_sentence_what_it_contains() -> None:
    for init in PACKAGE.rglob("__init__.py"):
        assert init.read_text("utf-8").startswith('"""'), init.relative_to(ROOT)


def test_no_folder_of_code_is_left_out_of_the_package() -> None:
    bare = {path.parent for path in PACKAGE.rglob("*.py") if not (path.parent / "__init__.py").exists()}
    assert bare == set()


def test_no_folder_is_too_full_to_be_read_at_a_glance() -> None:
    folders = Counter(path.parent.relative_to(ROOT) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")
    assert {str(folder): count for folder, count in folders.items() if count > 25} == {}


@pytest.mark.parametrize("script", ["demo", "test", ".ci/run", "setup/prepare.sh"])
def test_commands_can_be_run(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111 == 0o111
    subprocess.run(["bash", "-n", str(path)], check=True)


def test_ci_runs_the_test_command_and_nothing_else() -> None:
    commands = [
        line
        for line in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
        if line and not line.startswith(("#", "set ", "cd "))
    ]
    assert commands == ["CI=true exec ./test"]
