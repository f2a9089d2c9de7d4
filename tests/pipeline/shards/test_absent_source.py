"""A change that waits for a source that has not begun is reported once, waits until the source begins, and ends with the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pidts.ddl import ddl_threads

from .step_by_step import TWO, MakeStory, Story, stories
from .test_ddl_commands import codes

A = "one: shard_1.t_1"


@pytest.fixture
def story() -> Iterator[MakeStory]:
    with stories(presumes=True) as make_story:
        yield make_story


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns a list to which each attempt to make a schema change adds its statement."""
    made: list[str] = []
    run_ddl = ddl_threads.run_ddl

    def counted(*args: Any, **more: Any) -> Any:
        made.append(args[0].entry.transaction.ddl)
        assert len(made) < 50, "it is tried over and over"
        return run_ddl(*args, **more)

    monkeypatch.setattr(ddl_threads, "run_ddl", counted)
    return made


def passing(task: Story, rounds: int) -> None:
    for _ in range(rounds):
        task.scheduler.round()


@pytest.mark.parametrize("text", ["TRUNCATE TABLE shard_1.t_1", "DROP TABLE shard_1.t_1", "DROP DATABASE shard_1"])
def test_statements_that_would_remove_rows_of_an_unknown_group_wait_and_are_reported(
    story: MakeStory, tries: list[str], text: str
) -> None:
    task = story(TWO, mode="optimistic")
    task.write(times=2)
    task.finish()
    task.down.add("two")
    task.start()
    passing(task, 30)
    task[A].source.say(text)
    passing(task, 60)
    knows_all = text.startswith("DROP DATABASE")
    assert (codes(task), task.waiting()) == (({}, []) if knows_all else ({A: "shard-awaits"}, [A]))
    assert tries == [text]
    task.down.clear()
    passing(task, 60)
    assert (codes(task), task.waiting()) == ({}, [])
    assert len(tries) <= 3
