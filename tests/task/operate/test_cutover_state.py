"""The advice about a cutover that has not ended: an active command may be invisible."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from pidts.model import Cutover, CutoverStage
from pidts.task.operate.cutover_state import CutoverState


@pytest.mark.parametrize("stage", [CutoverStage.BEGUN, CutoverStage.STOPPING])
def test_nobody_is_told_to_undo_a_cutover_that_may_still_run(stage: CutoverStage) -> None:
    # On a cluster without named locks, a running command is not seen.
    state = CutoverState(Cutover(began_at=1.0, stage=stage), "db:3306", Path("t.yaml"))
    assert state.needs_operator
    assert state.todo.startswith("If no cutover command runs any more on any machine, ")
    assert state.todo.endswith("or give it up: pidts cutover t.yaml --undo")


def test_the_advised_command_names_a_path_with_a_space() -> None:
    state = CutoverState(Cutover(began_at=1.0), "db:3306", Path("my tasks/t.yaml"))
    assert shlex.split(state.todo.partition("pidts ")[2])[1] == "my tasks/t.yaml"
