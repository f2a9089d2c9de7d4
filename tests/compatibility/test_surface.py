"""What version 0.1.0 offered to other programs is still there: commands, options, error codes, exit codes, metrics, log
events, the keys of `--json` and of a relay's status.json, REST operations.

Names that a later version removes or renames are in `changed.json`, with the reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .surface import surface

HERE = Path(__file__).parent
RECORDED: dict[str, Any] = json.loads((HERE / "surface-0.1.0.json").read_text())
CHANGED: dict[str, dict[str, str]] = json.loads((HERE / "changed.json").read_text())


@pytest.fixture(scope="module")
def now() -> dict[str, Any]:
    return surface()


@pytest.mark.parametrize("part", RECORDED)
def test_no_public_name_is_missing(part: str, now: dict[str, Any]) -> None:
    gone = set(RECORDED[part]) - set(now[part])
    assert gone == set(CHANGED.get(part, {})), "record a deliberate change, with its reason, in changed.json"


def test_exit_codes_are_the_same(now: dict[str, Any]) -> None:
    """An error code may get further exit codes, and loses none."""
    for name, codes in RECORDED["error codes"].items():
        assert set(codes) <= set(now["error codes"].get(name, codes)), name


@pytest.mark.parametrize("part", ["commands", "metrics", "json documents", "rest"])
def test_options_labels_keys_and_parameters_are_the_same(part: str, now: dict[str, Any]) -> None:
    for name, words in RECORDED[part].items():
        if name in now[part]:
            assert set(words) <= set(now[part][name]), name
