"""Chooses between compiled and plain code, without loading the compiler."""

from __future__ import annotations

import os

_PLAIN = "python"


def compiled() -> bool:
    """Whether compiled code is used. It is used unless PIDTS_KERNEL=python asks for plain Python code."""
    return os.environ.get("PIDTS_KERNEL", "compiled") != _PLAIN
