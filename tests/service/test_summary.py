"""The line of a task in the overview says why an operator is needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pidts.service.summary import detail, summary


def a_task(**progress: Any) -> Any:
    return SimpleNamespace(
        name="t",
        folder=SimpleNamespace(task_file=Path("/srv/t.yaml")),
        progress=progress,
        is_alive=True,
        wanted=SimpleNamespace(wish="running"),
        ended=None,
        next_start=None,
        stage="sync",
        since=1.0,
        process=7,
        restarts=0,
        facts={},
        waits_for_program=False,
    )


@pytest.mark.parametrize(
    ("progress", "message"),
    [
        ({"locked_rows": 2}, "2 locked rows wait for a decision (pidts locks list /srv/t.yaml)"),
        ({"locked_rows": 2, "message": "the source is away"}, "the source is away"),
        ({"locked_rows": 0}, ""),
        ({"halted": [{}]}, "halted tables: 1 (pidts ddl list /srv/t.yaml)"),
        (
            {"halted": [{}, {}], "locked_rows": 2},
            (
                "halted tables: 2 (pidts ddl list /srv/t.yaml); 2 locked rows wait for a decision (pidts locks list "
                "/srv/t.yaml)"
            ),
        ),
    ],
)
def test_waiting_tables_are_named(progress: dict[str, Any], message: str) -> None:
    assert summary(a_task(**progress), 0.0)["message"] == message


def test_the_advice_of_an_error_names_the_task_file() -> None:
    cause = {"code": "x", "what": "y", "todo": "Look: pidts check TASK"}
    assert summary(a_task(cause=cause), 0.0)["error"] == {**cause, "todo": "Look: pidts check /srv/t.yaml"}


def test_the_advice_about_halted_tables_names_the_task_file() -> None:
    halts = [{"tables": ["shop.t"], "todo": "Copy it: pidts run TASK --resync shop.t"}, {"tables": []}]
    found = detail(a_task(halted=halts), 0.0)["progress"]["halted"]
    assert [one["todo"] for one in found] == ["Copy it: pidts run /srv/t.yaml --resync shop.t", ""]
