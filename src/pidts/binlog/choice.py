"""Chooses between compiled and plain code, without loading the compiler."""

from __future__ import annotations

import os

_PLAIN = "python"


def compiled() -> bool:
    """Whether compiled code is used: it is, unless PIDTS_KERNEL=python asks for the plain version."""
    return os.environ.get("PIDTS_KERNEL", "compiled") != _PLAIN
