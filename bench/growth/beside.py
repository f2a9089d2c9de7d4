"""Makes the modules of the other benches, and of the tests, importable. Import this module first."""

from __future__ import annotations

import sys
from pathlib import Path

_BENCH = Path(__file__).parent.parent
# Those folders come after this one: if a module is in both, the module in this folder is loaded.
sys.path += [str(_BENCH), str(_BENCH / "latency"), str(_BENCH.parent)]
