"""`pidts plan` says what happens to rows that differ, that comparing slows the task, and which tables are not compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidts.model import OnDivergence, TableName
from pidts.task.checks.divergence_note import divergence_note
from pidts.task.checks.preview import FirstRunAction, TablePreview
from pidts.task.config.task_file import TaskConfig, load_task

TASK = """
name: t
task-mode: all
target-database: {{type: mysql, host: 127.0.0.1, port: 9, user: root}}
mysql-instances: [{{source-id: s, from: {{host: 127.0.0.1, port: 9, user: root}}}}]
pidts: {{{own}}}
"""


def task(folder: Path, own: str) -> TaskConfig:
    path = folder / "t.yaml"
    path.write_text(TASK.format(own=own))
    return load_task(path, {})


def preview(name: str, key: tuple[str, ...]) -> TablePreview:
    table = TableName("shop", name)
    return TablePreview(
        source=table, target=table, rules=(), way=FirstRunAction.USE, key=key, columns=(), statements=(), finish=(), notes=(),
        problems=(), size=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("own", "policy"),
    [
        ("", OnDivergence.OVERWRITE),
        ("zone: 1", OnDivergence.LOCK),
        ("zone: 1, on-divergence: warn", OnDivergence.WARN),
        ("on-divergence: halt", OnDivergence.HALT),
    ],
)
def test_the_note_says_which_setting_holds_and_what_it_costs(own: str, policy: OnDivergence, tmp_path: Path) -> None:
    config = task(tmp_path, own)
    assert config.on_divergence is policy
    said = divergence_note([config], {"s": [preview("a", ("id",)), preview("b", ())]})
    assert said.startswith(f"on-divergence: {policy}: ")
    if policy is OnDivergence.OVERWRITE:
        assert "rows are not compared" in said
    else:
        assert "so fewer rows a second are applied" in said
        assert "no key: shop.b" in said
