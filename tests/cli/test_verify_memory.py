"""A comparison does not need a writable folder: without one, it only cannot be continued later."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidts.cli.verify import saved_in
from pidts.model import TableName
from pidts.verify import ComparisonState, MemoryFile, TableReport

REACHED = ComparisonState("all").finished(TableReport(TableName("shop", "orders"), rows=2), ())


def test_a_comparison_goes_on_if_its_state_cannot_be_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "relay").write_text("a file, so that no folder can be made here")
    memory = [ComparisonState("all")]
    save = saved_in(MemoryFile(tmp_path / "relay" / "verify" / "t.json"), memory)
    save(REACHED)
    save(REACHED)
    assert memory == [REACHED]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be written" in said


def test_a_state_is_stored_for_the_next_command(tmp_path: Path) -> None:
    file, memory = MemoryFile(tmp_path / "verify" / "t.json"), [ComparisonState("all")]
    saved_in(file, memory)(REACHED)
    assert memory == [file.load("all")] == [REACHED]
