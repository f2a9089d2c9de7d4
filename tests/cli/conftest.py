"""Calls `pidts events` as a function."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pidts.cli.app import run_command

Shown = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Shown:
    """Returns the events that a command line prints. Notes go to stderr."""

    def run(*arguments: str) -> list[dict[str, Any]]:
        code = run_command(["events", *arguments])
        output = capsys.readouterr()
        assert code == 0, output.err
        run.notes = output.err
        return [json.loads(line) for line in output.out.splitlines()]

    return run
