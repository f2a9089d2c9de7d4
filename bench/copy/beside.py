"""Makes modules of `bench/apply` and `bench/latency` importable. Import this module first."""

from __future__ import annotations

import sys
from pathlib import Path

_BENCH = Path(__file__).parent.parent
# Those folders come after this one: if a module is in both, the one in this folder is meant.
sys.path += [str(_BENCH / "apply"), str(_BENCH / "latency")]
