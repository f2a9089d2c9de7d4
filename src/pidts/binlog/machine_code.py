"""Decides whether compiled code is used, and finds its folder, without loading the compiler (see `jit`).

`python -I machine_code.py` prints how many functions have machine code.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

_COMPILED_FROM = ("binlog", "model", "relay/segments", "source", "target/postgres/encode", "text_rows")
"""The folders of all compiled functions, and of the constants in them."""
_DECLARED = re.compile(rb"^ *@(?:jit|inline|entry)$", re.MULTILINE)
"""The decorator of a compiled function."""
_LOCK = "lock"
_PLAIN = "python"


def compiled() -> bool:
    """Whether compiled code is used. It is used unless PIDTS_KERNEL=python asks for plain Python code."""
    return os.environ.get("PIDTS_KERNEL", "compiled") != _PLAIN


@cache
def cache_folder() -> Path:
    """Returns the folder of the machine code: next to the source, or in NUMBA_CACHE_DIR or the user's cache.

    The user's cache is taken if the folder next to the source is not complete, and this user may not write to it.
    Numba notices a change of a function's own file, but no change of another file, from which the function takes a
    constant or a called function. Code with an old memory layout would then write to wrong addresses. So the folder's
    name has a digest of all files from which functions or constants are compiled.
    """
    digest = hashlib.sha256()
    for text in _sources():
        digest.update(text)
    name = f"compiled-{digest.hexdigest()[:16]}"
    return _parent(Path(__file__).parent / "__pycache__", name) / name


def _sources() -> Iterator[bytes]:
    for folder in _COMPILED_FROM:
        for file in sorted((Path(__file__).parent.parent / folder).rglob("*.py")):
            yield file.read_bytes()


def declared() -> int:
    """Returns the number of functions to compile. Some processors need a few less."""
    return sum(len(_DECLARED.findall(text)) for text in _sources())


def progress() -> str:
    """Returns a text that says how many functions have machine code."""
    kept = sum(1 for _ in cache_folder().rglob("*.nbi"))
    return f"{kept} of about {declared()} functions are compiled"


def is_complete() -> bool:
    """Whether the folder has the machine code of every function that a task needs, for this machine's processor."""
    return _has_mark(cache_folder())


def complete(compile_all: Callable[[], object]) -> None:
    """Calls `compile_all` unless the machine code is complete, and notes that it is complete.

    Of several processes, one compiles and the others wait for it. If the folder cannot be written, nothing is done: the
    machine code could not be kept.
    """
    folder = cache_folder()
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not is_complete():
                compile_all()
                (folder / _mark()).touch()


def why_not_kept() -> str:
    """Returns why machine code cannot be kept in the folder; empty if it can."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _LOCK).open("a").close()
    except OSError as error:
        return f"{folder}: {error.strerror}"
    return ""


def last_kept_at() -> float:
    """Returns the time at which any process last kept machine code on disk, in seconds since 1970; 0.0 if never."""
    latest = 0.0
    for file in cache_folder().rglob("*"):
        with suppress(OSError):  # another process may rename the file meanwhile
            latest = max(latest, file.stat().st_mtime)
    return latest


def _has_mark(folder: Path) -> bool:
    """Whether the folder is complete, and this user can read it. `Path.exists` would raise for a private folder."""
    return os.access(folder / _mark(), os.R_OK)


def _mark(machine: Path = Path("/proc/cpuinfo")) -> str:
    """Returns the name of a file that exists if the code is complete for this processor, Python and Numba."""
    what = f"{version('numba')} {sys.implementation.cache_tag}"
    with suppress(OSError):
        lines = machine.read_text(encoding="utf-8").splitlines()
        what += "".join(line for line in lines if line.startswith(("model name", "flags", "Features")))
    return f"complete-{hashlib.sha256(what.encode()).hexdigest()[:16]}"


def _parent(beside: Path, name: str) -> Path:
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(chosen)
    with suppress(OSError):
        beside.mkdir(exist_ok=True)
    return beside if os.access(beside, os.W_OK) or _has_mark(beside / name) else _of_user()


def _of_user() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pidts"


if __name__ == "__main__":
    sys.stdout.write(progress())
