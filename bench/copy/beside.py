"""What the other benches have made, `bench/apply` and `bench/latency`, is used here too: import this first."""

from __future__ import annotations

import sys
from pathlib import Path

_BENCH = Path(__file__).parent.parent
# Behind this folder: a module of the same name here is meant.
sys.path += [str(_BENCH / "apply"), str(_BENCH / "latency")]
