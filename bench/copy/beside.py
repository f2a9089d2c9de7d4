"""Makes modules of `bench/apply` and `bench/latency` importable. Import this module first."""

from __future__ import annotations

import sys
from pathlib import Path

_BENCH = Path(__file__).parent.parent
# The two folders come last in `sys.path`: if this folder has a module of the same name, that one is imported.
sys.path += [str(_BENCH / "apply"), str(_BENCH / "latency")]
