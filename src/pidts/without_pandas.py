"""Hides pandas from pyarrow, which would import it with the first array that it makes.

Nothing of PiDTS uses pandas in its own processes, and importing it takes a quarter of a second and 45 MB in each of
them. Spark does: a process that starts it shows pandas again. Spark's own Python processes do without it where the
session is ours (`spark/worker_start.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType


def hide_pandas() -> None:
    """Lets this process believe that there is no pandas; for programs, not for libraries."""
    sys.meta_path.insert(0, _NoPandas())


def show_pandas() -> None:
    """Lets imports find pandas again, for Spark; pyarrow goes on without it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _NoPandas)]


class _NoPandas(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:  # noqa: ARG002 - the protocol's
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname, name=fullname)
