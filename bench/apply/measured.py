"""Prints the result of each measurement as one line, and keeps the last result of each contender in a file."""

from __future__ import annotations

import argparse
import json
import operator
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))

from machine import machine


def about(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of the command, the time, and the machine on which it runs."""
    head = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine()}
    return head | {name: value for name, value in vars(options).items() if name not in ("result", "folder")}


def keep(path: Path, command: dict[str, Any], runs: list[dict[str, Any]], *places: str) -> None:
    """Adds results to the file. A result replaces an earlier result with the same values under the keys `places`."""
    known = json.loads(path.read_text()) if path.exists() else {"commands": [], "runs": []}
    place = operator.itemgetter(*places)
    new = {place(run) for run in runs}
    known["commands"].append(command)
    number = len(known["commands"])
    known["runs"] = [run for run in known["runs"] if place(run) not in new] + [
        {**run, "command": number} for run in runs
    ]
    path.write_text(json.dumps(known, indent=1) + "\n")


def printed(result: dict[str, Any]) -> dict[str, Any]:
    print(json.dumps(result), flush=True)
    return result
