"""The advice of `pidts cutover --reverse`, if no task can carry rows back, fits the kind of the target."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidts.model import Cutover, CutoverStage, PrecheckFailed
from pidts.task.config.task_file import load_task
from pidts.task.cutover.reverse import reverse_task

TASK = """\
name: shop
task-mode: all
target-database: {{type: {kind}, host: h, user: u{database}}}
mysql-instances: [{{source-id: a, from: {{host: h, user: u}}, block-allow-list: all}}]
block-allow-list: {{all: {{do-dbs: [shop]}}}}
"""
ZONES = """\
name: shop
task-mode: all
pidts: {zones: {servers: {a: {host: h, user: u}, b: {host: i, user: u}}}}
block-allow-list: {all: {do-dbs: [shop]}}
"""


@pytest.mark.parametrize(
    ("kind", "database", "says"),
    [
        ("postgresql", ", database: shop", "No task can do this: PiDTS reads no changes from postgres"),
        ("mysql", "", "Write a task file for the way back by hand"),
    ],
)
def test_only_a_target_that_can_be_a_source_gets_a_task_file(
    tmp_path: Path, kind: str, database: str, says: str
) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(TASK.format(kind=kind, database=database))
    with pytest.raises(PrecheckFailed) as refused:
        reverse_task([load_task(path)], Cutover(stage=CutoverStage.DONE), ())
    assert refused.value.code == "not-reversible"
    assert refused.value.todo.startswith(says)


def test_between_zones_the_other_direction_carries_the_changes(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(ZONES)
    config = load_task(tmp_path / "shop.yaml@a-b")
    with pytest.raises(PrecheckFailed) as refused:
        reverse_task([config], Cutover(stage=CutoverStage.DONE, position="bin.000001:4"), ())
    assert refused.value.code == "not-reversible"
    assert "another task carries the changes of the target's zone" in refused.value.what
