"""Describes the machine on which a figure was measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import pyarrow as pa


def machine() -> dict[str, Any]:
    """Returns the machine's description. Call this before the bench begins: `load_before` is that of other programs."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "system": platform.platform(),
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
    }
