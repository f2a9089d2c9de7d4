"""Makes the modules of the other benches, and of the tests, importable. Import this module first."""

from __future__ import annotations

import sys
from pathlib import Path

_BENCH = Path(__file__).parent.parent
# These folders come last in `sys.path`: if this folder has a module of the same name, that one is imported.
sys.path += [str(_BENCH), str(_BENCH / "latency"), str(_BENCH.parent)]
