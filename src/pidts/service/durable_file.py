"""Writes and reads small files of a service, which other processes may read at any time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pidts.durable_folder import replace_file
from pidts.relay.permissions import private_opener


def write_json(path: Path, value: dict[str, Any], *, durable: bool) -> None:
    """Replaces the content of a file by a JSON object; see `replace_file`."""
    replace_file(path, json.dumps(value, ensure_ascii=False), durable=durable)


def write_text(path: Path, text: str) -> None:
    """Writes a file that only this user can read. It is on the disk when this function returns."""
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read_json(path: Path) -> dict[str, Any] | None:
    """Returns the JSON object in a file; None if the file does not exist or has no JSON object."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
