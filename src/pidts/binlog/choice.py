"""Compiled or plain code: the choice, without loading the compiler."""

from __future__ import annotations

import os

_PLAIN = "python"


def compiled() -> bool:
    """Whether compiled code is to be used: it is, unless PIDTS_KERNEL=python asks for its plain twin."""
    return os.environ.get("PIDTS_KERNEL", "compiled") != _PLAIN
