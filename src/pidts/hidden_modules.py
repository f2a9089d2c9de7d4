"""Hides modules that pyarrow would import although PiDTS does not need them there.

pyarrow imports pandas as soon as it makes its first array, which takes a quarter of a second and 45 MB in each process.
Spark uses pandas: a process that starts Spark makes it visible again. In a session that PiDTS starts, Spark's Python
processes do not need it, either (`spark/worker_start.py`).

pyarrow imports its own `dataset` when it first groups rows, during the first batches, and groups tables without it. The
import takes 60 ms on an idle machine, and 8 MB in each process. Other importers of `dataset` find it.
Of its functions, only `Dataset.sort_by` and `Dataset.join` fail then, which nothing here uses.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


def hide_modules() -> None:
    """Hides the modules in this process; for programs, not for libraries."""
    sys.meta_path[:0] = [_NoPandas(), _NoDataset()]


def show_pandas() -> None:
    """Makes pandas visible to imports again, for Spark; pyarrow works without it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _NoPandas)]


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002 - the protocol needs them
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)


class _NoDataset(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002 - the protocol needs them
        if fullname == "pyarrow.dataset" and _importer() == "pyarrow.acero":
            raise ModuleNotFoundError(fullname, name=fullname)


def _importer() -> str:
    """Returns the name of the module that imports another one now, in this thread."""
    frame = sys._getframe(2)  # noqa: SLF001 - documented; no other function gives one frame
    while frame.f_back is not None and frame.f_globals.get("__name__") == "importlib._bootstrap":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))
