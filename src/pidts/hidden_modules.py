"""Hides modules that pyarrow would import although PiDTS does not need them.

- **pandas**: pyarrow imports it for its first array. This takes a quarter of a second and 45 MB in each process. Spark
  uses pandas, so a process that starts Spark makes it visible again. The Python processes that Spark starts for PiDTS
  do not need it (`spark/worker_start.py`).
- **pyarrow.dataset**: pyarrow imports it when it first groups rows, although it can group tables without it. This takes
  60 ms on an idle machine, and 8 MB in each process. Only this import is refused; other modules can import `dataset`.
  Then only `Dataset.sort_by` and `Dataset.join` fail, and PiDTS uses neither.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


def hide_modules() -> None:
    """Hides the modules in this process. Only programs call this; a library must not change its user's imports."""
    sys.meta_path[:0] = [_NoPandas(), _NoDataset()]


def show_pandas() -> None:
    """Makes pandas visible to imports again. Spark needs it."""
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
    """Returns the name of the module whose import statement has led to this call."""
    frame = sys._getframe(2)  # noqa: SLF001 - documented; no other function gives one frame
    while frame.f_back is not None and frame.f_globals.get("__name__") == "importlib._bootstrap":
        frame = frame.f_back
    return str(frame.f_globals.get("__name__"))
